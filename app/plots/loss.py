"""The loss over the steps: as trained, smoothed, and on the rows set aside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg

from app import words
from app.history import History
from app.plots.chart import Chart, translucent
from app.theme import colors
from app.widgets.basics import button

# The axis shows the whole run from the start; a run shorter than this would have fractions of steps on it.
_FEW = 10


class LossChart(Chart):
    """Draws a History's losses."""

    def __init__(self) -> None:
        self._history = History()
        self._train = pg.PlotDataItem(connect="finite")
        self._smooth = pg.PlotDataItem(connect="finite")
        self._valid = pg.PlotDataItem(symbol="o", symbolSize=6)
        super().__init__(
            "Loss",
            "How far the model's answers are from yours, step by step.\n"
            "It should fall; the validation line tells whether that holds for rows it never saw.",
        )
        for item in (self._train, self._smooth, self._valid):
            item.setDownsampling(auto=True, method="peak")
            self.plot.addItem(item)
        self.plot.setClipToView(True)
        self.plot.enableAutoRange(axis="y")
        self.plot.setLabel("bottom", "step")
        self.smooth = button("Smooth", role="toggle", help="Adds the mean of about the last ten steps")
        self.log = button("Log scale", role="toggle", help="Makes small changes late in a run visible")
        self.smooth.setChecked(True)
        self.smooth.toggled.connect(self.redraw)
        self.log.toggled.connect(self._set_log)
        self.tools.insertWidget(0, self.smooth)
        self.tools.insertWidget(1, self.log)

    def show_history(self, history: History) -> None:
        self._history = history
        self.redraw()

    def redraw(self) -> None:
        history = self._history
        steps, losses = history["step"], history["loss"]
        self._train.setData(steps, losses)
        self._smooth.setData(steps, history.smoothed.values)
        self._smooth.setVisible(self.smooth.isChecked())
        self._valid.setData(history.valid_steps.values, history.valid_losses.values)
        self._train.setPen(self._train_pen())
        entries = [("train", "train", "line")]
        if self.smooth.isChecked():
            entries = [("train", "train", "dash"), ("smoothed", "train", "line")]
        if len(history.valid_losses.values):
            entries.append((f"validation {words.loss(history.valid_losses.values[-1])}", "valid", "line"))
        self.legend.show_entries(entries)
        if not self.follow.isVisible():
            self.plot.setXRange(0, max(_FEW, history.steps, len(steps)), padding=0.01)
        if len(losses):
            self.value.setText(words.loss(losses[-1]))
            self.value.setAccessibleName(f"Loss {words.loss(losses[-1])} at step {int(steps[-1])}")
        self.show_data(len(losses) > 0)

    def contents(self) -> tuple[list[str], Sequence[Sequence[object]]]:
        history = self._history
        valid = dict(zip(history.valid_steps.values.tolist(), history.valid_losses.values.tolist(), strict=True))
        columns = zip(history["step"].tolist(), history["loss"].tolist(), history.smoothed.values.tolist(), strict=True)
        rows = {step: (loss, smooth) for step, loss, smooth in columns}
        return ["step", "train", "smoothed", "validation"], [
            (int(step), *rows.get(step, ("", "")), valid.get(step, "")) for step in sorted({*rows, *valid})
        ]

    def describe(self, x: float) -> tuple[float, str] | None:
        history = self._history
        steps = history["step"]
        if not len(steps):
            return None
        at = int(np.abs(steps - x).argmin())
        lines = [
            f"step {int(steps[at])}",
            f"train {words.loss(history['loss'][at])}",
            f"smoothed {words.loss(history.smoothed.values[at])}",
        ]
        valid = history.valid_steps.values
        if len(valid):
            near = int(np.abs(valid - steps[at]).argmin())
            lines.append(f"validation {words.loss(history.valid_losses.values[near])} at step {int(valid[near])}")
        return float(steps[at]), "\n".join(lines)

    def follow_now(self) -> None:
        self.plot.enableAutoRange(axis="y")

    def dress(self) -> None:
        super().dress()
        c = colors()
        self._train.setPen(self._train_pen())
        self._smooth.setPen(pg.mkPen(c.train, width=2))
        self._valid.setPen(pg.mkPen(c.valid, width=2))
        self._valid.setSymbolBrush(c.valid)
        self._valid.setSymbolPen(None)

    def _train_pen(self) -> object:
        """The raw line steps back behind the smoothed one."""
        smoothed = hasattr(self, "smooth") and self.smooth.isChecked()
        return pg.mkPen(translucent(colors().train, 110 if smoothed else 255), width=1)

    def _set_log(self, wanted: bool) -> None:
        self.plot.setLogMode(y=wanted)
        self.redraw()
