"""CaiT, from timm.

Factors attach to the self-attention blocks between patches, not to class attention.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import plain_places

if TYPE_CHECKING:
    from torch import Tensor, nn


@cache
def dimensions(name: str) -> Dimensions:
    model = timm_models.unmodified(name)
    patch_size = model.patch_embed.patch_size[0]
    return timm_models.plain_dimensions(patch_size, model.embed_dim, model.blocks)


def create(
    name: str, image_size: int, channels: int, classes: int, numbers: Dimensions
) -> nn.Module:
    # timm gives every block the same rate of stochastic depth, as CaiT's paper does;
    # elsewhere it rises with depth.
    timm_models.require_multiple(image_size, numbers.patch_size, name)
    unmodified = dimensions(name)
    changed = {"depth": numbers.depth} if numbers.depth != unmodified.depth else {}
    rates = timm_models.rates(numbers, "pos_drop_rate", "proj_drop_rate")
    return timm_models.create(
        name, channels, classes, img_size=image_size, **changed, **rates
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    cait: Any = model
    # The class token enters after these blocks.
    return plain_places(cait.blocks, cait.patch_embed.grid_size, prefix=0)


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        if branch == "msa":
            scaled = block.gamma_1 * block.attn(normed)
        else:
            scaled = block.gamma_2 * block.mlp(normed)
        mixed: Tensor = block.drop_path(scaled)
        return mixed


def editable(attention: nn.Module) -> type[nn.Module]:
    from ablate.backbones.editable import EditableTalkingHeadAttention

    return EditableTalkingHeadAttention


FAMILY = Family(
    name="cait",
    about="CaiT, from timm; factors change its self-attention blocks",
    members=lambda: timm_models.names("cait"),
    dimensions=dimensions,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    editable=editable,
    sizes=frozenset(("depth", "drop_path", "dropout", "attention_dropout")),
    lacks={
        "heads": "its self-attention talks across heads already",
        "unscaled": "it has LayerScale already",
    },
    # The final norm also receives the class token; the last self-attention block does
    # not.
    last_norm="blocks",
)
