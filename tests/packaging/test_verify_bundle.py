"""Each check finds what it is for, in bundles that are right but for one thing."""

import json
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from small_bundles import linux_folder, mac_app
from tiny_machos import macho, universal, write
from verify_bundle import main, report, verify


def problems(root: Path, **options) -> dict[str, list[str]]:
    return {finding.check: finding.problems for finding in verify(root, **options) if finding.problems}


@pytest.fixture
def app(tmp_path):
    return mac_app(tmp_path / "a folder für apps")


@pytest.mark.parametrize("make", [mac_app, linux_folder])
def test_a_bundle_as_it_should_be(tmp_path, make, capsys):
    root = make(tmp_path)
    assert problems(root) == {}
    assert main([str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(verify(root))
    assert all(line.startswith("ok ") for line in lines)


def _library(data: bytes):
    return lambda contents: write(contents / "Frameworks" / "libnew.dylib", data)


def _link(target: str):
    return lambda contents: (contents / "Resources" / "link").symlink_to(target)


def _plist(key: str, value: object):
    def change(contents: Path) -> None:
        plist = plistlib.loads((contents / "Info.plist").read_bytes())
        (contents / "Info.plist").write_bytes(plistlib.dumps({**plist, key: value}))

    return change


def _index(change):
    def spoil(contents: Path) -> None:
        index = contents / "Resources" / "resources" / "licences" / "index.json"
        index.write_text(json.dumps(change(json.loads(index.read_text()))))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "check", "sentence"),
    [
        (
            _library(universal(macho("x86_64"), macho())),
            "architecture",
            "Contents/Frameworks/libnew.dylib is for x86_64 and ARM64, not for ARM64 alone.",
        ),
        (
            _library(macho("x86_64")),
            "architecture",
            "Contents/Frameworks/libnew.dylib is for x86_64, not for ARM64 alone.",
        ),
        (
            _library(macho(minimum=(15, 1))),
            "minimum macOS",
            "Contents/Frameworks/libnew.dylib needs macOS 15.1, but 14.0 is promised.",
        ),
        (
            _library(macho(minimum=None)),
            "minimum macOS",
            "Contents/Frameworks/libnew.dylib doesn't say which macOS it needs.",
        ),
        (
            _library(macho(loads=["/opt/homebrew/lib/libffi.8.dylib"])),
            "load paths",
            "Contents/Frameworks/libnew.dylib loads /opt/homebrew/lib/libffi.8.dylib, which other Macs don't have.",
        ),
        (
            _library(macho(weak=["/opt/homebrew/lib/libffi.8.dylib"])),
            "load paths",
            "Contents/Frameworks/libnew.dylib loads /opt/homebrew/lib/libffi.8.dylib, which other Macs don't have.",
        ),
        (
            _library(macho(loads=["@rpath/libgone.dylib"], rpaths=["@loader_path/mlx/lib"])),
            "load paths",
            "Contents/Frameworks/libnew.dylib loads @rpath/libgone.dylib, which is not in the bundle.",
        ),
        (
            # There it is, but outside of the bundle: only on this machine.
            _library(macho(loads=["@loader_path/../../../outside.dylib"])),
            "load paths",
            "Contents/Frameworks/libnew.dylib loads @loader_path/../../../outside.dylib, which is not in the bundle.",
        ),
        (
            _library(macho(rpaths=["/Users/runner/work/lib"])),
            "load paths",
            "Contents/Frameworks/libnew.dylib searches /Users/runner/work/lib, which other Macs don't have.",
        ),
        (
            lambda contents: (contents / "Frameworks" / "mlx.metallib").unlink(),
            "metallib",
            "Contents/Frameworks/libmlx.dylib has no mlx.metallib beside it.",
        ),
        (_link("/Applications"), "links", "Contents/Resources/link links to /Applications, outside of the bundle."),
        (
            _link("../../../outside.dylib"),
            "links",
            "Contents/Resources/link links to ../../../outside.dylib, outside of the bundle.",
        ),
        (_link("nowhere"), "links", "Contents/Resources/link links to nowhere, which is not there."),
        (
            lambda contents: write(contents / "Resources" / "numpy" / "tests" / "data.npy"),
            "leftovers",
            "Contents/Resources/numpy/tests/ is left over.",
        ),
        (
            lambda contents: write(contents / "Resources" / "numpy" / "core.h"),
            "leftovers",
            "Contents/Resources/numpy/core.h is left over.",
        ),
        (
            lambda contents: (contents / "Resources/resources/models/SmolLM2-135M-Instruct.Q4_1.gguf").unlink(),
            "complete",
            "resources/models/SmolLM2-135M-Instruct.Q4_1.gguf is missing.",
        ),
        (
            lambda contents: next(contents.glob("Frameworks/**/libqcocoa.dylib")).unlink(),
            "complete",
            "PySide6/Qt/plugins/platforms/libqcocoa.dylib is missing.",
        ),
        (
            lambda contents: (contents / "Resources" / "tunesmith.icns").unlink(),
            "Info.plist",
            "Info.plist's CFBundleIconFile, tunesmith.icns, is not in Contents/Resources.",
        ),
        (
            _plist("NSRequiresAquaSystemAppearance", True),
            "Info.plist",
            "Info.plist has another NSRequiresAquaSystemAppearance than the build gave it.",
        ),
        (_index(lambda index: index[1:]), "licences", "python is inside without a licence."),
        (
            _index(lambda index: [{**one, "files": []} if one["name"] == "mlx" else one for one in index]),
            "licences",
            "The licence of mlx has no text.",
        ),
        (
            # A module that belongs to a distribution, here pytest.
            lambda contents: write(contents / "Frameworks" / "pytest" / "data.json"),
            "licences",
            "pytest is inside without a licence.",
        ),
    ],
)
def test_one_thing_wrong(app, spoil, check, sentence, capsys):
    write(app.parent / "outside.dylib", macho())
    spoil(app / "Contents")
    assert problems(app) == {check: [sentence]}
    assert main([str(app)]) == 2
    assert sentence in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "darwin", reason="where the two can't lie side by side")
