"""What a family of backbones is: where factors attach, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.factors.factor import Dimensions

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class BranchNames:
    """The names under which a pre-norm block keeps one branch: `drop_path(scale(mixer(norm(x))))`."""

    norm: str
    mixer: str
    scale: str
    drop_path: str


@dataclass(frozen=True)
class BlockPlace:
    """One block of a built model: where it stands and what its factors must know.

    `owner[index]` is the block; `hidden` the width of its feed-forward network.
    """

    owner: nn.Sequential
    index: int
    msa: BranchNames
    mlp: BranchNames
    width: int
    heads: int
    hidden: int
    grid: tuple[int, int]
    prefix: int
    dropout: float
    norm: Callable[[int], nn.Module]


@dataclass(frozen=True)
class Family:
    """One family of backbones.

    Attributes:
        name: as in `backbone: {family: NAME}`.
        members: names that a user may type.
        dimensions: the numbers of the unmodified backbone of that name; None stands for the family's declared form, whose
            numbers all come from `size` factors.
        image_size: the input side that the backbone of that name was made for, in pixels.
        create: builds the unmodified backbone at given numbers: (name, image side, channels, classes, dimensions).
        blocks: the places of its pre-norm blocks. Raises Infeasible if the model has none.
    """

    name: str
    members: Callable[[], list[str]]
    dimensions: Callable[[str], Dimensions]
    image_size: Callable[[str], int]
    create: Callable[[str, int, int, int, Dimensions], nn.Module]
    blocks: Callable[[nn.Module], list[BlockPlace]]
