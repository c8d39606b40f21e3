"""The Try it page: before and after side by side, and a model that dies while it answers."""

import pytest
from PySide6.QtCore import Qt

from app.answering import same_answer


@pytest.fixture
def page(window, ready):
    window.try_sample()
    ready(window)
    window.show_page(2)
    return window.talk_page


def answer(page, qtbot):
    with qtbot.waitSignal(page.answered, timeout=10_000):
        pass
    return page.exchanges[-1]


def test_return_asks_the_original_model(page, qtbot):
    qtbot.keyClicks(page.prompt, "Who are you?")
    with qtbot.waitSignal(page.answered, timeout=10_000):
        qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    exchange = page.exchanges[-1]
    assert exchange.prompt == "Who are you?"
    assert exchange.texts == {False: "I am a model."}


def test_after_training_both_sides_answer(window, page, qtbot):
    with qtbot.waitSignal(window.session.training.ended, timeout=10_000):
        window.bar.start.click()
    with qtbot.waitSignal(page.answered, timeout=10_000):
        page.examples.itemAt(0).widget().click()
        qtbot.waitUntil(lambda: page.exchanges[-1].complete[False])
    exchange = page.exchanges[-1]
    if not exchange.complete[True]:
        answer(page, qtbot)
    assert exchange.texts[False] == "I am a model."
    assert exchange.expected == exchange.texts[True]
    assert "as in the data" in exchange.verdicts[True].text()
    assert "not as in the data" in exchange.verdicts[False].text()


def test_training_frees_the_models_memory(window, page, qtbot):
    with qtbot.waitSignal(page.answered, timeout=10_000):
        page.ask("Hello")
    assert page.talk.ready
    with qtbot.waitSignal(window.session.training.ended, timeout=10_000):
        window.bar.start.click()
        assert not page.talk.ready
        assert not page.ask_button.isEnabled()
    assert page.ask_button.isEnabled()


def test_a_model_that_dies_is_a_card_and_answers_again(page, qtbot):
    page.ask("die")
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    assert "ended from outside" in page.notices.shown[0].message
    with qtbot.waitSignal(page.answered, timeout=10_000):
        page.ask("Hello")
    assert page.notices.shown == []


def test_same_answer_reads_json():
    assert same_answer('{"a": 1, "b": 2}', ' {"b":2,"a":1}\n')
    assert not same_answer('{"a": 1}', '{"a": 2}')
    assert not same_answer("yes", "no")
