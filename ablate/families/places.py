"""Where factors attach to a model: one place per block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ablate.factors.factor import Branch, Site
from ablate.families.family import BlockPlace
from ablate.families.timm_models import norm_like

if TYPE_CHECKING:
    from torch import Tensor, nn

# Why a family of stages lacks what some factors need.
UNEQUAL_TOKENS = (
    "its first and last layers differ in the number and the width of their tokens"
)
REDUCED_GRID = "its keys and values come from a reduced grid"


def site_of(
    block: Any,
    *,
    layer: int,
    depth: int,
    grid: tuple[int, int],
    prefix: int = 0,
    heads: int | None = None,
    dropout: float | None = None,
    window: tuple[int, int] = (0, 0),
) -> Site:
    """The site of a block with `attn`, `mlp` and `norm1`, as timm names them.

    Args:
        layer: number of the block, of `depth` blocks with a place.
        grid: rows and columns of the patch tokens.
        prefix: tokens before the patch tokens.
        heads: attention heads; by default those of `attn`.
        dropout: rate of the block's dropout; by default that of `mlp.drop1`.
        window: rows and columns of the windows of attention; (0, 0) without windows.
    """
    from torch import nn

    identity = nn.Identity()
    scale = getattr(block, "gamma_1", getattr(block, "ls1", identity))
    qk_norm = getattr(getattr(block, "attn", None), "q_norm", identity)
    return Site(
        layer=layer,
        depth=depth,
        width=block.mlp.fc1.in_features,
        heads=block.attn.num_heads if heads is None else heads,
        hidden=block.mlp.fc1.out_features,
        grid=grid,
        prefix=prefix,
        dropout=block.mlp.drop1.p if dropout is None else dropout,
        norm=norm_like(block.norm1),
        window=window,
        scaled=not isinstance(scale, nn.Identity),
        qk_normed=not isinstance(qk_norm, nn.Identity),
    )


def plain_places(
    blocks: Sequence[Any], grid: tuple[int, int], prefix: int
) -> list[BlockPlace]:
    """The places of a model with one list of alike blocks."""
    places = []
    for layer, block in enumerate(blocks):
        site = site_of(block, layer=layer, depth=len(blocks), grid=grid, prefix=prefix)
        places.append(BlockPlace(f"blocks.{layer}", site))
    return places


def no_blocks(model: nn.Module) -> list[BlockPlace]:
    """The places of a model whose blocks are not known."""
    return []


class Nowhere:
    """The algebra of a model whose blocks are not known.

    No factor that needs it is defined there, so a call is a bug, and fails.
    """

    @staticmethod
    def norm(block: Any, branch: Branch, x: Tensor) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        raise NotImplementedError


def staged_blocks(
    stages: Iterable[Any],
    path: str = "stages",
    blocks_of: Callable[[Any], Iterable[Any]] = lambda stage: stage.blocks,
) -> list[tuple[int, str, Any]]:
    """The blocks of a model with stages: number of the stage, path, and module."""
    blocks = []
    for number, stage in enumerate(stages):
        for index, block in enumerate(blocks_of(stage)):
            blocks.append((number, f"{path}.{number}.blocks.{index}", block))
    return blocks
