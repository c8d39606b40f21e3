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
    """Shows a command and runs it: its standard output. EngineError where it can't be started or fails."""
    show(*argv, env=env)
    try:
        done = subprocess.run(argv, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise EngineError(
            f"{argv[0]} could not be started: {error.strerror or error}.",
            "Install what packaging/README.md names, then build again.",
        ) from error
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise EngineError(
            f"{shlex.join(map(str, argv[:3]))} … failed with status {done.returncode}.",
            "What it says above tells why.",
        )
    return done.stdout


def show(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Prints a command as a shell would take it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    print("$", *variables, shlex.join(map(str, argv)), flush=True)
