"""The window with the real engine on a tiny random model: every child process is our own command line."""

import json

import pytest
from PySide6.QtWidgets import QApplication, QPushButton
from tiny_models import write_llama

from app import places
from app.theme import theme
from app.window import MainWindow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("tiny"), layers=2)


@pytest.fixture
def window(qtbot, tiny, data, ready):
    theme().install(QApplication.instance())
    window = MainWindow(places.settings())
    window.setObjectName("main")
    qtbot.addWidget(window)
    window.show()
    qtbot.waitUntil(lambda: window.session.shelf.listed, timeout=60_000)
    window.open_data(tiny)  # a folder with a model, dropped, is a model
    window.session.change(steps=3, max_length=512, batch_size=2)
    window.open_data(data("letters.jsonl"))
    qtbot.waitUntil(lambda: window.session.blocker() is None, timeout=60_000)
    return window


def test_check_preview_train_and_talk(window, qtbot):
    qtbot.waitUntil(lambda: bool(window.data_page.rows.views), timeout=60_000)
    assert any(token.trained for token in window.data_page.rows.views[0].tokens)
    window.data_page.rows.seek("--count")  # looks like a flag and is none
    qtbot.waitUntil(window.data_page.rows.none.isVisible, timeout=60_000)
    assert "--count" in window.data_page.rows.none.text()
    training = window.session.training
    with qtbot.waitSignal(training.ended, timeout=120_000):
        window.bar.start.click()
    assert [notice.message for notice in window.training_page.notices.shown if notice.is_failure] == []
    assert len(training.history["loss"]) == 3
    assert {phase.name for phase in training.history.phases} == {"forward", "head", "backward"}
    with qtbot.waitSignal(window.talk_page.answered, timeout=60_000):
        exchange = window.talk_page.ask("A table for two")
        qtbot.waitUntil(lambda: exchange.complete[False], timeout=60_000)
    assert exchange.complete[True]


def test_pairs_choose_their_objective_and_train(window, pairs, qtbot):
    window.open_data(pairs(rows=60))
    qtbot.waitUntil(lambda: window.session.blocker() is None, timeout=60_000)
    assert window.session.config.objective == "orpo"
    qtbot.waitUntil(lambda: len(window.data_page.rows.views) > 1, timeout=60_000)
    pair = window.data_page.rows.views[1].pair
    assert "Which number follows 1?" in pair.prompt.toPlainText()
    assert pair.better.toPlainText().startswith("The number 2 follows 1.")
    assert pair.worse.toPlainText().startswith("The number 0 follows 1, as everybody knows.")
    training = window.session.training
    with qtbot.waitSignal(training.ended, timeout=120_000):
        window.bar.start.click()
    assert [notice.message for notice in window.training_page.notices.shown if notice.is_failure] == []
    history = training.history
    for told, count in ((history.__getitem__, 3), (history.measured, len(history.measured("step")))):
        assert count > 0
        assert len(told("margin")) == count
        assert ((told("accuracy") >= 0) & (told("accuracy") <= 1)).all()
        assert (told("chosen_logp") < 0).all()


def test_a_folder_is_mended_and_the_new_one_opens(window, tmp_path, ready, qtbot):
    folder = tmp_path / "bookings"
    folder.mkdir()
    rows = [{"prompt": f"A table for {number}?", "completion": "Of course."} for number in range(3)]
    for name, lines in (("train-1", [*rows[:2], {"prompt": "x"}]), ("train-2", rows[2:]), ("valid", rows[:1])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    page, session = window.data_page, window.session
    window.open_data(folder)
    qtbot.waitUntil(page.problems.isVisible, timeout=60_000)
    presses = [one for one in page.problems.findChildren(QPushButton) if one.text().startswith("Leave out 1 flawed")]
    with qtbot.waitSignal(session.mending.mended, timeout=60_000):
        presses[0].click()
    new = tmp_path / "bookings (fixed)"
    assert session.config.data == str(new)
    (notice,) = page.notices.shown
    assert "1 row left out" in notice.message
    assert "“bookings”" in notice.hint
    assert "1 other file of the folder was copied as it was." in notice.hint
    qtbot.waitUntil(lambda: session.check.result is not None and not session.check.busy, timeout=60_000)
    assert (session.check.result.usable, session.check.result.split) == (3, {"train": 3, "valid": 1})
    assert sorted(file.name for file in new.iterdir()) == ["train-1.jsonl", "train-2.jsonl", "valid.jsonl"]
