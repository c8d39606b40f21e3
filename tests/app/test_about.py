"""The About window: versions, and a licence with its text for all that is shipped."""

import importlib.metadata

import pytest
from PySide6.QtCore import qVersion
from PySide6.QtGui import QAction

from app import licences, places, product
from app.licences import Licence, gather, needed, read


@pytest.fixture(scope="module")
def gathered():
    return {one.name.lower().replace("_", "-"): one for one in gather()}


def test_every_part_has_its_licence_and_a_text(gathered):
    without = [one.name for one in gathered.values() if not one.licence or len(one.text()) < 400]
    assert without == []
    assert {"tunesmith", "python", "qt", "smollm2-135m-instruct"} < set(gathered)
    assert {"mlx", "mlx-lm", "numpy", "pyside6-essentials", "shiboken6", "transformers"} < set(gathered)


def test_tools_that_only_build_or_test_are_no_part(gathered):
    assert not {"pytest", "ruff", "mypy", "pip", "hypothesis"} & set(gathered)


@pytest.mark.parametrize(
    ("name", "licence", "text"),
    [
        ("tunesmith", "Apache-2.0", "Apache License"),
        ("python", "PSF-2.0", "PYTHON SOFTWARE FOUNDATION LICENSE"),
        ("qt", "LGPL-3.0-only", "GNU LESSER GENERAL PUBLIC LICENSE"),
        ("shiboken6", "LGPL-3.0", "GNU LESSER GENERAL PUBLIC LICENSE"),
        ("tokenizers", "Apache", "Apache License"),
        ("mlx", "MIT", "Apple Inc"),
        ("numpy", "BSD", "NumPy Developers"),
    ],
)
def test_licences_are_the_parts_own(gathered, name, licence, text):
    assert licence in gathered[name].licence
    assert text in gathered[name].text()


def test_needs_are_followed_and_extras_only_where_asked_for():
    plain = {one.metadata["Name"] for one in needed(["mlx"])}
    assert "mlx" in plain
    assert "mlx-cpu" not in plain
    backends = {one.metadata["Name"] for one in importlib.metadata.distributions() if one.metadata["Name"] == "mlx-cpu"}
    assert backends <= {one.metadata["Name"] for one in needed(["mlx[cpu]"])}


def test_versions_are_those_that_run():
    versions = product.versions()
    assert versions["Qt"] == qVersion()
    assert versions["MLX"] == importlib.metadata.version("mlx")
    assert "not found" not in versions.values()


@pytest.fixture
def about(window, qtbot):
    next(one for one in window.findChildren(QAction) if one.text() == "About Tunesmith").trigger()
    found = window.help.about
    qtbot.waitUntil(lambda: not found.gathering, timeout=20_000)
    yield found
    found.close()


def test_about_lists_what_is_in_it_and_shows_the_text(about, qtbot):
    names = [about.table.item(line, 0).text() for line in range(about.table.rowCount())]
    assert names[0] == "Tunesmith"
    assert names[1:] == sorted(names[1:], key=str.casefold)
    assert len(names) == len(set(names)) > 20
    assert "Apache License" in about.text.toPlainText()
    about.table.selectRow(names.index("Qt"))
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in about.text.toPlainText()


def test_about_is_one_window_that_comes_again(about, window):
    about.close()
    window.help.show_about()
    assert window.help.about is about
    assert about.isVisible()
    assert not about.isModal()
    assert about.table.rowCount() > 20


def test_about_closed_early_goes_on_where_it_was(window, gathered, qtbot):
    window.help.show_about()
    about = window.help.about
    closing = about.table.model().rowsInserted.connect(about.close)
    qtbot.waitUntil(lambda: not about.gathering, timeout=20_000)
    assert (about.table.rowCount(), about.isVisible()) == (1, False)
    about.table.model().disconnect(closing)
    window.help.show_about()
    qtbot.waitUntil(lambda: not about.gathering, timeout=20_000)
    assert about.table.rowCount() == len(gathered)
    about.close()


def test_what_the_build_wrote_is_preferred(monkeypatch, tmp_path):
    (tmp_path / "qt").mkdir()
    (tmp_path / "qt" / "LGPL.txt").write_text("the text", encoding="utf-8")
    (tmp_path / licences.INDEX).write_text(
        '[{"name": "Qt", "version": "6", "licence": "LGPL-3.0-only", "files": ["qt/LGPL.txt"]}]', encoding="utf-8"
    )
    monkeypatch.setattr(licences, "WRITTEN", tmp_path)
    (one,) = licences.shipped()
    assert one == Licence("Qt", "6", "LGPL-3.0-only", (tmp_path / "qt" / "LGPL.txt",))
    assert read(tmp_path) == [one]
    assert one.text() == "the text"


def test_the_icon_is_there():
    assert places.ICON.is_file()
