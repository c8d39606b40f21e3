"""A run from Start to its end: the thread that pulls its events and the state the window shows."""

from __future__ import annotations

import logging
import threading
import traceback
from enum import Enum, auto

from PySide6.QtCore import QObject, QThread, Signal

from app.history import History
from engine import isolated
from engine.config import TrainConfig
from engine.errors import EngineError
from engine.events import Evaluated, Event, Failed, Finished, Saved, Stage, Started, Step, Warned

log = logging.getLogger(__name__)


class TrainingThread(QThread):
    """Pulls the events of one run; the work itself is done in a child process.

    Signals:
        happened(Event): one for each event, in order; the last is Finished or Failed.
    """

    happened = Signal(object)

    def __init__(self, config: TrainConfig, parent: QObject) -> None:
        super().__init__(parent)
        self._config = config
        self._stop = threading.Event()

    def stop(self) -> None:
        """Asks the run to finish its step, save and end."""
        self._stop.set()

    def run(self) -> None:
        try:
            for event in isolated.train(self._config, self._stop.is_set):
                self.happened.emit(event)
        except EngineError as error:
            self.happened.emit(Failed.of(error))
        except Exception:
            log.exception("the training thread failed")
            self.happened.emit(
                Failed(
                    "internal",
                    "Training ended because of a mistake in Tunesmith.",
                    "Start again; the details below help us mend it.",
                    traceback.format_exc(),
                )
            )


class Phase(Enum):
    """Where a run is."""

    IDLE = auto()
    PREPARING = auto()
    RUNNING = auto()
    STOPPING = auto()

    @property
    def active(self) -> bool:
        return self is not Phase.IDLE


class Training(QObject):
    """The run under way, or the last one.

    Signals:
        changed(): the phase, the stage's message or the outcome is another now.
        advanced(): a step or a measurement was added to `history`; may come hundreds of times a second.
        warned(Warned): the run goes on, but a person should know something.
        finished(Finished): the run ended well.
        failed(Failed): it did not.
        ended(): after either; the thread is gone and another run may start.
    """

    changed = Signal()
    advanced = Signal()
    warned = Signal(Warned)
    finished = Signal(Finished)
    failed = Signal(Failed)
    ended = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.phase = Phase.IDLE
        self.history = History()
        self.stage: Stage | None = None
        self.saved: Saved | None = None
        self.config = TrainConfig()
        self._thread: TrainingThread | None = None

    def start(self, config: TrainConfig) -> None:
        """Begins a run; the previous one's history is let go."""
        if self.phase.active:
            return
        log.info("training starts: %s", config.to_mapping())
        self.config, self.history, self.stage, self.saved = config, History(), None, None
        self.phase = Phase.PREPARING
        self._thread = TrainingThread(config, self)
        self._thread.happened.connect(self._take)
        self._thread.finished.connect(self._end)
        self._thread.start()
        self.changed.emit()

    def stop(self) -> None:
        """Ends the run after its current step, saved."""
        if self._thread and self.phase.active:
            self._thread.stop()
            self.phase = Phase.STOPPING
            self.changed.emit()

    def _take(self, event: Event) -> None:
        match event:
            case Step():
                self.history.add(event)
                self.stage = None
                self.advanced.emit()
            case Evaluated():
                self.history.measure(event)
                self.advanced.emit()
            case Stage():
                self.stage = event
                self.changed.emit()
            case Saved():
                self.saved = event
            case Started():
                self.history.begin(event)
                self.stage = None
                if self.phase is Phase.PREPARING:
                    self.phase = Phase.RUNNING
                self.changed.emit()
            case Warned():
                log.warning("training warns: %s %s", event.message, event.hint)
                self.warned.emit(event)
            case Finished():
                log.info("training ended: %s", event)
                self.history.end(event)
                self.finished.emit(event)
            case Failed():
                log.error("training failed: %s %s\n%s", event.message, event.hint, event.details)
                self.failed.emit(event)

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread:
            thread.deleteLater()
        self.phase, self.stage = Phase.IDLE, None
        self.changed.emit()
        self.ended.emit()
