"""What to know before a study is declared whose results could be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ablate.errors import first
from ablate.records import Plan, Standing, generation_name
from ablate.report.ledger import Ledger, Outlook
from ablate.report.wording import rows_text
from ablate.scheduling.preview import Preview
from ablate.scheduling.until_decided import results_of
from ablate.statistics.power import power_of

# The difference, in standard deviations of a training, whose power is named.
DIFFERENCE = 3
# Below this power, the way out is named.
LOW = 0.2


def generation_lines(shown: Preview) -> list[str]:
    """Returns what to know before a run; usually nothing."""
    plan = shown.full_plan or shown.plan
    lines = _changed(shown)
    if plan.space.strategy is not None or not shown.before.studies:
        return lines
    if plan.space.criterion.primary:
        lines.append(
            "`primary` has no effect: it counts only in the first study that compares"
            " these rows."
        )
    return lines + _outlook_lines(shown, plan)


def _outlook_lines(shown: Preview, plan: Plan) -> list[str]:
    """Returns how rows are tested that come later than others on the same seeds."""
    ledger = Ledger(plan.space.criterion.margin)
    for study in shown.before.studies:
        ledger.add(study, shown=False)
    outlook = ledger.outlook(results_of(plan, shown.known, shown.before))
    open_ = {row: of for row, of in outlook.items() if not of.is_decided}
    lines = _exploratory_lines(shown, open_)
    seeds = len(plan.space.seeds.numbers)
    for row, of in open_.items():
        if of.is_exploratory or of.cap is None or seeds < 2:
            continue
        power = power_of(
            DIFFERENCE, 1, (seeds,), others=of.others, share=of.share, cap=of.cap
        )
        why = "comes later than other rows on these seeds"
        if of.can_only_help:
            why = "is compared with the best row so far and can only help"
        line = (
            f"Row {row} {why}: {seeds} seeds find a difference of {DIFFERENCE} sd with"
            f" {100 * power:.0f} % probability."
        )
        if power < LOW:
            line += " More seeds, or seeds that no row has yet, find more."
        lines.append(line)
    return lines


def _exploratory_lines(shown: Preview, open_: Mapping[int, Outlook]) -> list[str]:
    """Returns which rows have no verdict, and why."""
    known, partial, moved = [], [], []
    for row, of in open_.items():
        compared = shown.before.rows.get(row)
        standing = Standing.TESTED if compared is None else compared.standing
        if standing is Standing.KNOWN:
            known.append(row)
        elif standing is Standing.PARTIAL:
            partial.append(row)
        elif of.is_exploratory:
            moved.append(row)
    reasons = (
        (
            known,
            "results were known before this declaration, and may be the reason for it;"
            " seeds that were not trained before give verdicts",
        ),
        (
            partial,
            "other seeds of these rows or of row 0 were trained or declared before, and"
            " are left out; declare all of them",
        ),
        (
            moved,
            "results of row 0 were known, and another row is better or the metric is"
            " another one; take the best row as row 0, or seeds that no row has yet",
        ),
    )
    return [f"{_rows(rows)} exploratory: {why}." for rows, why in reasons if rows]


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
    number = shown.before.generation
    return [
        f"Results of {name} could be seen, and it has changed ({listed}), so this is"
        f" generation {number} of {name}. Generation {number - 1} stays readable as"
        f" {generation_name(name, number - 1)}."
    ]


def _rows(rows: Iterable[int]) -> str:
    listed = list(rows)
    return f"{rows_text(listed).capitalize()} {'is' if len(listed) == 1 else 'are'}"
