"""A resolved space as plain data, which the store keeps with its study.

Reading the data back needs neither the YAML text nor the catalogues of factors,
backbones and data sets. So a study stays readable after one of them is renamed or
removed. Reading knows no names: `ablate.space` checked them when the study ran. It
ignores a field that this version does not know, and gives a missing field its default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from ablate import tasks
from ablate.records import (
    METRIC_NAME,
    Arithmetic,
    Claim,
    CostOf,
    Criterion,
    Data,
    DeclaredTeacher,
    Design,
    Diagnostics,
    Factors,
    LevelOf,
    Limit,
    Looks,
    Metric,
    Network,
    Recipe,
    Resources,
    Scheduler,
    Seeds,
    Space,
    Strategy,
    Term,
)
from ablate.tasks import classification

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Sections whose fields are stored side by side, as the YAML document has them.
_FLAT: dict[str, type[Any]] = {
    "claim": Claim,
    "network": Network,
    "factors": Factors,
    "seeds": Seeds,
    "criterion": Criterion,
}
# Fields that are stored under the name of their section.
_NAMED_AS_SECTION = {"levels": "factors", "numbers": "seeds"}
# Fields that are stored as records.
_RECORDS: dict[str, type[Any]] = {
    "data": Data,
    "design": Design,
    "diagnostics": Diagnostics,
    "looks": Looks,
    "recipe": Recipe,
    "resources": Resources,
    "scheduler": Scheduler,
    "strategy": Strategy,
    "teacher": DeclaredTeacher,
}


def to_data(space: Space) -> dict[str, Any]:
    """The space as JSON values, without its YAML text."""
    data = asdict(space)
    del data["document"]
    for section in _FLAT:
        for name, value in data.pop(section).items():
            data[_NAMED_AS_SECTION.get(name, name)] = value
    return data


def from_data(data: Mapping[str, Any], document: str) -> Space:
    """The space that `to_data` described.

    Args:
        document: the YAML text, which the store keeps beside the data.
    """
    values = dict(data)
    values["document"] = document
    for name, record in _RECORDS.items():
        if values.get(name) is not None:
            values[name] = _record(record, values[name])
    values["levels"] = {
        name: tuple(levels) for name, levels in values["factors"].items()
    }
    values["numbers"] = values["seeds"]
    # JSON has lists only; the fields of records are tuples.
    for name in ("numbers", "vary", "rows", "exclude", "primary", "parts"):
        if name in values:
            values[name] = tuple(values[name])
    values["together"] = tuple(map(tuple, values.get("together", ())))
    values["limits"] = tuple(_limit(limit) for limit in values["limits"])
    values["metrics"] = metrics_of(data)
    for section, record in _FLAT.items():
        values[section] = record(**_known(record, values))
    return Space(**_known(Space, values))


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
    names = {metric.name for metric in space.criterion.metrics}
    return space.criterion.metric in names


def metrics_of(data: Mapping[str, Any] | None) -> tuple[Metric, ...]:
    """The metrics of a stored space.

    Args:
        data: the space as `to_data` described it; None if it was stored by a version
            that did not.
    """
    stored = (data or {}).get("metrics")
    if not stored:
        # Older versions knew one task only.
        return classification.METRICS
    # The names become columns of views, and the store may be that of somebody else.
    return tuple(
        Metric(**_known(Metric, stored_metric))
        for stored_metric in stored
        if METRIC_NAME.fullmatch(str(stored_metric.get("name")))
    )


def chance_of(data: Mapping[str, Any] | None, metric: str) -> float | None:
    """Returns the metric of a network that has learnt nothing, in %.

    None if it is unknown.

    Args:
        data: as for `metrics_of`.
    """
    if data is None:
        return None
    classes = int((data.get("data") or {}).get("classes") or 0)
    return tasks.chance_of(data.get("task", tasks.USUAL), classes, metric)


def _known(record: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields that a record has."""
    names = {field.name for field in fields(record)}
    return {name: value for name, value in data.items() if name in names}


def _record(record: type[Any], data: Mapping[str, Any]) -> Any:
    values = _known(record, data)
    for name, value in values.items():
        # JSON has lists only; the fields of records are tuples.
        if isinstance(value, list):
            values[name] = tuple(value)
    return record(**values)


def _limit(data: Mapping[str, Any]) -> Limit:
    return Limit(
        text=data["text"],
        left=_term(data["left"]),
        relation=data["relation"],
        right=_term(data["right"]),
    )


def _term(data: Any) -> Term:
    if not isinstance(data, Mapping):
        return float(data)
    if "operator" in data:
        return Arithmetic(
            left=_term(data["left"]),
            operator=data["operator"],
            right=_term(data["right"]),
        )
    if "factor" in data:
        return LevelOf(factor=data["factor"])
    return CostOf(name=data["name"], of_baseline=data["of_baseline"])
