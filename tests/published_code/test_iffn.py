"""IFFN: the package's feed-forward network and pooling against the authors' structure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.published_code import common, iffn
from tests.published_code.package import (
    DEPTH,
    HEADS,
    SIDE,
    agree,
    images,
    randomise,
    vit,
    weights_of,
)

NAMES = {
    "mlp.depthwise.conv": "mlp.dw",
    "mlp.depthwise.norm": "mlp.ln",
    "mlp.norm": "mlp.ln",
    "mlp.fc": "mlp.conv",
    "fc_norm": "norm",
}
AGELU = {
    "alpha": "move1.scale",
    "gamma": "move1.bias",
    "beta": "move2.scale",
    "theta": "move2.bias",
}


def published(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a network with IFFN, named as the authors do."""
    found = weights_of(model, NAMES)
    for index in range(DEPTH):
        start = f"blocks.{index}.mlp"
        act = model.get_submodule(f"{start}.act")
        count = getattr(act, "count", 0)
        for ours, theirs in AGELU.items():
            for number in range(count):
                chunk = getattr(act, ours).unflatten(0, (count, -1))[number]
                found[f"{start}.act{number + 1}.{theirs}"] = chunk[None, None]
            found.pop(f"{start}.act.{ours}", None)
    return found


def inner_eps(model: nn.Module) -> float:
    norm: Any = model.get_submodule("blocks.0.mlp.norm1")
    return getattr(norm, "eps", 0.0)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("agelu", "kernel"), [(2, 3), (2, 5), (2, "none"), (0, 3), (1, 3), (4, 7)]
)
def test_network_with_iffn(agelu: int, kernel: int | str, training: bool) -> None:
    """Everything but what the text leaves open: the eps of the inner norms, which is
    the module's own here, and the order of mean and norm in front of the classifier,
    which is timm's.
    """
    model = vit(ffn__agelu=agelu, ffn__kernel=kernel, size__pool="mean").train(training)
    x, weights, eps = images(), published(model), inner_eps(model)
    before = {
        name: tensor.clone() for name, tensor in weights.items() if "running" in name
    }

    def reference() -> Tensor:
        its = weights | before
        return iffn.network(
            x, its, SIDE, DEPTH, HEADS, training=training, eps=eps, order="mean, norm"
        )

    agree(lambda: model(x), reference, model)


