"""The window's look wherever the program lies: people put apps into folders of any name."""

import shutil

import pytest
from PySide6.QtWidgets import QCheckBox

from app import theme
from app.places import RESOURCES


def drawn(qtbot, colors):
    box = QCheckBox()
    qtbot.addWidget(box)
    box.setChecked(True)
    box.setStyleSheet(theme._style_sheet(colors))
    return box.grab().toImage()


@pytest.mark.parametrize(
    "name", ["Meine Programme", "für (mich)", "it's", 'so-called "apps"', "back\\slash", "@fill; #1"]
)
def test_the_style_sheet_finds_its_icons_in_any_folder(name, tmp_path, monkeypatch, qtbot):
    colors = theme.theme().colors
    usual = drawn(qtbot, colors)
    monkeypatch.setattr(theme, "RESOURCES", tmp_path / "nothing here")
    (tmp_path / "nothing here").mkdir()
    shutil.copytree(RESOURCES / "texts", tmp_path / "nothing here" / "texts")
    assert drawn(qtbot, colors) != usual  # without the icon it looks otherwise
    monkeypatch.setattr(theme, "RESOURCES", tmp_path / name)
    for folder in ("texts", "icons"):
        shutil.copytree(RESOURCES / folder, tmp_path / name / folder)
    assert drawn(qtbot, colors) == usual
