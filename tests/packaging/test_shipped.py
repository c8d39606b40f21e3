"""What a program was frozen from, read out of the program itself."""

import pytest
from shipped import frozen_modules

writers = pytest.importorskip("PyInstaller.archive.writers", reason="make package installs PyInstaller")


@pytest.fixture
def archive(tmp_path):
    """The archive of one module that PyInstaller would put into a program."""
    source = tmp_path / "tunes.py"
    source.write_text("key = 'd'\n")
    code = {"tunes": compile(source.read_text(), source.name, "exec")}
    inner, outer = tmp_path / "PYZ.pyz", tmp_path / "PKG"
    writers.ZlibArchiveWriter(str(inner), [("tunes", str(source), "PYMODULE")], code)
    writers.CArchiveWriter(str(outer), [("PYZ.pyz", str(inner), False, "z")], "libpython3.so")
    return outer.read_bytes()


@pytest.mark.parametrize("signature", [0, 200_000])
def test_its_modules_are_found_also_before_a_signature(archive, signature, tmp_path):
    program = tmp_path / "Tunesmith"
    program.write_bytes(b"\0" * 5000 + archive + b"\xfa" * signature)
    assert frozen_modules(program) == {"tunes"}


def test_a_program_without_an_archive_has_none(tmp_path):
    program = tmp_path / "Tunesmith"
    program.write_bytes(b"#!/bin/sh\n")
    assert frozen_modules(program) == set()
