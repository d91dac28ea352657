"""What a review asks about the history of a study."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ablate.records import History, share_of_phase
from ablate.redeclared import changes
from ablate.report.verdicts import LEVEL, Withheld
from ablate.report.wording import rows_text
from ablate.review.finding import Finding, Read
from ablate.store.declarations import but_for_the_seed

# The least number of seeds that gives a verdict.
FEWEST_SEEDS = 2
# The most changes of a declaration that are listed.
MOST_CHANGES = 5


def declared_again(study: Read) -> Iterator[Finding]:
    """The study was declared differently after results of it existed."""
    made = []
    for before, after in itertools.pairwise(study.declarations):
        if not after.completed:
            continue
        changed = changes(before.space, after.space)
        if len(before.space["seeds"]) < FEWEST_SEEDS:
            # A single seed gives no verdict that could be the reason to add more.
            changed = [one for one in changed if not one.startswith("seeds: ")]
        shown = "; ".join(changed[:MOST_CHANGES])
        if len(changed) > MOST_CHANGES:
            shown += f"; {len(changed) - MOST_CHANGES} more"
        if changed:
            made.append(f"after {after.completed} completed trials: {shown}")
    if made:
        yield Finding(
            "declared again",
            f"the study was declared differently {', then '.join(made)}."
            f" {_consequence(study.results.history)} State these changes with the"
            " results, or repeat the comparison under a `name:` of its own in"
            f" {study.file}, with seeds that were not trained before.",
            study.again(),
        )


def _consequence(history: History) -> str:
    """Returns what declaring a study again means for its verdicts."""
    if history.changed:
        return f"There is no verdict any more ({history.changed})."
    if history.last and history.final:
        return (
            "The seeds were declared as final, so rows and factors that were added later"
            " get no verdict, and seeds that were added later change no verdict."
        )
    if history.last:
        level = 100 * LEVEL * history.share
        return (
            f"Rows that are new or still inconclusive are tested at {level:.2g} % instead of"
            f" {100 * LEVEL * share_of_phase(0):g} %."
        )
    return (
        "Before these changes, no row could be compared with row 0, so the changes do"
        " not lower the significance level of the verdicts."
    )


def known_before(study: Read) -> Iterator[Finding]:
    """Results of the study existed before it was declared."""
    rows = [effect.row for effect in study.effects if effect.withheld is Withheld.KNOWN]
    if study.results.history.chosen_from is None:
        known = "the results were known before the study declared them"
    else:
        known = "row 0 was a variant of another study before, or lacks seeds that were known"
    if rows:
        yield Finding(
            "known before",
            f"{rows_text(rows)}: {known}, so results may be the reason to compare"
            " these rows. The comparisons are exploratory. Train these rows and row 0"
            f" with seeds that were not trained before: seeds: [...] in {study.file}.",
            study.again(),
        )


def left_out_seeds(study: Read) -> Iterator[Finding]:
    """Other seeds of the rows were trained before, and the study leaves them out."""
    begin = study.results.history.begins[0]
    # Rows of which some seeds were known. A study may well have new seeds only.
    own: dict[int, str] = {}
    for trial in study.trained:
        if trial["own"] and trial["ended_at"] < begin:
            own[trial["row"]] = but_for_the_seed(trial)
    left_out: dict[int, set[int]] = {}
    for trial in study.trained:
        row, seed = trial["row"], trial["seed"]
        known = trial["ended_at"] < begin
        declared = study.by_row[row].statuses
        if known and but_for_the_seed(trial) == own.get(row) and seed not in declared:
            left_out.setdefault(row, set()).add(seed)
    if left_out:
        seeds = sorted(set().union(*left_out.values()))
        yield Finding(
            "seeds left out",
            f"{rows_text(sorted(left_out))}: seeds {', '.join(map(str, seeds[:8]))}"
            " were trained before the study was declared, but the study does not"
            f" contain them. Declare all seeds in {study.file}.",
            study.again(),
        )
