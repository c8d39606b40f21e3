"""A model's head as the bounded heads use it: logits of any part of the vocabulary, and the way back from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.backend import mx, nn

_WHOLE = slice(None)


@dataclass(frozen=True, eq=False)
class Head:
    """From normed hidden states to logits: softcap * tanh(scale * (W h + bias) / softcap); tanh only with a softcap.

    `module` is a linear layer or a tied embedding, dense or quantized. A part is a slice of the vocabulary.
    Products run in the dtype of module and hidden states, everything else in float32.
    """

    module: nn.Module
    softcap: float | None = None
    scale: float = 1.0

    @property
    def vocabulary(self) -> int:
        """Rows of the weight."""
        return int(self._module.weight.shape[0])

    def logits(self, hidden: mx.array, part: slice = _WHOLE) -> mx.array:
        """float32 [tokens, part], from hidden states [tokens, hidden]."""
        products = self._times_weight(hidden, part, transpose=True)
        if "bias" in self._module:
            products = products + self._module.bias[part]
        # float32: half precision loses the tail of the sum over the vocabulary.
        return self._capped(products.astype(mx.float32))

    def own_logits(self, hidden: mx.array, targets: mx.array, rows: mx.array) -> mx.array:
        """Each token's logit of its own target, float32 [tokens, 1], from the targets' `rows`."""
        products = (hidden.astype(mx.float32) * rows).sum(axis=-1, keepdims=True)
        if "bias" in self._module:
            products = products + self._module.bias[targets].astype(mx.float32)[:, None]
        return self._capped(products)

    def rows(self, targets: mx.array) -> mx.array:
        """The weight's rows of the targets, float32 [targets, hidden]."""
        module = self._module
        if "scales" not in module:
            dense: mx.array = module.weight[targets]
            return dense.astype(mx.float32)
        scales, biases = module.scales[targets], module.get("biases")
        if biases is not None:
            # In half precision they would round the rows, which quantized_matmul does not.
            scales, biases = scales.astype(mx.float32), biases[targets].astype(mx.float32)
        return mx.dequantize(
            module.weight[targets],
            scales,
            biases,
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
            dtype=mx.float32,
        )

    def before_cap(self, slopes: mx.array, logits: mx.array) -> mx.array:
        """Slopes at `logits` as slopes at the products they were made of: the chain rule through cap and scale."""
        if self.softcap is not None:
            slopes = slopes * (1 - mx.square(logits / self.softcap))
        return slopes if self.scale == 1 else slopes * self.scale

    def back(self, slopes: mx.array, part: slice = _WHOLE) -> mx.array:
        """Slopes at the products [tokens, part] as slopes at the hidden states [tokens, hidden]; same dtype."""
        return self._times_weight(slopes, part, transpose=False)

    @property
    def _module(self) -> Any:
        return self.module

    def _capped(self, products: mx.array) -> mx.array:
        scaled = products if self.scale == 1 else products * self.scale
        return scaled if self.softcap is None else mx.tanh(scaled / self.softcap) * self.softcap

    def _times_weight(self, left: mx.array, part: slice, transpose: bool) -> mx.array:
        module = self._module
        weight: mx.array = module.weight[part]
        if "scales" not in module:
            return left @ (weight.T if transpose else weight)
        biases = module.get("biases")
        return mx.quantized_matmul(
            left,
            weight,
            module.scales[part],
            None if biases is None else biases[part],
            transpose=transpose,
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
        )


@dataclass(frozen=True, eq=False)
class Softmax:
    """A softmax with the target apart from the others, each part float32 [tokens, 1].

    `own` is the target's logit, `highest` one that none exceeds, `others` the sum of exp(logit - highest) over the
    vocabulary but the target.
    """

    own: mx.array
    highest: mx.array
    others: mx.array

    @property
    def log_p(self) -> mx.array:
        """log p of the targets, float32 [tokens]: never above 0, and exact to its last digits near it."""
        return -mx.logaddexp(mx.log(self.others) + (self.highest - self.own), 0.0)[:, 0]

    @property
    def total(self) -> mx.array:
        """The sum of exp(logit - highest) over the whole vocabulary."""
        return mx.exp(self.own - self.highest) + self.others