class Layers(nn.Module):
    """The published network of torch's own layers, with dropout as a factor that is
    given.
    """

    def __init__(self, width: int, hidden: int, kernel: int) -> None:
        super().__init__()
        both = 2 * hidden
        self.conv1, self.conv2 = nn.Linear(width, hidden), nn.Linear(both, width)
        self.ln1, self.ln2 = nn.LayerNorm(both), nn.LayerNorm(width)
        self.dw = nn.Conv2d(both, both, kernel, padding=kernel // 2, groups=both)
        self.ln = nn.BatchNorm2d(both)
        for number in (1, 2):
            for name in AGELU.values():
                parameter = nn.Parameter(torch.ones(1, 1, hidden))
                self.register_parameter(
                    f"act{number}_{name.replace('.', '_')}", parameter
                )

    def named(self) -> dict[str, Tensor]:
        names = {}
        for name, tensor in weights_of(self).items():
            names[name.replace("_move1_", ".move1.").replace("_move2_", ".move2.")] = (
                tensor
            )
        return names

    def forward(self, x: Tensor, hidden_kept: Tensor, output_kept: Tensor) -> Tensor:
        its, u = self.named(), self.conv1(x)
        parts = []
        for number in (1, 2):
            inner = its[f"act{number}.move1.scale"] * u + its[f"act{number}.move1.bias"]
            parts.append(
                its[f"act{number}.move2.scale"] * nn.functional.gelu(inner)
                + its[f"act{number}.move2.bias"]
            )
        v = self.ln1(torch.cat(parts, dim=-1)) * hidden_kept
        side = round(v.shape[1] ** 0.5)
        grid = v.unflatten(1, (side, side)).permute(0, 3, 1, 2)
        grid = grid + nn.functional.gelu(self.ln(self.dw(grid)))
        return self.ln2(self.conv2(grid.flatten(2).transpose(1, 2))) * output_kept


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kernel", [3, 5])
def test_published_feed_forward_network(kernel: int, training: bool) -> None:
    """The reference against torch's layers, with dropout in front of the depthwise
    block.
    """
    torch.manual_seed(0)
    layers = Layers(4, 6, kernel).double().train(training)
    randomise(layers)
    x = torch.randn(2, 9, 4, dtype=torch.float64)
    hidden_kept = (
        torch.bernoulli(torch.full((2, 9, 12), 0.8, dtype=torch.float64)) / 0.8
    )
    output_kept = torch.bernoulli(torch.full((2, 9, 4), 0.8, dtype=torch.float64)) / 0.8
    its = {
        name: tensor if tensor.requires_grad else tensor.clone()
        for name, tensor in layers.named().items()
    }
    agree(
        lambda: layers(x, hidden_kept, output_kept),
        lambda: iffn.ffn(
            x, its, training=training, hidden_kept=hidden_kept, output_kept=output_kept
        ),
        layers,
    )
    before = iffn.ffn(x, its, hidden_kept=hidden_kept, output_kept=output_kept)
    behind = iffn.ffn(
        x, its, hidden_kept=hidden_kept, output_kept=output_kept, dropout="behind"
    )
    assert (before - behind).abs().max() > 1e-3


def test_the_order_of_mean_and_norm_matters() -> None:
    torch.manual_seed(0)
    shapes = {
        "norm.weight": (4,),
        "norm.bias": (4,),
        "head.weight": (3, 4),
        "head.bias": (3,),
    }
    weights = {
        name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()
    }
    x = torch.randn(2, 9, 4, dtype=torch.float64)
    published_way = iffn.pooled_head(x, weights)
    normed = nn.functional.layer_norm(
        x, (4,), weights["norm.weight"], weights["norm.bias"], 1e-6
    )
    expected = nn.functional.linear(
        normed.mean(1), weights["head.weight"], weights["head.bias"]
    )
    torch.testing.assert_close(published_way, expected, rtol=0, atol=1e-12)
    assert (
        published_way - iffn.pooled_head(x, weights, "mean, norm")
    ).abs().max() > 1e-3


def code() -> nn.Module:
    """IFFN as published: norm before the mean, its own epsilon, dropout before the
    depthwise block.
    """
    return vit(ffn__agelu=2, ffn__kernel=3, ffn__variant="code", size__pool="norm-mean")


@pytest.mark.parametrize("training", [False, True])
def test_the_whole_network_is_the_published_one(training: bool) -> None:
    model = code().train(training)
    x = images()
    its = {
        name: tensor if tensor.requires_grad else tensor.clone()
        for name, tensor in published(model).items()
    }
    agree(
        lambda: model(x),
        lambda: iffn.network(x, its, SIDE, DEPTH, HEADS, training=training),
        model,
    )


class Kept(nn.Module):
    """A dropout whose draw is given."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept


@pytest.mark.parametrize(("variant", "place"), [("code", "before"), ("text", "behind")])
def test_where_dropout_stands(variant: str, place: str) -> None:
    model = vit(
        ffn__agelu=2, ffn__kernel=3, ffn__variant=variant, size__pool="norm-mean"
    )
    weights = common.under(published(model), "blocks.0.mlp.")
    ffn: Any = model.get_submodule("blocks.0.mlp")
    shapes = ((2, 9, 24), (2, 9, 12))
    hidden, output = (
        torch.bernoulli(torch.full(shape, 0.8, dtype=torch.float64)) / 0.8
        for shape in shapes
    )
    ffn.drop1, ffn.drop2 = Kept(hidden), Kept(output)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    expected = iffn.ffn(
        x,
        weights,
        hidden_kept=hidden,
        output_kept=output,
        eps=ffn.norm1.eps,
        dropout=place,
    )
    torch.testing.assert_close(ffn(x), expected, rtol=0, atol=1e-10)
    assert (
        ffn.norm1.eps
        == ffn.norm2.eps
        == (iffn.INNER_EPS if variant == "code" else 1e-6)
    )
