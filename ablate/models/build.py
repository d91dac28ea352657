"""Builds a module from an architecture.

It sizes the backbone, builds it, attaches the factors, and checks that every setting
was read.
"""

from __future__ import annotations

import math
import os
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

from ablate import factors, families, heads
from ablate.errors import Infeasible
from ablate.factors.factor import (
    Branch,
    Dimensions,
    Edits,
    Factor,
    Join,
    LossTerms,
    Path,
    ReadValues,
    TokenSite,
)
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, factor_of
from ablate.layers.attention import AttentionEdits, EditableAttention, FirstValues
from ablate.layers.layout import AddedTokens, OnTokens
from ablate.models.block import arrange
from ablate.models.weights import Loaded, State, load_weights
from ablate.records import Architecture, Level

F = TypeVar("F", bound=Factor)

# Bytes of a float32 number.
BYTES = 4
# The stride of the coarsest map of every backbone with stages, in pixels.
STRIDE = 32


def build(architecture: Architecture) -> nn.Module:
    """Returns the network, initialised from torch's global random state.

    New modules are created after the backbone. With equal seeds, the weights that two
    variants share therefore start equal. A block that no factor changes stays the
    library's own.

    Shape:
        (batch, channels, height, width) to (batch, classes); with a head, to what the
        head returns.

    Raises:
        Infeasible: the settings cannot be built together; the text is the reason.
        UnreadParameter: a setting changed nothing because nothing read it.
    """
    return build_from(architecture, {})[0]


def build_from(architecture: Architecture, weights: State) -> tuple[nn.Module, Loaded]:
    """Returns the network with weights from a checkpoint, and what was taken.

    The backbone takes its weights before the factors attach. What a factor makes of a
    layer (a narrower one, for example) then starts from these weights. Afterwards the
    whole network takes what else the checkpoint has, which may come from a network with
    the same factors.

    Raises: as `build`.
    """
    family = families.find(architecture.backbone)
    values = _values(architecture)
    numbers = _dimensions(family, architecture.backbone, values)
    refuse_giants(architecture, numbers)
    if architecture.head:
        _refuse_head(architecture, family, values)
    side = _built_side(architecture, family)
    model = family.create(
        architecture.backbone,
        side,
        architecture.channels,
        architecture.classes,
        numbers,
        **_switches(values),
    )
    before = load_weights(model, weights)
    # The places of blocks are read from the unmodified backbone: a factor may remove
    # what identifies them.
    places = family.blocks(model)
    added = _add_tokens(model, family, values)
    module: Any = model
    module.places = tuple(
        replace(place, site=replace(place.site, prefix=place.site.prefix + added))
        for place in places
    )
    _attach(model, family, values)
    _remove(model, architecture, side, values)
    loaded = load_weights(model, weights, before)
    if architecture.head:
        model = _with_head(architecture, family, model, side)
        # The checkpoint may be that of a network with this head.
        whole = load_weights(model, weights)
        if whole.share > loaded.share:
            loaded = whole
    # Only checks that the losses can be built; their random draws must not change what
    # follows.
    with torch.random.fork_rng(devices=[]):
        build_losses(architecture, model)
    for read in values.values():
        if read.factor.loss_terms is None:
            read.check(architecture.settings)
    return model, loaded


def _built_side(architecture: Architecture, family: Family) -> int:
    """Returns the side of the images that the backbone is built for.

    If images are not square, it is the backbone's own.
    """
    if architecture.image_width:
        return family.image_size(architecture.backbone)
    return architecture.image_size


def _refuse_head(
    architecture: Architecture, family: Family, values: dict[str, ReadValues]
) -> None:
    """Raises Infeasible if the backbone cannot have the head with these settings."""
    if family.features is None:
        can = [
            name
            for name, family in families.families().items()
            if family.features is not None
        ]
        raise Infeasible(
            f"head {architecture.head} is not defined on {architecture.backbone}; it is"
            f" defined on the families {', '.join(can)}"
        )
    for factor in _active(values):
        is_of_classifier = "head" in factor.needs or factor.loss_terms is not None
        if is_of_classifier or factor.before_classifier is not None:
            raise Infeasible(
                f"{factor.name} is defined on a classifier, not on head"
                f" {architecture.head}"
            )
    if values["drop"].quietly()["head"]:
        raise Infeasible(
            f"drop.head is defined on a classifier, not on head {architecture.head}"
        )
    patch = family.dimensions(architecture.backbone).patch_size
    if patch and STRIDE % patch:
        raise Infeasible(
            f"head {architecture.head} needs a patch size that divides {STRIDE}; that"
            f" of {architecture.backbone} is {patch}"
        )
    for name, length in zip(
        ("height", "width"), architecture.input_shape[1:], strict=True
    ):
        if length % STRIDE:
            raise Infeasible(
                f"head {architecture.head} needs a {name} that is a multiple of {STRIDE};"
                f" data.image_{'size' if name == 'height' else 'width'} is {length}"
            )


