"""What a run asks of macOS: that the Mac stays awake, and that the GPU may work for long."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

log = logging.getLogger(__name__)

_CAFFEINATE = "/usr/bin/caffeinate"


def stay_undisturbed() -> None:
    """On a Mac, before MLX is loaded: while this process lives the system does not fall asleep. The display may.

    And macOS 26, which ends what keeps the GPU busy while a display is on, is asked for patience
    (https://github.com/ml-explore/mlx/issues/3267).
    """
    if sys.platform == "darwin":
        os.environ.setdefault("AGX_RELAX_CDM_CTXSTORE_TIMEOUT", "1")
        _keep_awake()


def _keep_awake() -> None:
    nowhere = subprocess.DEVNULL  # who reads what we print waits until all who could write have gone
    argv = [_CAFFEINATE, "-i", "-w", str(os.getpid())]
    try:
        subprocess.Popen(argv, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    except OSError as error:
        log.warning("the Mac may fall asleep meanwhile: %s", error)
