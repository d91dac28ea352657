"""What a family of backbones is: where factors attach, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ablate.factors.factor import Branch, Dimensions, Site, Slot

if TYPE_CHECKING:
    from torch import Tensor, nn

# How a block's input and output are laid out: (batch, tokens, width), (batch, height,
# width, channels), or (batch, channels, height, width).
Layout = Literal["tokens", "grid", "image"]


def factor_of(dimension: str) -> str:
    """The factor that changes a field of Dimensions, as it is written in a space."""
    rates = {
        "drop_path": "drop.path",
        "dropout": "drop.dropout",
        "attention_dropout": "drop.attention",
        "head_dropout": "drop.head",
    }
    return rates.get(dimension, f"size.{dimension}")


class Algebra(Protocol):
    """How the blocks of a family compute their two branches,
    `drop_path(scale(mixer(norm(x))))`.
    """

    @staticmethod
    def norm(block: Any, branch: Branch, x: Tensor) -> Tensor:
        """The branch's norm of the block's input, in the block's layout."""

    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        """The rest of the branch. `context` is what else the block is called with."""


class TwoNorms:
    """Of blocks whose norms are called norm1 and norm2."""

    @staticmethod
    def norm(block: Any, branch: Branch, x: Tensor) -> Tensor:
        normed: Tensor = (block.norm1 if branch == "msa" else block.norm2)(x)
        return normed


@dataclass(frozen=True)
class BlockPlace:
    """One block of a built model: where it stands and what its factors must know.

    `name` is the block's dotted name in the model; `attention` and `ffn` are names
    inside the block, None where it has none to edit or replace. `residual` says whether
    paths can stand beside its branches. `layout` is that of the block's input,
    `ffn_layout` that of its feed-forward network.
    """

    name: str
    site: Site
    layout: Layout = "tokens"
    ffn_layout: Layout = "tokens"
    attention: str | None = "attn"
    ffn: str | None = "mlp"
    residual: bool = True


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of backbones.

    Attributes:
        name: as in `backbone: {family: NAME}`.
        members: names that a user may type.
        dimensions: the numbers of the unmodified backbone of that name.
        image_size: the input side that the backbone of that name was made for, in
            pixels.
        create: builds the unmodified backbone at given numbers: (name, image side,
            channels, classes, dimensions). Raises Infeasible where they do not fit.
        blocks: the places of its pre-norm blocks.
        algebra: how its blocks compute their branches.
        editable: the class that makes an attention module of it editable, by that
            module's own class; None if it is so already.
        sizes: the dimensions that factors may change.
        lacks: what factors need and this family has not, with the reason.
        before_head: dotted name of the parameterless module between the pooled vector
            and the classifier.
        last_norm: dotted name of the module whose output are the last layer's tokens.
        declared: whether the family's own name is a backbone too, whose numbers all
            come from `size` factors.
        about: which paper or library.
    """

    name: str
    about: str
    members: Callable[[], list[str]]
    dimensions: Callable[[str], Dimensions]
    image_size: Callable[[str], int]
    create: Callable[[str, int, int, int, Dimensions], nn.Module]
    blocks: Callable[[nn.Module], list[BlockPlace]]
    algebra: type[Algebra]
    editable: Callable[[nn.Module], type[nn.Module] | None]
    sizes: frozenset[str]
    lacks: Mapping[Slot, str] = field(default_factory=dict)
    before_head: str = "head_drop"
    last_norm: str = "norm"
    declared: bool = False
