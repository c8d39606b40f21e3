"""Which column of a person's file is which: the guess in a sentence, and boxes to choose by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QBoxLayout, QComboBox, QWidget

from app import words
from app.answers import Columns
from app.theme import font
from app.widgets.basics import Card, button, clear, column, label, row

_BESIDES = ("input", "system", "history", "tools")
# What rows can be: the fields that each needs, and those that may come with them.
KINDS = {
    "Prompt and answer": (("prompt", "completion"), _BESIDES),
    "Answer with a thumb": (("prompt", "completion", "label"), _BESIDES),
    "Conversation": (("messages",), ("system", "tools")),
    "Pair of answers": (("chosen", "rejected"), ("prompt", "messages", *_BESIDES)),
    "Two answers and a winner": (("answer_a", "answer_b", "winner"), ("prompt", "messages", *_BESIDES)),
    "Plain text": (("text",), ()),
}
_FIELDS = {
    "prompt": "Prompt",
    "input": "More of the prompt",
    "completion": "Answer",
    "messages": "Messages",
    "chosen": "Better answer",
    "rejected": "Worse answer",
    "answer_a": "First answer",
    "answer_b": "Second answer",
    "winner": "Which is better",
    "label": "Thumb up or down",
    "text": "Text",
    "system": "System message",
    "history": "Earlier turns",
    "tools": "Tools",
}
_NONE = "None"
_MOST_NAMED = 12
_WIDEST = 14  # characters of a box
_NARROWEST = 72  # pixels


class ColumnsCard(Card):
    """A sentence where the guess is whole; the boxes where it is not, or where the person asks.

    Signals:
        chosen(str): the value for the setting `columns`; empty: by their names again.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(spacing=8)
        self.setAccessibleName("Columns of the file")
        self.ask = button("Columns…", self._toggle, role="small", help="Choose which column of the file is which")
        self._columns = Columns()
        self._none: set[str] = set()  # fields of which the person said that no column is theirs
        self._by_hand = self._asked = False
        self.sentence = label(wrap=True)
        self.change = button("Change…", self._toggle, role="small", help=self.ask.toolTip())
        head = row(self.sentence, self.change)
        head.setStretch(0, 1)
        self.kind = self._box("What a row is", list(KINDS))
        self.kind.activated.connect(self._fill)
        self.boxes: dict[str, QComboBox] = {}
        self._fields: QBoxLayout = column(spacing=8)
        self.use = button("Read it so", self._use, help="Reads the file again with these columns")
        self.by_name = button("By their names", lambda: self.chosen.emit(""), help="Lets Tunesmith find them by name")
        kind_label = label("A row is", size=11, secondary=True)
        kind_label.setBuddy(self.kind)
        self._choosing = QWidget()
        kind = row(kind_label, self.kind, None)
        self._choosing.setLayout(column(kind, self._fields, row(self.use, self.by_name, None), spacing=12))
        self.body.addLayout(head)
        self.body.addWidget(self._choosing)
        self.hide()

    def show_columns(self, columns: Columns, setting: str) -> None:
        """Shows what the check found in the file; `setting` is what the person chose by hand."""
        self._none = {field for field, name in _read(setting) if not name}
        if (columns, bool(setting)) == (self._columns, self._by_hand):  # dictionaries are equal in any order
            return
        used = {field: columns.used[field] for field in sorted(columns.used, key=_order)}
        self._columns, self._by_hand, self._asked = replace(columns, used=used), bool(setting), False
        kind = _kind_of(columns.used)
        self.kind.setCurrentText(kind or next(iter(KINDS)))
        self._fill()
        self._arrange()

    def _arrange(self) -> None:
        names, used = self._columns.names, self._columns.used
        whole = _kind_of(used) is not None
        guessed = any(field != name for field, name in used.items())
        opened = self._asked or not whole
        self.ask.setVisible(bool(names))
        self._choosing.setVisible(opened)
        self.change.setVisible(not opened)
        self.by_name.setVisible(self._by_hand)
        if whole:
            how = "Chosen by you" if self._by_hand else "Found by name"
            self.sentence.setText(f"{how}: {_mapping_in_words(used)}.")
        else:
            named = ", ".join(f"“{words.shortened(name, 24)}”" for name in names[:_MOST_NAMED])
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            self.sentence.setText(f"Say which column is which; the file has {named}{more}.")
        self.setVisible(bool(names) and (opened or guessed or self._by_hand))

    def _toggle(self) -> None:
        self._asked = not self._asked
        self._arrange()
        if self._asked:
            self.kind.setFocus()

    def _fill(self) -> None:
        """A box for each field of the chosen kind, at its column where one is known."""
        clear(self._fields)
        self.boxes = {}
        needed, optional = KINDS[self.kind.currentText()]
        for fields in (needed, optional):
            if fields:
                self._fields.addWidget(self._line_of(sorted(fields, key=_order), fields is optional))
        self._allow()

    def _line_of(self, fields: Sequence[str], are_optional: bool) -> QWidget:
        cells = []
        for field in fields:
            box = self._box(_FIELDS[field], ([_NONE] if are_optional else []) + self._columns.names)
            name = self._columns.used.get(field, "")
            box.setCurrentIndex(box.findText(name) if name else 0 if are_optional else -1)
            box.setPlaceholderText("Choose")
            box.activated.connect(self._allow)
            caption = label(_FIELDS[field], size=11, secondary=True)
            caption.setBuddy(box)
            cell = QWidget()
            cell.setLayout(column(caption, box, spacing=4))
            cells.append(cell)
            self.boxes[field] = box
        line = QWidget()
        line.setLayout(row(*cells, None, spacing=12))
        return line

    def _chosen(self) -> dict[str, str]:
        """The column of each field that has one."""
        optional = KINDS[self.kind.currentText()][1]
        texts = {field: box.currentText() for field, box in self.boxes.items()}
        places = {field: box.currentIndex() for field, box in self.boxes.items()}
        return {field: text for field, text in texts.items() if places[field] >= (1 if field in optional else 0)}

    def _allow(self) -> None:
        chosen, needed = self._chosen(), KINDS[self.kind.currentText()][0]
        self.use.setEnabled(set(needed) <= set(chosen) and len(set(chosen.values())) == len(chosen))

    def _use(self) -> None:
        line = io.StringIO()
        # As the engine reads them: a name that holds a comma stands in quotation marks with its field.
        chosen = self._chosen()
        none = [field for field in self.boxes if field not in chosen and field in {*self._columns.used, *self._none}]
        named = {**chosen, **dict.fromkeys(none, "")}
        csv.writer(line, lineterminator="").writerow(f"{field}={name}" for field, name in named.items())
        self.chosen.emit(line.getvalue())

    def _box(self, name: str, choices: list[str]) -> QComboBox:
        box = QComboBox()
        box.setFont(font())
        box.setAccessibleName(name)
        box.addItems(choices)
        longest = max((len(choice) for choice in choices), default=0)
        box.setMinimumContentsLength(longest if choices == list(KINDS) else min(longest, _WIDEST))
        box.setMinimumWidth(_NARROWEST)
        box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        return box


def _read(setting: str) -> list[tuple[str, str]]:
    """The fields of the setting `columns`, and their columns' names; "" for none."""
    parts = [part.partition("=") for part in next(csv.reader([setting], skipinitialspace=True), [])]
    return [(field.strip(), name.strip()) for field, _, name in parts]


def _kind_of(used: Mapping[str, str]) -> str | None:
    """The kind of row that these fields make; None where some are missing."""
    found = [kind for kind, (needed, _) in KINDS.items() if set(needed) <= set(used)]
    return max(found, key=lambda kind: len(KINDS[kind][0]), default=None)


def _order(field: str) -> int:
    """Where a field stands among ours; one that is unknown comes last."""
    return list(_FIELDS).index(field) if field in _FIELDS else len(_FIELDS)


def _mapping_in_words(used: Mapping[str, str]) -> str:
    named = [f"{_FIELDS.get(field, field).lower()} is “{words.shortened(name, 30)}”" for field, name in used.items()]
    return ", ".join(named)