def _with_head(
    architecture: Architecture, family: Family, backbone: nn.Module, side: int
) -> nn.Module:
    """Returns the network of a backbone and a head."""
    assert family.features is not None
    is_free = architecture.image_width > 0
    maps = family.features(backbone, side, is_free)
    network = heads.find(architecture.head).build(maps, architecture.classes)
    (prefix,) = (name for name, module in network.named_modules() if module is backbone)
    made: Any = network
    made.places = tuple(
        replace(place, name=f"{prefix}.{place.name}") for place in places_of(backbone)
    )
    return network


def refuse_giants(architecture: Architecture, numbers: Dimensions) -> None:
    """Raises Infeasible if weights and one image would exceed this machine's memory.

    The check comes before any memory is allocated. It is a lower bound: numbers that a
    family does not have, or has several values of, are left out.
    """
    width, ratio = max(numbers.width, 1), numbers.mlp_ratio
    if ratio and width * ratio < 1:
        raise Infeasible(
            f"size.mlp_ratio = {ratio:g} is too small: with a width of {width} channels,"
            " the FFN would have no hidden channel"
        )
    if numbers.patch_size:
        patches = (architecture.image_size // numbers.patch_size) ** 2
    else:
        patches = 0
    image = math.prod(architecture.input_shape)
    embedding = architecture.channels * numbers.patch_size**2 * width + patches * width
    blocks = numbers.depth * width**2 * (4 + 2 * ratio)
    # Activations are at least the tokens, times the width of the widest layer's output.
    tokens = patches * width * max(3.0, ratio)
    least = BYTES * (image + embedding + blocks + architecture.classes * width + tokens)
    if families.find(architecture.backbone).rest:
        least = BYTES * timm_models.parameters(architecture.backbone)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if least > memory:
        raise Infeasible(
            "it does not fit into this machine's memory: its weights and one image"
            f" take {least / 1e9:.3g} GB or more, the machine has {memory / 1e9:.3g} GB"
        )


def build_losses(
    architecture: Architecture, model: nn.Module
) -> dict[str, tuple[LossTerms, nn.Module]]:
    """Returns the loss terms of an architecture's settings, by factor.

    The modules are those that `LossTerms.make` describes.

    Raises:
        Infeasible: they are not defined on the backbone.
    """
    values = _values(architecture)
    losses: dict[str, tuple[LossTerms, nn.Module]] = {}
    for factor in _active(values):
        terms = factor.loss_terms
        if terms is None:
            continue
        read = values[factor.name]
        if terms.as_published(read.quietly()) and not hasattr(model, "patch_embed"):
            raise Infeasible(
                f"the published code of {factor.name} reads patch embeddings, which"
                f" {architecture.backbone} lacks"
            )
        site = places_of(model)[-1].site
        tokens = TokenSite(site.width, site.grid, architecture.classes)
        losses[factor.name] = terms, terms.make(read, tokens)
        read.check(architecture.settings)
    return losses


def places_of(model: nn.Module) -> tuple[BlockPlace, ...]:
    """Returns the blocks of a network that `build` made, modified or not."""
    built: Any = model
    places: tuple[BlockPlace, ...] = built.places
    return places


def _values(architecture: Architecture) -> dict[str, ReadValues]:
    catalogue = factors.catalogue(architecture.backbone)
    return {
        name: ReadValues(factor, factors.values_of(factor, architecture.settings))
        for name, factor in catalogue.items()
    }


def _switches(values: dict[str, ReadValues]) -> dict[str, Level]:
    """Returns the arguments of a user's backbone that are factors.

    Raises Infeasible if one has no level.
    """
    switches: dict[str, Level] = {}
    for name, read in values.items():
        if not read.factor.switch:
            continue
        if name not in read:
            raise Infeasible(f"{name} has no default; name it under factors or fixed")
        switches[name] = read[name]
    return switches


def _active(values: dict[str, ReadValues]) -> list[Factor]:
    """Returns the factors that change something."""
    return [
        read.factor
        for read in values.values()
        if not read.factor.neutral(read.quietly())
    ]


def _dimensions(
    family: Family, backbone: str, values: dict[str, ReadValues]
) -> Dimensions:
    """Returns the backbone's numbers after all size factors.

    Raises Infeasible if the family cannot change one of them.
    """
    # Factors edit the numbers one after the other, so that several can change the same
    # one. What counts is the result: a change that is undone needs no support.
    unmodified = family.dimensions(backbone)
    numbers = unmodified
    for factor in _active(values):
        if factor.edit_backbone is not None:
            numbers = factor.edit_backbone(values[factor.name], numbers)
    for field in fields(Dimensions):
        name = field.name
        if (
            getattr(numbers, name) != getattr(unmodified, name)
            and name not in family.sizes
        ):
            can = ", ".join(sorted(factor_of(size) for size in family.sizes))
            raise Infeasible(
                f"{factor_of(name)} cannot be changed on {backbone}; sizes"
                f" and drop rates that can be changed: {can or 'none'}"
            )
    for factor in _active(values):
        for part in factor.needs:
            if part in family.lacks:
                raise Infeasible(
                    f"{factor.name} is not defined on {backbone}: {family.lacks[part]}"
                )
    return numbers


def _add_tokens(model: nn.Module, family: Family, values: dict[str, ReadValues]) -> int:
    """Adds tokens before the first block. Returns their number."""
    number = 0
    for factor in _active(values):
        if factor.add_tokens is None:
            continue
        site = family.blocks(model)[0].site
        tokens = factor.add_tokens(values[factor.name], site.width)
        before = model.get_submodule(family.embedded)
        module = AddedTokens(tokens, site.prefix + number)
        model.set_submodule(family.embedded, nn.Sequential(before, module))
        number += tokens.shape[1]
    if number and family.leave_out is not None:
        family.leave_out(model, number)
    return number


def _attach(model: nn.Module, family: Family, values: dict[str, ReadValues]) -> None:
    """Attaches all factors."""
    # All arrangements are combined first: a block gets its forward once.
    join = Join()
    for factor in _active(values):
        if factor.join_branches is not None:
            join = factor.join_branches(values[factor.name], join)
    if not join.mlp:
        _refuse_without_mlp(join, values)
    for place in places_of(model):
        _replace(model, place, values)
        _replace_norms(model, place, values)
        _edit(model, family, place, values)
        _arrange(model, family, place, join, values)
    if not join.mlp:
        built: Any = model
        built.places = tuple(
            replace(place, ffn=None) if place.residual else place
            for place in places_of(model)
        )
    _share_first_values(model)
    for factor in _active(values):
        if factor.before_classifier is not None:
            made: Any = model
            module = factor.before_classifier(values[factor.name], made.num_features)
            before = model.get_submodule(family.before_head)
            model.set_submodule(family.before_head, nn.Sequential(module, before))


def _remove(
    model: nn.Module,
    architecture: Architecture,
    side: int,
    values: dict[str, ReadValues],
) -> None:
    """Removes the parts that factors name."""

    def images(number: int) -> torch.Tensor:
        return torch.zeros(number, architecture.channels, side, side)

    removed: list[str] = []
    for factor in _active(values):
        if factor.remove_parts is not None:
            removed += factor.remove_parts(values[factor.name], model, images)
    if not removed:
        return
    places = []
    for place in places_of(model):
        if any(f"{place.name}.".startswith(f"{name}.") for name in removed):
            continue
        if f"{place.name}.{place.attention}" in removed:
            place = replace(place, attention=None)
        if f"{place.name}.{place.ffn}" in removed:
            place = replace(place, ffn=None)
        places.append(place)
    built: Any = model
    built.places = tuple(places)


def _refuse_without_mlp(join: Join, values: dict[str, ReadValues]) -> None:
    """Raises Infeasible if a factor changes the MLP that blocks do not have."""
    if join.layout == "parallel":
        raise Infeasible("mlp = false leaves one branch; write layout: serial")
    for factor in _active(values):
        if factor.replace_ffn is not None:
            raise Infeasible(
                f"mlp = false leaves no feed-forward network to replace; leave"
                f" {factor.name} out, or write mlp: true"
            )


def _replace(
    model: nn.Module, place: BlockPlace, values: dict[str, ReadValues]
) -> None:
    takers = [factor for factor in _active(values) if factor.replace_ffn is not None]
    if len(takers) > 1:
        raise Infeasible(
            f"{' and '.join(factor.name for factor in takers)} both replace the"
            " feed-forward network; only one of them can"
        )
    for factor in takers:
        if place.ffn is None or factor.replace_ffn is None:
            continue
        name = f"{place.name}.{place.ffn}"
        original = model.get_submodule(name)
        made = factor.replace_ffn(values[factor.name], place.site, original)
        if place.ffn_layout != "tokens":
            made = OnTokens(made, place.ffn_layout)
        model.set_submodule(name, made)


def _replace_norms(
    model: nn.Module, place: BlockPlace, values: dict[str, ReadValues]
) -> None:
    for factor in _active(values):
        if factor.replace_norm is None:
            continue
        for norm in place.norms:
            name = f"{place.name}.{norm}"
            original = model.get_submodule(name)
            made = factor.replace_norm(values[factor.name], place.site, original)
            model.set_submodule(name, made)


def _share_first_values(model: nn.Module) -> None:
    """Lets all attention modules know the values of the first one, if any needs them."""
    modules = [m for m in model.modules() if isinstance(m, EditableAttention)]
    if not any(len(module.edits.attended) for module in modules):
        return
    first = FirstValues()
    model.register_forward_pre_hook(first.begin)
    for module in modules:
        module.edits.first = first


def _edit(
    model: nn.Module, family: Family, place: BlockPlace, values: dict[str, ReadValues]
) -> None:
    site = replace(place.site, family=family.name)
    for factor in _active(values):
        if place.attention is None or factor.edit_attention is None:
            continue
        edits = factor.edit_attention(values[factor.name], site)
        if edits.image is not None:
            from ablate.backbones.editable import edit_windows

            edit_windows(model.get_submodule(place.name), edits.image)
        attention = make_editable(model, family, place)
        for where in (field.name for field in fields(Edits) if field.name != "image"):
            module: nn.Module | None = getattr(edits, where)
            if module is not None:
                getattr(attention.edits, where).append(module)


def make_editable(
    model: nn.Module, family: Family, place: BlockPlace
) -> EditableAttention:
    """Returns the attention of a block in a form that can be edited and observed.

    Existing edits are kept.
    """
    assert place.attention is not None
    attention = model.get_submodule(f"{place.name}.{place.attention}")
    if not isinstance(attention, EditableAttention):
        kind = family.editable(attention)
        assert kind is not None
        # The object stays the same, so its parameters keep their names and a checkpoint
        # of the library still fits.
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
    scales: dict[Branch, list[nn.Module]] = {"msa": [], "mlp": []}
    for factor in _active(values):
        read = values[factor.name]
        for branch, beside in paths.items():
            if factor.add_paths is not None:
                added = factor.add_paths(read, place.site, branch)
                if added and branch == "mlp" and not join.mlp:
                    raise Infeasible(
                        f"mlp = false leaves no MLP for {factor.name} to add a path"
                        " beside; write mlp: true, or place paths beside MSA only"
                        " (shortcuts.placement: msa)"
                    )
                for path in added:
                    module = _in_layout(path.module, place)
                    beside.append(replace(path, module=module))
            if factor.scale_branch is not None and (branch == "msa" or join.mlp):
                scale = factor.scale_branch(read, place.site, branch)
                if scale is not None:
                    scales[branch].append(_in_layout(scale, place))
    if any((*paths.values(), *scales.values())) or join != Join():
        block = model.get_submodule(place.name)
        arrange(block, family.algebra, paths, scales, join)


def _in_layout(module: nn.Module, place: BlockPlace) -> nn.Module:
    """Returns a module on tokens as one on the block's input.

    On a grid, channels are last, as in tokens.
    """
    return OnTokens(module, "image") if place.layout == "image" else module
