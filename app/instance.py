"""One Tunesmith for a home: a second start brings the first one forward, hands over what to open, and ends."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from engine.errors import EngineError
from engine.runs import home_folder

log = logging.getLogger(__name__)

# The system allows 104 bytes on macOS, 108 on Linux; Qt binds under a longer name first.
_LONGEST_PATH = 90
_HEARD = b"heard\n"
# The first one may still be on its way to its window.
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.05


class Instance(QObject):
    """This start's place among those of the same home. `is_first` says whether the window is ours to open.

    Signals:
        asked(list): another start, with the paths it was given; often none.
    """

    asked = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = _take_lock(home_folder() / "window.lock")
        self.is_first = self._lock is not None
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._answer)
        if self.is_first:
            name = str(_socket_path())
            QLocalServer.removeServer(name)  # of one that crashed
            if not self._server.listen(name):
                log.warning("a second start can't reach this one: %s", self._server.errorString())

    def close(self) -> None:
        """From now on another start is the first."""
        self._server.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _answer(self) -> None:
        while socket := self._server.nextPendingConnection():
            socket.readyRead.connect(self._read)
            socket.disconnected.connect(socket.deleteLater)

    def _read(self) -> None:
        socket = self.sender()
        if isinstance(socket, QLocalSocket) and socket.canReadLine():
            paths = [Path(name) for name in json.loads(bytes(socket.readLine().data()))]
            socket.write(_HEARD)
            socket.flush()  # now: the other one waits, and opening may take a while
            socket.disconnectFromServer()
            self.asked.emit(paths)


def hand_over(paths: Sequence[Path]) -> None:
    """Asks the first start to come forward and to open `paths`. EngineError where it doesn't answer."""
    socket, end = QLocalSocket(), time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        if _is_ours(_socket_path()):
            socket.connectToServer(str(_socket_path()))
            if socket.waitForConnected():
                break
        time.sleep(_LOOK_SECONDS)
    socket.write(json.dumps([str(path.absolute()) for path in paths]).encode() + b"\n")
    heard = b""
    while heard != _HEARD and socket.waitForReadyRead(max(1, round(1000 * (end - time.monotonic())))):
        heard += socket.readAll().data()
    if heard != _HEARD:
        raise EngineError(
            "Tunesmith is open already, and does not answer.",
            "Look for its window; if there is none, end Tunesmith with the system's activity monitor and start again.",
            "internal",
        )


def _socket_path() -> Path:
    """In the home folder, where nothing is tidied away; under a short name elsewhere where that is too deep."""
    path = home_folder().absolute() / "window.socket"
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tunesmith-{digest}"


def _is_ours(socket: Path) -> bool:
    """Whether it is there and belongs to this person: in a shared folder anybody may put one."""
    try:
        return socket.stat().st_uid == os.getuid()
    except OSError:
        return False


def _take_lock(path: Path) -> int | None:
    """An open file whose lock the system releases when this process ends, however; None where another one has it.

    Where the disk refuses nothing is locked: that must not keep the window shut.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("a second start can't be told from the first: %s", error)
        return os.open(os.devnull, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError as error:
        log.warning("a second start can't be told from the first: %s", error)
    return file
