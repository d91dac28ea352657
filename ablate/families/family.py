"""What a family of backbones is: one record that says where factors attach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ablate.factors.factor import BackbonePart, Branch, Dimensions, Site
from ablate.families import timm_models

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.backbones.features import FeatureMaps

# The layout of a block's input and output: (batch, tokens, width), (batch, height,
# width, channels), or (batch, channels, height, width).
Layout = Literal["tokens", "grid", "image"]


def factor_of(dimension: str) -> str:
    """Returns the factor that changes a field of Dimensions, as written in a space."""
    rates = {
        "drop_path": "drop.path",
        "dropout": "drop.dropout",
        "attention_dropout": "drop.attention",
        "head_dropout": "drop.head",
    }
    return rates.get(dimension, f"size.{dimension}")


class Algebra(Protocol):
    """How the blocks of a family compute their two branches.

    A branch is `drop_path(scale(mixer(norm(x))))`.
    """

    @staticmethod
    def norm(block: Any, branch: Branch, x: Tensor) -> Tensor:
        """Returns the branch's norm of the block's input, in the block's layout."""

    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        """Returns the rest of the branch. `context` is what else the block receives."""


class TwoNorms:
    """The norms of blocks that call them norm1 and norm2."""

    @staticmethod
    def norm(block: Any, branch: Branch, x: Tensor) -> Tensor:
        normed: Tensor = (block.norm1 if branch == "msa" else block.norm2)(x)
        return normed


class OneDropPath(TwoNorms):
    """Blocks without LayerScale whose two branches share a module `drop_path`."""

    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor = block.drop_path(
            block.attn(normed, *context) if branch == "msa" else block.mlp(normed)
        )
        return mixed


@dataclass(frozen=True)
class BlockPlace:
    """One block of a built model: its place, and what its factors need to know.

    `name` is the block's dotted name in the model. `attention` and `ffn` are names
    inside the block; None if it has none to edit or replace. `norms` are the names of
    its norms. `residual` says whether paths can be added beside its branches. `layout`
    is that of the block's input, `ffn_layout` that of its feed-forward network.
    """

    name: str
    site: Site
    layout: Layout = "tokens"
    ffn_layout: Layout = "tokens"
    attention: str | None = "attn"
    ffn: str | None = "mlp"
    norms: tuple[str, ...] = ("norm1", "norm2")
    residual: bool = True


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of backbones.

    Attributes:
        name: as in `backbone: {family: NAME}`.
        members: returns the names that a user may write.
        dimensions: returns the numbers of the unmodified backbone of that name.
        create: builds the unmodified backbone with given numbers: (name, image side,
            channels, classes, dimensions). Raises Infeasible if they do not fit. A
            user's backbone also gets its switches by name.
        blocks: returns the places of its pre-norm blocks.
        algebra: how its blocks compute their branches.
        sizes: the dimensions that factors may change.
        image_size: returns the input side, in pixels, that the backbone of that name
            was made for.
        editable: returns the class that makes an attention module editable; None if it
            is editable already.
        lacks: what factors need and this family does not have, with the reason.
        before_head: dotted name of the parameterless module between the pooled vector
            and the classifier.
        embedded: dotted name of the parameterless module whose output enters the first
            block, on families with equal tokens in all blocks.
        leave_out: makes a model leave out so many tokens, which were added behind its
            prefix tokens, where it takes the mean of its tokens; None if it takes none.
        last_norm: dotted name of the module whose output is the last layer's tokens.
        declared: whether the family's own name is a backbone too, whose numbers all
            come from `size` factors.
        rest: whether it also has members of other families among its names; a
            backbone belongs to it only if it belongs to no other.
        own: whether its members are backbones of users' files.
        features: makes a source of feature maps of a built model: (model, the side that
            it was built for, whether images have other sides). None if heads other
            than a classifier are not defined.
        about: the paper or library.
    """

    name: str
    about: str
    members: Callable[[], list[str]]
    dimensions: Callable[[str], Dimensions]
    create: Callable[..., nn.Module]
    blocks: Callable[[nn.Module], list[BlockPlace]]
    algebra: type[Algebra]
    sizes: frozenset[str]
    image_size: Callable[[str], int] = timm_models.image_size
    editable: Callable[[nn.Module], type[nn.Module] | None] = lambda attention: None
    lacks: Mapping[BackbonePart, str] = field(default_factory=dict)
    before_head: str = "head_drop"
    embedded: str = "pos_drop"
    leave_out: Callable[[nn.Module, int], None] | None = None
    last_norm: str = "norm"
    declared: bool = False
    rest: bool = False
    own: bool = False
    features: Callable[[nn.Module, int, bool], FeatureMaps] | None = None

    @property
    def blocks_known(self) -> bool:
        """Whether ablate knows the blocks, so that it must be able to count them."""
        return not (self.rest or self.own)
