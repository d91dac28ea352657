"""What a referee would ask of rows that choose their settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ablate.records import Tune, is_number, level_text
from ablate.report.tuning import Edge, edges_of, tuned_rows
from ablate.report.wording import rows_text
from ablate.results.review.finding import Finding, Read

# A range is extended by this share of its width, on its own scale.
EXTENSION = 0.5
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
        wider = _wider(tune, edge)
        if not wider:
            continue
        beyond, most = ("smaller", "smallest") if edge.is_low else ("larger", "largest")
        yield Finding(
            "best setting at an edge",
            f"{rows_text(numbers)}: {edge.name} = {level_text(edge.level)} is best, and it"
            f" is the {most} level that was tried, so a {beyond} one may be better. Under"
            f" tune in {study.file}, write: {edge.name}: {wider}",
            study.again(),
        )


def _wider(tune: Tune, edge: Edge) -> str:
    """Returns the range or the list to type; empty if there is nothing beyond the edge."""
    declared = [float(level) for level in tune.levels[edge.name] if is_number(level)]
    scale = tune.ranges.get(edge.name)
    if scale is None:
        return _longer(sorted(declared), edge)
    low, high = declared
    if scale == "log":
        factor = (high / low) ** EXTENSION
        beyond = low / factor if edge.is_low else high * factor
    else:
        width = EXTENSION * (high - low)
        beyond = low - width if edge.is_low else high + width
        if edge.is_low and low >= 0:
            beyond = max(0.0, beyond)
    if edge.is_low and beyond == low:
        return ""
    ends = (
        (_number(beyond), f"{high:g}") if edge.is_low else (f"{low:g}", _number(beyond))
    )
    return f"{{low: {ends[0]}, high: {ends[1]}, scale: {scale}}}"


def _longer(levels: Sequence[float], edge: Edge) -> str:
    """Returns a list with one more level, at the distance or ratio of the last two."""
    if edge.is_low:
        last, before = levels[0], levels[1]
    else:
        last, before = levels[-1], levels[-2]
    ratios = [b / a for a, b in itertools.pairwise(levels) if a > 0]
    # Levels that grow by ratios are on a logarithmic scale.
    is_log = len(ratios) == len(levels) - 1 and min(ratios) >= 1.5
    beyond = last * last / before if is_log else last + (last - before)
    if edge.is_low and levels[0] >= 0:
        beyond = max(0.0, beyond)
    if beyond == last:
        return ""
    listed = [f"{level:g}" for level in levels]
    listed = [_number(beyond), *listed] if edge.is_low else [*listed, _number(beyond)]
    return f"[{', '.join(listed)}]"


def _number(value: float) -> str:
    return f"{float(f'{value:.{DIGITS}g}'):g}"
