"""The window as a person uses it: opening, dropping, colours, keys, names, and what it remembers."""

import shutil
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QAction, QDropEvent, QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QScrollBar,
    QTableWidget,
    QWidget,
)

from app import places
from app.states import State
from app.theme import DARK, LIGHT, colors, theme
from app.widgets.legend import Legend
from app.widgets.notice import Notice
from app.window import MainWindow


def drop(window, path: Path):
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(path))])
    event = QDropEvent(
        QPointF(600, 400),
        Qt.DropAction.CopyAction,
        mime,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    window.dropEvent(event)


def action(window, name):
    return next(found for found in window.findChildren(QAction) if found.text() == name)


def test_first_start_invites(window):
    assert window.data_page.welcome.isVisible()
    assert not window.bar.start.isEnabled()
    assert window.bar.text.text() == "Choose data to start."
    assert window.sidebar.dataset.state.state is State.NEEDS_YOU


def test_the_sample_is_one_button_away(window, qtbot, ready):
    qtbot.mouseClick(window.data_page.welcome.sample, Qt.MouseButton.LeftButton)
    ready(window)
    assert window.bar.start.isEnabled()
    assert [panel.state.state for panel in window.sidebar.panels] == [
        State.READY, State.READY, State.READY, State.FITS,
    ]  # fmt: skip
    qtbot.waitUntil(lambda: len(window.data_page.rows.views) > 0)
    assert "bookings" in window.windowTitle()


def test_the_sample_model_is_fetched_when_it_is_missing(window, home, qtbot, ready):
    shutil.rmtree(home / "models" / "sample")
    window.session.shelf.refresh()
    qtbot.waitUntil(lambda: not window.session.shelf.models[0].ready)
    window.data_page.welcome.sample.click()
    assert window.sidebar.model.progress.isVisible()
    ready(window)
    assert not window.sidebar.model.progress.isVisible()


def test_a_file_dropped_anywhere_opens(window, data, ready):
    drop(window, data("letters.jsonl"))
    ready(window)
    assert window.sidebar.dataset.name.text() == "letters.jsonl"
    assert "20 rows" in window.sidebar.dataset.figures.text()


def test_a_missing_file_is_a_card(window, tmp_path):
    window.open_data(tmp_path / "gone.jsonl")
    (notice,) = window.data_page.notices.shown
    assert "gone.jsonl" in notice.message
    assert notice.hint
    notice.dismiss.click()
    assert window.data_page.notices.shown == []


def test_light_and_dark_follow_the_system_live(window, qtbot):
    hints = QGuiApplication.styleHints()

    def ground() -> str:
        image: QImage = window.grab().toImage()
        return image.pixelColor(330, 300).name().upper()

    hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert (colors(), ground()) == (DARK, DARK.ground)
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert (colors(), ground()) == (LIGHT, LIGHT.ground)


def test_a_preferred_scheme_stands_against_the_system(window):
    action(window, "Dark").trigger()
    QGuiApplication.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert colors() == DARK
    action(window, "As the System").trigger()
    assert colors() == LIGHT


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(scheme):
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    pairs = [
        (scheme.text, scheme.ground), (scheme.text, scheme.card), (scheme.text, scheme.well),
        (scheme.text, scheme.trained), (scheme.text, scheme.selection), (scheme.secondary, scheme.ground),
        (scheme.secondary, scheme.card), ("#FFFFFF", scheme.fill), ("#FFFFFF", scheme.fill_pressed),
    ]  # fmt: skip
    assert [pair for pair in pairs if contrast(*pair) < 4.5] == []


@pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark])
@pytest.mark.parametrize("color", ["trained", "well"])
def test_a_pale_mark_has_an_outline_that_is_seen(qtbot, scheme, color):
    theme().prefer(scheme)
    legend = Legend([("learned", color, "square")])
    qtbot.addWidget(legend)
    picture = legend.grab().toImage()
    across = {picture.pixelColor(x, picture.height() // 2).name().upper() for x in range(10)}
    assert across == {colors().secondary, getattr(colors(), color)}


def test_keys_go_to_panels_and_pages(window, qtbot):
    window.activateWindow()
    for index, panel in enumerate(window.sidebar.panels):
        action(window, panel.title).trigger()
        focus = window.focusWidget()
        assert focus is panel or panel.isAncestorOf(focus), index
    for index, name in enumerate(("Data", "Training", "Try it")):
        action(window, name).trigger()
        assert window.stack.currentIndex() == index
    keys = {found.text(): found.shortcut().toString() for found in window.findChildren(QAction)}
    assert keys["Start"] == "Ctrl+R"
    assert keys["Stop"] == "Ctrl+."
    assert keys["Open Data…"] == "Ctrl+O"


def stops(window):
    """The names of all that Tab stops at, once round, from the button that opens data on."""
    first, found = window.sidebar.dataset.open, []
    first.setFocus()
    while window.focusWidget() not in found:
        found.append(window.focusWidget())
        QTest.keyClick(found[-1], Qt.Key.Key_Tab)
    assert window.focusWidget() is first
    QTest.keyClick(first, Qt.Key.Key_Tab, Qt.KeyboardModifier.ShiftModifier)
    assert window.focusWidget() is found[-1]
    return [one.accessibleName() for one in found]


def test_tab_goes_as_a_person_reads(window, ready, qtbot):
    window.activateWindow()
    window.try_sample()
    ready(window)
    qtbot.waitUntil(lambda: [view.isVisible() for view in window.data_page.rows.views] == 8 * [True])
    window.data_page.columns.ask.click()
    qtbot.waitUntil(window.data_page.columns.boxes["prompt"].isVisible)
    names = stops(window)
    assert "" not in names
    rows = [f"Row {number}" for number in range(1, 9)]
    found = [name.partition(":")[0] for name in names]
    order = ["Open another file…", "Model", "Rows", "Find next", "Columns…", "Answer", "Read it so", *rows, "Start"]
    assert [name for name in found if name in order] == order
    shown = [one for one in window.findChildren(QComboBox) if one.isVisible() and one.isEnabled()]
    assert {one.accessibleName() for one in shown} <= set(found)  # none is left out


def test_tab_comes_to_a_card_before_it_leaves_the_page(window, data, qtbot):
    window.activateWindow()
    window.open_data(data("broken.jsonl"))
    qtbot.waitUntil(lambda: bool(window.data_page.notices.shown), timeout=10_000)
    names = stops(window)
    assert names.index("Rows") < names.index("Check again") < names.index("Data")


def test_tab_leaves_a_charts_table(window, ready, qtbot):
    window.activateWindow()
    window.try_sample()
    ready(window)
    window.data_page.tabs.tab(1).click()
    chart = window.data_page.lengths.chart
    chart.table_button.click()
    qtbot.waitUntil(chart.table.isVisible)
    chart.table.setFocus()
    QTest.keyClick(chart.table, Qt.Key.Key_Tab)
    assert window.focusWidget() is window.data_page.lengths.field.editor.line


def test_tabs_go_by_arrow_keys(window, qtbot):
    window.tabs.tab(0).setFocus()
    qtbot.keyClick(window.tabs, Qt.Key.Key_Right)
    assert window.stack.currentWidget() is window.training_page


def test_menus_have_the_roles_of_macos(window):
    assert action(window, "About Tunesmith").menuRole() == QAction.MenuRole.AboutRole
    assert action(window, "Quit Tunesmith").menuRole() == QAction.MenuRole.QuitRole


def test_everything_to_press_has_a_name(window, ready):
    window.try_sample()
    ready(window)
    kinds = (QAbstractButton, QComboBox, QLineEdit, QPlainTextEdit, QAbstractSlider)
    nameless = [
        (type(widget).__name__, widget.toolTip())
        for widget in window.findChildren(QWidget)
        if isinstance(widget, kinds)
        and not isinstance(widget, QScrollBar)
        and not isinstance(widget.parent(), QTableWidget)  # Qt's own corner
        and not widget.objectName().startswith("qt_")
        and not widget.accessibleName()
    ]
    assert nameless == []


def test_the_window_remembers(make_window, data, ready):
    first = make_window()
    path = data("letters.jsonl")
    first.open_data(path)
    first.session.change(rank=4)
    ready(first)
    first.resize(1000, 700)
    first.close()
    second = make_window()
    ready(second)
    assert second.session.config.data == str(path)
    assert second.session.config.rank == 4
    assert second.session.recent == [path]
    assert second.height() == 700  # the offscreen screen is too narrow to tell widths apart


def test_nonsense_in_the_settings_file_is_no_obstacle(make_window):
    settings = places.settings()
    settings.setValue("config", '{"rank": "many", "nobody": 1}')
    settings.setValue("appearance", "mauve")
    settings.sync()
    assert isinstance(make_window(), MainWindow)


def test_a_mistake_of_ours_is_a_card_and_a_log_entry(window, qtbot, home):
    import sys

    from app.mistakes import Mistakes

    handler = places.start_log()
    mistakes = Mistakes(window)
    try:
        mistakes.happened.connect(window.show_mistake)
        try:
            raise ZeroDivisionError("a test's mistake")
        except ZeroDivisionError as error:
            sys.excepthook(type(error), error, error.__traceback__)
        (notice,) = window.data_page.notices.shown
        assert "ZeroDivisionError" not in notice.message
        assert notice.details.content.toPlainText().count("a test's mistake")
        assert not notice.details.content.isVisible()
    finally:
        mistakes.release()
        import logging

        for name in places.LOGS:
            logging.getLogger(name).removeHandler(handler)
        handler.close()
    assert "a test's mistake" in places.log_file().read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _as_the_system():
    yield
    theme().prefer(Qt.ColorScheme.Unknown)


def test_no_text_is_cut_in_the_smallest_window(window, ready, qtbot):
    def is_cut(text):
        too_wide = text.sizeHint().width() > text.width() and not text.wordWrap()
        return too_wide or text.heightForWidth(text.width()) > text.height()

    def none_is_cut():
        texts = [one for one in window.findChildren(QLabel) if one.isVisible() and one.text()]
        assert [one.text() for one in texts if is_cut(one)] == []

    window.resize(window.minimumSize())
    qtbot.waitUntil(none_is_cut)
    window.try_sample()
    ready(window)
    qtbot.waitUntil(lambda: len(window.data_page.rows.views) > 0)
    qtbot.waitUntil(none_is_cut)
    window.data_page.tabs.tab(1).click()
    qtbot.waitUntil(none_is_cut)
    for page in (1, 2):
        window.show_page(page)
        qtbot.waitUntil(none_is_cut)


def test_one_notices_details_stand_open_at_a_time(window, qtbot):
    """In the lowest window three at once would leave the page below them no room."""
    window.resize(window.minimumSize())
    page = window.data_page
    notices = [Notice("Cause.", "Cure.", details="line\n" * 30) for _ in range(3)]
    for number, notice in enumerate(notices):
        page.notices.show_notice(notice, f"subject {number}")
    for notice in notices:
        notice.details.head.click()
        qtbot.waitUntil(notice.details.content.isVisible)
        assert [one.details.content.isVisible() for one in notices].count(True) == 1
    qtbot.waitUntil(lambda: page.notices.height() < 2 * page.height() / 3)
    notices[-1].details.head.click()
    assert not any(one.details.content.isVisible() for one in notices)
