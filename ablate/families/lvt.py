"""LVT, from this package's backbones.

Attention is edited in the recursive stages; the first stage convolves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Dimensions, Site
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms

if TYPE_CHECKING:
    from torch import Tensor, nn


def members() -> list[str]:
    return [f"lvt_r{n}" for n in (1, 2, 3, 4)]


def dimensions(name: str) -> Dimensions:
    return Dimensions(patch_size=7)


def create(
    name: str, image_size: int, channels: int, classes: int, wanted: Dimensions
) -> nn.Module:
    timm_models.require_multiple(image_size, 32, name)
    return timm_models.create(
        name, channels, classes, img_size=image_size, **timm_models.rates(wanted)
    )


def blocks(model: nn.Module) -> list[BlockPlace]:
    lvt: Any = model
    found = [
        (s, f"stages.{s}.blocks.{b}", block)
        for s, stage in enumerate(lvt.stages)
        for b, block in enumerate(stage["blocks"])
    ]
    places = [
        BlockPlace(
            name,
            Site(
                layer=index,
                depth=len(found) + len(lvt.class_blocks),
                width=block.mlp.fc1.in_features,
                heads=block.attn.num_heads if stage else block.attn.heads,
                hidden=block.mlp.fc1.out_features,
                grid=(lvt.image_side // (4 * 2**stage),) * 2,
                prefix=0,
                dropout=0.0,
                norm=timm_models.norm_like(block.norm1),
            ),
            layout="grid",
            ffn_layout="grid",
            attention="attn" if stage else None,
        )
        for index, (stage, name, block) in enumerate(found)
    ]
    # The feed-forward networks behind class attention see the class token alone. IFFN
    # replaces them too: so its printed parameters come out.
    return places + [
        BlockPlace(
            f"class_blocks.{index}",
            Site(
                layer=len(found) + index,
                depth=len(found) + len(lvt.class_blocks),
                width=block.mlp.fc1.in_features,
                heads=block.heads,
                hidden=block.mlp.fc1.out_features,
                grid=(0, 0),
                prefix=1,
                dropout=0.0,
                norm=timm_models.norm_like(block.norm1),
            ),
            attention=None,
            residual=False,
        )
        for index, block in enumerate(lvt.class_blocks)
    ]


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor = block.drop_path(
            (block.attn if branch == "msa" else block.mlp)(normed)
        )
        return mixed


FAMILY = Family(
    name="lvt",
    about=(
        "LVT, after arXiv 2112.10809; attention is edited in its recursive stages, not"
        " in the convolutional first"
    ),
    members=members,
    dimensions=dimensions,
    image_size=timm_models.image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    editable=lambda attention: None,
    sizes=frozenset(("drop_path", "attention_dropout")),
    lacks={
        "tokens": (
            "its first and last layers differ in the number and the width of their"
            " tokens"
        )
    },
    # The final norm sees the class token too; the last block does not.
    last_norm="stages.3.blocks",
)
