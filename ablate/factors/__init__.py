"""What can vary.

One file of this package is one factor: its record `FACTOR` is found by being there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from ablate.errors import AblateError, UnknownName, unknown
from ablate.factors.factor import Factor, LossFactor, Parameter, Values, explain_refusal
from ablate.records import Level, Settings


@cache
def catalogue() -> Mapping[str, Factor]:
    """Every factor by name, in alphabetical order."""
    found: dict[str, Factor] = {}
    for module in sorted(
        pkgutil.iter_modules(__path__), key=lambda module: module.name
    ):
        if module.name == "factor":
            continue
        factor = importlib.import_module(f"{__name__}.{module.name}").FACTOR
        if factor.name in found:
            raise ValueError(f"two files declare a factor '{factor.name}'")
        found[factor.name] = factor
    return found


@cache
def parameters() -> Mapping[str, tuple[Factor, Parameter]]:
    """Every parameter by its full name, as it is written in a space."""
    return {
        factor.full_name(p.name): (factor, p)
        for factor in catalogue().values()
        for p in factor.parameters
    }


def find(name: str) -> tuple[Factor, Parameter]:
    """The factor and parameter behind a full name.

    Raises:
        UnknownName: no factor has it; the message names the nearest.
    """
    try:
        return parameters()[name]
    except KeyError:
        raise UnknownName(unknown("factor", name, parameters())) from None


def values_of(factor: Factor, settings: Settings) -> dict[str, Level]:
    """One factor's values: what is said, else the default.

    What only the backbone knows is left out.
    """
    said = {
        p.name: settings.get(factor.full_name(p.name), p.default)
        for p in factor.parameters
    }
    return {name: level for name, level in said.items() if level is not None}


def canonical(settings: Settings) -> dict[str, Level]:
    """The settings that a model would read and that differ from their defaults: equal
    models, equal settings.
    """
    kept: dict[str, Level] = {}
    for factor in catalogue().values():
        values = values_of(factor, settings)
        if factor.neutral(values):
            continue
        for p in factor.parameters:
            if p.name in values and p.read(values) and values[p.name] != p.default:
                kept[factor.full_name(p.name)] = values[p.name]
    return dict(sorted(kept.items()))


def unread_reason(name: str, settings: Settings) -> str:
    """Why a model with these settings does not read a parameter, or nothing if it does."""
    factor, parameter = find(name)
    if parameter.read(values_of(factor, settings)):
        return ""
    return f"{name} is not read unless {parameter.when}"


def needs_patch_labels(settings: Settings) -> bool:
    """Whether a loss of these settings needs a label for each patch."""
    return any(
        isinstance(factor, LossFactor)
        and factor.patch_labels(values_of(factor, settings))
        for factor in catalogue().values()
    )


def mixes_patches(settings: Settings) -> bool:
    """Whether a loss of these settings mixes two images on the patch grid, as
    published.
    """
    found = [
        factor for factor in catalogue().values() if isinstance(factor, LossFactor)
    ]
    values = [(factor, values_of(factor, settings)) for factor in found]
    return any(
        not factor.neutral(read) and factor.as_published(read)
        for factor, read in values
    )


def reads_decay(settings: Settings) -> bool:
    """Whether a factor that these settings turn on reads `recipe.factor_decay`."""
    found = [factor for factor in catalogue().values() if factor.decays_as_published]
    return any(not factor.neutral(values_of(factor, settings)) for factor in found)


def check(settings: Settings) -> Settings:
    """The same settings, if each names a factor, has an allowed level and would be
    read.

    Raises:
        UnknownName: no factor has the name.
        AblateError: the level is not allowed, or would change nothing.
    """
    for name, level in settings.items():
        _, parameter = find(name)
        if not parameter.allowed.accepts(level):
            raise AblateError(explain_refusal(name, parameter, level))
    for name, level in settings.items():
        reason = unread_reason(name, settings)
        if reason:
            raise AblateError(f"{name} = {level} would change nothing: {reason}")
    return settings


__all__ = [
    "Values",
    "canonical",
    "catalogue",
    "check",
    "find",
    "mixes_patches",
    "needs_patch_labels",
    "parameters",
    "reads_decay",
    "unread_reason",
    "values_of",
]
