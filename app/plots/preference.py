"""How a model takes pairs, over the steps: accuracy, margin, and how likely it finds both answers."""

from __future__ import annotations

from app import words
from app.plots.curves import Curve, CurveChart, Entry

# The field's names of what Preference.margin is.
MARGIN_UNITS = {"orpo": "log odds", "dpo": "reward difference"}


class AccuracyChart(CurveChart):
    """The share of pairs whose better answer the model prefers, from 0 to 100 %."""

    def __init__(self) -> None:
        super().__init__(
            "Accuracy",
            "In how many of the pairs the model prefers the better answer.\nIt should rise well above 50 %, a guess.",
            Curve("accuracy"),
            write=words.percent,
            scale=100,
            unit="%",
            level=(0.5, "guess"),
            compact=True,
        )
        axis = self.plot.getAxis("left")
        axis.setTicks([[(tick, str(tick)) for tick in (0, 25, 50, 75, 100)]])
        axis.setStyle(hideOverlappingLabels=False)  # it would leave out the 100 at the edge
        self.follow_now()

    def follow_now(self) -> None:
        self.plot.setYRange(0, 100, padding=0.12)  # a flat chart would lose the numbers at its edges


class MarginChart(CurveChart):
    """By how much the model prefers the better answers, in the objective's own measure."""

    def __init__(self) -> None:
        super().__init__(
            "Margin",
            "By how much the model prefers the better answers.\nIt should rise; below zero it prefers the worse.",
            Curve("margin"),
            write=words.signed,
            level=(0.0, "no preference"),
            compact=True,
        )


class AnswersChart(CurveChart):
    """The mean log-probability of a token of the better and of the worse answers."""

    def __init__(self) -> None:
        super().__init__(
            "Likelihood of both answers",
            "The mean log-probability of a token of the better and of the worse answers.\n"
            "They should part; if both fall far, the learning rate is too high.",
            *(_answer("better answer", "chosen_logp", "train"), _answer("worse answer", "rejected_logp", "backward")),
            write=words.signed,
            unit="log-probability",
        )

    def headline(self) -> str:
        return ""  # two values: they stand in the legend

    def entries(self) -> list[Entry]:
        found = [
            (f"{curve.words[0]} {self.write(self.history[curve.name][-1])}", curve.color, "line")
            for curve in self.curves
        ]
        return found + [("validation", "secondary", "dot")] * bool(len(self.history.measured("step")))


def _answer(word: str, name: str, color: str) -> Curve:
    return Curve(name, color, color, (word, f"{word}, smoothed", f"{word}, validation"))
