"""MABViT from its paper (Ramesh and Ramkumar 2023): its authors published no code.

Weights of a gate: `attn.gate.weight` (width, width) and `attn.gate.bias`. It is the
half of the doubled value projection that is activated; the other half is the plain
value projection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from tests.published_code.common import (
    Weights,
    affine,
    attention_of_image,
    classify,
    gelu,
    last_tokens,
    mlp,
    norm,
    sigmoid,
    under,
)

Value = Literal["none", "gelu", "silu", "glu", "geglu", "swiglu"]


def silu(x: Tensor) -> Tensor:
    """Swish with beta 1: `x sigmoid(x)`."""
    return x * sigmoid(x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "silu": silu}
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": sigmoid,
    "geglu": gelu,
    "swiglu": silu,
}


def values(tokens: Tensor, v: Tensor, weights: Weights, value: Value) -> Tensor:
    """`phi(V)` (Modified Attention Block) or `phi(X W1 + b1) * V` (GLU Variant), before
    heads are split.

    Shape: tokens X and values V, both (n, width), to (n, width).
    """
    if value in ACTIVATIONS:
        return ACTIVATIONS[value](v)
    if value not in GATES:
        return v
    gates = torch.stack(
        [
            affine(token, weights["gate.weight"], weights["gate.bias"])
            for token in tokens
        ]
    )
    return GATES[value](gates) * v


def block(
    x: Tensor,
    weights: Weights,
    heads: int,
    value: Value,
    layout: Literal["serial", "parallel"],
) -> Tensor:
    """Serial: `x + MSA(LN1 x)`, then `x + MLP(LN2 x)`.

    Parallel: `x + MSA(LN1 x) + MLP(LN2 x)`.

    The text writes one LN in the parallel form, and says that both forms have the same
    number of
        parameters: so there are two.

    Shape: (batch, n, width) to the same.
    """
    attention = under(weights, "attn.")
    outputs = []
    for image in norm(x, weights, "norm1"):
        attended = attention_of_image(
            image,
            attention,
            heads,
            on_values=lambda tokens, v: values(tokens, v, attention, value),
        )
        outputs.append(attended)
    attended = torch.stack(outputs)
    if layout == "parallel":
        return x + attended + mlp(norm(x, weights, "norm2"), weights)
    x = x + attended
    return x + mlp(norm(x, weights, "norm2"), weights)


def network(
    images: Tensor,
    weights: Weights,
    side: int,
    depth: int,
    heads: int,
    value: Value,
    layout: Literal["serial", "parallel"],
) -> Tensor:
    """A ViT with the representation layer `pre_logits.`: `head tanh(pre_logits
    class_token)`.

    Shape: (batch, channels, height, width) to (batch, classes).
    """
    tokens = last_tokens(
        images, weights, side, depth, lambda x, its: block(x, its, heads, value, layout)
    )
    weight, bias = weights["pre_logits.weight"], weights["pre_logits.bias"]
    return classify(
        [torch.tanh(affine(image[0], weight, bias)) for image in tokens], weights
    )
