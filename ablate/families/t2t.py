"""T2T-ViT, from this package's backbones.

Factors attach to its transformer blocks, not to the token-to-token module.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible
from ablate.factors.factor import Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, OneDropPath
from ablate.families.places import plain_places

if TYPE_CHECKING:
    from torch import nn


def members() -> list[str]:
    # Written out here, because the module of the backbone imports torch.
    return [
        "t2t_vit_14",
        "t2t_vit_19",
        "t2t_vit_24",
        "t2t_vit_t_14",
        "t2t_vit_t_19",
        "t2t_vit_t_24",
    ]


@cache
def dimensions(name: str) -> Dimensions:
    model = timm_models.unmodified(name)
    return timm_models.plain_dimensions(16, model.num_features, model.blocks)


def create(
    name: str, image_size: int, channels: int, classes: int, numbers: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 16, name)
    if numbers.drop_path and numbers.depth == 1:
        raise Infeasible(
            "drop.path is 0 in the first block and rises linearly in the blocks after"
            " it; with size.depth = 1, it has no effect"
        )
    unmodified = dimensions(name)
    changed = {
        key: getattr(numbers, key)
        for key in ("depth", "mlp_ratio")
        if getattr(numbers, key) != getattr(unmodified, key)
    }
    rates = timm_models.rates(numbers, "drop_rate")
    return timm_models.create(
        name, channels, classes, img_size=image_size, **changed, **rates
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    t2t: Any = model
    return plain_places(t2t.blocks, t2t.grid, prefix=1)


FAMILY = Family(
    name="t2t",
    about="T2T-ViT, after arXiv 2101.11986",
    members=members,
    dimensions=dimensions,
    create=create,
    blocks=blocks,
    algebra=OneDropPath,
    sizes=frozenset(
        ("depth", "mlp_ratio", "drop_path", "dropout", "attention_dropout")
    ),
)
