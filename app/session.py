"""What is chosen and what is known about it: the one thing that panels and pages share."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QSettings, QTimer, Signal

from app import places, words
from app.checking import DataCheck
from app.fitting import chosen_sentence, misfit, objective_for
from app.mending import Mending
from app.outlook import Outlook
from app.probing import Probing
from app.shelf import SAMPLE, ModelShelf
from app.states import Standing, State
from app.training import Training
from app.verdict import memory_standing
from engine.config import SETTINGS, TrainConfig, load_config
from engine.errors import EngineError

log = logging.getLogger(__name__)

_RECENT = 8
# How often the machine's free memory is looked at: often enough for Auto, seldom enough not to fidget.
_LOOK_MS = 10_000


class Session(QObject):
    """The settings in force, the data's check, the models, the memory outlook and the run.

    Signals:
        config_changed(): some setting has another value.
        changed(): something that decides how the panels stand or whether Start is on; look again.
        recent_changed(): the list of recent files.
        refused(EngineError): a setting or file that can't be taken, to be shown on a card.
    """

    config_changed = Signal()
    changed = Signal()
    recent_changed = Signal()
    refused = Signal(EngineError)

    def __init__(self, settings: QSettings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self.config = self._remembered()
        self.chosen_by_data = ""  # the sentence, while the objective is the data's choice and not a person's
        self._data_is_new = False
        self.check = DataCheck(self)
        self.mending = Mending(self)
        self.shelf = ModelShelf(self)
        self.outlook = Outlook(self)
        self.probing = Probing(self)
        self.training = Training(self)
        self._looking = QTimer(self, interval=_LOOK_MS)
        self._looking.timeout.connect(self._look_again)
        self.shelf.changed.connect(self._follow)
        self.check.changed.connect(self._fit_objective)  # first: nobody is to see the errors of a misfit
        self.check.changed.connect(self._predict)
        self.probing.ended.connect(self._predict)  # predictions follow what was measured
        self.training.ended.connect(self._look_again)
        for signal in (
            self.config_changed,
            self.check.changed,
            self.mending.changed,
            self.shelf.changed,
            self.outlook.changed,
            self.probing.changed,
            self.training.changed,
        ):
            signal.connect(self.changed)

    def open(self) -> None:
        """Looks at the machine, and at the data of the last time."""
        self.shelf.refresh()
        self._follow()
        self._looking.start()

    def close(self) -> None:
        """Remembers the settings and ends the children under way."""
        self._settings.setValue("config", json.dumps(self.config.to_mapping()))
        self._looking.stop()
        self.check.close()
        self.mending.close()
        self.shelf.close()
        self.probing.close()
        self.outlook.close()

    # -- what a person does

    def change(self, **values: Any) -> None:
        """Takes new values for some settings. EngineError for one that can't be."""
        config = self.config.updated(values)
        if "data" in values or config.objective != self.config.objective:
            self.chosen_by_data, self._data_is_new = "", "data" in values
        self._take(config)

    def open_data(self, path: Path) -> None:
        """Chooses a data file, or a folder of them; one that holds a model is taken as the model."""
        if path.is_dir() and (path / "config.json").is_file():
            self.change(model=str(path))
            return
        if not path.exists():
            self._forget(path)
            self.refused.emit(
                EngineError(
                    f"There is no file or folder {path}.", "It may have been moved or renamed; open it where it is now."
                )
            )
            return
        self._remember(path)
        again = self.config.data == str(path)
        # The columns that were chosen by hand are those of the file before.
        self.change(data=str(path), columns=self.config.columns if again else "")
        if again:
            self.check.again()

    def open_run(self, folder: Path) -> bool:
        """Chooses the settings of a run, its data and its model, to train it anew; whether they could be read."""
        try:
            config = load_config(folder / "config.json")
        except EngineError as error:
            self.refused.emit(error)
            return False
        self.chosen_by_data, self._data_is_new = "", False
        self._take(replace(config, output=""))  # its own folder is in use
        return True

    def close_data(self) -> None:
        """Back to the start, with the other settings kept."""
        self.change(data="")

    def try_sample(self) -> None:
        """Chooses the sample's data, model and settings, and fetches the model where it is missing."""
        try:
            preset = load_config(places.SAMPLE_PRESET) if places.SAMPLE_PRESET.is_file() else TrainConfig()
        except EngineError as error:
            self.refused.emit(error)
            preset = TrainConfig()
        try:
            data = places.sample_data()
        except EngineError as error:
            self.refused.emit(error)
            return
        self.chosen_by_data, self._data_is_new = "", False
        self._take(replace(preset, data=str(data), model=SAMPLE))
        model = self.shelf.named(SAMPLE)
        if self.shelf.listed and not (model and model.ready):
            self.shelf.fetch_sample()

    def start(self) -> None:
        """Starts training, where nothing stands against it."""
        if self.blocker() is None:
            self.training.start(self.config)

    def measure(self) -> None:
        """Measures what training would take, where nothing stands against it."""
        if self.measure_blocker() is None:
            self.probing.start(self.config, self.outlook.budget_bytes, self.outlook.plans)

    # -- what is known

    @property
    def recent(self) -> list[Path]:
        """The files of late, newest first."""
        stored = self._settings.value("recent", [])
        names = [stored] if isinstance(stored, str) else list(stored or [])  # type: ignore[call-overload]
        return [Path(name) for name in names]

    def blocker(self) -> Standing | None:
        """What keeps Start off, or None."""
        if self.training.phase.active:
            return Standing(State.BUSY, "Training is under way.")
        if self.probing.busy:
            return Standing(State.BUSY, "Memory is being measured.")
        return _first_against(self.dataset(), self.model(), self.objective(), self.memory())

    def measure_blocker(self) -> Standing | None:
        """What keeps Measure off, or None. What does not fit by prediction may well be measured."""
        if self.training.phase.active:
            return Standing(State.BUSY, "Training holds the memory now; measure when it has ended.")
        if self.probing.busy:
            return Standing(State.BUSY, "Memory is being measured.")
        return _first_against(self.dataset(), self.model(), self.objective())

    def dataset(self) -> Standing:
        """How the Dataset panel stands."""
        check = self.check.result
        if not self.config.data:
            return Standing(State.NEEDS_YOU, "Choose data to start.")
        if failure := self.check.failure:
            return Standing(State.NEEDS_YOU if failure.kind == "stopped" else State.WRONG, failure.message)
        if self.check.busy:
            return Standing(State.BUSY, "Looking at the data.")
        if check is None:
            return Standing(State.NEEDS_YOU, "The data is checked once there is a model.")
        if reason := misfit(check.format, self.config.objective):
            return Standing(State.WRONG, reason)
        if check.usable == 0:
            return Standing(State.WRONG, "No row of this file can be trained.")
        flawed = check.flawed
        if self.config.skip_flawed or not flawed:
            return Standing(State.READY)
        if check.rows_without_targets:
            count = check.rows_without_targets
            cure = f"raise Longest row, mend or leave {'it' if count == 1 else 'them'} out"
            return Standing(State.WRONG, f"{words.plural(count, 'row')} would train nothing: {cure}.")
        return Standing(State.WRONG, f"{words.plural(flawed, 'row')} to mend or to leave out before training.")

    def model(self) -> Standing:
        """How the Model panel stands."""
        if self.shelf.fetching:
            return Standing(State.BUSY, "The sample model is on its way.")
        if self.shelf.failure:
            return Standing(State.WRONG, self.shelf.failure.message)
        if not self.shelf.listed:
            return Standing(State.BUSY, "Looking for models.")
        model = self.shelf.named(self.config.model)
        if model is not None and not model.supported:
            return Standing(State.WRONG, model.reason or "This model can't be trained here yet.")
        if self.shelf.folder(self.config.model) is None:
            return Standing(State.NEEDS_YOU, "The model has to be fetched first.")
        if self.outlook.problem and not self.outlook.unknown:
            return Standing(State.WRONG, self.outlook.problem.message)
        return Standing(State.READY)

    def objective(self) -> Standing:
        """How the Objective panel stands: each value was checked when it was given, but the data may not fit."""
        check = self.check.result
        reason = misfit(check.format, self.config.objective) if check else ""
        return Standing(State.NEEDS_YOU if reason else State.READY, reason)

    def memory(self) -> Standing:
        """How the Memory panel stands."""
        return memory_standing(self.config, self.outlook, self.probing)

    # -- inside

    def _take(self, config: TrainConfig) -> None:
        if config != self.config:
            self.config = config
            self._follow()
            self.config_changed.emit()

    def _fit_objective(self) -> None:
        """Chooses an objective that new data can serve, once, when its check is there."""
        check = self.check.result
        if check is None or self.check.busy or not self._data_is_new:
            return
        self._data_is_new = False
        objective = objective_for(check.format, self.config.objective)
        if objective != self.config.objective:
            self.chosen_by_data = chosen_sentence(objective)
            self._take(replace(self.config, objective=objective))

    def _follow(self) -> None:
        known = self.shelf.listed and not self.shelf.fetching and self.shelf.folder(self.config.model) is not None
        self.check.follow(self.config, possible=known)
        self._predict()

    def _look_again(self) -> None:
        # A run or a probe holds the memory itself: what is free beside it says nothing of the next one's budget.
        busy = self.training.phase.active or self.probing.busy
        if not busy and self.outlook.refresh_machine():
            self._predict()

    def _predict(self) -> None:
        found = self.check.result
        largest = 0
        if found is not None:
            largest = found.largest if self.config.prefix_shared else found.largest_apart
        self.outlook.follow(self.config, self.shelf.folder(self.config.model), largest)

    def _remembered(self) -> TrainConfig:
        """The settings of the last time; the defaults where they can't be read any more."""
        try:
            stored = json.loads(str(self._settings.value("config", "{}")))
            config = TrainConfig.from_mapping({name: value for name, value in stored.items() if name in SETTINGS})
        except (ValueError, AttributeError, EngineError):
            log.warning("the settings of the last time can't be read; starting with the defaults")
            return TrainConfig()
        return config if not config.data or Path(config.data).exists() else replace(config, data="")

    def _remember(self, path: Path) -> None:
        others = [str(other) for other in self.recent if other != path]
        self._settings.setValue("recent", [str(path), *others][:_RECENT])
        self.recent_changed.emit()

    def _forget(self, path: Path) -> None:
        self._settings.setValue("recent", [str(other) for other in self.recent if other != path])
        self.recent_changed.emit()


def _first_against(*standings: Standing) -> Standing | None:
    return next((standing for standing in standings if not standing.state.good), None)
