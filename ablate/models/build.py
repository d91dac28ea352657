"""Architecture to module: size the backbone, build it, attach the factors, and see that every setting was read."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from torch import nn

from ablate import backbones, factors
from ablate.backbones.family import BlockPlace
from ablate.errors import Infeasible
from ablate.factors.factor import (
    ArrangeFactor,
    Branch,
    Dimensions,
    Factor,
    Join,
    Path,
    PathFactor,
    ReadValues,
    ReplaceFactor,
    Site,
    SizeFactor,
)
from ablate.models.block import PreNormBlock
from ablate.records import Architecture, Settings

F = TypeVar("F", bound=Factor)


def resolve(backbone: str, image_size: int, channels: int, classes: int, settings: Settings) -> Architecture:
    """The canonical architecture: a size that is the backbone's own, and whatever the model does not read, is left out.

    Raises:
        UnknownName: no such backbone.
        Infeasible: the backbone is none that factors can attach to.
    """
    own = backbones.find(backbone).dimensions(backbone)
    sizes = {f"size.{f.name}": getattr(own, f.name) for f in fields(Dimensions)}
    kept = {name: level for name, level in factors.canonical(settings).items() if name not in sizes or sizes[name] != level}
    return Architecture(backbone, image_size, channels, classes, kept)


def build(architecture: Architecture) -> nn.Module:
    """The network, initialised from torch's global random state.

    New modules are made after the backbone, so that with equal seeds the weights that two variants share start equal. A
    block that no factor touches stays the library's own.

    Shape:
        (batch, channels, image_size, image_size) to (batch, classes).

    Raises:
        Infeasible: the settings cannot be built together; the text is the reason.
        UnreadParameter: a setting changed nothing because nothing read it.
    """
    family = backbones.find(architecture.backbone)
    settings = architecture.settings
    values = {name: ReadValues(factor, factors.values_of(factor, settings)) for name, factor in factors.catalogue().items()}

    wanted = family.dimensions(architecture.backbone)
    for factor in _active(SizeFactor, values):
        wanted = factor.edit(values[factor.name], wanted)
    model = family.create(architecture.backbone, architecture.image_size, architecture.channels, architecture.classes, wanted)

    join = Join()
    for arrange in _active(ArrangeFactor, values):
        join = arrange.join(values[arrange.name], join)
    for place in family.blocks(model):
        _modify(place, wanted.depth, join, values)

    for read in values.values():
        read.check(settings)
    return model


def _active(kind: type[F], values: dict[str, ReadValues]) -> list[F]:
    """The factors of a kind that change something."""
    return [
        factor
        for factor in factors.catalogue().values()
        if isinstance(factor, kind) and not factor.neutral(values[factor.name].quietly())
    ]


def _modify(place: BlockPlace, depth: int, join: Join, values: dict[str, ReadValues]) -> None:
    """Attaches all factors to one block."""
    block = place.owner[place.index]
    takers = _active(ReplaceFactor, values)
    if len(takers) > 1:
        raise Infeasible(f"{' and '.join(factor.name for factor in takers)} each take the feed-forward network's place")
    for replace_factor in takers:
        original = block.get_submodule(place.mlp.mixer)
        block.set_submodule(
            place.mlp.mixer, replace_factor.make(values[replace_factor.name], _site(place, depth, "mlp"), original)
        )
    paths: dict[Branch, list[Path]] = {"msa": [], "mlp": []}
    for path_factor in _active(PathFactor, values):
        for branch, found in paths.items():
            found += path_factor.make(values[path_factor.name], _site(place, depth, branch))
    if paths["msa"] or paths["mlp"] or join != Join():
        place.owner[place.index] = PreNormBlock(block, place.msa, place.mlp, paths["msa"], paths["mlp"], join)


def _site(place: BlockPlace, depth: int, branch: Branch) -> Site:
    return Site(
        layer=place.index,
        depth=depth,
        branch=branch,
        width=place.width,
        heads=place.heads,
        hidden=place.hidden,
        grid=place.grid,
        prefix=place.prefix,
        dropout=place.dropout,
        norm=place.norm,
    )
