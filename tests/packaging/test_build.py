"""The steps of a build, without a Mac: the commands they give, and what they do with what comes back."""

import argparse
import os
import plistlib
import re
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import build
import bundle
import pytest
from commands import run
from dmg import make_image, mounted
from info_plist import info_plist
from signing import ENTITLEMENTS, inside_out, notarize, sign_app, staple
from small_bundles import mac_app
from tiny_machos import macho, write

from engine.data.folders import FORMATS
from engine.errors import EngineError

SCRIPT = Path(build.__file__)
SIGNED = {
    "TUNESMITH_IDENTITY": "Developer ID Application: Somebody (TEAM)",
    "TUNESMITH_NOTARY_KEY": "key.p8",
    "TUNESMITH_NOTARY_KEY_ID": "ID",
    "TUNESMITH_NOTARY_ISSUER": "ISSUER",
}


class Record:
    """Takes commands instead of running them; answers with what `answers` has for a command's words."""

    def __init__(self, **answers: str) -> None:
        self.commands: list[list[str]] = []
        self.answers = answers

    def __call__(self, *argv, env=None) -> str:
        self.commands.append([str(argument) for argument in argv])
        return next((answer for word, answer in self.answers.items() if word in argv), "")


def dry_run(*arguments: str, **variables: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUNESMITH_")}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--dry-run", *arguments],
        env={**clean, **variables, "PYTHONPATH": str(build.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line.startswith("$ ")]


def order(lines: list[str], *patterns: str) -> None:
    """Each pattern is found after the one before."""
    rest = iter(lines)
    for pattern in patterns:
        assert any(re.search(pattern, line) for line in rest), f"{pattern} is not in its place in:\n" + "\n".join(lines)


def test_a_mac_build_that_is_signed_and_approved():
    lines = dry_run(**SIGNED)
    order(
        lines,
        r"uv venv",
        r"MACOSX_DEPLOYMENT_TARGET=14\.0 .*uv pip install .*--only-binary :all:",
        r"verify_bundle\.py .*environment --only 'minimum macOS'",
        r"PyInstaller .*tunesmith\.spec",
        r"codesign .*--options runtime --timestamp .*Mach-O",
        r"codesign .*\.framework",
        r"codesign .*--entitlements .*Tunesmith\.app$",
        r"verify_bundle\.py .*Tunesmith\.app$",
        r"codesign --verify --deep --strict",
        r"Tunesmith\.app/Contents/MacOS/Tunesmith --self-test",
        r"codesign --verify --deep --strict",
        r"notarytool submit .*Tunesmith\.zip --key key\.p8 --key-id ID --issuer ISSUER --wait",
        r"stapler staple .*Tunesmith\.app",
        r"spctl --assess --type execute",
        r"ln -s /Applications",
        r"hdiutil create .*-format ULMO .*Tunesmith-[\d.]+\.dmg",
        r"codesign .*Tunesmith-[\d.]+\.dmg",
        r"notarytool submit .*Tunesmith-[\d.]+\.dmg",
        r"stapler staple .*\.dmg",
        r"spctl --assess --type open",
        r"hdiutil attach -readonly .* -mountpoint '[^']+ [^']+'",
        r"Tunesmith\.app/Contents/MacOS/Tunesmith' --self-test",
        r"hdiutil detach",
    )


def test_without_an_identity_it_is_signed_ad_hoc_and_not_hardened():
    lines = dry_run()
    signing = [line for line in lines if "codesign --force" in line]
    assert len(signing) == 3
    assert all("--sign - " in line and "runtime" not in line for line in signing)
    assert not [line for line in lines if "notarytool" in line or "stapler" in line or "spctl" in line]


def options(identity=None, keychain_profile=None) -> argparse.Namespace:
    return argparse.Namespace(identity=identity, keychain_profile=keychain_profile)


@pytest.mark.parametrize(
    ("chosen", "environ", "release"),
    [
        (options(), {}, build.Release()),
        (options(), {"TUNESMITH_IDENTITY": ""}, build.Release()),
        (options("Me"), {"TUNESMITH_IDENTITY": "You"}, build.Release("Me")),
        (options("Me", "mine"), {}, build.Release("Me", ("--keychain-profile", "mine"))),
        (
            options(),
            SIGNED,
            build.Release(SIGNED["TUNESMITH_IDENTITY"], ("--key", "key.p8", "--key-id", "ID", "--issuer", "ISSUER")),
        ),
    ],
)
def test_how_it_is_handed_out(chosen, environ, release):
    assert build.release_from(chosen, environ) == release


@pytest.mark.parametrize(
    ("chosen", "environ", "sentence"),
    [
        (options(None, "mine"), {}, "Apple approves nothing that is signed ad hoc."),
        (
            options("Me"),
            {"TUNESMITH_NOTARY_KEY": "key.p8"},
            "TUNESMITH_NOTARY_KEY_ID and TUNESMITH_NOTARY_ISSUER is not set.",
        ),
    ],
)
def test_halves_that_do_not_fit(chosen, environ, sentence):
    with pytest.raises(EngineError, match=re.escape(sentence)):
        build.release_from(chosen, environ)


def test_signing_goes_from_the_inside_out(tmp_path):
    app = mac_app(tmp_path)
    frameworks = app / "Contents" / "Frameworks"
    versions = frameworks / "PySide6" / "Qt" / "lib" / "QtCore.framework" / "Versions"
    write(versions / "A" / "QtCore", macho())
    (versions / "Current").symlink_to("A")
    write(app / "Contents" / "Resources" / "some.class", bytes.fromhex("cafebabe00000041"))
    # Each file once, under its own name; the program and the framework's library get theirs with what holds them.
    plugins = frameworks / "PySide6" / "Qt" / "plugins"
    qts = [plugins / "iconengines" / "libqsvgicon.dylib", plugins / "platforms" / "libqcocoa.dylib"]
    assert inside_out(app) == [
        [*qts, frameworks / "mlx" / "lib" / "libmlx.dylib", frameworks / "libother.dylib"],
        [versions.parent],
        [app],
    ]
    record = Record()
    sign_app(record, app, "Me")
    assert ["--entitlements" in command for command in record.commands] == [False, False, True]
    assert all(command[:3] == ["codesign", "--force", "--options"] for command in record.commands)


def test_no_exception_from_the_hardened_runtime():
    assert plistlib.loads(ENTITLEMENTS.read_bytes()) == {}
    # codesign's own parser refuses what others take: plain keys alone are safe.
    assert b"<!--" not in ENTITLEMENTS.read_bytes()


def test_apple_says_no():
    record = Record(submit='{"id": "1234", "status": "Invalid", "message": "Processing complete"}')
    with pytest.raises(EngineError, match=r"Apple did not accept Tunesmith\.zip: Invalid"):
        notarize(record, Path("Tunesmith.zip"), ["--keychain-profile", "mine"])
    assert record.commands[-1] == ["xcrun", "notarytool", "log", "1234", "--keychain-profile", "mine"]


def test_apple_says_yes():
    record = Record(submit='{"id": "1234", "status": "Accepted"}')
    notarize(record, Path("Tunesmith.zip"), ["--keychain-profile", "mine"])
    assert len(record.commands) == 1


@pytest.mark.parametrize("refusals", [0, 2, 4])
def test_an_approval_that_is_late_is_waited_for(refusals):
    commands, waits = [], []

    def late(*argv, env=None):
        commands.append(argv[2])
        if len(commands) <= refusals:
            raise EngineError("xcrun stapler staple … failed with status 65.", "What it says above tells why.")

    staple(late, Path("Tunesmith.app"), waits.append)
    assert commands == ["staple"] * (refusals + 1) + ["validate"]
    assert len(waits) == refusals


def test_an_approval_that_never_comes_fails_the_build():
    def never(*argv, env=None):
        raise EngineError("xcrun stapler staple … failed with status 65.", "What it says above tells why.")

    waits = []
    with pytest.raises(EngineError, match="status 65"):
        staple(never, Path("Tunesmith.app"), waits.append)
    assert 60 < sum(waits) < 600


def test_the_image_is_let_go_also_when_its_test_fails(tmp_path):
    record = Record()
    with pytest.raises(EngineError, match="no window"), mounted(record, Path("Tunesmith.dmg"), tmp_path) as volume:
        raise EngineError("There was no window.", "Look.")
    assert record.commands[-1] == ["hdiutil", "detach", "-force", str(volume)]


def test_an_image_that_something_still_reads_fails_no_build(tmp_path, capsys):
    def busy(*argv, env=None):
        if "detach" in argv:
            raise EngineError("hdiutil detach -force … failed with status 16.", "What it says above tells why.")

    with mounted(busy, Path("Tunesmith.dmg"), tmp_path) as volume:
        pass
    assert f"stays mounted at {volume}. hdiutil detach" in capsys.readouterr().out


@pytest.fixture
def apples_tools(tmp_path, monkeypatch):
    """Stand-ins for two of Apple's programs: ditto copies, hdiutil packs its source folder."""
    tools = tmp_path / "tools"
    write(tools / "ditto", '#!/bin/sh\ncp -R "$1" "$2"\n')
    write(tools / "hdiutil", '#!/bin/sh\n[ "$1" = create ] || exit 0\nfor last; do :; done\ntar cf "$last" -C "$5" .\n')
    for tool in tools.iterdir():
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("apples_tools")
def test_the_image_holds_the_app_beside_a_link(tmp_path):
    app, image = mac_app(tmp_path / "dist"), tmp_path / "Tunesmith 1.dmg"
    for _ in range(2):  # what an earlier build staged is in nobody's way
        image.unlink(missing_ok=True)
        make_image(run, app, image, tmp_path / "build folder")
    with tarfile.open(image) as packed:
        assert packed.getmember("./Applications").linkname == "/Applications"
        assert packed.getmember("./Tunesmith.app/Contents/Info.plist").isfile()
        assert packed.getmember("./Tunesmith.app/Contents/Frameworks/libmlx.dylib").linkname == "mlx/lib/libmlx.dylib"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["no-such-program-anywhere"], "no-such-program-anywhere could not be started: No such file or directory."),
        ([sys.executable, "-c", "raise SystemExit(3)"], "failed with status 3."),
    ],
)
def test_a_command_that_fails_is_told_in_a_sentence(argv, sentence):
    with pytest.raises(EngineError) as caught:
        run(*argv)
    assert sentence in caught.value.message


