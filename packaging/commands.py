"""Other programs that the build runs: each is shown before it runs, and a failure is told in a sentence."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from engine.errors import EngineError


class Run(Protocol):
    """Runs or shows a command with `env` added to the environment: what it printed, or None where it was only shown."""

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> str | None: ...


def run(*argv: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Shows a command and runs it: its standard output, which is printed line by line as it comes.

    EngineError where it can't be started or fails.
    """
    show(*argv, env=env)
    lines = []
    try:
        with subprocess.Popen(argv, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
    except OSError as error:
        raise EngineError(
            f"{argv[0]} could not be started: {error.strerror or error}.",
            "Install what packaging/README.md names, then build again.",
        ) from error
    if child.returncode:
        raise EngineError(
            f"{shlex.join(map(str, argv[:3]))} … failed with status {child.returncode}.",
            "What it says above tells why.",
        )
    return "".join(lines)


def show(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Prints a command as a shell would take it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    print("$", *variables, shlex.join(map(str, argv)), flush=True)
