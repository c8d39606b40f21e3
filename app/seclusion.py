"""A program on its own, as the self-test needs it: a new home, no network, and all that it complains of kept."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# As a person's folder may well be called.
_HOME = "Tunesmith für mich "
# Nobody listens on the port called discard.
_NOWHERE = "http://127.0.0.1:9"
_LOCAL = ("", "localhost", "127.0.0.1", "::1")


@contextmanager
def new_home() -> Iterator[Path]:
    """A home folder that is gone afterwards; models, runs, settings and log of this process and its children go there.

    So does what Hugging Face's library keeps: the models that a person has are none of the test's business.
    """
    with tempfile.TemporaryDirectory(prefix=_HOME) as name:
        home = Path(name)
        runtime = home / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["TUNESMITH_HOME"] = name
        os.environ["HF_HOME"] = str(home / "huggingface")
        # Qt warns of a session without these.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        if not os.environ.get("LC_ALL") and not os.environ.get("LANG"):
            os.environ["LANG"] = "C.UTF-8"
        yield home


def refuse_network() -> None:
    """From here on this process reaches this machine only, and says so when it tries more; children's proxy is nobody.

    There is no way back: Python keeps such a hook until the process ends.
    """
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = _NOWHERE
    sys.addaudithook(_refuse_others)


def _refuse_others(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host is not None and host not in _LOCAL:
        logging.getLogger(__name__).error("the network was asked for %s", host)
        raise PermissionError(f"There is no network in a self-test, so {host} can't be reached.")


@contextmanager
def kept_stderr() -> Iterator[list[str]]:
    """The lines that reach standard error meanwhile, warnings of every log among them: filled in at the end.

    They are those of this process and of the children that share its standard error. A crash is told at once.
    """
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        terminal = os.dup(2)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(terminal)
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.WARNING)
        logging.getLogger().addHandler(handler)
        try:
            yield lines
        finally:
            logging.getLogger().removeHandler(handler)
            sys.stderr.flush()
            os.dup2(terminal, 2)
            faulthandler.enable(2)
            os.close(terminal)
            file.seek(0)
            lines += file.read().decode("utf-8", errors="replace").splitlines()