def test_names_that_differ_in_case_alone(app):
    for name in ("PyYAML", "pyyaml"):
        write(app / "Contents" / "Resources" / name / "METADATA")
    sentence = "Contents/Resources/PyYAML and Contents/Resources/pyyaml are one name on a Mac."
    assert problems(app) == {"names": [sentence]}


def test_what_is_no_macho_though_it_begins_like_one(app):
    write(app / "Contents" / "Resources" / "Some.class", bytes.fromhex("cafebabe00000041"))  # Java 21
    assert problems(app) == {}


def test_a_macho_cut_short(app):
    path = write(app / "Contents" / "Frameworks" / "libnew.dylib", macho()[:24])
    found = problems(app)
    assert list(found) == ["readable"]
    assert found["readable"][0].startswith(f"{path.relative_to(app)} can't be read")


def test_the_size_limit(app):
    assert problems(app, limit_mb=0) == {"size": ["It has 0 MB; the limit is 0 MB."]}


def test_a_tree_of_wheels_is_held_to_what_applies(tmp_path):
    write(tmp_path / "mlx" / "lib" / "libmlx.dylib", macho())
    assert problems(tmp_path) == {"metallib": ["mlx/lib/libmlx.dylib has no mlx.metallib beside it."]}
    assert "licences" not in report(verify(tmp_path))


def test_one_check_alone(app, capsys):
    _library(macho("x86_64"))(app / "Contents")
    assert main([str(app), "--only", "minimum macOS"]) == 0
    assert capsys.readouterr().out.startswith("ok    minimum macOS")
    assert main([str(app), "--only", "no such check"]) == 2


def test_no_bundle_at_all(tmp_path, capsys):
    (tmp_path / "Contents").mkdir()
    assert main([str(tmp_path)]) == 2
    assert "can't be read as a bundle" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="takes numpy's ELF files")
def test_a_library_left_out_on_linux(tmp_path):
    folder = linux_folder(tmp_path)
    source = Path(numpy.__file__).parent
    extension = next(source.glob("_core/_multiarray_umath.*.so"))
    inside = folder / "_internal" / "numpy" / "_core" / extension.name
    inside.parent.mkdir(parents=True)
    shutil.copy(extension, inside)
    found = problems(folder)
    assert list(found) == ["libraries"]
    assert [line.partition(" needs ")[0] for line in found["libraries"]] == [str(inside.relative_to(folder))] * len(
        found["libraries"]
    )
    shutil.copytree(source.parent / "numpy.libs", folder / "_internal" / "numpy.libs")
    assert problems(folder) == {}


def test_a_systems_library_has_a_licence(tmp_path):
    folder = linux_folder(tmp_path)
    write(folder / "_internal" / "libnew.so.1")
    assert problems(folder) == {"licences": ["libnew.so.1 is inside without a licence."]}
    index = folder / "_internal" / "resources" / "licences" / "index.json"
    first, *others = json.loads(index.read_text())
    index.write_text(json.dumps([{**first, "libraries": ["libnew.so.1"]}, *others]))
    assert problems(folder) == {}


def test_run_as_a_program(app):
    (app / "Contents" / "MacOS" / "Tunesmith").unlink()
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, root / "packaging" / "verify_bundle.py", app],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert "FAIL  Info.plist" in done.stdout
