"""The menu bar: each action with its name, its keys and its place, as macOS expects them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu

from app.theme import theme

if TYPE_CHECKING:
    from app.window import MainWindow


class Menus(QObject):
    """Builds the menus of a window and keeps their actions up to date."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._session = window.session
        bar = window.menuBar()
        self._build_file(bar.addMenu("&File"))
        self._build_train(bar.addMenu("&Train"))
        self._build_view(bar.addMenu("&View"))
        self._build_help(bar.addMenu("&Help"))
        self._session.recent_changed.connect(self._fill_recent)
        self._session.changed.connect(self.refresh)
        self._fill_recent()
        self.refresh()

    def refresh(self) -> None:
        """Turns off what can't be done now."""
        self.start.setEnabled(self._session.blocker() is None)
        self.stop.setEnabled(self._session.training.phase.active)
        self.close_data.setEnabled(bool(self._session.config.data))
        self.reveal.setEnabled(self._window.run_folder() is not None)

    def _build_file(self, menu: QMenu) -> None:
        window, standard = self._window, QKeySequence.StandardKey
        self.open = self._add(menu, "Open Data…", window.choose_data, standard.Open)
        self.open_folder = self._add(menu, "Open Folder…", window.choose_folder, "Ctrl+Shift+O")
        self.recent = menu.addMenu("Open Recent")
        self.sample = self._add(menu, "Try the Sample", window.try_sample)
        menu.addSeparator()
        self.reveal = self._add(menu, "Show Run Folder", window.reveal_run)
        self.close_data = self._add(menu, "Close Data", self._session.close_data)
        menu.addSeparator()
        self.close = self._add(menu, "Close Window", window.close, standard.Close)
        self.quit = self._add(menu, "Quit Tunesmith", window.close, standard.Quit)
        self.quit.setMenuRole(QAction.MenuRole.QuitRole)

    def _build_train(self, menu: QMenu) -> None:
        self.start = self._add(menu, "Start", self._window.start, "Ctrl+R")
        self.stop = self._add(menu, "Stop", self._session.training.stop, "Ctrl+.")

    def _build_view(self, menu: QMenu) -> None:
        window = self._window
        for index, page in enumerate(window.pages):
            self._add(menu, page.title, partial(window.show_page, index), f"Ctrl+Shift+{index + 1}")
        menu.addSeparator()
        for index, panel in enumerate(window.sidebar.panels):
            self._add(menu, panel.title, partial(window.sidebar.show_panel, index), f"Ctrl+{index + 1}")
        menu.addSeparator()
        appearance = menu.addMenu("Appearance")
        group = QActionGroup(self)
        scheme = Qt.ColorScheme
        for name, choice in (
            ("As the System", scheme.Unknown),
            ("Light", scheme.Light),
            ("Dark", scheme.Dark),
        ):
            action = self._add(appearance, name, partial(window.prefer_scheme, choice))
            action.setCheckable(True)
            action.setChecked(theme().preference == choice)
            group.addAction(action)
        self.full = self._add(menu, "Enter Full Screen", window.toggle_full_screen, QKeySequence.StandardKey.FullScreen)

    def _build_help(self, menu: QMenu) -> None:
        help = self._window.help
        self._add(menu, "Show Log", help.show_log)
        self._add(menu, "Save Report…", help.ask_for_report)
        self.about = self._add(menu, "About Tunesmith", help.show_about)
        self.about.setMenuRole(QAction.MenuRole.AboutRole)

    def _add(
        self,
        menu: QMenu,
        name: str,
        act: Callable[[], object],
        keys: QKeySequence.StandardKey | str | None = None,
    ) -> QAction:
        action = QAction(name, self)
        # Without a role macOS guesses one from the name, and moves what begins with "Setup" or "Options".
        action.setMenuRole(QAction.MenuRole.NoRole)
        if keys is not None:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(lambda: act())
        menu.addAction(action)
        return action

    def _fill_recent(self) -> None:
        self.recent.clear()
        recent: list[Path] = self._session.recent
        for path in recent:
            self.recent.addAction(path.name, partial(self._window.open_data, path)).setToolTip(str(path))
        self.recent.setEnabled(bool(recent))
