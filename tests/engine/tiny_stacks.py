"""Decoder stacks with an adapter to train, and rows for them, for the tests of gradients."""

from pathlib import Path
from typing import Any

import numpy as np

from engine.backend import mx
from engine.config import TrainConfig
from engine.data.tokenize import Example
from engine.models.adapter import add_adapter
from engine.models.folder import open_folder
from engine.models.load import load_stack
from engine.models.stack import Stack

from mlx.utils import tree_flatten, tree_unflatten


def adapted_stack(folder: Path, **settings: Any) -> Stack:
    """The model's stack with an adapter whose B is not zero, or half of the gradients would be."""
    stack = load_stack(open_folder(folder))
    add_adapter(stack.model, TrainConfig.from_mapping({"rank": 3, **settings}))
    mx.random.seed(7)
    drawn = [
        (name, mx.random.normal(value.shape) * 0.1)
        for name, value in tree_flatten(stack.model.trainable_parameters())
        if name.endswith("lora_b")
    ]
    stack.model.update(tree_unflatten(drawn))
    return stack


def example(line: int, ids: list[int], prompt: int) -> Example:
    """A row whose tokens after the first `prompt` are trained."""
    return Example(line, np.array(ids, np.int32), np.arange(len(ids)) >= prompt, 0)
