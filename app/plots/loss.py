"""The loss over the steps."""

from __future__ import annotations

from app import words
from app.plots.curves import Curve, CurveChart
from app.widgets.basics import button

_PROMISES = {
    False: "How far the model's answers are from yours, step by step.\n"
    "It should fall; the validation line tells whether that holds for rows it never saw.",
    True: "How far the model is from preferring your better answers, step by step.\n"
    "It should fall; the validation line tells whether that holds for pairs it never saw.",
}


class LossChart(CurveChart):
    """Draws a History's losses, on a plain or a logarithmic axis."""

    def __init__(self) -> None:
        super().__init__("Loss", _PROMISES[False], Curve("loss"), write=words.loss)
        self.log = button("Log scale", role="toggle", help="Makes small changes late in a run visible")
        self.log.toggled.connect(self._set_log)
        self.tools.insertWidget(1, self.log)

    def promise_pairs(self, pairs: bool) -> None:
        """Says what the loss is of, before there is any."""
        self.promise.setText(_PROMISES[pairs])

    def _set_log(self, wanted: bool) -> None:
        self.plot.setLogMode(y=wanted)
        self.redraw()
