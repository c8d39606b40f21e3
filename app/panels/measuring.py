"""The part of the memory panel that tells of a probe: how far it is, and predicted and measured side by side."""

from __future__ import annotations

from PySide6.QtWidgets import QProgressBar, QWidget

from app import words
from app.answers import Measured
from app.session import Session
from app.widgets.basics import button, column, label, row


class Measuring(QWidget):
    """No room while there is nothing to tell."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.text = label(size=11, wrap=True)
        self.progress = QProgressBar(textVisible=False)
        self.progress.setAccessibleName("Progress of measuring")
        self.stop = button("Stop", session.probing.stop, role="small", help="Ends measuring, without a result")
        self.stop.setAccessibleName("Stop measuring")
        self._under_way = QWidget()
        line = row(self.progress, self.stop)
        line.setStretch(0, 1)
        self._under_way.setLayout(line)
        self.setLayout(column(self.text, self._under_way, spacing=4))

    def refresh(self) -> None:
        probing = self._session.probing
        self._under_way.setVisible(probing.busy)
        self.stop.setEnabled(not probing.stopping)
        stage = probing.stage
        # While there is nothing to count, or just one thing, the bar runs to and fro.
        done, total = (stage.done, stage.total) if stage and stage.total > 1 else (0, 0)
        self.progress.setRange(0, total)
        self.progress.setValue(done)
        self.text.setText(self._words())
        self.setVisible(bool(self.text.text()))

    def _words(self) -> str:
        probing, config = self._session.probing, self._session.config
        if probing.stopping:
            return "Stopping…"
        if probing.busy:
            return f"{probing.stage.message}…" if probing.stage else "Getting ready to measure…"
        if failure := probing.failure_of(config):
            return f"\N{BLACK UP-POINTING TRIANGLE} {failure.message} {failure.hint}".rstrip()
        if probing.outdated(config):
            return "Measured for other settings. Measure again to see what these take."
        answers = probing.answers(config)
        lines = [_sentence(one) for one in answers]
        if any(not one.died for one in answers) and not self._session.outlook.unknown:
            lines.append("Predictions for this model on this machine now follow the measurement.")
        return "\n".join(lines)


def _sentence(one: Measured) -> str:
    name = f"Segment size {one.segment_size}" if one.segment_size else "The whole model at once"
    predicted = f"predicted {words.memory_closely(one.predicted_bytes)}, " if one.predicted_bytes else ""
    if one.died:
        return f"{name}: {predicted}could not be measured. {one.died}"
    time = f", {words.seconds(one.seconds)} a step" if one.seconds else ""
    return f"{name}: {predicted}measured {words.memory_closely(one.measured_bytes)}{time}."
