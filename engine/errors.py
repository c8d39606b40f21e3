"""The one exception that is written for the person at the window."""


class EngineError(Exception):
    """What a person reads when a request can't be met: a sentence of cause and one of cure.

    `kind` says whose turn it is: "request" (data, setting, model), "memory", "disk", "died"
    (the engine's process ended by itself), "unknown" (nothing can be predicted) or "internal" (our fault).
    `details`, such as a traceback, are for whoever mends it.
    """

    def __init__(self, message: str, hint: str, kind: str = "request", details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = kind
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"
