"""Reads the resolved space that the store keeps with its study (`records.plain`).

Reading the data back needs neither the YAML text nor the catalogues of factors,
backbones and data sets. So a study stays readable after one of them is renamed or
removed. Reading knows no names: `ablate.space` checked them when the study ran. It
ignores a field that this version does not know, and gives a missing field its default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ablate import tasks
from ablate.records import (
    METRIC_NAME,
    STORED_NAME,
    Across,
    Metric,
    Reported,
    Space,
    Tune,
)
from ablate.records.plain import build

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def from_data(data: Mapping[str, Any], document: str) -> Space:
    """The space that plain data describe.

    Args:
        document: the YAML text, which the store keeps beside the data.
    """
    space = build(Space, {**data, "document": document})
    return replace(space, criterion=replace(space.criterion, metrics=metrics_of(data)))


@cache
def _adapter() -> TypeAdapter[Space]:
    from pydantic import TypeAdapter

    return TypeAdapter(Space)


def is_valid(data: Mapping[str, Any]) -> bool:
    """Whether data describe a space whose fields have their types and bounds.

    Names, such as those of factors, need not be known.
    """
    try:
        space = from_data(data, "")
        _adapter().validate_json(json.dumps(asdict(space)), strict=True)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return False
    # They name folders of logs.
    own = [space.name, *([space.across.ladder] if space.across else [])]
    if not all(re.fullmatch(STORED_NAME, name) for name in own):
        return False
    names = {metric.name for metric in space.criterion.metrics}
    return space.criterion.metric in names


def metrics_of(data: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The metrics of a stored space.

    Args:
        data: the space as plain data.
    """
    # The names become columns of views, and the store may be that of somebody else.
    return tuple(
        build(Metric, stored_metric)
        for stored_metric in data["metrics"]
        if METRIC_NAME.fullmatch(str(stored_metric.get("name")))
    )


def tune_of(data: Mapping[str, Any]) -> Tune | None:
    """The nuisance hyperparameters of a stored space; None if it has none."""
    if not data.get("tune"):
        return None
    return build(Tune, data["tune"])


def confirms(data: Mapping[str, Any]) -> bool:
    """Whether a stored space is that of a search that confirms rows on fresh seeds."""
    strategy = data.get("strategy")
    return isinstance(strategy, Mapping) and bool(strategy.get("confirm"))


def across_of(data: Mapping[str, Any]) -> Across | None:
    """The size of a stored space; None if it has none."""
    if not data.get("across"):
        return None
    return build(Across, data["across"])


def reported_of(data: Mapping[str, Any]) -> Reported | None:
    """Where the results of a stored space are from; None if they were trained here."""
    if not data.get("reported"):
        return None
    return build(Reported, data["reported"])


def chance_of(data: Mapping[str, Any], metric: str) -> float | None:
    """Returns the metric of a network that has learnt nothing, in %.

    None if it is unknown.
    """
    classes = int((data.get("data") or {}).get("classes") or 0)
    return tasks.chance_of(data.get("task", tasks.USUAL), classes, metric)
