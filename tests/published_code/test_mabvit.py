"""MABViT's blocks against the equations of its text."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.published_code import mabvit
from tests.published_code.package import (
    DEPTH,
    HEADS,
    SIDE,
    agree,
    images,
    vit,
    weights_of,
)

NAMES = {"attn.edits.value.0.gate": "attn.gate", "head_drop.0.0": "pre_logits"}


@pytest.mark.parametrize("layout", ["serial", "parallel"])
@pytest.mark.parametrize("value", ["none", "gelu", "silu", "glu", "geglu", "swiglu"])
def test_network(value: mabvit.Value, layout: Literal["serial", "parallel"]) -> None:
    model = vit(value=value, layout=layout, representation=True)
    x = images()
    agree(
        lambda: model(x),
        lambda: mabvit.network(
            x, weights_of(model, NAMES), SIDE, DEPTH, HEADS, value, layout
        ),
        model,
    )


def test_narrower_mlp_beside_gated_values() -> None:
    """PR-GLU: the ratio of the MLP is 3 where the plain one's is 4."""
    model = vit(value="swiglu", size__mlp_ratio=3.0, representation=True)
    x = images()
    weights = weights_of(model, NAMES)
    assert weights["blocks.0.mlp.fc1.weight"].shape == (36, 12)
    agree(
        lambda: model(x),
        lambda: mabvit.network(x, weights, SIDE, DEPTH, HEADS, "swiglu", "serial"),
        model,
    )
