"""`python -m app.demo`: the sample through the real window, from first answer to last, without a hand.

With a display the window stays open at the end; without one it is drawn offscreen and closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer

from app import places, words
from app.answering import same_answer
from app.driving import DrivingError, close, wait
from app.main import open_window
from app.pages.exchange import Exchange
from app.pages.talk import held_out
from app.window import MainWindow
from engine.events import Failed, Finished

_QUESTIONS = 3
_DRAW_MS = 300
# Terminal lines when there is no terminal to rewrite one on.
_SPARSE = 10


class Progress:
    """One line of progress: rewritten on a terminal, told sparsely in a log."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._told = ""
        self._share = -1

    def tell(self, text: str, share: int | None = None) -> None:
        """Shows `text`; `share`, in percent, thins what goes into a log."""
        if text == self._told:
            return
        if self._terminal:
            print(f"\r\033[K{words.shortened(text, 100)}", end="", flush=True)
        elif share is None or share // _SPARSE != self._share // _SPARSE:
            print(text, flush=True)
        self._told, self._share = text, -1 if share is None else share

    def end(self) -> None:
        """Leaves the line standing."""
        if self._terminal and self._told:
            print(flush=True)
        self._told = ""


class Demo:
    """Drives the window as a person would, and tells the terminal what happens."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._session = window.session
        self._progress = Progress()
        self._outcome: Finished | Failed | None = None
        self._pictures: list[Path] = []
        window.session.training.finished.connect(self._end)
        window.session.training.failed.connect(self._end)

    def run(self) -> None:
        """The whole demo; DrivingError with a sentence when something fails."""
        self._load_sample()
        self._window.show_page(2)
        before = self._ask("before")
        finished = self._train()
        self._window.show_page(2)
        after = self._ask("after")
        self._take_picture(Path(finished.run) / "after.png")
        self._report(before, after, finished)

    def _load_sample(self) -> None:
        self._progress.tell("Looking for the sample model")
        self._wait(lambda: self._session.shelf.listed)
        self._window.data_page.welcome.sample.click()

        def ready() -> bool:
            stage = self._session.shelf.fetching
            self._progress.tell(stage.message if stage else "Checking the sample's data")
            return self._session.blocker() is None

        self._wait(ready)

    def _ask(self, when: str) -> list[Exchange]:
        page = self._window.talk_page
        exchanges = []
        for number, (prompt, expected) in enumerate(held_out()[:_QUESTIONS], start=1):
            self._progress.tell(f"Asking {when} training, question {number} of {_QUESTIONS}")
            exchange = page.ask(prompt, expected)
            if exchange is None:
                raise DrivingError("The model could not be asked.")
            exchanges.append(exchange)
            self._wait(lambda: not page.talk.busy)
        return exchanges

    def _train(self) -> Finished:
        training = self._session.training
        self._window.bar.start.click()
        self._wait(lambda: self._tell_training() >= 50 or self._outcome is not None)
        if training.history.started and training.history.last:
            self._take_picture(Path(training.history.started.run) / "during.png")
        self._wait(lambda: bool(self._tell_training()) and not training.phase.active)
        if not isinstance(self._outcome, Finished):
            raise DrivingError("Training ended without a word.")
        return self._outcome

    def _tell_training(self) -> int:
        """Tells how far training is, and returns it in percent."""
        training = self._session.training
        last, left = training.history.last, training.history.seconds_left
        if last is None:
            self._progress.tell(training.stage.message if training.stage else "Getting ready to train")
            return 0
        share = 100 * last.step // max(1, last.steps)
        time = f", {words.duration(left)} left" if left else ""
        text = f"Training: step {last.step} of {last.steps}, loss {words.loss(last.loss)}{time}"
        self._progress.tell(text, share)
        return max(1, share)

    def _take_picture(self, path: Path) -> None:
        self._let_draw()
        if self._window.grab().save(str(path), "PNG"):
            self._pictures.append(path)

    def _report(self, before: list[Exchange], after: list[Exchange], finished: Finished) -> None:
        self._progress.end()
        for first, second in zip(before, after, strict=True):
            print(f"\nPrompt    {first.prompt}\nExpected  {first.expected}")
            for name, text in (("Before", first.texts[False]), ("After", second.texts[True])):
                verdict = "right" if same_answer(text, first.expected) else "wrong"
                print(f"{name:<9} {words.shortened(text, 200)}   [{verdict}]")
        print(f"\nLoss {words.loss(finished.first_loss)} -> {words.loss(finished.last_loss)}")
        print(f"Run      {finished.run}")
        print(f"Adapter  {finished.adapter}")
        for picture in self._pictures:
            print(f"Picture  {picture}")
        sys.stdout.flush()

    def _end(self, event: Finished | Failed) -> None:
        self._outcome = event

    def _wait(self, done: Callable[[], bool]) -> None:
        wait(self._window, done)

    def _let_draw(self) -> None:
        loop = QEventLoop()
        QTimer.singleShot(_DRAW_MS, loop.quit)
        loop.exec()


def main() -> int:
    """Runs the demo; the exit status."""
    on_screen = _has_display()
    if not on_screen:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    app, window = open_window()
    if not on_screen:
        window.resize(1280, 800)
    if not places.SAMPLE_DATA.is_file():
        print("The sample data is missing from this copy of Tunesmith.", file=sys.stderr)
        return 1
    demo = Demo(window)
    try:
        demo.run()
    except DrivingError as failure:
        print(f"\n{failure}", file=sys.stderr)
        close(app, window)
        return 1
    if on_screen:
        return int(app.exec())
    close(app, window)
    return 0


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    chosen = os.environ.get("QT_QPA_PLATFORM", "")
    return chosen != "offscreen" and any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


if __name__ == "__main__":
    sys.exit(main())
