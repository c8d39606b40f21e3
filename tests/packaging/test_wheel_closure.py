"""Everything that the app needs comes as a binary wheel for the oldest macOS on Apple silicon, and runs on it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from info_plist import MINIMUM_MACOS
from verify_bundle import verify

ROOT = Path(__file__).parents[2]

_PLUGINS = ("designer/", "qmltooling/", "sqldrivers/", "platforminputcontexts/", "imageformats/libqpdf.dylib")
_UNSHIPPED = ("PySide6/Qt/qml/", *(f"PySide6/Qt/plugins/{plugin}" for plugin in _PLUGINS))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("wheels")]


def uv(command: str, *arguments: str | Path, macos: str = MINIMUM_MACOS) -> subprocess.CompletedProcess[str]:
    """uv's `pip` for a Mac with Apple silicon and that macOS, whatever this machine is."""
    target = ("--python-platform", "aarch64-apple-darwin", "--python-version", "3.12", "--only-binary", ":all:")
    return subprocess.run(
        [sys.executable, "-m", "uv", "pip", command, *target, *arguments],
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": macos},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_dependency_has_a_wheel():
    done = uv("compile", "--no-header", "--no-annotate", ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stderr
    found = dict(line.split(" ")[0].split("==") for line in done.stdout.splitlines() if "==" in line)
    assert found["mlx-metal"] == found["mlx"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(found) > len(project["dependencies"])


def test_an_older_macos_has_none():
    """The resolution does look at the system: MLX's wheels begin with the macOS that we promise."""
    done = uv("compile", ROOT / "pyproject.toml", macos="13.0")
    assert done.returncode != 0
    assert "mlx" in done.stderr


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """What the checks say of all wheels, installed and untrimmed."""
    tree = tmp_path_factory.mktemp("wheels")
    done = uv("install", "--target", tree, "-r", ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stderr
    return {finding.check: finding for finding in verify(tree)}


@pytest.mark.parametrize("check", ["readable", "minimum macOS", "metallib", "links"])
def test_the_wheels_hold(findings, check):
    assert findings[check].problems == []


def test_no_wheel_is_for_intel_alone(findings):
    assert findings["architecture"].problems
    assert all(" and ARM64, not for ARM64 alone." in problem for problem in findings["architecture"].problems)


def test_only_parts_of_qt_that_are_not_shipped_load_what_is_not_there(findings):
    """Database drivers want Postgres in Applications, some plugins want other wheels of Qt."""
    loads = findings["load paths"].problems
    assert any("sqldrivers/libqsqlpsql.dylib loads /Applications/Postgres.app/" in problem for problem in loads)
    assert [problem for problem in loads if not problem.startswith(_UNSHIPPED)] == []
