"""The window: the sidebar, the pages, the bar at the bottom, and what belongs to none of them."""

from __future__ import annotations

import logging
from pathlib import Path

from PySide6.QtCore import QSettings, QSize, Qt
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
)
from PySide6.QtWidgets import (
    QFileDialog,
    QMainWindow,
    QMessageBox,
    QSplitter,
    QStackedWidget,
    QToolBar,
    QWidget,
)

from app import focus, viewing, words
from app.bar import BottomBar
from app.help import Help
from app.menus import Menus
from app.pages.data import DataPage
from app.pages.page import Page
from app.pages.talk import TalkPage
from app.pages.training import TrainingPage
from app.session import Session
from app.sidebar import Sidebar
from app.states import State
from app.theme import theme
from app.training import Phase
from app.widgets.basics import column, label, row
from app.widgets.dropveil import DropVeil
from app.widgets.notice import Notice
from app.widgets.segmented import Segmented
from engine import runs
from engine.errors import EngineError
from engine.events import Failed, Warned

log = logging.getLogger(__name__)

_FILES = "Data (*.jsonl *.ndjson *.json *.csv *.tsv *.parquet *.txt *.md *.markdown);;All files (*)"


class MainWindow(QMainWindow):
    """One window for the whole work. It passes wishes on and holds no state of the work itself."""

    def __init__(self, settings: QSettings) -> None:
        super().__init__()
        self._settings = settings
        theme().prefer(_scheme(settings.value("appearance")))
        self.session = Session(settings, self)
        self.sidebar = Sidebar(self.session)
        self.data_page = DataPage(self.session)
        self.training_page = TrainingPage(self.session)
        self.talk_page = TalkPage(self.session)
        self.pages: list[Page] = [self.data_page, self.training_page, self.talk_page]
        self.tabs = Segmented("Pages", [page.title for page in self.pages])
        self.bar = BottomBar(self.session)
        self.help = Help(self)
        self._closing = False
        self._build()
        self.menus = Menus(self)
        self._connect()
        self._restore()
        self.setAcceptDrops(True)
        self.session.open()
        self._show_title()

    # -- what a person does

    def choose_data(self) -> None:
        """Asks for a data file."""
        start = str(Path(self.session.config.data).parent) if self.session.config.data else ""
        name, _ = QFileDialog.getOpenFileName(self, "Open data", start, _FILES)
        if name:
            self.open_data(Path(name))

    def choose_folder(self) -> None:
        """Asks for a folder of data."""
        start = str(Path(self.session.config.data).parent) if self.session.config.data else ""
        if name := QFileDialog.getExistingDirectory(self, "Open a folder of data", start):
            self.open_data(Path(name))

    def open_data(self, path: Path) -> None:
        """Chooses a data file, or a folder with a model or a run, and shows what it holds."""
        if runs.is_run(path):
            self._open_run(path)
            return
        self.session.open_data(path)
        self.show_page(0)

    def come_forward(self, paths: list[Path]) -> None:
        """Another start asks for the window, and to open these."""
        log.info("asked to come forward with %s", [str(path) for path in paths])
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        for path in paths:
            self.open_data(path)

    def try_sample(self) -> None:
        self.session.try_sample()
        self.show_page(0)

    def start(self) -> None:
        """Starts, as the button does."""
        self.bar.start.click()

    def show_page(self, index: int) -> None:
        self.tabs.show_choice(index)
        self.stack.setCurrentIndex(index)

    def prefer_scheme(self, scheme: Qt.ColorScheme) -> None:
        """Light, dark, or as the system."""
        self._settings.setValue("appearance", scheme.name)
        theme().prefer(scheme)

    def toggle_full_screen(self) -> None:
        self.setWindowState(self.windowState() ^ Qt.WindowState.WindowFullScreen)
        full = bool(self.windowState() & Qt.WindowState.WindowFullScreen)
        self.menus.full.setText("Exit Full Screen" if full else "Enter Full Screen")

    def run_folder(self) -> Path | None:
        """The folder of the run under way or the last one, or of all runs; None where there is none."""
        started = self.session.training.history.started
        folder = Path(started.run) if started else runs.runs_folder()
        return folder if folder.is_dir() else None

    def reveal_run(self) -> None:
        if folder := self.run_folder():
            try:
                viewing.show(folder)
            except EngineError as error:
                self._refuse(error)

    def show_mistake(self, failure: Failed) -> None:
        """Shows an error of our own on the page in sight."""
        self._page().notices.show_notice(self.help.mistake(failure), "mistake")

    def tell_crash(self, trace: str) -> None:
        """Tells of a crash that ended the last start."""
        self._page().notices.show_notice(self.help.crash(trace), "crash")

    # -- Qt's own events

    def focusNextPrevChild(self, next: bool) -> bool:
        return focus.move(self, forward=next)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event):
            event.acceptProposedAction()
            self.veil.cover(self)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.veil.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.veil.hide()
        path = _dropped(event)
        if path:
            event.acceptProposedAction()
            self.open_data(path)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self.session.training.phase.active and not self._may_close():
            event.ignore()
            return
        self._settings.setValue("geometry", self.saveGeometry())
        self._settings.setValue("splitter", self.splitter.saveState())
        self._settings.setValue("charts", self.training_page.splitter.saveState())
        self.session.close()
        self.data_page.close_call()
        self.talk_page.close_talk()
        self._settings.sync()
        event.accept()

    # -- inside

    def _page(self) -> Page:
        return self.pages[self.stack.currentIndex()]

    def _open_run(self, folder: Path) -> None:
        if self.session.open_run(folder):
            trained = (folder / "adapter").is_dir()
            if trained:
                self.talk_page.offer(folder / "adapter")
            self.show_page(2 if trained else 0)

    def _may_close(self) -> bool:
        """Asks what becomes of the run. It is never just ended: stopping saves first, and closes later."""
        if self._closing:
            return False  # it is stopping already; the window goes when the run has ended
        question = QMessageBox(
            QMessageBox.Icon.NoIcon,
            "Training is under way",
            "Training is under way. What shall become of it?",
            parent=self,
        )
        question.setInformativeText("Stop and save keeps what was learned up to the present step.")
        keep = question.addButton("Keep training", QMessageBox.ButtonRole.AcceptRole)
        stop = question.addButton("Stop and save", QMessageBox.ButtonRole.DestructiveRole)
        question.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
        question.setDefaultButton(keep)
        question.exec()
        if not self.session.training.phase.active:
            return True  # it ended while the question stood there
        if question.clickedButton() is keep:
            self.showMinimized()
        elif question.clickedButton() is stop:
            self._closing = True
            self.session.training.ended.connect(self.close)
            self.session.training.stop()
        return False

    def _build(self) -> None:
        self.stack = QStackedWidget()
        for page in self.pages:
            self.stack.addWidget(page)
        self.splitter = QSplitter()
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(1)
        self.splitter.addWidget(self.sidebar)
        self.splitter.addWidget(self.stack)
        self.splitter.setStretchFactor(1, 1)
        self.splitter.setSizes([320, 960])
        central = QWidget()
        layout = column(self.splitter, self.bar, spacing=0)
        layout.setStretch(0, 1)
        central.setLayout(layout)
        self.setCentralWidget(central)
        self.veil = DropVeil(self)
        self._document = label(bold=True)
        self._subtitle = label(size=11, secondary=True)
        toolbar = QToolBar("Pages", movable=False, floatable=False)
        toolbar.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        head = QWidget()
        head.setLayout(row(column(self._document, self._subtitle, spacing=0), None, self.tabs))
        toolbar.addWidget(head)
        self.addToolBar(toolbar)
        self.setUnifiedTitleAndToolBarOnMac(True)
        self.setMinimumSize(QSize(1000, 640))

    def _connect(self) -> None:
        session = self.session
        self.tabs.chosen.connect(self.stack.setCurrentIndex)
        self.sidebar.dataset.open_requested.connect(self.choose_data)
        self.data_page.open_requested.connect(self.choose_data)
        self.data_page.folder_requested.connect(self.choose_folder)
        self.training_page.try_requested.connect(lambda: self.show_page(2))
        self.training_page.reveal_requested.connect(self.reveal_run)
        session.refused.connect(self._refuse)
        self.help.refused.connect(self._refuse)
        session.changed.connect(self._show_title)
        session.training.changed.connect(self._training_changed)
        session.training.warned.connect(self._warn)
        session.training.ended.connect(self._end_warning)

    def _training_changed(self) -> None:
        training = self.session.training
        if training.phase is Phase.PREPARING and training.stage is None:
            self.show_page(1)

    def _warn(self, event: Warned) -> None:
        """Shows what training warns of where the person is; it replaces the warning before."""
        self._end_warning()
        notice = Notice(event.message, event.hint, state=State.NEEDS_YOU)
        self._page().notices.show_notice(notice, "warning")

    def _end_warning(self) -> None:
        for page in self.pages:
            page.notices.clear("warning")

    def _refuse(self, error: EngineError) -> None:
        log.warning("refused: %s", error)
        self._page().notices.show_failure(error, subject="refused")

    def _show_title(self) -> None:
        config = self.session.config
        name = Path(config.data).stem if config.data else ""
        self.setWindowTitle(f"Tunesmith - {name}" if name else "Tunesmith")
        self._document.setText(words.shortened(name, 40) or "Tunesmith")
        model = self.session.shelf.named(config.model)
        self._subtitle.setText(model.title if model and name else "")
        self._subtitle.setVisible(bool(self._subtitle.text()))

    def _restore(self) -> None:
        self.resize(1280, 800)
        for name, restore in (
            ("geometry", self.restoreGeometry),
            ("splitter", self.splitter.restoreState),
            ("charts", self.training_page.splitter.restoreState),
        ):
            if (stored := self._settings.value(name)) is not None:
                restore(stored)


def _dropped(event: QDropEvent) -> Path | None:
    """The first file of a drag, if it carries one."""
    urls = [url for url in event.mimeData().urls() if url.isLocalFile()]
    return Path(urls[0].toLocalFile()) if urls else None


def _scheme(stored: object) -> Qt.ColorScheme:
    names = {scheme.name: scheme for scheme in Qt.ColorScheme}
    return names.get(str(stored), Qt.ColorScheme.Unknown)
