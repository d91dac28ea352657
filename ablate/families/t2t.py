"""T2T-ViT, from this package's backbones.

Factors stand in its transformer blocks, not in the token-to-token module.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible
from ablate.factors.factor import Branch, Dimensions, Site
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms

if TYPE_CHECKING:
    from torch import Tensor, nn


def members() -> list[str]:
    return [f"t2t_vit_{form}{size}" for form in ("", "t_") for size in (14, 19, 24)]


@cache
def dimensions(name: str) -> Dimensions:
    model = timm_models.unmodified(name)
    width, blocks = model.num_features, model.blocks
    return Dimensions(
        patch_size=16,
        width=width,
        depth=len(blocks),
        heads=blocks[0].attn.num_heads,
        mlp_ratio=blocks[0].mlp.fc1.out_features / width,
    )


def create(
    name: str, image_size: int, channels: int, classes: int, wanted: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 16, name)
    if wanted.drop_path and wanted.depth == 1:
        raise Infeasible(
            "drop.path rises linearly from 0 in the first block; with size.depth = 1 it"
            " does nothing"
        )
    own = dimensions(name)
    changed = {
        key: getattr(wanted, key)
        for key in ("depth", "mlp_ratio")
        if getattr(wanted, key) != getattr(own, key)
    }
    rates = timm_models.rates(wanted, "drop_rate")
    return timm_models.create(
        name, channels, classes, img_size=image_size, **changed, **rates
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    t2t: Any = model
    return [
        BlockPlace(
            f"blocks.{index}",
            Site(
                layer=index,
                depth=len(t2t.blocks),
                width=t2t.num_features,
                heads=block.attn.num_heads,
                hidden=block.mlp.fc1.out_features,
                grid=t2t.grid,
                prefix=1,
                dropout=block.mlp.drop1.p,
                norm=timm_models.norm_like(block.norm1),
            ),
        )
        for index, block in enumerate(t2t.blocks)
    ]


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor = block.drop_path(
            (block.attn if branch == "msa" else block.mlp)(normed)
        )
        return mixed


FAMILY = Family(
    name="t2t",
    about="T2T-ViT, after arXiv 2101.11986",
    members=members,
    dimensions=dimensions,
    image_size=timm_models.image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    editable=lambda attention: None,
    sizes=frozenset(
        ("depth", "mlp_ratio", "drop_path", "dropout", "attention_dropout")
    ),
)
