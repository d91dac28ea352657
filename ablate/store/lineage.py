"""What a study may test, by the results that could be seen when it was declared.

What it guarantees: at most 5 % of lineages without effects ever show a false verdict.
A lineage is all studies of a store that are connected by a comparison (the same row and
the same row 0, whatever the seeds), or by known trials of row 0, when the later one is
declared. Its studies test at levels that add up to 5 %. Names, texts and orders do not
matter.

How: each row of a study is tested, shown, or exploratory (`Standing`). It is tested if
it is new, or if it has all seeds of the comparison so far and further ones, or fresh
seeds only. If all of its trials were declared before, the verdict of that study is
shown. Otherwise its results, or its seeds, may have been chosen by what they show.

What would break it: a result that is known to a user but not to `trained`. Times alone
decide, so a result never has a time before a declaration that preceded it
(`store.moment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ablate.records import (
    FIRST_LEVEL,
    LEVEL,
    Generation,
    RowStanding,
    Standing,
    next_level,
)

# Fewer seeds say nothing of the noise, so they give no verdict.
FEWEST_SEEDS = 2


@dataclass(frozen=True)
class Row:
    """A row of a study, with what identifies its trials.

    Attributes:
        key: what identifies the trials beside their seeds.
        trials: the hash of each declared trial, by seed.
        settings: the keys of the trainings of which the row chooses one by results. Its
            trials are then not known before, and their hashes stand for the choice.
    """

    number: int
    key: str
    trials: Mapping[int, str]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparisons:
    """The comparisons that a study declares.

    Attributes:
        reference: row 0.
        rows: the rows that are compared with it.
        metric: the metric and its direction.
        grows: whether rows get more of the declared seeds as results demand.
        final: whether the study promises that its seeds are final.
        paired: whether rows are compared seed by seed.
    """

    reference: Row
    rows: Sequence[Row]
    metric: str
    grows: bool = False
    final: bool = False
    paired: bool = True

    @property
    def pairs(self) -> set[frozenset[str]]:
        """The comparisons by what identifies both of their rows."""
        return {frozenset((row.key, self.reference.key)) for row in self.rows}


@dataclass(frozen=True)
class Earlier:
    """A study that was declared before.

    Attributes:
        study: its number in the store.
        lineage: the number of the first study of its lineage.
        open: the trials of it that have not ended. It gives no verdict before they have.
        same_name: whether it is an earlier generation of a study that was trained
            elsewhere. It may call its rows and metric something else.
    """

    study: int
    lineage: int
    declared: Comparisons
    open: frozenset[str] = frozenset()
    same_name: bool = False


@dataclass(frozen=True)
class History:
    """What was declared before a study.

    Attributes:
        studies: those that may compare the same rows, the latest first.
        spent: the levels of each lineage, added up over all of its studies that test a
            row; a lineage that is missing has used none.
    """

    studies: Sequence[Earlier] = ()
    spent: Mapping[int, float] = field(default_factory=dict)


def generation_of(
    declared: Comparisons,
    history: History,
    trained: Mapping[str, Mapping[int, str]],
    number: int = 1,
    choosing: Set[str] = frozenset(),
    reported: Mapping[str, Set[str]] | None = None,
) -> Generation:
    """Returns the place of a study in its lineage, and what it may test.

    Args:
        history: what was declared before.
        trained: the trials with results at the time of the declaration, by the key of
            their row and by seed.
        number: the number of the generation.
        choosing: the hashes of trials that only choose settings. A study that has other
            seeds leaves none of them out.
        reported: of a study that was trained elsewhere, the trials that were reported
            before, by the key of their row.
    """
    known = _Known(declared, history.studies, trained, choosing, reported or {})
    standings = {row.number: known.standing(row) for row in declared.rows}
    linked = known.linked()
    lineages = {study.lineage for study in linked}
    # Row 0 may be the best of several that were trained alone.
    spent = FIRST_LEVEL if known.row_0_is_known else 0.0
    for lineage in lineages:
        used = history.spent.get(lineage, 0.0)
        if 0 < used < FIRST_LEVEL:
            # It began with such a row 0, whose choice has used the first level.
            used += FIRST_LEVEL
        spent = max(spent, used)
    level = next_level(spent)
    if declared.final and not spent and not known.any_result:
        level = LEVEL
    if not level:
        standings = {row: _after_final(standing) for row, standing in standings.items()}
    return Generation(
        number=number,
        level=level,
        left_out=known.left_out(linked, standings),
        lineage=min(lineages, default=None),
        rows=standings,
    )


def _after_final(row: RowStanding) -> RowStanding:
    if row.standing is Standing.TESTED:
        return RowStanding(Standing.FINAL, row.earlier)
    return row


class _Known:
    """What was known of the comparisons of a study when it was declared."""

    def __init__(
        self,
        declared: Comparisons,
        earlier: Sequence[Earlier],
        trained: Mapping[str, Mapping[int, str]],
        choosing: Set[str],
        reported: Mapping[str, Set[str]],
    ) -> None:
        self._choosing = choosing
        self._reported = reported
        self._declared = declared
        self._earlier = earlier
        self._trained = trained
        self._reference = declared.reference
        self._row_0 = self._known_seeds(self._reference)
        self._hashes = set[str]()
        for row in (declared.reference, *declared.rows):
            self._hashes.update(row.trials.values())

    @property
    def any_result(self) -> bool:
        """Whether any declared trial had a result. With a single seed, too, the row that
        looks best can be chosen.
        """
        rows = (self._reference, *self._declared.rows)
        return any(self._known_seeds(row) for row in rows)

    @property
    def row_0_is_known(self) -> bool:
        """Whether results of row 0, on the declared seeds, were known."""
        return len(self._row_0) >= FEWEST_SEEDS

    def _known_seeds(self, row: Row) -> set[int]:
        """Returns the declared seeds of a row that had results."""
        if row.settings:
            known = set[int]().union(
                *(self._trained.get(key, {}) for key in row.settings)
            )
            return known & set(row.trials)
        results = self._trained.get(row.key, {})
        return {seed for seed, key in row.trials.items() if results.get(seed) == key}

    def _left_out_seeds(self, row: Row) -> set[int]:
        """Returns the seeds of a row that had results and are not declared."""
        return {
            seed
            for key in row.settings or (row.key,)
            for seed, trial in self._trained.get(key, {}).items()
            if seed not in row.trials and trial not in self._choosing
        }

    def _is_replaced(self, row: Row) -> bool:
        """Whether a result that was reported of a row is missing, or another one now."""
        return bool(self._reported.get(row.key, set()) - set(row.trials.values()))

    def _earlier_rows(self, row: Row) -> list[tuple[Earlier, Row]]:
        """Returns the rows of earlier studies that compare the same in the same way."""
        rows = []
        for study in self._earlier:
            if study.declared.reference.key != self._reference.key:
                continue
            if study.declared.metric != self._declared.metric:
                continue
            for other in study.declared.rows:
                if other.key == row.key:
                    rows.append((study, other))
        return rows

    def standing(self, row: Row) -> RowStanding:
        """Returns the standing of a row."""
        earlier = self._earlier_rows(row)
        numbers = [(study.study, other.number) for study, other in earlier]
        for study, other in earlier:
            if self._declares_same(study, other, row):
                first = (study.study, other.number)
                others = [number for number in numbers if number != first]
                return RowStanding(Standing.SHOWN, (first, *others))
        return RowStanding(self._without_verdict(row, earlier), tuple(numbers))

    def _declares_same(self, study: Earlier, other: Row, row: Row) -> bool:
        """Whether an earlier study declares the same trials of a row and of row 0."""
        if study.declared.paired != self._declared.paired:
            return False
        if self._declared.grows or study.declared.grows:
            # The verdicts of a study whose seeds grow depend on all of its rows.
            return False
        if study.open - self._hashes:
            # It will never end, because rows or seeds of it are left out now.
            return False
        same_0 = dict(study.declared.reference.trials) == dict(self._reference.trials)
        return same_0 and dict(other.trials) == dict(row.trials)

    def _without_verdict(
        self, row: Row, earlier: Sequence[tuple[Earlier, Row]]
    ) -> Standing:
        """Returns the standing of a row that no earlier study has a verdict for."""
        if self._is_replaced(row) or self._is_replaced(self._reference):
            return Standing.PARTIAL
        seeds = self._known_seeds(row)
        if len(seeds) < FEWEST_SEEDS:
            if self.row_0_is_known and self._left_out_seeds(self._reference):
                return Standing.PARTIAL
            return Standing.TESTED
        if not earlier or len(seeds & self._row_0) < FEWEST_SEEDS:
            return Standing.KNOWN
        left_out = self._left_out_seeds(row) | self._left_out_seeds(self._reference)
        for _, other in earlier:
            # A study that is cut short when its results look well leaves them out.
            left_out |= set(other.trials) - set(row.trials)
        return Standing.PARTIAL if left_out else Standing.TESTED

    def linked(self) -> list[Earlier]:
        """Returns the earlier studies that the study shares evidence with."""
        pairs = self._declared.pairs
        row_0 = {self._reference.trials[seed] for seed in self._row_0}
        return [
            study
            for study in self._earlier
            if study.same_name
            or pairs & study.declared.pairs
            or (self.row_0_is_known and self._has_trials(study, row_0))
        ]

    def _has_trials(self, study: Earlier, hashes: Set[str]) -> bool:
        """Whether an earlier study has trials of row 0 that were known."""
        rows = (study.declared.reference, *study.declared.rows)
        return any(
            len(hashes & set(row.trials.values())) >= FEWEST_SEEDS for row in rows
        )

    def left_out(
        self, linked: Sequence[Earlier], standings: Mapping[int, RowStanding]
    ) -> int:
        """Returns how many comparisons of earlier studies count although they are left
        out.

        Those are the ones whose results may be the reason to keep others, or to make
        one of their rows row 0.
        """
        present = self._declared.pairs
        keeps = any(
            standings[row.number].standing is Standing.TESTED
            and len(self._known_seeds(row) & self._row_0) >= FEWEST_SEEDS
            for row in self._declared.rows
        )
        counted: set[frozenset[str]] = set()
        for study in linked:
            was_row_0 = study.declared.reference.key == self._reference.key
            if keeps if was_row_0 else self.row_0_is_known:
                counted |= study.declared.pairs - present
        return len(counted)
