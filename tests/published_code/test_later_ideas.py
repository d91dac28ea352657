"""LayerScale, RMS norm, QK-norm, rotary positions, registers and value residuals against
their equations, and against timm's layers.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ablate.errors import Infeasible
from ablate.families import resolve
from ablate.layers.attention import GridPositions
from ablate.models import build
from ablate.records import Level
from tests.published_code.later_ideas import Idea, network
from tests.published_code.package import (
    CLASSES,
    IMAGE,
    SIDE,
    VIT,
    agree,
    images,
    randomise,
    vit,
    weights_of,
)

HEADS, WIDTH, DEPTH = 2, 16, 3
SIZES: dict[str, Level] = {
    "size__width": WIDTH,
    "size__heads": HEADS,
    "size__depth": DEPTH,
}
IDEAS: dict[str, tuple[dict[str, Level], Idea]] = {
    "plain": ({}, Idea()),
    "layer_scale": ({"layer_scale": 0.1}, Idea(scaled=True)),
    "norm": ({"norm": "rms"}, Idea(rms=True)),
    "qk_norm layer": ({"qk_norm": "layer"}, Idea(qk_norm="layer")),
    "qk_norm rms": ({"qk_norm": "rms"}, Idea(qk_norm="rms")),
    "rotary": ({"rotary": "axial"}, Idea(rotary=True)),
    "registers": ({"registers": 3}, Idea(registers=3)),
    "value_residual": ({"value_residual": 0.6}, Idea(value_residual=0.6)),
    "all": (
        {
            "layer_scale": 0.1,
            "norm": "rms",
            "qk_norm": "layer",
            "rotary": "axial",
            "registers": 2,
            "value_residual": 0.6,
        },
        Idea(
            rms=True,
            qk_norm="layer",
            rotary=True,
            registers=2,
            scaled=True,
            value_residual=0.6,
        ),
    ),
}


@pytest.mark.parametrize("name", IDEAS)
def test_the_network_is_the_equations(name: str) -> None:
    settings, idea = IDEAS[name]
    model = vit(**SIZES, **settings)
    x = images()
    agree(
        lambda: model(x),
        lambda: network(x, weights_of(model), SIDE, DEPTH, HEADS, idea),
        model,
    )


def timms(**arguments: object) -> VisionTransformer:
    """The network of `vit` from timm's own class, in float64."""
    model = VisionTransformer(
        img_size=IMAGE,
        patch_size=SIDE,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        mlp_ratio=float(VIT["size.mlp_ratio"]),
        num_classes=CLASSES,
        **arguments,  # type: ignore[arg-type]
    )
    return model.double().eval()


@pytest.mark.parametrize(
    ("settings", "arguments", "names"),
    [
        (
            {"layer_scale": 0.1},
            {"init_values": 0.1},
            {"msa_scales.0": "ls1", "mlp_scales.0": "ls2"},
        ),
        (
            {"qk_norm": "layer"},
            {"qk_norm": True},
            {"edits.query.0": "q_norm", "edits.key.0": "k_norm"},
        ),
    ],
    ids=["layer_scale", "qk_norm"],
)
def test_timm_has_the_same_network(
    settings: dict[str, Level], arguments: dict[str, object], names: dict[str, str]
) -> None:
    model = vit(**SIZES, **settings)
    theirs = timms(**arguments)
    theirs.load_state_dict(weights_of(model, names))
    x = images()
    torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-12)


def test_timm_has_the_same_registers() -> None:
    """timm's registers have no position if its class token has none."""
    model = vit(**SIZES, registers=3)
    weights = weights_of(model, {"pos_drop.1.tokens": "reg_token"})
    position = weights["pos_embed"]
    weights["cls_token"] = weights["cls_token"] + position[:, :1]
    weights["pos_embed"] = position[:, 1:]
    theirs = timms(reg_tokens=3, no_embed_class=True)
    theirs.load_state_dict(weights)
    x = images()
    torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-12)


def test_registers_are_left_out_of_a_mean() -> None:
    model = vit(**SIZES, registers=3, size__pool="mean")
    weights = weights_of(model, {"pos_drop.1.tokens": "reg_token"})
    theirs = timms(
        reg_tokens=3, no_embed_class=True, class_token=False, global_pool="avg"
    )
    theirs.load_state_dict(weights)
    x = images()
    torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-12)


def test_timm_has_the_same_rms_norm() -> None:
    from timm.layers import RmsNorm

    model = vit(**SIZES, norm="rms")
    theirs = timms(norm_layer=partial(RmsNorm, eps=1e-6))
    # The last norm of `vit` stays a layer norm.
    theirs.norm = nn.LayerNorm(WIDTH, eps=1e-6).double()
    theirs.load_state_dict(weights_of(model))
    x = images()
    torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("grid", [(3, 3), (2, 5)])
def test_timm_has_the_same_rotary_positions(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, HEADS, 1 + grid[0] * grid[1], 8)
    table = RotaryEmbeddingCat(
        8, temperature=100, in_pixels=False, feat_shape=list(grid)
    )
    expected = torch.cat(
        (x[:, :, :1], apply_rot_embed_cat(x[:, :, 1:], table.get_embed())), dim=2
    )
    torch.testing.assert_close(GridPositions(grid, 1)(x), expected)


def test_products_depend_on_distances_alone() -> None:
    """Rotary positions are relative: equal tokens give equal logits at equal distances."""
    positions = GridPositions((4, 4), 0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    turned = (
        positions(q.expand(1, 1, 16, 8))[0, 0]
        @ positions(k.expand(1, 1, 16, 8))[0, 0].T
    )
    by_distance: dict[tuple[int, int], list[Tensor]] = {}
    for a in range(16):
        for b in range(16):
            distance = (a // 4 - b // 4, a % 4 - b % 4)
            by_distance.setdefault(distance, []).append(turned[a, b])
    for products in by_distance.values():
        assert torch.stack(products).std(correction=0) < 1e-12


@pytest.mark.parametrize(
    ("backbone", "settings", "reason"),
    [
        (
            "deit3_small_patch16_224",
            {"layer_scale": 0.1},
            "scales its branches already",
        ),
        ("vit", {**VIT, "rotary": "axial", "size.width": 18}, "a multiple of 4"),
    ],
)
def test_what_does_not_fit_is_refused(
    backbone: str, settings: dict[str, Level], reason: str
) -> None:
    with pytest.raises(Infeasible, match=reason):
        build(resolve(backbone, 224 if backbone != "vit" else IMAGE, 3, 10, settings))


def test_networks_do_not_share_first_values() -> None:
    """A forward pass of another network in the middle of one changes nothing."""
    one, other = vit(**SIZES, value_residual=0.6), vit(**SIZES, value_residual=0.6)
    randomise(other)
    x, elsewhere = images(), images()
    expected = one(x)

    def interrupt(module: nn.Module, inputs: object) -> None:
        other(elsewhere)

    one.get_submodule("blocks.1").register_forward_pre_hook(interrupt)
    torch.testing.assert_close(one(x), expected, rtol=0, atol=0)
