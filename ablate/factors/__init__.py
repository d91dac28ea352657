"""What can vary.

Each file of this package is one factor. It is found through its record `FACTOR`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ablate.errors import AblateError, UnknownName, did_you_mean, unknown
from ablate.factors.factor import (
    Factor,
    OneOf,
    Parameter,
    Values,
    explain_refusal,
)
from ablate.own import discovery, registry
from ablate.records import Level, Settings
from ablate.text.advice import option


@cache
def _built_in() -> Mapping[str, Factor]:
    return discovery.parts(__name__, __path__, "FACTOR", ["factor"])


@registry.cached
def catalogue(backbone: str = "") -> Mapping[str, Factor]:
    """Returns every factor by name: the built-in ones, then those of the user.

    Args:
        backbone: its switches are factors too, if it is one of a user's file. A switch
            takes the place of a factor of its name.

    Raises:
        AblateError: a user's factor has the name of another one.
    """
    factors = {**_built_in(), **registry.besides("factor", _built_in())}
    return {**factors, **_switches(backbone)}


def _switches(backbone: str) -> dict[str, Factor]:
    record = registry.of_kind("backbone").get(backbone)
    if record is None:
        return {}
    switches: dict[str, Factor] = {}
    for name, allowed in record.factors.items():
        default = record.defaults.get(name)
        levels = allowed.levels if isinstance(allowed, OneOf) else ()
        parameter = Parameter(
            name=name,
            allowed=allowed,
            default=default,
            about=f"argument of {backbone}",
            typical=tuple(level for level in levels if level != default),
        )
        switches[name] = Factor(
            name=name,
            source="a file of the user",
            claim=f"Switch of the backbone {backbone}.",
            neutral=lambda values: False,
            switch=True,
            kind="switch",
            parameters=(parameter,),
        )
    return switches


@registry.cached
def parameters(backbone: str = "") -> Mapping[str, tuple[Factor, Parameter]]:
    """Returns every parameter by its full name, as it is written in a space."""
    return {
        factor.full_name(p.name): (factor, p)
        for factor in catalogue(backbone).values()
        for p in factor.parameters
    }


def find(name: str, backbone: str = "") -> tuple[Factor, Parameter]:
    """Returns the factor and the parameter with a full name.

    Raises:
        UnknownName: there is none; the message suggests the nearest name.
    """
    known = parameters(backbone)
    if name not in known:
        raise UnknownName(unknown_factor(name, known))
    return known[name]


def unknown_factor(name: str, known: Iterable[str]) -> str:
    """Returns the message for an unknown factor, which may be one of a user's file."""
    names = list(known)
    message = unknown("factor", name, names)
    if did_you_mean(name, names) or registry.sources():
        return message
    return f"{message}; a factor of your own needs its file: {option('with')} FILE"


def values_of(factor: Factor, settings: Settings) -> dict[str, Level]:
    """Returns one factor's values: those that are set, otherwise the defaults.

    Values that depend on the backbone are left out.
    """
    levels = {
        p.name: settings.get(factor.full_name(p.name), p.default)
        for p in factor.parameters
    }
    return {name: level for name, level in levels.items() if level is not None}


def canonical(settings: Settings, backbone: str = "") -> dict[str, Level]:
    """Returns the settings that a model reads and that differ from their defaults.

    Equal models thus have equal settings. Switches of the backbone are always kept: a
    default that changes later must not give old results to new trials.
    """
    kept: dict[str, Level] = {}
    for factor in catalogue(backbone).values():
        values = values_of(factor, settings)
        if factor.neutral(values):
            continue
        for p in factor.parameters:
            if p.name not in values or not p.read(values):
                continue
            if factor.switch or values[p.name] != p.default:
                kept[factor.full_name(p.name)] = values[p.name]
    return dict(sorted(kept.items()))


def unread_reason(name: str, settings: Settings, backbone: str = "") -> str:
    """Returns why a model does not read a parameter; empty if it does."""
    factor, parameter = find(name, backbone)
    if parameter.read(values_of(factor, settings)):
        return ""
    return f"{name} is not read unless {parameter.when}"


def identities(settings: Settings, backbone: str = "") -> dict[str, str]:
    """Returns what the factors that change a model add to its identity.

    Args:
        settings: canonical settings, as `canonical` returns them.
    """
    code: dict[str, str] = {}
    for factor in catalogue(backbone).values():
        if factor.switch:
            # The identity of its backbone counts.
            continue
        names = {factor.full_name(parameter.name) for parameter in factor.parameters}
        if names & set(settings):
            code |= registry.identity("factor", factor)
    return code


def needs_patch_labels(settings: Settings, backbone: str = "") -> bool:
    """Whether a loss with these settings needs a label for each patch."""
    for factor in catalogue(backbone).values():
        terms = factor.loss_terms
        if terms is not None and terms.patch_labels(values_of(factor, settings)):
            return True
    return False


def mixes_patches(settings: Settings, backbone: str = "") -> bool:
    """Whether a loss with these settings mixes two images on the patch grid.

    The published code does.
    """
    for factor in catalogue(backbone).values():
        terms = factor.loss_terms
        values = values_of(factor, settings)
        if terms is None or factor.neutral(values):
            continue
        if terms.as_published(values):
            return True
    return False


def reads_decay(settings: Settings, backbone: str = "") -> bool:
    """Whether a factor that these settings activate reads `recipe.factor_decay`."""
    factors = catalogue(backbone).values()
    decaying = [factor for factor in factors if factor.decays_as_published]
    return any(not factor.neutral(values_of(factor, settings)) for factor in decaying)


def check(settings: Settings, backbone: str = "") -> Settings:
    """Returns the same settings if each of them is valid.

    A valid setting has the name of a factor and an allowed level, and the model reads
    it.

    Raises:
        UnknownName: no factor has the name.
        AblateError: the level is not allowed, or would change nothing.
    """
    for name, level in settings.items():
        _, parameter = find(name, backbone)
        if not parameter.allowed.accepts(level):
            raise AblateError(explain_refusal(name, parameter, level))
    for name, level in settings.items():
        reason = unread_reason(name, settings, backbone)
        if reason:
            raise AblateError(f"{name} = {level} would change nothing: {reason}")
    return settings


__all__ = [
    "Values",
    "canonical",
    "catalogue",
    "check",
    "explain_refusal",
    "find",
    "identities",
    "mixes_patches",
    "needs_patch_labels",
    "parameters",
    "reads_decay",
    "unread_reason",
    "values_of",
]
