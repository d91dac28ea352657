"""Architecture to module: size the backbone, build it, attach the factors, and see that
every setting was read.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

from ablate import factors, families
from ablate.errors import Infeasible
from ablate.factors.factor import (
    ArrangeFactor,
    Branch,
    Dimensions,
    EditFactor,
    Factor,
    HeadFactor,
    Join,
    LossFactor,
    Path,
    PathFactor,
    ReadValues,
    ReplaceFactor,
    SizeFactor,
    TokenSite,
)
from ablate.families.family import BlockPlace, Family, factor_of
from ablate.layers.attention import AttentionEdits, EditableAttention
from ablate.layers.layout import OnTokens
from ablate.models.block import arrange
from ablate.models.weights import Loaded, State, take
from ablate.records import Architecture, Settings

F = TypeVar("F", bound=Factor)

# Of a number in float32.
BYTES = 4


def build(architecture: Architecture) -> nn.Module:
    """The network, initialised from torch's global random state.

    New modules are made after the backbone, so that with equal seeds the weights that
    two variants share start equal. A block that no factor touches stays the library's
    own.

    Shape:
        (batch, channels, image_size, image_size) to (batch, classes).

    Raises:
        Infeasible: the settings cannot be built together; the text is the reason.
        UnreadParameter: a setting changed nothing because nothing read it.
    """
    return build_from(architecture, {})[0]


def build_from(architecture: Architecture, weights: State) -> tuple[nn.Module, Loaded]:
    """The network, with whatever it shares with a checkpoint, and what was taken from
    it.

    The backbone takes its weights before the factors attach, so that what a factor
    makes of a layer (a narrower one, say) starts from them; then the whole network
    takes what else the checkpoint has, as from a network with the same factors.

    Raises: as `build`.
    """
    family = families.find(architecture.backbone)
    values = _values(architecture.settings)
    wanted = _dimensions(family, architecture.backbone, values)
    refuse_giants(architecture, wanted)
    model = family.create(
        architecture.backbone,
        architecture.image_size,
        architecture.channels,
        architecture.classes,
        wanted,
    )
    before = take(model, weights)
    # What stands where is read from the unmodified backbone: a factor may take away
    # what tells it.
    found: Any = model
    found.places = tuple(family.blocks(model))
    _attach(model, family, values)
    loaded = take(model, weights, before)
    with torch.random.fork_rng(devices=[]):
        build_losses(architecture, model)
    for factor in factors.catalogue().values():
        if not isinstance(factor, LossFactor):
            values[factor.name].check(architecture.settings)
    return model, loaded


def refuse_giants(architecture: Architecture, wanted: Dimensions) -> None:
    """Raises Infeasible where weights and one image would take more than this machine's
    memory, before any of it is taken.

    What is counted is a lower bound: numbers that a family has not, or has in several
    values, are left out.
    """
    width, ratio = max(wanted.width, 1), wanted.mlp_ratio
    if ratio and width * ratio < 1:
        raise Infeasible(
            f"size.mlp_ratio = {ratio:g} leaves no hidden channel of {width} channels"
        )
    if wanted.patch_size:
        patches = (architecture.image_size // wanted.patch_size) ** 2
    else:
        patches = 0
    image = architecture.channels * architecture.image_size**2
    embedding = architecture.channels * wanted.patch_size**2 * width + patches * width
    blocks = wanted.depth * width**2 * (4 + 2 * ratio)
    # Between the layers stand at least the tokens, as often as the widest layer has
    # outputs.
    tokens = patches * width * max(3.0, ratio)
    least = BYTES * (image + embedding + blocks + architecture.classes * width + tokens)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if least > memory:
        raise Infeasible(
            "it does not fit into this machine's memory: its weights and one image"
            f" take {least / 1e9:.3g} GB or more, the machine has {memory / 1e9:.3g} GB"
        )


def build_losses(
    architecture: Architecture, model: nn.Module
) -> dict[str, tuple[LossFactor, nn.Module]]:
    """The loss terms of an architecture's settings, by factor: modules as LossFactor
    describes them.

    Raises:
        Infeasible: they are not defined on the backbone.
    """
    values = _values(architecture.settings)
    found: dict[str, tuple[LossFactor, nn.Module]] = {}
    for factor in _active(LossFactor, values):
        if factor.as_published(values[factor.name].quietly()) and not hasattr(
            model, "patch_embed"
        ):
            raise Infeasible(
                f"the published code of {factor.name} reads patch embeddings, which"
                f" {architecture.backbone} lacks"
            )
        site = places_of(model)[-1].site
        read = values[factor.name]
        found[factor.name] = (
            factor,
            factor.make(read, TokenSite(site.width, site.grid, architecture.classes)),
        )
        read.check(architecture.settings)
    return found


def places_of(model: nn.Module) -> tuple[BlockPlace, ...]:
    """The blocks of a network that `build` made, modified or not."""
    built: Any = model
    places: tuple[BlockPlace, ...] = built.places
    return places


def _values(settings: Settings) -> dict[str, ReadValues]:
    return {
        name: ReadValues(factor, factors.values_of(factor, settings))
        for name, factor in factors.catalogue().items()
    }


def _active(kind: type[F], values: dict[str, ReadValues]) -> list[F]:
    """The factors of a kind that change something."""
    return [
        factor
        for factor in factors.catalogue().values()
        if isinstance(factor, kind)
        and not factor.neutral(values[factor.name].quietly())
    ]


def _dimensions(
    family: Family, backbone: str, values: dict[str, ReadValues]
) -> Dimensions:
    """The backbone's numbers after all size factors.

    Raises Infeasible where the family cannot change one.
    """
    own = family.dimensions(backbone)
    wanted = own
    for factor in _active(SizeFactor, values):
        wanted = factor.edit(values[factor.name], wanted)
    for field in fields(Dimensions):
        name = field.name
        if getattr(wanted, name) != getattr(own, name) and name not in family.sizes:
            can = ", ".join(sorted(factor_of(size) for size in family.sizes))
            raise Infeasible(
                f"{factor_of(name)} cannot be changed on {backbone}; what can: {can}"
            )
    for slot_factor in _active(Factor, values):
        for slot in slot_factor.needs:
            if slot in family.lacks:
                raise Infeasible(
                    f"{slot_factor.name} is not defined on {backbone}:"
                    f" {family.lacks[slot]}"
                )
    return wanted


def _attach(model: nn.Module, family: Family, values: dict[str, ReadValues]) -> None:
    """Attaches all factors."""
    join = Join()
    for factor in _active(ArrangeFactor, values):
        join = factor.join(values[factor.name], join)
    for place in places_of(model):
        _replace(model, place, values)
        _edit(model, family, place, values)
        _arrange(model, family, place, join, values)
    for head in _active(HeadFactor, values):
        made: Any = model
        before = model.get_submodule(family.before_head)
        model.set_submodule(
            family.before_head,
            nn.Sequential(head.make(values[head.name], made.num_features), before),
        )


def _replace(
    model: nn.Module, place: BlockPlace, values: dict[str, ReadValues]
) -> None:
    takers = _active(ReplaceFactor, values)
    if len(takers) > 1:
        raise Infeasible(
            f"{' and '.join(factor.name for factor in takers)} each take the"
            " feed-forward network's place"
        )
    for factor in takers:
        if place.ffn is None:
            continue
        name = f"{place.name}.{place.ffn}"
        made = factor.make(values[factor.name], place.site, model.get_submodule(name))
        model.set_submodule(
            name,
            made if place.ffn_layout == "tokens" else OnTokens(made, place.ffn_layout),
        )


def _edit(
    model: nn.Module, family: Family, place: BlockPlace, values: dict[str, ReadValues]
) -> None:
    for factor in _active(EditFactor, values):
        if place.attention is None:
            continue
        edits = factor.make(
            values[factor.name], replace(place.site, family=family.name)
        )
        if edits.image is not None:
            from ablate.backbones.editable import edit_windows

            edit_windows(model.get_submodule(place.name), edits.image)
        attention = make_editable(model, family, place)
        for where in ("value", "logits", "weights", "output"):
            module: nn.Module | None = getattr(edits, where)
            if module is not None:
                getattr(attention.edits, where).append(module)


def make_editable(
    model: nn.Module, family: Family, place: BlockPlace
) -> EditableAttention:
    """The attention of a block, as one that can be edited and observed.

    Edits that it has stay.
    """
    assert place.attention is not None
    attention = model.get_submodule(f"{place.name}.{place.attention}")
    if not isinstance(attention, EditableAttention):
        kind = family.editable(attention)
        assert kind is not None
        attention.__class__ = kind
        attention.edits = AttentionEdits()
    assert isinstance(attention, EditableAttention)
    return attention


def _arrange(
    model: nn.Module,
    family: Family,
    place: BlockPlace,
    join: Join,
    values: dict[str, ReadValues],
) -> None:
    if not place.residual:
        return
    paths: dict[Branch, list[Path]] = {"msa": [], "mlp": []}
    for factor in _active(PathFactor, values):
        for branch, found in paths.items():
            for path in factor.make(values[factor.name], place.site, branch):
                module = path.module
                if place.layout == "image":
                    module = OnTokens(module, "image")
                found.append(Path(module, path.reads, path.rescale))
    if paths["msa"] or paths["mlp"] or join != Join():
        arrange(model.get_submodule(place.name), family.algebra, paths, join)
