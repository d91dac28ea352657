"""The results table of a study."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ablate.errors import UnknownName, unknown
from ablate.records import Level, StudyResults
from ablate.records.primary import primary_is_elsewhere
from ablate.report.best_rows import BOLD_NOTE, bold_rows
from ablate.report.confirmation import confirmation_note
from ablate.report.effect import Effect, differences_with_extra
from ablate.report.effects import effects
from ablate.report.folding import folding_notes
from ablate.report.numbers import fixed
from ablate.report.summary import (
    COST_HEADINGS,
    RoleWord,
    Row,
    factor_label,
    level_columns,
    level_label,
    summarise,
)
from ablate.report.table import Column, Table, tabulate
from ablate.report.units import Unit, cost_text, cost_units
from ablate.report.verdicts import Verdict, Withheld
from ablate.report.wording import (
    exploratory,
    extra_note,
    generation_notes,
    reported_notes,
    tuning_note,
)

# The costs of the data.
COSTS = ("params", "flops", "flops_paper")


# Rows without a verdict that do not count in the p values of others.
NOT_IN_FAMILY = (Withheld.KNOWN, Withheld.PARTIAL, Withheld.NOT_CONFIRMED)
STAR_NOTE = "* p < 0.05"


def results_table(
    results: StudyResults,
    published: Mapping[int, float] | None = None,
    *,
    policy: str = "last epoch, test set",
    group: str = "",
) -> Table:
    """Returns the table of a study: one row per cell, in the order of the plan.

    A row shows the levels, the metric as mean ± sd over n seeds with the paired
    difference to row 0, and the cost. The best mean is bold, with all means that cannot
    be distinguished from it.

    Args:
        published: top-1 values from a paper, by row. They get their own column, as
            printed.
        policy: which value of a trial the metric is, in words.
        group: a factor. Rows with the same level of it are grouped between lines.

    Raises:
        UnknownName: the study has no factor `group`.
    """
    if group and group not in results.factors:
        raise UnknownName(unknown("factor", group, results.factors))
    # The margin of 1.0 is arbitrary: the table shows intervals, p values, `helps` and
    # `hurts`, and none of them depends on the margin.
    row_effects = effects(results, 1.0)
    effect_of = {effect.row: effect for effect in row_effects}
    rows = summarised(results, row_effects)
    shown = _shown_rows(rows, results, group)
    return tabulate(
        result_columns(results, rows, shown, effect_of, published),
        rows,
        shown=shown,
        title=results.question,
        notes=_notes(results, shown, policy, row_effects),
        bold=_bold(shown, bold_rows(results, row_effects), results.metric.title),
        bold_note=BOLD_NOTE,
        groups=_group_starts(shown, group),
    )


def summarised(results: StudyResults, row_effects: Sequence[Effect]) -> list[Row]:
    """Returns one row per cell, with its difference from row 0 as its effect has it."""
    if results.is_paired:
        return summarise(results, differences_with_extra(row_effects))
    rows = summarise(results, {effect.row: effect.mean for effect in row_effects})
    return [replace(row, paired=row.n) for row in rows]


def _shown_rows(rows: list[Row], results: StudyResults, group: str) -> list[Row]:
    """Returns the rows that the table shows: grouped, without folded cells."""
    shown = [
        row
        for row, cell in zip(rows, results.cells, strict=True)
        if cell.same_as is None
    ]
    if not group:
        return shown
    by_level: dict[Level | None, list[Row]] = {}
    for row in shown:
        by_level.setdefault(row.levels.get(group), []).append(row)
    return list(itertools.chain.from_iterable(by_level.values()))


def _group_starts(shown: list[Row], group: str) -> frozenset[int]:
    """Returns the numbers of the rows that begin a group, except the top row."""
    if not group:
        return frozenset()
    return frozenset(
        number
        for number, (before, row) in enumerate(itertools.pairwise(shown), 1)
        if row.levels.get(group) != before.levels.get(group)
    )


def result_columns(
    results: StudyResults,
    rows: Sequence[Row],
    shown: Sequence[Row],
    effect_of: Mapping[int, Effect],
    published: Mapping[int, float] | None,
) -> list[Column[Row]]:
    """Returns the columns of the results table.

    Args:
        rows: all rows; the data have them.
        shown: the rows on screen.
        effect_of: the effects, by row.
        published: top-1 values from a paper, by row.
    """
    metric = results.metric

    def mean(row: Row) -> str:
        difference = _difference(row, effect_of.get(row.index), metric.digits)
        return _with_sd(row.mean, row.sd, metric.digits) + difference

    def gain(row: Row) -> str:
        return _with_sd(row.gain, row.gain_sd, metric.digits, signed=True)

    units = cost_units((row.cost for row in shown), COST_HEADINGS)
    columns: list[Column[Row]] = [
        Column("row", lambda row: row.index, heading="row", right=True, kind=int),
        Column("role", lambda row: row.role, kind=RoleWord),
        Column(fields=lambda row: level_columns(row.levels)),
        *(_level_column(factor, results.labels) for factor in results.factors),
        Column(fields=lambda row: level_columns(row.chosen)),
        *(_chosen_column(name, results) for name in tuned_names(results)),
        Column(
            f"{metric.name}_mean",
            lambda row: row.mean,
            heading=metric.title,
            text=mean,
            right=True,
        ),
        Column(f"{metric.name}_sd", lambda row: row.sd),
    ]
    if _has_controls(shown):
        columns.append(Column(heading="Δ control", text=gain, right=True))
    columns += [
        Column(
            "n",
            lambda row: row.n,
            heading="n",
            text=lambda row: str(row.n or ""),
            right=True,
            kind=int,
            about="completed seeds",
        ),
        Column(
            "delta",
            lambda row: row.delta,
            kind=float | None,
            about="mean difference from row 0",
        ),
        Column("delta_sd", lambda row: row.delta_sd, kind=float | None),
        Column(
            "paired",
            lambda row: row.paired,
            kind=int,
            about="seeds that the row and row 0 have",
        ),
        *(_cost_column(name, units.get(name)) for name in COSTS),
    ]
    if published is not None:
        columns.append(
            Column(
                heading=f"published {metric.name}",
                text=lambda row: _published(published, row),
                right=True,
            )
        )
    is_noted = any(row.note for row in shown)
    columns.append(
        Column(
            "note", lambda row: row.note, heading="note" if is_noted else "", kind=str
        )
    )
    if _has_controls(rows):
        columns += [
            Column("control", lambda row: row.control),
            Column("gain", lambda row: row.gain),
            Column("gain_sd", lambda row: row.gain_sd),
        ]
    if published is not None:
        columns.append(
            Column(f"published_{metric.name}", lambda row: published.get(row.index))
        )
    return [*columns, *_test_columns(effect_of)]


def _test_columns(effect_of: Mapping[int, Effect]) -> list[Column[Row]]:
    """Returns interval and p values of the difference to row 0."""

    def estimate(row: Row, name: str) -> float | None:
        effect = effect_of.get(row.index)
        return getattr(effect.estimate, name, None) if effect else None

    def p_adjusted(row: Row) -> float | None:
        effect = effect_of.get(row.index)
        return effect.p_adjusted if effect else None

    return [
        Column(
            "delta_low",
            lambda row: estimate(row, "low"),
            kind=float | None,
            about="interval of the difference",
        ),
        Column(
            "delta_high",
            lambda row: estimate(row, "high"),
            kind=float | None,
            about="interval of the difference",
        ),
        Column("p", lambda row: estimate(row, "p"), kind=float | None),
        Column(
            "p_adjusted",
            p_adjusted,
            kind=float | None,
            about="for all rows and looks",
        ),
    ]


def _level_column(factor: str, labels: Mapping[str, str]) -> Column[Row]:
    return Column(
        heading=factor_label(labels, factor),
        text=lambda row: level_label(labels, factor, row.levels.get(factor)),
    )


def tuned_names(results: StudyResults) -> tuple[str, ...]:
    """Returns the names of the nuisance hyperparameters of a study."""
    return results.tune.names if results.tune else ()


def _chosen_column(name: str, results: StudyResults) -> Column[Row]:
    return Column(
        heading=factor_label(results.labels, name),
        text=lambda row: level_label(results.labels, name, row.chosen.get(name)),
        right=True,
    )


def _cost_column(name: str, unit: Unit | None) -> Column[Row]:
    """Returns the column of a cost. Without a unit, it is in the data only."""
    if unit is None:
        # 0 was not counted.
        return Column(name, lambda row: getattr(row.cost, name, None) or None)
    return Column(
        name,
        lambda row: getattr(row.cost, name, None) or None,
        heading=f"{COST_HEADINGS[name]} ({unit.letter})",
        text=lambda row: cost_text(row.cost, name, unit),
        right=True,
    )


def _published(published: Mapping[int, float], row: Row) -> str:
    if row.index not in published:
        return ""
    return f"{published[row.index]:g}"


def _has_controls(rows: Sequence[Row]) -> bool:
    return any(row.control is not None for row in rows)


def _notes(
    results: StudyResults,
    shown: list[Row],
    policy: str,
    row_effects: Sequence[Effect],
) -> list[str]:
    """Returns what the numbers mean, and which rows are folded."""
    test, star = test_words(results, comparisons(row_effects)), STAR_NOTE
    pairs = "paired by seed" if results.is_paired else "unpaired"
    if results.is_paired and any(row.paired not in (0, shown[0].n) for row in shown):
        pairs += ", over the seeds that both rows have"
    decided = f"{star} ({test})"
    if any(effect.withheld for effect in row_effects):
        decided += "; a row without a verdict has no star"
    notes = [
        f"{results.metric.title}: mean ± standard deviation over n seeds,"
        f" {policy}; in brackets the mean difference from row 0, {pairs};"
        f" {decided}.{_flops_note(shown)}"
    ]
    if _has_controls(shown):
        notes.append(
            "Δ control: mean ± sd of the differences from the control, paired by seed."
            " A control is the baseline at the width whose cost is nearest to that of the variant."
        )
    notes += tuning_note(results)
    notes += extra_note(row_effects)
    notes += confirmation_note(results)
    # A search can propose the same cell many times, so one note covers all of these.
    rest = [cell for cell in results.cells if cell.note != "proposed again"]
    if len(rest) < len(results.cells):
        notes.append(
            "Row numbers that are missing: cells that the search proposed again."
        )
    notes += folding_notes(rest)
    if primary_is_elsewhere(results.primary):
        notes.append(exploratory(results.primary, "stars"))
    return notes + generation_notes(results) + reported_notes(results)


def comparisons(effects: Iterable[Effect]) -> int:
    """Returns the number of rows that are one family."""
    return sum(effect.withheld not in NOT_IN_FAMILY for effect in effects)


def test_words(results: StudyResults, number: int) -> str:
    """Returns the test of the differences from row 0, in words.

    Args:
        number: of comparisons.
    """
    if not results.is_paired:
        return "Welch's t with the smaller of both degrees of freedom, by Holm"
    # A single comparison needs no correction.
    if number > 1:
        return f"adjusted for {number} comparisons; variance estimate shared among rows"
    return "paired t"


def _flops_note(rows: list[Row]) -> str:
    if any(row.cost is not None and row.cost.flops for row in rows):
        return " FLOPs: executed multiply-adds."
    return ""


def _bold(
    rows: list[Row], best: Collection[int], column: str
) -> frozenset[tuple[int, str]]:
    """Returns row and column of the best mean, and of those that are not worse."""
    return frozenset(
        (number, column) for number, row in enumerate(rows) if row.index in best
    )


def _difference(row: Row, effect: Effect | None, digits: int) -> str:
    """Returns the difference to row 0 in brackets; * marks `helps` and `hurts`."""
    if row.delta is None:
        return ""
    decided = effect is not None and effect.verdict in (Verdict.HELPS, Verdict.HURTS)
    star = "*" if decided else ""
    seeds = f", n={row.paired}" if row.paired not in (0, row.n) else ""
    return f" ({fixed(row.delta, digits, signed=True)}{star}{seeds})"


def _with_sd(
    mean: float | None, sd: float | None, digits: int, *, signed: bool = False
) -> str:
    if mean is None:
        return ""
    text = fixed(mean, digits, signed=signed)
    if sd is None:
        return text
    return f"{text} ± {fixed(sd, digits)}"
