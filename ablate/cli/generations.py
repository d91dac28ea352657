"""What to know before a study is declared whose results could be seen."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.errors import first
from ablate.records import FIRST_LEVEL, Generation, Plan, Standing, generation_name
from ablate.report.wording import percent, rows_text
from ablate.scheduling.preview import Preview

# Why a row gets no verdict.
EXPLORATORY = {
    Standing.KNOWN: "results were known before this declaration, and may be the reason"
    " for it; seeds that were not trained before give verdicts",
    Standing.PARTIAL: "other seeds of these rows or of row 0 were trained or declared"
    " before, and are left out; declare all of them",
    Standing.FINAL: "an earlier study of these comparisons has final seeds, which used"
    " the whole level",
}


def generation_lines(shown: Preview) -> list[str]:
    """Returns what to know before a run; usually nothing."""
    plan = shown.full_plan or shown.plan
    generation = shown.generation
    rows = [cell.index for cell in plan.cells[1:] if cell.trials]
    lines = _changed(shown)
    if not rows and plan.space.strategy is None and shown.has_work:
        lines.append(
            "No row is compared with row 0 yet. Rows that you add after its results are"
            f" tested at {percent(generation.next_level)} instead of"
            f" {percent(FIRST_LEVEL)}: declare them now, or compare them on other seeds."
        )
    by_standing: dict[Standing, list[int]] = {standing: [] for standing in Standing}
    for row in rows:
        by_standing[generation.standing(row)].append(row)
    tested = by_standing[Standing.TESTED]
    if tested and not generation.is_first:
        lines.append(
            f"{_rows(tested)} tested at {percent(generation.level)} instead of"
            f" {percent(FIRST_LEVEL)}, because {_why(shown, tested)}."
        )
        lines += _fresh(plan, generation, tested)
    if by_standing[Standing.SHOWN]:
        rows_shown = by_standing[Standing.SHOWN]
        studies = {
            shown.names.get(generation.rows[row].earlier[0][0]) for row in rows_shown
        }
        lines.append(
            f"{_rows(rows_shown)} not tested again: {_names(studies)} the same trials,"
            " and its verdicts are shown."
        )
    if plan.space.criterion.primary and not generation.is_first:
        lines.append(
            "`primary` has no effect: it counts only in the first study that compares"
            " these rows."
        )
    if plan.space.seeds.final and tested and not generation.final:
        lines.append(
            f"`final` has no effect: results were known, so {percent(generation.level)} is"
            " the level of this study."
        )
    if plan.space.strategy is None:
        for standing, why in EXPLORATORY.items():
            if by_standing[standing]:
                lines.append(f"{_rows(by_standing[standing])} exploratory: {why}.")
    return lines


def _changed(shown: Preview) -> list[str]:
    """Returns what changed since the last run of the study, if anything did."""
    name = shown.plan.space.name
    listed = "; ".join(first(list(shown.changes), "changes"))
    if not shown.is_next:
        if not shown.changes or not shown.has_work:
            return []
        return [f"Changed since the last run of {name}: {listed}."]
    # The code of the user's parts is not a part of the file.
    listed = listed or "the code of a part"
    number = shown.generation.number
    return [
        f"Results of {name} could be seen, and it has changed ({listed}), so this is"
        f" generation {number} of {name}. Generation {number - 1} stays readable as"
        f" {generation_name(name, number - 1)}."
    ]


def _why(shown: Preview, tested: Iterable[int]) -> str:
    """Returns why rows are not tested at the level of new comparisons."""
    compared = {
        number for row in tested for number, _ in shown.generation.rows[row].earlier
    }
    if not compared:
        return "results of row 0 are known"
    # The study that is retired has its present name still.
    return f"they were compared before, in {_listed(map(shown.names.get, compared))}"


def _fresh(plan: Plan, generation: Generation, tested: list[int]) -> list[str]:
    """Returns how rows that are new would be tested at the full level."""
    if any(generation.rows[row].earlier for row in tested):
        return []
    return [
        "Seeds that row 0 does not have yet, in a study with these rows only, would be"
        f" tested at {percent(FIRST_LEVEL)}."
    ]


def _rows(rows: list[int]) -> str:
    return f"{rows_text(rows).capitalize()} {'is' if len(rows) == 1 else 'are'}"


def _names(names: Iterable[str | None]) -> str:
    listed = _listed(names)
    return f"{listed} {'have' if ',' in listed else 'has'}"


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join(first(sorted(name for name in names if name), "studies"))
