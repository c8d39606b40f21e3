"""The objective: its own settings, what it needs, and data that chooses it."""

import pytest
from PySide6.QtWidgets import QPushButton

from app.panels.objective import SENTENCES
from app.plots.preference import MARGIN_UNITS
from app.states import State
from engine.config import PAIR_OBJECTIVES, SETTINGS


@pytest.fixture
def opened(window, qtbot):
    """Opens a file and waits for the check that its objective needs."""

    def open_file(path):
        window.open_data(path)
        qtbot.waitUntil(lambda: window.session.check.result is not None, timeout=10_000)

    return open_file


def choose(window, objective):
    box = window.sidebar.objective.form.fields["objective"].editor.box
    box.setCurrentIndex(box.findData(objective))
    box.activated.emit(box.currentIndex())


def test_every_objective_has_its_sentence_and_every_pair_objective_its_margin():
    assert set(SENTENCES) == set(SETTINGS["objective"].choices)
    assert set(MARGIN_UNITS) == set(PAIR_OBJECTIVES)


@pytest.mark.parametrize("objective", SETTINGS["objective"].choices)
def test_only_settings_that_the_objective_uses_are_shown(window, objective):
    choose(window, objective)
    fields = {name: field for panel in window.sidebar.panels for name, field in panel.form.fields.items()}
    hidden = {name for name, field in fields.items() if field.isHidden()}
    assert hidden == {name for name in fields if objective not in (SETTINGS[name].objectives or (objective,))}
    assert window.sidebar.objective.sentence.text() == SENTENCES[objective]


def test_pairs_choose_orpo_and_say_so(window, pairs, ready, opened):
    opened(pairs())
    panel = window.sidebar.objective
    assert window.session.config.objective == "orpo"
    assert panel.form.fields["objective"].editor.box.currentData() == "orpo"
    assert panel.chosen_by_data.text() == "Your data holds pairs, so ORPO is chosen."
    assert not panel.chosen_by_data.isHidden()
    assert window.data_page.problems.isHidden()
    ready(window)
    assert "12 pairs" in window.sidebar.dataset.figures.text()


def test_answers_choose_sft_again(window, pairs, data, ready, opened):
    opened(pairs())
    opened(data("letters.jsonl"))
    assert window.session.config.objective == "sft"
    assert window.sidebar.objective.chosen_by_data.text() == "Your data holds single answers, so SFT is chosen."
    ready(window)


def test_nobody_sees_the_errors_of_the_objective_before(window, pairs, opened):
    seen = []
    window.session.changed.connect(lambda: seen.append(window.data_page.problems.isVisible()))
    opened(pairs())
    assert len(seen) > 3
    assert not any(seen)


def test_a_persons_choice_stays_and_the_panels_say_what_is_wrong(window, pairs, qtbot, opened):
    opened(pairs())
    choose(window, "sft")
    assert window.session.check.busy
    assert window.sidebar.objective.chosen_by_data.isHidden()
    qtbot.waitUntil(lambda: not window.session.check.busy, timeout=10_000)
    panel = window.sidebar.objective
    assert window.session.config.objective == "sft"
    assert panel.state.state is State.NEEDS_YOU
    assert panel.misfit.text() == "Your data holds pairs: choose ORPO or DPO."
    assert window.sidebar.dataset.state.state is State.WRONG
    assert window.bar.text.text() == panel.misfit.text()
    assert not window.bar.start.isEnabled()
    assert len(window.session.check.result.problems) == 12
    assert window.data_page.problems.isHidden()  # one notice says it for all of them
    assert len(window.data_page.notices.shown) == 1
    choose(window, "dpo")
    qtbot.waitUntil(lambda: window.bar.start.isEnabled(), timeout=10_000)
    assert panel.misfit.isHidden()
    assert window.data_page.notices.shown == []


def test_a_misfit_is_one_notice_whose_button_is_the_cure(window, pairs, qtbot, opened):
    opened(pairs())
    choose(window, "sft")
    page = window.data_page
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    (notice,) = page.notices.shown
    assert notice.message == "Your data holds pairs, and SFT learns from single answers."
    cure = next(button for button in notice.findChildren(QPushButton) if button.text() == "Choose ORPO")
    cure.click()
    assert window.session.config.objective == "orpo"
    qtbot.waitUntil(lambda: window.bar.start.isEnabled(), timeout=10_000)
    assert page.notices.shown == []


def test_a_dismissed_misfit_stays_away(window, pairs, qtbot, opened):
    opened(pairs())
    choose(window, "sft")
    page = window.data_page
    qtbot.waitUntil(lambda: bool(page.notices.shown), timeout=10_000)
    page.notices.shown[0].dismiss.click()
    window.session.change(rank=8)
    assert page.notices.shown == []
    assert window.sidebar.objective.misfit.text() == "Your data holds pairs: choose ORPO or DPO."


def test_a_choice_made_before_the_check_has_answered_stays(window, data, qtbot):
    window.open_data(data("letters.jsonl"))
    choose(window, "dpo")
    qtbot.waitUntil(lambda: window.session.check.result is not None, timeout=10_000)
    assert window.session.config.objective == "dpo"
    assert window.sidebar.objective.misfit.text() == "Your data holds single answers: choose SFT."


def test_a_pair_objective_stays_with_pairs(window, pairs, opened):
    choose(window, "dpo")
    opened(pairs())
    assert window.session.config.objective == "dpo"
    assert window.sidebar.objective.chosen_by_data.isHidden()


def test_mixed_data_chooses_nothing(window, pairs, data, opened):
    path = pairs("mixed.jsonl", rows=3)
    path.write_text(path.read_text() + data("letters.jsonl", rows=3).read_text())
    opened(path)
    assert window.session.config.objective == "sft"
    assert window.sidebar.objective.misfit.isHidden()
    assert window.session.check.result.rows_with("error") == 3


def test_data_of_the_last_time_does_not_choose(make_window, pairs, qtbot):
    first = make_window()
    first.open_data(pairs())
    qtbot.waitUntil(lambda: first.session.check.result is not None, timeout=10_000)
    choose(first, "sft")
    first.close()
    second = make_window()
    qtbot.waitUntil(lambda: second.session.check.result is not None, timeout=10_000)
    assert second.session.config.objective == "sft"


def test_the_learned_text_is_previewed_anew(window, pairs, ready, opened, qtbot):
    opened(pairs())
    ready(window)
    with qtbot.waitSignal(window.data_page.rows.shown, timeout=10_000):
        window.session.change(sft_scope="response")
