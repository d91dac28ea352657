"""AttnScale and FeatScale against the authors' blocks on DeiT, CaiT and Swin."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from ablate.errors import Infeasible
from ablate.records import Level
from tests.published_code import common, oversmoothing
from tests.published_code.package import (
    DEPTH,
    HEADS,
    SIDE,
    agree,
    images,
    network,
    vit,
    weights_of,
)

NAMES = {
    "attn.edits.weights.0.w": "attn.lamb",
    "attn.edits.output.0.s": "lamb1",
    "attn.edits.output.0.t": "lamb2",
}
WINDOW, SWIN_HEADS, CAIT_HEADS = 4, 3, 4


def block_of(backbone: str, name: str, settings: dict[str, Level]) -> nn.Module:
    return network(backbone, 32, settings).get_submodule(name)


@pytest.mark.parametrize("attnscale", [False, True])
@pytest.mark.parametrize(
    ("featscale", "times"), [("none", 0), ("text", 1), ("code", 2)]
)
def test_on_deit(featscale: str, times: int, attnscale: bool) -> None:
    model = vit(attnscale=attnscale, featscale=featscale)
    x = images()
    block = partial(oversmoothing.deit_block, heads=HEADS, times=times)
    agree(
        lambda: model(x),
        lambda: common.vit(x, weights_of(model, NAMES), SIDE, DEPTH, block),
        model,
    )


@pytest.mark.parametrize("settings", [{"attnscale": True}, {"featscale": "text"}])
def test_on_cait(settings: dict[str, Level]) -> None:
    """The published code applies FeatScale once on CaiT, as the text does."""
    block = block_of("cait_xxs24_224", "blocks.0", {"size.depth": 1} | settings)
    x = torch.randn(2, 3, 192, dtype=torch.float64)
    agree(
        lambda: block(x),
        lambda: oversmoothing.cait_block(x, weights_of(block, NAMES), CAIT_HEADS),
        block,
    )


@pytest.mark.proof
@pytest.mark.parametrize("settings", [{"attnscale": True}, {"featscale": "text"}])
@pytest.mark.parametrize("index", [0, 1])
def test_on_swin(index: int, settings: dict[str, Level]) -> None:
    """The second block shifts its windows.

    `featscale: text` takes the mean over a window.
    """
    block = block_of(
        "swin_tiny_patch4_window7_224",
        f"layers.0.blocks.{index}",
        {"size.window": WINDOW} | settings,
    )
    x = torch.randn(1, 8, 8, 96, dtype=torch.float64)

    def reference() -> Tensor:
        shift = index * WINDOW // 2
        return oversmoothing.swin_block(
            x, weights_of(block, NAMES), SWIN_HEADS, WINDOW, shift, mean_of="window"
        )

    agree(lambda: block(x), reference, block)


def test_published_swin_takes_the_mean_over_the_image() -> None:
    """With one window that is the whole image, both readings are one; with four they
    differ.
    """
    torch.manual_seed(0)
    shapes = {
        "norm1.weight": (6,),
        "norm1.bias": (6,),
        "attn.qkv.weight": (18, 6),
        "attn.qkv.bias": (18,),
        "attn.proj.weight": (6, 6),
        "attn.proj.bias": (6,),
        "norm2.weight": (6,),
        "norm2.bias": (6,),
        "mlp.fc1.weight": (8, 6),
        "mlp.fc1.bias": (8,),
        "mlp.fc2.weight": (6, 8),
        "mlp.fc2.bias": (6,),
        "lamb1": (6,),
        "lamb2": (6,),
    }
    weights = {
        name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()
    }
    x = torch.randn(2, 4, 4, 6, dtype=torch.float64)
    for window, equal in ((4, True), (2, False)):
        table = {
            "attn.relative_position_bias_table": torch.randn(
                (2 * window - 1) ** 2, 2, dtype=torch.float64
            )
        }
        by_image, by_window = (
            oversmoothing.swin_block(x, weights | table, 2, window, 0, mean_of=mean_of)
            for mean_of in ("image", "window")
        )
        assert torch.allclose(by_image, by_window, rtol=0, atol=1e-12) is equal


@pytest.mark.proof
@pytest.mark.parametrize("index", [0, 1])
def test_featscale_image_on_swin_takes_the_mean_over_the_image_once(index: int) -> None:
    settings: dict[str, Level] = {"size.window": WINDOW, "featscale": "image"}
    block = block_of(
        "swin_tiny_patch4_window7_224", f"layers.0.blocks.{index}", settings
    )
    x = torch.randn(1, 8, 8, 96, dtype=torch.float64)
    names = NAMES | {"image_edits.0.s": "lamb1", "image_edits.0.t": "lamb2"}

    def reference() -> Tensor:
        return oversmoothing.swin_block(
            x, weights_of(block, names), SWIN_HEADS, WINDOW, index * WINDOW // 2
        )

    agree(lambda: block(x), reference, block)


@pytest.mark.parametrize(
    ("backbone", "level", "words"),
    [
        (
            "cait_xxs24_224",
            "code",
            "code` is for DeiT only, .*; on this backbone, use `featscale: text`",
        ),
        (
            "swin_tiny_patch4_window7_224",
            "code",
            "on this backbone, use `featscale: image`",
        ),
        (
            "cait_xxs24_224",
            "image",
            "which this backbone lacks; use `featscale: text`",
        ),
        (
            "deit_tiny_patch16_224",
            "image",
            "which this backbone lacks; use `featscale: text`",
        ),
    ],
)
def test_a_level_that_no_code_has_on_a_backbone_is_refused_with_the_one_to_use(
    backbone: str, level: str, words: str
) -> None:
    with pytest.raises(Infeasible, match=words):
        network(backbone, 224, {"featscale": level})
