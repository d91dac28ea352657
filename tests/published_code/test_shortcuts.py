"""Augmented shortcuts: `variant: code` against the authors' network, `variant: text`
against the equations.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from ablate.layers.circulant import CirculantProjection
from tests.published_code import common, shortcuts, text
from tests.published_code.package import (
    DEPTH,
    HEADS,
    SIDE,
    agree,
    images,
    vit,
    weights_of,
)

BLOCKS = 2
NAMES = {
    1: ("augs_attn", "augs"),
    2: ("augs_attn.0", "augs.0", "augs_attn2.0", "augs2.0"),
}


def as_published(c: Tensor) -> Tensor:
    """Weights (in, out, k) of the package as the authors' `weight_list`.

    Theirs has blocks by output and input, and an index that runs from input to output:
    both turn
        round.
    """
    size = c.shape[-1]
    turned = c.transpose(0, 1)[:, :, [-k % size for k in range(size)]]
    return turned.flatten()


def published(model: nn.Module, count: int) -> dict[str, Tensor]:
    """The weights of a network with `variant: code`, named as the authors do."""
    found = weights_of(model)
    for index in range(DEPTH):
        for place, branch in enumerate(("msa", "mlp")):
            start = f"blocks.{index}.{branch}_paths.0.projection"
            for t in range(count):
                name = f"blocks.{index}.{NAMES[count][place + 2 * t]}"
                if f"{start}.c" in found:
                    found[f"{name}.weight_list"] = as_published(found[f"{start}.c"][t])
                    found[f"{name}.bias"] = found[f"{start}.bias"][t]
                else:
                    found[f"{name}.weight"] = found[f"{start}.linear.weight"].unflatten(
                        0, (count, -1)
                    )[t]
                    found[f"{name}.bias"] = found[f"{start}.linear.bias"].unflatten(
                        0, (count, -1)
                    )[t]
    return found


@pytest.mark.parametrize("projection", ["circulant", "dense"])
@pytest.mark.parametrize("count", [1, 2])
def test_variant_code_is_the_published_network(count: int, projection: str) -> None:
    settings = {"shortcuts__b": BLOCKS} if projection == "circulant" else {}
    model = vit(
        shortcuts__count=count,
        shortcuts__variant="code",
        shortcuts__projection=projection,
        **settings,
    )
    x = images()
    block = partial(shortcuts.block, heads=HEADS, count=count, blocks=BLOCKS)
    agree(
        lambda: model(x),
        lambda: common.vit(x, published(model, count), SIDE, DEPTH, block),
        model,
    )


def test_published_circulant_matrix_is_the_transpose_of_theta_of_the_turned_weights() -> (
    None
):
    torch.manual_seed(1)
    c = torch.randn(3, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(
        shortcuts.circulant(as_published(c), 3), text.theta(c).T, rtol=0, atol=0
    )
    assert not torch.equal(shortcuts.circulant(c.flatten(), 3), text.theta(c).T)


@pytest.mark.parametrize("placement", ["msa", "mlp", "both"])
@pytest.mark.parametrize(
    "order", ["projection-activation", "activation-projection", "projection"]
)
@pytest.mark.parametrize("projection", ["circulant", "dense"])
def test_variant_text_is_the_equations(
    projection: str, order: text.Order, placement: str
) -> None:
    count = 3
    settings = {"shortcuts__b": BLOCKS} if projection == "circulant" else {}
    model = vit(
        shortcuts__count=count,
        shortcuts__projection=projection,
        shortcuts__order=order,
        shortcuts__placement=placement,
        **settings,
    )

    def matrices(weights: common.Weights, branch: str) -> list[Tensor]:
        start = f"{branch}_paths.0.projection"
        if placement not in (branch, "both"):
            return []
        if projection == "circulant":
            return [text.theta(c) for c in weights[f"{start}.c"]]
        return [
            matrix.T
            for matrix in weights[f"{start}.linear.weight"].unflatten(0, (count, -1))
        ]

    def block(x: Tensor, weights: common.Weights) -> Tensor:
        beside = matrices(weights, "msa"), matrices(weights, "mlp")
        return text.shortcut_block(x, weights, HEADS, *beside, order)

    x = images()
    agree(
        lambda: model(x),
        lambda: common.vit(x, weights_of(model), SIDE, DEPTH, block),
        model,
    )


def test_activation_alone_is_the_equation() -> None:
    model = vit(shortcuts__count=2, shortcuts__order="activation")
    none = [torch.zeros(0)] * 2
    x = images()

    def block(tokens: Tensor, weights: common.Weights) -> Tensor:
        return text.shortcut_block(tokens, weights, HEADS, none, none, "activation")

    agree(
        lambda: model(x),
        lambda: common.vit(x, weights_of(model), SIDE, DEPTH, block),
        model,
    )


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_published_circulant_weights_are_imported(blocks: int) -> None:
    torch.manual_seed(0)
    weights = torch.randn(blocks * 8, dtype=torch.float64)
    projection = CirculantProjection(8, blocks).double()
    with torch.no_grad():
        projection.c.copy_(CirculantProjection.from_published(weights, blocks)[None])
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    expected = x @ shortcuts.circulant(weights, blocks).T
    torch.testing.assert_close(projection(x)[..., 0, :], expected, rtol=0, atol=1e-10)
