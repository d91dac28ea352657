"""Swin, from timm.

Attention works in shifted windows, so an edit of attention sees the tokens of one
window.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible
from ablate.factors.factor import Branch, Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import UNEQUAL_TOKENS, site_of, staged_blocks

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.backbones.features import FeatureMaps


@cache
def dimensions(name: str) -> Dimensions:
    model = timm_models.unmodified(name)
    windows = {
        block.attn.window_size for stage in model.layers for block in stage.blocks
    }
    window = next(iter(windows))[0] if len(windows) == 1 else 0
    return Dimensions(patch_size=model.patch_embed.patch_size[0], window=window)


def create(
    name: str, image_size: int, channels: int, classes: int, numbers: Dimensions
) -> nn.Module:
    """Returns timm's model.

    The window does not change with the image side, unless `size.window` says otherwise.
    """
    unmodified = dimensions(name)
    if image_size < 8 * numbers.patch_size:
        raise Infeasible(
            f"{name} halves its token grid three times; an image side of {image_size}"
            " is too small"
        )
    timm_models.require_multiple(image_size, numbers.patch_size, name)
    if (
        numbers.window != unmodified.window
        and numbers.window > image_size // numbers.patch_size
    ):
        raise Infeasible(
            f"size.window = {numbers.window} is larger than the"
            f" {image_size // numbers.patch_size} tokens of a side"
        )
    if numbers.window != unmodified.window:
        changed = {"window_size": numbers.window}
    else:
        changed = {}
    rates = timm_models.rates(numbers, "proj_drop_rate")
    return timm_models.create(
        name, channels, classes, img_size=image_size, **changed, **rates
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    swin: Any = model
    staged = staged_blocks(swin.layers, "layers")
    places = []
    for layer, (_, name, block) in enumerate(staged):
        grid = tuple(block.input_resolution)
        window = tuple(block.attn.window_size)
        site = site_of(block, layer=layer, depth=len(staged), grid=grid, window=window)
        places.append(BlockPlace(name, site, layout="grid"))
    return places


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor
        if branch == "msa":
            mixed = block.drop_path1(block._attn(normed))
        else:
            mixed = block.drop_path2(block.mlp(normed.flatten(1, 2))).reshape(
                normed.shape
            )
        return mixed


def editable(attention: nn.Module) -> type[nn.Module]:
    from ablate.backbones.editable import EditableWindowAttention

    return EditableWindowAttention


def features(model: nn.Module, side: int, free: bool) -> FeatureMaps:
    from ablate.backbones.features import SwinMaps

    return SwinMaps(model, side, free=free)


FAMILY = Family(
    name="swin",
    about="Swin, from timm; factors that change attention see one window at a time,"
    " except featscale: image",
    members=lambda: timm_models.names("swin_transformer"),
    dimensions=dimensions,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    features=features,
    editable=editable,
    sizes=frozenset(("window", "drop_path", "dropout", "attention_dropout")),
    lacks={"tokens": UNEQUAL_TOKENS},
    before_head="head.drop",
)