def test_a_command_is_shown_and_what_it_prints_comes_back(capfd):
    code = "import os; print(os.environ['A'])"
    assert run(sys.executable, "-c", code, env={"A": "b c"}) == "b c\n"
    shown, printed = capfd.readouterr().out.splitlines()
    assert shown.startswith("$ A='b c' ")
    assert printed == "b c"


def test_an_earlier_result_is_replaced_with_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    result = write(tmp_path / "dist" / "Tunesmith" / "Tunesmith").parent
    build.clear_the_way(run, result, tmp_path / "dist" / "Tunesmith.dmg")
    assert not result.exists()
    said, command = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Replaces dist/Tunesmith of \d{4}-\d\d-\d\d \d\d:\d\d\.", said)
    assert command == f"$ rm -rf {result}"


def test_sizes_by_part_and_the_images_hash(tmp_path, capsys, monkeypatch):
    app = mac_app(tmp_path)
    write(app / "Contents" / "Frameworks" / "mlx" / "lib" / "mlx.metallib", b"x" * 3_000_000)
    image = write(tmp_path / "Tunesmith.dmg", b"x" * 1_500_000)
    build.report(app, image)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "     3.0 MB  mlx"
    assert "     3.0 MB  Tunesmith.app" in lines
    assert lines[-2:] == ["     1.5 MB  Tunesmith.dmg", f"sha256 {bundle.sha256(image)}  Tunesmith.dmg"]
    monkeypatch.setattr(build, "IMAGE_LIMIT_MB", 1)
    with pytest.raises(EngineError, match="The disk image has 2 MB; the limit is 1 MB"):
        build.report(app, image)


def test_macos_is_told_of_every_format_that_data_comes_in():
    plist = plistlib.loads(plistlib.dumps(info_plist("1.2.3")))
    data, runs = plist["CFBundleDocumentTypes"]
    known = {"public.json": [".json"], "public.plain-text": [".txt"]}
    known["public.comma-separated-values-text"], known["public.tab-separated-values-text"] = [".csv"], [".tsv"]
    for declared in plist["UTImportedTypeDeclarations"]:
        tags = declared["UTTypeTagSpecification"]["public.filename-extension"]
        known[declared["UTTypeIdentifier"]] = [f".{tag}" for tag in tags]
    assert sorted(suffix for kind in data["LSItemContentTypes"] for suffix in known[kind]) == sorted(FORMATS)
    assert runs["LSItemContentTypes"] == ["public.folder"]
    assert plist["CFBundleShortVersionString"] == "1.2.3"
