"""A bundle of a few kilobytes that every check is content with, to spoil in one place."""

import json
import plistlib
from pathlib import Path

from info_plist import info_plist
from tiny_machos import macho, write

PROGRAM = macho(loads=["/usr/lib/libSystem.B.dylib"], rpaths=["@executable_path/../Frameworks"])
MLX = macho(loads=["@rpath/libother.dylib", "/System/Library/Frameworks/Metal.framework/Metal"])


def mac_app(root: Path) -> Path:
    """An .app as PyInstaller lays it out."""
    app = root / "Tunesmith.app"
    contents = app / "Contents"
    plist = {"CFBundleExecutable": "Tunesmith", "CFBundleIconFile": "tunesmith.icns", **info_plist("1.2.3")}
    write(contents / "Info.plist", plistlib.dumps(plist))
    write(contents / "MacOS" / "Tunesmith", PROGRAM)
    write(contents / "Resources" / "tunesmith.icns")
    write(contents / "Frameworks" / "libother.dylib", macho(weak=["@rpath/libnotthere.dylib"]))
    write(contents / "Frameworks" / "mlx" / "lib" / "libmlx.dylib", MLX)
    write(contents / "Frameworks" / "mlx" / "lib" / "mlx.metallib")
    (contents / "Frameworks" / "libmlx.dylib").symlink_to("mlx/lib/libmlx.dylib")
    (contents / "Frameworks" / "mlx.metallib").symlink_to("mlx/lib/mlx.metallib")
    for plugin in ("platforms/libqcocoa.dylib", "iconengines/libqsvgicon.dylib"):
        write(contents / "Frameworks" / "PySide6" / "Qt" / "plugins" / plugin, macho())
    own_resources(contents / "Resources" / "resources")
    (contents / "Frameworks" / "resources").symlink_to("../Resources/resources")
    return app


def linux_folder(root: Path) -> Path:
    """A frozen folder as PyInstaller lays it out."""
    folder = root / "Tunesmith"
    write(folder / "Tunesmith")
    for plugin in ("platforms/libqxcb.so", "iconengines/libqsvgicon.so"):
        write(folder / "_internal" / "PySide6" / "Qt" / "plugins" / plugin)
    own_resources(folder / "_internal" / "resources")
    return folder


def own_resources(resources: Path) -> None:
    for name in ("models/SmolLM2-135M-Instruct.Q4_1.gguf", "presets/bookings.toml", "samples/bookings.jsonl"):
        write(resources / name)
    write(resources / "texts" / "window.qss")
    index = []
    for name in ("Python", "Qt", "SmolLM2-135M-Instruct", "PySide6-Essentials", "mlx", "mlx-cpu", "mlx-metal", "numpy"):
        write(resources / "licences" / name / "LICENSE", "Do as you like.")
        index.append({"name": name, "version": "1", "licence": "MIT", "files": [f"{name}/LICENSE"]})
    write(resources / "licences" / "index.json", json.dumps(index))
