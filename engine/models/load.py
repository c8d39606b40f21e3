"""Weights into memory, by mlx-lm, in the dtype this machine computes in."""

from __future__ import annotations

from engine.backend import compute_dtype, mx, nn
from engine.errors import EngineError
from engine.models.folder import ModelFolder
from engine.models.gemma3 import Gemma3Stack, Gemma3VisionStack
from engine.models.gemma4 import Gemma4Stack, Gemma4VisionStack
from engine.models.llama import LlamaStack, Qwen3Stack
from engine.models.minicpm import MiniCPMStack
from engine.models.phi import Phi3Stack
from engine.models.stack import Stack

from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import load_model as load_mlx_model

# model_type -> its decoder stack; the names for people are in folder.FAMILIES.
_STACKS: dict[str, type[Stack]] = {
    "llama": LlamaStack,
    "mistral": LlamaStack,
    "smollm3": LlamaStack,
    "qwen2": LlamaStack,
    "qwen3": Qwen3Stack,
    "phi3": Phi3Stack,
    "minicpm": MiniCPMStack,
    "gemma3_text": Gemma3Stack,
    "gemma3": Gemma3VisionStack,
    "gemma4_text": Gemma4Stack,
    "gemma4": Gemma4VisionStack,
    "gemma4_unified": Gemma4VisionStack,
}

# What mlx-lm fails with on files that it was not written for: a list too short, a variable that nothing was put into.
_REFUSALS = (
    ValueError, LookupError, TypeError, AttributeError, NameError, ArithmeticError, AssertionError, RuntimeError,
    OSError,
)  # fmt: skip


def load_stack(folder: ModelFolder) -> Stack:
    """The model's decoder stack, frozen, its weights evaluated. EngineError where files and config disagree."""
    folder.check_usable()
    try:
        model, _ = load_mlx_model(folder.path, lazy=True)
    except _REFUSALS as error:
        raise EngineError(
            f"The model in {folder.path} can't be loaded: {error}",
            "Its weights and its config.json don't fit together. Fetch the model again or choose another one.",
        ) from error
    model.freeze()
    hold_weights(model)
    return _STACKS[folder.model_type](model)


def hold_weights(model: nn.Module) -> None:
    """Converts floating-point weights to the compute dtype and reads them in, a layer's worth at a time."""

    def converted(array: mx.array) -> mx.array:
        floating = mx.issubdtype(array.dtype, mx.floating)
        return array.astype(compute_dtype(array.dtype)) if floating else array

    model.update(tree_map(converted, model.parameters()))
    for _, array in tree_flatten(model.parameters()):
        mx.eval(array)  # one by one: the file's copy of each is gone before the next is read
