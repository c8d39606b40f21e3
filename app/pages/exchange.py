"""One question and its two answers side by side: the original model left, with the adapter right."""

from __future__ import annotations

from app.answering import same_answer
from app.widgets.basics import Card, column, label, row

ORIGINAL, TUNED = "Original model", "After training"


class Exchange(Card):
    """The prompt above, the answers below; `expected` is what the data says, where it says anything."""

    def __init__(self, prompt: str, expected: str = "", *, tuned: bool) -> None:
        super().__init__(spacing=12)
        self.prompt = prompt
        self.expected = expected.strip()
        self.setAccessibleName(f"Question: {prompt}")
        question = label(prompt, wrap=True, bold=True)
        self.body.addWidget(question)
        self.answers = {False: label("…", wrap=True)}
        if tuned:
            self.answers[True] = label("…", wrap=True)
        self.verdicts = {side: label(size=11, secondary=True) for side in self.answers}
        sides = row(spacing=24)
        for side, answer in self.answers.items():
            answer.setTextInteractionFlags(answer.textInteractionFlags().TextSelectableByMouse)
            name = TUNED if side else ORIGINAL
            head = row(label(name, size=11, secondary=True), self.verdicts[side], None)
            sides.addLayout(column(head, answer, None, spacing=4), 1)
        self.body.addLayout(sides)
        if self.expected:
            self.body.addWidget(label(f"In the data: {self.expected}", size=11, secondary=True, wrap=True))
        self.texts = dict.fromkeys(self.answers, "")
        self.complete = dict.fromkeys(self.answers, False)

    def add(self, adapter: bool, piece: str) -> None:
        """More text of one side's answer."""
        self.texts[adapter] += piece
        self.answers[adapter].setText(self.texts[adapter])

    def end(self, adapter: bool) -> None:
        """One side's answer is complete."""
        self.complete[adapter] = True
        text = self.texts[adapter].strip()
        self.answers[adapter].setText(text or "(no answer)")
        self.answers[adapter].setAccessibleName(f"{TUNED if adapter else ORIGINAL} answers: {text}")
        if self.expected:
            right = same_answer(text, self.expected)
            self.verdicts[adapter].setText(
                "\N{CHECK MARK} as in the data" if right else "\N{MULTIPLICATION X} not as in the data"
            )

    def give_up(self) -> None:
        """Nothing more comes; what is missing says so."""
        for side, complete in self.complete.items():
            if not complete and not self.texts[side]:
                self.answers[side].setText("(not answered)")
