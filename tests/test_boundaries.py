"""The engine knows no Qt, the window knows no MLX: proved in fresh interpreters."""

import pkgutil
import subprocess
import sys

import app
import engine


def _modules(package) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    return [module.name for module in found if not module.name.endswith("__main__")]


def _loaded_by(modules: list[str]) -> str:
    code = f"import importlib, sys; [importlib.import_module(name) for name in {modules!r}]; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_engine_loads_no_qt():
    loaded = _loaded_by(_modules(engine)).split()
    assert "mlx.core" in loaded
    assert not [name for name in loaded if name.startswith(("PySide6", "shiboken6", "pyqtgraph", "app."))]


def test_the_window_loads_no_mlx():
    loaded = _loaded_by(_modules(app)).split()
    assert "PySide6.QtWidgets" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("mlx", "mlx_lm", "transformers")]
