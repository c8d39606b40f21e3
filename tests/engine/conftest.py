"""Every test has a home of its own; tests of data share a tokenizer, tests of memory give MLX its limits back."""

import pytest
from tokenizer_folders import chatml

from engine.backend import mx
from engine.config import GB
from engine.data import load_tokenizer


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home that no other test shares: models, runs and caches. It is not made before something is put there."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TUNESMITH_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(chatml(tmp_path_factory.mktemp("model")))


@pytest.fixture
def limits():
    """MLX's limits as they were, once the test is over."""
    before = mx.set_memory_limit(GB), mx.set_cache_limit(0)
    yield
    mx.set_memory_limit(before[0])
    mx.set_cache_limit(before[1])
    if mx.metal.is_available():
        mx.set_wired_limit(0)
