"""Where factors attach.

Each file of this package is one family of backbones. It is found through its record
`FAMILY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from itertools import chain

from ablate import factors
from ablate.errors import UnknownName, shortened, unknown
from ablate.factors.factor import Dimensions
from ablate.families import timm_models
from ablate.families.family import Family
from ablate.families.own import family_like
from ablate.own import discovery, registry
from ablate.records import Architecture, Settings


@cache
def families() -> Mapping[str, Family]:
    """Returns every family by name."""
    helpers = ("family", "places", "timm_models")
    return discovery.parts(__name__, __path__, "FAMILY", helpers)


def untagged(backbone: str) -> str:
    """Returns the name of a backbone without the tag of its weights.

    `vit_tiny_patch16_224.augreg_in21k` is the network `vit_tiny_patch16_224` and the
    weights `augreg_in21k` that timm publishes for it.
    """
    name, _, tag = backbone.partition(".")
    if tag and tag in timm_models.tags(name):
        return name
    return backbone


@registry.cached
def find(backbone: str) -> Family:
    """Returns the family that a backbone belongs to.

    Raises:
        UnknownName: there is none; the message suggests the nearest name.
    """
    backbone = untagged(backbone)
    declared = families().get(backbone)
    if declared is not None and declared.declared:
        return declared
    for family in sorted(families().values(), key=lambda family: family.rest):
        if backbone in family.members():
            if family.own:
                return _own_family(backbone, family)
            return family
    raise UnknownName(unknown_backbone(backbone))


def _own_family(backbone: str, family: Family) -> Family:
    """Returns the family of a user's backbone: that which it is like, if it says so."""
    others = [family for family in families().values() if not family.own]
    registry.besides("backbone", chain(*(family.members() for family in others)))
    like = registry.of_kind("backbone")[backbone].like
    if not like:
        return family
    names = [name for name, family in families().items() if family.blocks_known]
    if like not in names:
        raise UnknownName(f"backbone {backbone}: {unknown('family', like, names)}")
    return family_like(backbone, families()[like])


def is_known(backbone: str) -> bool:
    """Whether any family has a backbone of that name."""
    return untagged(backbone) in _names()


def members_of(family: Family) -> list[str]:
    """Returns the names of the backbones that belong to a family."""
    if not family.rest:
        return family.members()
    others = set[str]()
    for other in families().values():
        if other is not family:
            others.update(other.members())
    return [name for name in family.members() if name not in others]


@registry.cached
def _names() -> frozenset[str]:
    declared = {family.name for family in families().values() if family.declared}
    return frozenset(
        declared.union(*(family.members() for family in families().values()))
    )


def unknown_backbone(name: str) -> str:
    """Returns the message for an unknown backbone.

    It suggests the nearest known name if there is one, otherwise it lists the families.
    """
    network, _, tag = name.partition(".")
    tags = timm_models.tags(network)
    if tag and tags:
        return unknown(f"tag of the weights of {network}", tag, tags)
    nearest = unknown("backbone", name, sorted(_names()))
    if "did you mean" in nearest:
        return nearest
    return (
        f"unknown backbone '{shortened(name)}'; known are the models of the families"
        f" {', '.join(families())}; `ablate backbones` lists them"
    )


def resolve(
    backbone: str,
    image_size: int,
    channels: int,
    classes: int,
    settings: Settings,
    *,
    head: str = "",
    image_width: int = 0,
) -> Architecture:
    """Returns the canonical architecture.

    It leaves out sizes that equal the backbone's own, and settings that the model does
    not read.

    Raises:
        UnknownName: there is no such backbone.
        Infeasible: factors cannot attach to the backbone.
    """
    family = find(backbone)
    backbone = untagged(backbone)
    numbers = family.dimensions(backbone)
    sizes = {f"size.{f.name}": getattr(numbers, f.name) for f in fields(Dimensions)}
    kept = {
        name: level
        for name, level in factors.canonical(settings, backbone).items()
        if name not in sizes or sizes[name] != level
    }
    if kept.get("mlp") is False:
        # Without an MLP, nothing reads its width.
        kept.pop("size.mlp_ratio", None)
    return Architecture(
        backbone=backbone,
        image_size=image_size,
        channels=channels,
        classes=classes,
        settings=kept,
        code=_code(backbone, kept),
        head=head,
        image_width=0 if image_width == image_size else image_width,
    )


def _code(backbone: str, settings: Settings) -> dict[str, str]:
    """Returns what the user's parts in a network add to its identity."""
    code = factors.identities(settings, backbone)
    record = registry.of_kind("backbone").get(backbone)
    if record is not None:
        code |= registry.identity("backbone", record)
    return code


__all__ = [
    "Family",
    "families",
    "find",
    "is_known",
    "members_of",
    "resolve",
    "unknown_backbone",
    "untagged",
]
