"""What goes into the frozen program beside what PyInstaller finds by itself."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import licences
from icon import write_icns
from PyInstaller.depend.bindepend import resolve_library_path
from PyInstaller.utils.hooks import collect_data_files, collect_submodules
from PySide6.QtGui import QGuiApplication

from app import licences as shipped
from app import product
from engine.errors import EngineError
from engine.models import sample

ROOT = Path(__file__).resolve().parent.parent

# Imported by name at run time, where no analysis sees it.
_PACKAGES = ("mlx_lm.models", "mlx_lm.chat_templates", "mlx_lm.tool_parsers")
_MODULES = ("mlx._reprlib_fix", "mlx.__array_api_info", "PySide6.QtOpenGL", "PySide6.QtOpenGLWidgets")

Entry = tuple[str, str]  # a file or folder here, and the folder inside the program that it goes to
Line = tuple[str, str, str]  # of PyInstaller's tables: the name inside, the file here or a link's target, the kind


def hidden_imports() -> list[str]:
    """The modules that PyInstaller would miss."""
    return [*_MODULES, *(module for package in _PACKAGES for module in collect_submodules(package))]


def data(scratch: Path) -> list[Entry]:
    """Resources, the sample model, licences, MLX's programs for the GPU, and the sources that are read as data.

    What has to be made is made in `scratch`, each time anew but for the sample model, which is fetched once.
    """
    resources = [
        folder for folder in (ROOT / "resources").iterdir() if folder.is_dir() and folder.name != "__pycache__"
    ]
    model = scratch / sample.GGUF
    if not model.is_file():
        sample.fetch_gguf(model)
    licences.collect(_emptied(scratch / "licences"))
    return [
        *((str(folder), f"resources/{folder.name}") for folder in resources),
        (str(model), "resources/models"),
        (str(scratch / "licences"), "resources/licences"),
        *((str(path), "mlx/lib") for path in _metallibs()),
        # It learns from the files beside a module which others there are, also of those that are never loaded.
        *collect_data_files("transformers.models.auto", include_py_files=True),
    ]


def _metallibs() -> list[Path]:
    """MLX's programs for the GPU, which its wheel for macOS brings."""
    spec = find_spec("mlx")
    folders = (spec and spec.submodule_search_locations) or ()
    return [path for folder in folders for path in Path(folder, "lib").glob("*.metallib")]


def libraries() -> list[Entry]:
    """OpenBLAS on Linux: engine/backend.py loads it by name, and a frozen program looks among its own files first."""
    if sys.platform != "linux":
        return []
    name = ctypes.util.find_library("openblas")
    path = resolve_library_path(name) if name else None
    if path is None:
        raise EngineError("OpenBLAS is not on this machine.", "Run make system, then build again.")
    return [(path, ".")]


def metadata(scratch: Path) -> list[Line]:
    """METADATA of each distribution, for importlib.metadata; what else lies beside it tells of this machine only."""
    folder = _emptied(scratch / "metadata")
    lines = []
    for distribution in shipped.needed([product.NAME, *product.requirements()]):
        name = f"{distribution.metadata['Name'].replace('-', '_')}-{distribution.version}.dist-info"
        (folder / name).mkdir()
        # An editable install may tell of itself in the older way.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        (folder / name / "METADATA").write_text(text, encoding="utf-8")
        lines.append((f"{name}/METADATA", str(folder / name / "METADATA"), "DATA"))
    return lines


def systems_licences(files: Iterable[Line], scratch: Path) -> list[Line]:
    """The licences of what a Linux build takes from the system, which is known once all `files` are."""
    if sys.platform != "linux":
        return []
    folder = scratch / "licences"
    libraries = [Path(file) for name, file, kind in files if kind == "BINARY" and "/" not in name]
    systems = [path for path in libraries if path.is_relative_to("/usr/lib") or path.is_relative_to("/lib")]
    added = licences.add_systems(folder, systems)
    return [(f"resources/licences/{path.relative_to(folder)}", str(path), "DATA") for path in added]


def links(files: Iterable[Line]) -> list[Line]:
    """Links to MLX's GPU programs: it looks for them beside its library, which PyInstaller links at the top."""
    return [(Path(name).name, name, "SYMLINK") for name, _, _ in files if name.endswith("mlx.metallib")]


def icon(scratch: Path) -> str:
    """The app's icon for macOS, drawn in every size."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    QGuiApplication.instance() or QGuiApplication([])
    path = scratch / "Tunesmith.icns"
    write_icns(ROOT / "resources" / "icons" / "tunesmith.svg", path)
    return str(path)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
