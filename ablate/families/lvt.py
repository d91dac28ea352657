"""LVT, from this package's backbones.

Attention can be edited in the recursive stages; the first stage uses convolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, OneDropPath
from ablate.families.places import REDUCED_GRID, UNEQUAL_TOKENS, site_of, staged_blocks

if TYPE_CHECKING:
    from torch import nn


def blocks(model: nn.Module) -> list[BlockPlace]:
    lvt: Any = model
    staged = staged_blocks(lvt.stages, blocks_of=lambda stage: stage["blocks"])
    depth = len(staged) + len(lvt.class_blocks)
    places = []
    for layer, (stage, name, block) in enumerate(staged):
        side = lvt.image_side // (4 * 2**stage)
        site = site_of(
            block,
            layer=layer,
            depth=depth,
            grid=(side, side),
            heads=block.attn.num_heads if stage else block.attn.heads,
            dropout=0.0,
        )
        block_place = BlockPlace(
            name,
            site,
            layout="grid",
            ffn_layout="grid",
            attention="attn" if stage else None,
        )
        places.append(block_place)
    # The feed-forward networks behind class attention see the class token alone. IFFN
    # replaces them too; only then do its printed parameters come out.
    for index, block in enumerate(lvt.class_blocks):
        site = site_of(
            block,
            layer=len(staged) + index,
            depth=depth,
            grid=(0, 0),
            prefix=1,
            heads=block.heads,
            dropout=0.0,
        )
        name = f"class_blocks.{index}"
        places.append(BlockPlace(name, site, attention=None, residual=False))
    return places


FAMILY = Family(
    name="lvt",
    about=(
        "LVT, after arXiv 2112.10809; factors edit the attention of its recursive"
        " stages, not that of its first, convolutional stage"
    ),
    members=lambda: [f"lvt_r{n}" for n in (1, 2, 3, 4)],
    dimensions=lambda name: Dimensions(patch_size=7),
    create=timm_models.creator(),
    blocks=blocks,
    algebra=OneDropPath,
    sizes=frozenset(("drop_path", "attention_dropout")),
    lacks={
        "positions": REDUCED_GRID,
        "tokens": UNEQUAL_TOKENS,
    },
    # The final norm also receives the class token; the last block does not.
    last_norm="stages.3.blocks",
)
