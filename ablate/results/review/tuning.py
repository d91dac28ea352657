"""What a referee would ask of rows that choose their settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from ablate import factors
from ablate.errors import UnknownName, counted
from ablate.parts import trainer_named
from ablate.records import Level, Space, Tune, is_number
from ablate.report.numbers import fixed
from ablate.report.tuning import Edge, edges_of, sensitivity, tuned_rows
from ablate.report.wording import rows_text
from ablate.results.review.finding import Finding, Read

# A range is extended by these shares of its width, on its own scale: the first one that
# the hyperparameter allows.
EXTENSIONS = (0.5, 0.25, 0.1, 0.02)
DIGITS = 2


def at_edge(study: Read) -> Iterator[Finding]:
    """The best setting of a row lies at an edge of what was tried."""
    tune = study.declared.tune
    if tune is None:
        return
    rows = tuned_rows(study.results, study.tried, study.declared.criterion.margin)
    by_edge: dict[Edge, list[int]] = {}
    for row in rows:
        for edge in edges_of(row, tune):
            by_edge.setdefault(edge, []).append(row.cell.index)
    for edge, numbers in by_edge.items():
        wider = _wider(study.declared, tune, edge)
        if not wider:
            # Nothing is allowed beyond it.
            continue
        beyond, most = ("smaller", "smallest") if edge.is_low else ("larger", "largest")
        yield Finding(
            "best setting at an edge",
            f"{rows_text(numbers)}: {edge.name} = {edge.level:g} is best, and it"
            f" is the {most} level that was tried, so a {beyond} one may be better. Under"
            f" tune in {study.file}, write: {edge.name}: {wider}",
            study.again(),
        )


def few_settings(study: Read) -> Iterator[Finding]:
    """A row has too few good settings for the number of hyperparameters."""
    tune = study.declared.tune
    if tune is None:
        return
    rows = tuned_rows(study.results, study.tried, study.declared.criterion.margin)
    needed = len(tune.names) + 1
    few = [row for row in rows if row.near is not None and row.near < needed]
    if not few:
        return
    digits = study.results.metric.digits
    spreads = [sensitivity(row, tune) for row in few]
    texts = ", ".join(fixed(spread, digits) for spread in spreads if spread is not None)
    numbers = ", ".join(str(row.near) for row in few)
    yield Finding(
        "few settings",
        f"{rows_text([row.cell.index for row in few])}: {numbers} of {len(tune.points)}"
        f" settings are near the best one, and {counted(len(tune.names), 'hyperparameter')}"
        f" need {needed}; on average, settings are {texts} away. A better setting was"
        " probably not tried, and a row with a sharper response loses more by that."
        f" {_more_settings(tune, study.file)}",
        study.again(),
    )


def _more_settings(tune: Tune, file: str) -> str:
    if not tune.ranges:
        return f"Under tune in {file}, list more levels between those of the best ones"
    return (
        f"Under tune in {file}, write settings: {4 * len(tune.points)}, or narrower ranges"
        " for all rows"
    )


def _wider(declared: Space, tune: Tune, edge: Edge) -> str:
    """Returns the range or the list to type; empty if nothing is allowed beyond it."""
    numbers = [level for level in tune.levels[edge.name] if is_number(level)]
    levels = sorted(numbers)
    whole = all(isinstance(level, int) for level in levels)
    scale = tune.ranges.get(edge.name)
    for share in EXTENSIONS:
        beyond = _beyond(levels, scale, edge, share)
        level: float = round(beyond) if whole else float(f"{beyond:.{DIGITS}g}")
        inside = level < levels[0] if edge.is_low else level > levels[-1]
        if not inside or not _is_allowed(declared, edge.name, level):
            continue
        if scale is None:
            listed = [level, *levels] if edge.is_low else [*levels, level]
            return f"[{', '.join(map(_text, listed))}]"
        low, high = (level, levels[-1]) if edge.is_low else (levels[0], level)
        return f"{{low: {_text(low)}, high: {_text(high)}, scale: {scale}}}"
    return ""


def _beyond(
    levels: Sequence[float], scale: str | None, edge: Edge, share: float
) -> float:
    """Returns a number beyond an edge: a list goes on as its last two levels do.

    Args:
        share: of the distance to go; the first one is the whole distance.
    """
    low, high = levels[0], levels[-1]
    near, last = (levels[1], low) if edge.is_low else (levels[-2], high)
    ratios = [b / a for a, b in itertools.pairwise(levels) if a > 0]
    is_log = scale == "log" or (
        # Levels that grow by ratios are on a logarithmic scale.
        scale is None and len(ratios) == len(levels) - 1 and min(ratios) >= 1.5
    )
    if scale is None:
        share /= EXTENSIONS[0]
    if is_log:
        return float(last * (last / near) ** share)
    beyond = last + share * (last - near)
    if edge.is_low and low >= 0:
        return max(0.0, beyond)
    return beyond


def _is_allowed(declared: Space, name: str, level: Level) -> bool:
    """Whether a hyperparameter may have a level."""
    section, _, field = name.partition(".")
    if section == "recipe":
        from ablate.space.schema import RecipeForm

        try:
            RecipeForm.model_validate({field: level})
        except ValidationError:
            return False
        return True
    if declared.network.trainer:
        try:
            trainer = trainer_named(declared.network.trainer)
        except UnknownName:
            # The file of the trainer is not loaded.
            return True
        return name not in trainer.factors or trainer.factors[name].accepts(level)
    parameters = factors.parameters(declared.network.backbone)
    return name not in parameters or parameters[name][1].allowed.accepts(level)


def _text(level: float) -> str:
    """Returns a number as YAML reads it back."""
    return repr(level)
