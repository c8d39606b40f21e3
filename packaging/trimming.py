"""What stays out of the frozen program: modules that nothing calls, and files that nothing opens."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import PurePosixPath

from PyInstaller.depend.bindepend import get_imports

Line = tuple[str, str, str]  # of PyInstaller's tables: the name inside, the file here or a link's target, the kind

# All of the engine that needs mlx-lm hangs on these.
_ENGINE = ("engine.trainer", "engine.talk", "engine.scoring", "engine.probe")

# Imported where they are installed, or by parts that the program has no use for: development, the network, other
# file formats, other toolkits.
_UNUSED = [
    *("IPython", "PIL", "matplotlib", "numba", "pandas", "scipy", "tkinter", "torch", "tensorflow", "jax"),
    *("_pytest", "hypothesis", "mypy", "pip", "pkg_resources", "pytest", "setuptools", "wheel"),
    *("hf_xet", "mlx_lm.server", "mlx_lm.lora", "mlx_lm.evaluate", "mlx.extension"),
    *("numpy.f2py", "pyqtgraph.examples", "pyqtgraph.opengl", "pyqtgraph.jupyter", "pyqtgraph.console"),
    "readline",  # nobody types at the program, and on Linux it brings a library under the GPL
    *("click", "fsspec", "google", "markdown_it", "pydantic", "pydantic_core", "pygments"),
    *("PySide6.QtDBus", "PySide6.QtTest"),
    *(f"pyarrow.{name}" for name in ("acero", "cuda", "dataset", "feather", "flight", "orc", "substrait", "tests")),
]

# The parts of Qt that are loaded by name: windows, pictures, the Mac's look, and letters composed of several keys.
_PLUGINS = re.compile(
    r"platforms/libq(cocoa|offscreen|xcb)|imageformats/libq(svg|jpeg|ico|icns)|iconengines/libqsvgicon"
    r"|styles/libqmacstyle|platforminputcontexts/lib(compose|ibus)|platformthemes/libqxdgdesktopportal"
)
_PLUGIN = re.compile(r"PySide6/Qt/plugins/(.+)")
_UNOPENED = re.compile(
    r"(^|/)(tests?|include|examples|__pycache__|cmake|pkgconfig)/"
    r"|\.(h|hh|hpp|c|cc|cpp|pyx|pxd|pxi|pyi|a|la|lib|cmake|prl)$"
    r"|^PySide6/(Qt/(translations|qml|metatypes|libexec)|scripts|typesystems|glue|support)/"
    r"|^pyarrow/(src|vendored)/"
    r"|^pyarrow/_(acero|azurefs|cuda|dataset|dataset_\w+|feather|flight|gcsfs|hdfs|orc|pyarrow_cpp_tests|s3fs|substrait)\."
    r"|^pyarrow/_parquet_encryption\."
    r"|\.(dist|egg)-info(/|$)"
)
# Shared libraries that are there for others: Qt's, Arrow's, and at the top the system's and links to all of them.
_LIBRARY = re.compile(r"^PySide6/Qt/lib/|^pyarrow/lib(arrow|parquet)|^(?!libopenblas|libpython)(lib|Qt)[^/]+$")


def excluded() -> list[str]:
    """Modules to leave out though something may import them.

    Of transformers' thousands, which it loads lazily, all that the engine and mlx-lm under it don't touch.
    """
    return [*_UNUSED, *_not_loaded("transformers")]


def needed(lines: Iterable[Line]) -> list[Line]:
    """The lines whose files the program may open: nothing left over, and no library that no other file needs.

    Qt and Arrow bring many more than are loaded, for modules and plugins of theirs that are not there.
    """
    left = [line for line in lines if not _is_left_over(line[0])]
    code = [line for line in left if line[2] in ("BINARY", "EXTENSION")]
    library = {_called(name): file for name, file, _ in code if _LIBRARY.search(name)}
    waiting = [file for name, file, _ in code if not _LIBRARY.search(name)]
    reached: set[str] = set()
    while waiting:
        names = {_called(name) for name, _ in get_imports(waiting.pop())} & library.keys() - reached
        reached |= names
        waiting += [library[name] for name in names]
    unneeded = library.keys() - reached
    return [line for line in left if not (_LIBRARY.search(line[0]) and _called(line[0]) in unneeded)]


def _is_left_over(name: str) -> bool:
    plugin = _PLUGIN.match(name)
    return bool(_UNOPENED.search(name)) or (plugin is not None and not _PLUGINS.match(plugin[1]))


def _called(name: str) -> str:
    """What a library is asked for by: its file's name, or its framework's, to which other files belong as well."""
    framework = re.search(r"([^/]+)\.framework/", name)
    return framework[1] if framework else PurePosixPath(name).name


def _not_loaded(package: str) -> Iterator[str]:
    """The modules of `package`, the uppermost ones, that are not loaded when all of the engine is."""
    code = f"import sys, {', '.join(_ENGINE)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    def walk(folder: str, parent: str) -> Iterator[str]:
        for module in pkgutil.iter_modules([folder], f"{parent}."):
            if module.name not in loaded:
                yield module.name
            elif module.ispkg:
                yield from walk(f"{folder}/{module.name.rpartition('.')[2]}", module.name)

    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from walk(folder, package)
