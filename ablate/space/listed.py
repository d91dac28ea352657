"""The space of some rows: what a document declares, without its own rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ablate.errors import AblateError
from ablate.records import CostOf, Level, Space, Term
from ablate.records.sections import Arithmetic
from ablate.space.typed import text_of
from ablate.text.document import parse

# What decides how a row is trained and measured. The other keys say which rows there are,
# with how many seeds, and how they are shown.
KEPT = (
    "backbone",
    "trainer",
    "pretrained",
    "teacher",
    "task",
    "head",
    "data",
    "recipe",
    "exclude",
    "limits",
    "resources",
    "keep",
)

# Prefixes of factors that are not those of a network.
BESIDE = ("recipe.", "data.")


def fixed_levels(declared: Space) -> dict[str, Level]:
    """Returns the levels under `fixed`, without the sizes of the backbone."""
    values = parse(declared.document, declared.name).values
    return dict(values.get("fixed") or {})


def shared(declared: Space) -> str:
    """Returns what holds for all rows of a space, as JSON.

    Raises:
        AblateError: the space has rows that cannot be compared two by two.
    """
    _refuse(declared)
    values = parse(declared.document, declared.name).values
    kept: dict[str, Any] = {key: values[key] for key in KEPT if key in values}
    criterion = declared.criterion
    kept["metric"] = {criterion.metric: criterion.direction}
    kept["vary"] = list(declared.seeds.vary)
    kept["values"] = _values(declared)
    return json.dumps(kept, ensure_ascii=False)


def _values(declared: Space) -> dict[str, Level]:
    """Returns the values of what a row may change beside its network."""
    values: dict[str, Any] = {
        f"recipe.{field.name}": getattr(declared.recipe, field.name)
        for field in fields(declared.recipe)
    }
    values["data.image_size"] = declared.data.image_size
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, bool | int | float | str)
    }


def _refuse(declared: Space) -> None:
    """Raises AblateError for what would not hold for two rows alone."""
    for key, is_there in (
        ("tune", declared.tune is not None),
        ("across", declared.across is not None),
        ("scheduler", declared.scheduler.name != "fifo"),
    ):
        if is_there:
            raise AblateError(
                f"{declared.name}: a chain trains two rows at a time, to their end, at one"
                f" setting and size; leave {key} out"
            )
    if len(declared.criterion.objectives) > 1:
        raise AblateError(
            f"{declared.name}: a chain compares by one metric; leave the other objectives"
            " out of metric"
        )
    for limit in declared.limits:
        if _is_relative(limit.left) or _is_relative(limit.right):
            raise AblateError(
                f"{declared.name}: the baseline of a chain moves, and the limit"
                f" {limit.text} with it; write a number in the place of baseline"
            )


def _is_relative(term: Term) -> bool:
    """Whether a term of a limit is a cost of the baseline, or has one."""
    if isinstance(term, CostOf):
        return term.of_baseline
    if isinstance(term, Arithmetic):
        return _is_relative(term.left) or _is_relative(term.right)
    return False


def refuse_excluded(shared_part: str, levels: Mapping[str, Level]) -> None:
    """Raises AblateError if a space excludes these levels together."""
    for combination in json.loads(shared_part).get("exclude", ()):
        if all(levels.get(name) == level for name, level in combination.items()):
            raise AblateError(
                f"the space excludes {text_of(combination)}; propose other levels"
            )


def _with_sizes(
    document: dict[str, Any], rows: Sequence[Mapping[str, Level]]
) -> list[dict[str, Level]]:
    """Returns rows with the sizes of the backbone that one of them changes.

    These sizes are taken out of the backbone.
    """
    backbone = document.get("backbone")
    if not isinstance(backbone, dict):
        return [dict(row) for row in rows]
    names = {f"size.{key}": key for key in backbone}
    moved = {
        name: backbone.pop(key)
        for name, key in names.items()
        if any(name in row for row in rows)
    }
    return [{**moved, **row} for row in rows]


def _with_values(
    values: Mapping[str, Level], rows: Sequence[Mapping[str, Level]]
) -> list[dict[str, Level]]:
    """Returns rows with all that one of them changes beside its network.

    A row that does not name it would have the first level of another row.

    Raises:
        AblateError: the space has no level of it.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    moved: dict[str, Level] = {}
    for name in names:
        if all(name in row for row in rows):
            continue
        if name in values:
            moved[name] = values[name]
        elif name in ("backbone", "pretrained") or name.startswith(BESIDE):
            raise AblateError(
                f"{name} has no level in the space of the chain; list it under factors when"
                " you begin a chain"
            )
    return [{**moved, **row} for row in rows]


def _levels(rows: Sequence[Mapping[str, Level]]) -> dict[str, list[Level]]:
    """Returns the levels of all rows, by factor."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: list(dict.fromkeys(row[name] for row in rows if name in row))
        for name in names
    }


def listed(
    shared_part: str,
    name: str,
    rows: Sequence[Mapping[str, Level]],
    seeds: int | Sequence[int],
) -> str:
    """Returns the YAML text of a study of rows.

    Args:
        shared_part: what `shared` returns.
        name: that of the study.
        rows: all levels of each row that are not those of the unmodified backbone; row
            0 first.
    """
    document: dict[str, Any] = json.loads(shared_part)
    vary = document.pop("vary")
    # It may name levels that no row has (`refuse_excluded`).
    document.pop("exclude", None)
    rows = _with_values(document.pop("values"), _with_sizes(document, rows))
    count = seeds if isinstance(seeds, int) else list(seeds)
    document = {
        "name": name,
        "question": "Is a change of row 0 better than row 0?",
        **document,
        "factors": _levels(rows),
        "design": "rows",
        "rows": rows,
        "seeds": {"count": count, "vary": vary} if "trainer" not in document else count,
    }
    # JSON is YAML.
    lines = [
        f"{key}: {json.dumps(part, ensure_ascii=False)}"
        for key, part in document.items()
    ]
    return "\n".join([*lines, ""])
