"""Where Tab goes: from part to part as they stand in their layouts.

Qt goes by the time at which they came into the window: rows, cards and boxes that are made later come after the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QLayout, QScrollArea, QSplitter, QWidget


def move(window: QWidget, *, forward: bool) -> bool:
    """Gives the keyboard to the next or the previous part of `window`, round at its ends; False where is none."""
    now = window.focusWidget()
    stops = [one for one in _shown(window) if one is now or _is_stop(one)]
    if not stops:
        return False
    if now in stops:
        target = stops[(stops.index(now) + (1 if forward else -1)) % len(stops)]
    else:
        target = stops[0 if forward else -1]
    target.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    around = target.parentWidget()
    while around:
        if isinstance(around, QScrollArea):
            around.ensureWidgetVisible(target)
        around = around.parentWidget()
    return True


def _is_stop(widget: QWidget) -> bool:
    """Whether Tab stops there. On a Mac the system says whether at all or at fields alone."""
    everywhere = QGuiApplication.styleHints().tabFocusBehavior() == Qt.TabFocusBehavior.TabFocusAllControls
    wanted = Qt.FocusPolicy.TabFocus if everywhere else Qt.FocusPolicy.StrongFocus
    takes_it = (widget.focusPolicy() & wanted) == wanted and widget.focusProxy() is None
    return takes_it and widget.isEnabled() and not _is_passed_over(widget)


def _is_passed_over(widget: QWidget) -> bool:
    """One of several of which one is chosen, and not that one: the arrow keys go there."""
    group = widget.group() if isinstance(widget, QAbstractButton) else None
    chosen = group.checkedButton() if group and group.exclusive() else None
    return chosen is not None and chosen is not widget


def _shown(widget: QWidget) -> Iterator[QWidget]:
    """`widget` and all that is shown in it, as a person reads."""
    yield widget
    layout = widget.layout()
    placed = list(_placed(layout)) if layout else []
    if isinstance(widget, QSplitter):  # its children are in no order
        placed = [widget.widget(index) for index in range(widget.count())]
    others = [child for child in widget.children() if isinstance(child, QWidget) and child not in placed]
    for child in (*placed, *others):
        if child.isVisible() and not child.isWindow():
            yield from _shown(child)


def _placed(layout: QLayout) -> Iterator[QWidget]:
    """The widgets of a layout and of those in it, in their order."""
    for index in range(layout.count()):
        item = layout.itemAt(index)
        if item and (widget := item.widget()):
            yield widget
        elif item and (inner := item.layout()):
            yield from _placed(inner)
