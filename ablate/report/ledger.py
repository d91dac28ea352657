"""Takes the verdicts of rows, look by look, from all studies that compare them.

What it guarantees: in at most 5 % of groups does a row without a difference ever show
one, whatever is added and whenever (`statistics.spending`). A group is the studies of a
store whose rows are compared on the same seeds.

How: the studies of a group are read in the order of their declarations. The rows of the
first one are a family. Each row that comes later is a family of its own, with a share of
the level that falls with its place; a row that is decided gives its place to the next
new one. A look is taken whenever a row, or the baseline, has more seeds than at the look
before. What is decided stays decided, with the interval of its look.

The best row so far may become the baseline. A new row can then only help: a baseline
that was lucky makes that rarer.

What would break it: a study whose order among the others, or whose known results, follow
from a clock (`store.moment`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ablate.machine import cache
from ablate.records import (
    LEVEL,
    RESOLVED,
    CellResult,
    Comparison,
    Direction,
    Standing,
    Status,
    StudyResults,
)
from ablate.records.primary import primary_rows
from ablate.report.confirmation import confirmed_study
from ablate.report.effect import Effect, compared, paired, unpaired
from ablate.report.verdicts import (
    Estimate,
    Judged,
    Verdict,
    Withheld,
    rescaled,
    verdict_of,
    verdicts_by_holm,
)
from ablate.statistics import kept, spending
from ablate.statistics.noise import Family, Look, RowTest, family_of
from ablate.statistics.numbers import mean_of, sd_of
from ablate.statistics.seeds_needed import chance_at, runs_needed, seeds_needed

# Simulations are in the user's cache folder.
kept.keep_with(cache.array)

Array = np.ndarray[Any, Any]
NONE: frozenset[int] = frozenset()
# Why a row has no verdict, by its standing.
WITHHELD = {
    Standing.KNOWN: Withheld.KNOWN,
    Standing.PARTIAL: Withheld.PARTIAL,
}
FOUND = (Verdict.HELPS, Verdict.HURTS)
# Trials that have no value although they ended, and the reason that they give.
SURVIVORS = {
    Status.DIVERGED: Withheld.DIVERGED,
    Status.PRUNED: Withheld.PRUNED,
    Status.ABANDONED: Withheld.ABANDONED,
}


@dataclass
class _Line:
    """A row in the ledger of its baseline.

    Attributes:
        share, cap: of the level, for a row that came later (`noise.null_of`).
        one_sided: whether the row can only help.
        exploratory: whether it has no verdict, because its results were known.
        left_out: whether seeds that were looked at are missing now.
        seeds, baseline: those of the last look.
        values: what it saw, of the row and of the baseline.
        effect, study: the effect of the last look, and whose look it is.
        looks: for a row that came later, its looks.
    """

    share: float = spending.FIRST
    cap: float | None = None
    one_sided: bool = False
    exploratory: bool = False
    left_out: bool = False
    seeds: frozenset[int] = frozenset()
    baseline: frozenset[int] = frozenset()
    values: tuple[Mapping[int, float], Mapping[int, float]] = ({}, {})
    effect: Effect | None = None
    study: str = ""
    looks: list[_Seen] = field(default_factory=list)

    @property
    def is_decided(self) -> bool:
        return self.effect is not None and self.effect.verdict in (*FOUND, Verdict.SAME)

    @property
    def is_found(self) -> bool:
        return self.effect is not None and self.effect.verdict in FOUND

    def is_worse(self, effect: Effect, direction: Direction) -> bool:
        """Whether the row would hurt, or make no difference, where it can only help."""
        if not self.one_sided or effect.mean is None:
            return False
        return effect.verdict is Verdict.SAME or (
            effect.verdict in FOUND and (effect.mean > 0) != (direction == "max")
        )

    def is_seen(self, cell: CellResult, baseline: frozenset[int]) -> bool:
        """Whether the row is decided, or no seed came since the last look."""
        if self.effect is None:
            return False
        same = cell.statuses.keys() <= self.seeds and baseline <= self.baseline
        return self.is_decided or same


@dataclass(frozen=True)
class _Seen:
    """A look: the seeds of each row, by key, and which rows of the family are tested."""

    rows: Mapping[str, frozenset[int]]
    baseline: frozenset[int]
    tested: frozenset[str]
    level: float


@dataclass
class _Baseline:
    """The comparisons with one baseline.

    Attributes:
        is_chosen: whether its results were known when it became the baseline.
        first, looks: the rows of the first family, and its looks.
        primary: those of them that are tested before the others, in their order.
        lines: all rows, by key.
    """

    is_chosen: bool = False
    first: list[str] = field(default_factory=list)
    primary: list[str] = field(default_factory=list)
    looks: list[_Seen] = field(default_factory=list)
    lines: dict[str, _Line] = field(default_factory=dict)


@dataclass(frozen=True)
class Outlook:
    """How a row is tested.

    Attributes:
        share, cap: of the level (`noise.null_of`); the cap is None for a row of the
            first family.
        others: the number of other rows that tell of the noise.
        can_only_help: whether it is compared with the best row so far.
        is_exploratory: whether it has no verdict.
        is_decided: whether it has one already.
    """

    share: float
    cap: float | None
    others: int
    can_only_help: bool
    is_exploratory: bool
    is_decided: bool


class Ledger:
    """The comparisons of a group, in the order of their declarations."""

    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._baselines: dict[str, _Baseline] = {}
        # The values of all rows, by key and seed.
        self._values: dict[str, dict[int, float]] = {}
        # Shares of rows that are decided, for the next new ones.
        self._free: list[float] = []
        self._places = 0
        self._proposals = 0
        self._metric = ""
        # The rows that were trained without a comparison.
        self._single: set[str] = set()

    def add(self, results: StudyResults, *, shown: bool = True) -> list[Effect]:
        """Takes the looks of the next study. Returns its effects, in its order.

        Args:
            shown: whether the effects are needed.
        """
        study = _Study(confirmed_study(results))
        metric = f"{results.metric.name} {results.direction}"
        self._metric = self._metric or metric
        if metric != self._metric:
            # Which metric shows an effect is known before it is declared.
            return [
                study.by_itself(row).without_verdict(Withheld.KNOWN)
                for row in study.rows
            ]
        if not study.rows:
            self._single.add(study.key(study.reference))
            self._remember(study)
            return []
        against = self._against(study)
        self._remember(study)
        if not results.is_paired:
            return self._unpaired(study, against)
        found: dict[int, Effect] = {}
        for seeds in study.looks:
            self._look(study, against, seeds, found)
        if not shown:
            return []
        return [
            self._final(
                study, row, against, found.get(row.index) or study.by_itself(row)
            )
            for row in study.rows
        ]

    def outlook(self, results: StudyResults) -> dict[int, Outlook]:
        """Returns how the rows of the next study are tested, by number."""
        study = _Study(confirmed_study(results))
        if not study.rows:
            return {}
        against = self._against(study)
        self._remember(study)
        lines = {row.index: against.lines[study.key(row)] for row in study.rows}
        return {
            number: Outlook(
                share=line.share,
                cap=line.cap,
                others=len(self._values) - 2,
                can_only_help=line.one_sided,
                is_exploratory=line.exploratory,
                is_decided=line.is_decided,
            )
            for number, line in lines.items()
        }

    # Who is compared, and with which share of the level.

    def _remember(self, study: _Study) -> None:
        for row in (study.reference, *study.rows):
            self._values.setdefault(study.key(row), {}).update(row.values)

    def _against(self, study: _Study) -> _Baseline:
        """Returns the comparisons with the baseline of a study, with its new rows."""
        key = study.key(study.reference)
        is_first = not self._baselines
        if key not in self._baselines:
            # It may be one of several rows that were trained alone.
            others = not is_first or len(self._single) > 1
            known = study.comparison(study.reference).standing is Standing.KNOWN
            self._baselines[key] = _Baseline(is_chosen=others and known)
        against = self._baselines[key]
        is_best = against.is_chosen and self._is_best(study)
        for row in study.rows:
            comparison = study.comparison(row)
            if study.key(row) in against.lines:
                continue
            line = _Line()
            against.lines[study.key(row)] = line
            if comparison.standing is not Standing.TESTED:
                line.exploratory = True
            elif is_best:
                self._propose(line)
            elif against.is_chosen:
                line.exploratory = True
            elif is_first and not comparison.repeats:
                against.first.append(study.key(row))
            else:
                self._place(line, comparison.repeats)
        if is_first:
            numbers = primary_rows(study.results.primary, study.results.cells)
            by_number = {row.index: study.key(row) for row in study.rows}
            named = [by_number.get(number, "") for number in numbers if number]
            against.primary = [key for key in named if key in against.first]
        return against

    def _is_best(self, study: _Study) -> bool:
        """Whether no row of earlier studies has a better mean than the baseline."""
        mine = study.reference.values
        sign = 1 if study.results.direction == "max" else -1
        for key, values in self._values.items():
            shared = sorted(mine.keys() & values.keys())
            if key == study.key(study.reference) or len(shared) < 2:
                continue
            gain = mean_of([mine[seed] for seed in shared]) - mean_of(
                [values[seed] for seed in shared]
            )
            if sign * gain < 0:
                return False
        return True

    def _propose(self, line: _Line) -> None:
        self._proposals += 1
        line.share = spending.proposal(self._proposals)
        line.cap = min(line.share, spending.PROPOSAL_CAP)
        line.one_sided = True

    def _place(self, line: _Line, repeats: int) -> None:
        """Gives a row that comes later its share of the level.

        Args:
            repeats: how often the same comparison was tested on other seeds.
        """
        self._places += max(repeats, 0)
        share = spending.later(self._places + 1)
        if self._free and max(self._free) > share:
            share = max(self._free)
            self._free.remove(share)
        else:
            self._places += 1
        line.share = share
        line.cap = max(share, spending.LATER_CAP)

    def _release(self, line: _Line, against: _Baseline) -> None:
        """Gives the place of a row that is decided to the next new one."""
        if line.one_sided:
            self._proposals -= 1
        elif line.cap is None:
            self._free.append(spending.FIRST / len(against.first))
        else:
            self._free.append(line.share)

    # Looks.

    def _look(
        self,
        study: _Study,
        against: _Baseline,
        seeds: int | None,
        found: dict[int, Effect],
    ) -> None:
        """Takes the verdicts of a look; replaces the effects of the rows that it has.

        Args:
            seeds: at the looks of a study that adds seeds, how many each row has.
        """
        baseline = frozenset(study.reference_at(seeds).statuses)
        tested = self._due(study, against, seeds, found)
        first = [key for key in tested if key in against.first]
        is_taken = not study.is_open(seeds)
        effects: dict[str, Effect] = {}
        if first:
            against.looks.append(self._seen(study, baseline, first, tested))
            effects |= self._first_family(study, against, first, tested)
            if not is_taken:
                against.looks.pop()
        for key, cell in tested.items():
            if key in first:
                continue
            line = against.lines[key]
            line.looks.append(self._seen(study, baseline, [key], {key: cell}))
            effects[key] = self._alone(study, line, key, cell)
            if not is_taken:
                line.looks.pop()
        for key, effect in effects.items():
            if not is_taken:
                found[effect.row] = effect.without_verdict(Withheld.UNFINISHED)
                continue
            line = against.lines[key]
            line.seeds = frozenset(tested[key].statuses)
            line.baseline = baseline
            line.values = tested[key].values, study.reference_at(seeds).values
            line.effect = found[effect.row] = effect
            line.study = study.results.name
            if line.is_found:
                self._release(line, against)

    def _due(
        self,
        study: _Study,
        against: _Baseline,
        seeds: int | None,
        found: dict[int, Effect],
    ) -> dict[str, CellResult]:
        """Returns the rows that are tested at a look, by key."""
        reference = study.reference_at(seeds)
        baseline = frozenset(reference.statuses)
        due = {}
        for row in study.rows_at(seeds):
            line, cell = against.lines[study.key(row)], study.at(row, seeds)
            if not self._may_test(study, row, line):
                continue
            if line.is_seen(cell, baseline):
                assert line.effect is not None
                found[row.index] = line.effect
            elif not (line.seeds <= cell.statuses.keys() and line.baseline <= baseline):
                line.left_out = True
            elif (
                len(cell.values.keys() & reference.values.keys()) > 1
                and not line.exploratory
                and not study.barred(row)
            ):
                due[study.key(row)] = cell
        return due

    @staticmethod
    def _may_test(study: _Study, row: CellResult, line: _Line) -> bool:
        """Whether a study may say something of a row: it is new, or has all seeds of a
        look, or those of the last one.
        """
        if study.comparison(row).standing is Standing.TESTED:
            return True
        return line.values == (row.values, study.reference.values)

    def _seen(
        self,
        study: _Study,
        baseline: frozenset[int],
        family: Sequence[str],
        tested: Mapping[str, CellResult],
    ) -> _Seen:
        """Returns a look at rows; all others that have seeds tell of the noise."""
        reference = study.key(study.reference)
        base = baseline & self._values[reference].keys()
        rows = {
            key: frozenset(tested[key].values if key in tested else values) & base
            for key, values in self._values.items()
            if key != reference
        }
        if study.results.baseline_seeds is None:
            # Further seeds of row 0 that were not declared could follow from results.
            base = frozenset().union(*(rows[key] for key in family))
            rows = {key: mine & base for key, mine in rows.items()}
        fewest = min(len(rows[key]) for key in family)
        number = spending.seeds_of(fewest, max(fewest, len(base)))
        return _Seen(
            rows=rows,
            baseline=base,
            tested=frozenset(family),
            level=LEVEL if study.is_whole else spending.spent(number),
        )

    def _family(
        self,
        study: _Study,
        keys: Sequence[str],
        looks: Sequence[_Seen],
        share: float,
        cap: float | None,
        *,
        alone: bool = False,
    ) -> Family | None:
        """Returns a family of rows at the last of its looks.

        Args:
            alone: leave out the noise of all other rows.
        """
        reference = study.key(study.reference)
        last = looks[-1]
        others = [] if alone else [key for key in last.rows if key not in keys]
        rows = [*keys, *others]
        seeds = sorted(last.baseline)
        values = np.array(
            [
                [self._values[key].get(seed, math.nan) for seed in seeds]
                for key in (reference, *rows)
            ]
        ).reshape(len(rows) + 1, len(seeds))
        every = [
            Look(
                present=_mask([look.rows.get(key, NONE) for key in rows], seeds),
                baseline=_mask([look.baseline], seeds)[0],
                tested=np.array([key in look.tested for key in keys]),
                level=look.level,
            )
            for look in looks
        ]
        return family_of(values, every, 1.0 if study.is_whole else share, cap)

    def _first_family(
        self,
        study: _Study,
        against: _Baseline,
        keys: Sequence[str],
        tested: Mapping[str, CellResult],
    ) -> dict[str, Effect]:
        """Returns the effects of rows of the first family at its last look."""
        seen = against.looks[-1]
        effects = {key: study.compared(tested[key], seen) for key in keys}
        family = self._family(study, against.first, against.looks, spending.FIRST, None)
        if family is None:
            return effects
        gates = self._gates(study, against)
        primary = list(gates)
        closed = max((p for p, _, _ in gates.values()), default=0.0)
        level = seen.level
        tests = family.tests(self._margin)
        for place, (number, test) in enumerate(zip(family.rows, tests, strict=True)):
            key = against.first[number]
            effect = effects[key]
            if key in gates:
                p, of_row, first = gates[key]
                effect = replace(effect, primary=True)
                if of_row is not None and first is not None:
                    same = test.p_same if test is not None else 1.0
                    before = max(
                        (gates[other][0] for other in primary[: primary.index(key)]),
                        default=0.0,
                    )
                    effect = _with_estimate(effect, of_row, 0, first)
                    effect = self._with_verdict(
                        study, effect, p, same, level, blocked_by=before
                    )
                    effect = self._predicted(study, effect, of_row, 0)
            elif test is not None:
                effect = _with_estimate(effect, family, place, test)
                effect = self._with_verdict(
                    study,
                    effect,
                    max(closed, test.p_adjusted),
                    test.p_same,
                    level,
                    blocked_by=closed,
                )
                effect = self._predicted(study, effect, family, place)
            effects[key] = effect
        return effects

    def _alone(self, study: _Study, line: _Line, key: str, cell: CellResult) -> Effect:
        """Returns the effect of a row that came later."""
        seen = line.looks[-1]
        effect = study.compared(cell, seen)
        family = self._family(study, [key], line.looks, line.share, line.cap)
        test = family.tests(self._margin)[0] if family is not None else None
        if family is None or test is None:
            return effect
        effect = _with_estimate(effect, family, 0, test)
        p, p_same = test.p_adjusted, test.p_same
        effect = self._with_verdict(study, effect, p, p_same, seen.level)
        if line.is_worse(effect, study.results.direction):
            return effect.without_verdict(Withheld.NOT_BETTER)
        return self._predicted(study, effect, family, 0)

    def _gates(
        self, study: _Study, against: _Baseline
    ) -> dict[str, tuple[float, Family | None, RowTest | None]]:
        """Returns the p values and tests of the primary rows, in their order.

        Each is tested by Student's paired t at the level of all rows, but only if all
        before it differ (fixed sequence; Maurer, Hothorn and Lehmacher 1995). So the p
        value of a row is the largest one up to it.
        """
        gates: dict[str, tuple[float, Family | None, RowTest | None]] = {}
        largest = 0.0
        for key in against.primary:
            line = against.lines[key]
            looks = [look for look in against.looks if key in look.tested]
            family = None
            test = None
            if looks and looks[-1] is against.looks[-1]:
                family = self._family(
                    study, [key], looks, spending.FIRST, None, alone=True
                )
                test = family.tests(self._margin)[0] if family is not None else None
                largest = max(largest, test.p_adjusted if test else 1.0)
            elif not line.is_found:
                largest = 1.0
            gates[key] = (largest, family, test)
        return gates

    # From tests to verdicts.

    def _with_verdict(
        self,
        study: _Study,
        effect: Effect,
        p: float,
        p_same: float,
        level: float,
        *,
        blocked_by: float = 0.0,
    ) -> Effect:
        """Returns an effect with its verdict.

        Args:
            p: the adjusted p value; for a primary row, the largest one up to it.
            blocked_by: the largest p value of the primary rows before this row.
        """
        assert effect.mean is not None, "a row with an estimate has a mean"
        verdict = verdict_of(effect.mean, study.results.direction, p, p_same, level)
        withheld = None
        if verdict is Verdict.INCONCLUSIVE and blocked_by >= level:
            withheld = Withheld.NOT_TESTED
        judged = Judged(
            p=rescaled(p, level),
            p_same=rescaled(p_same, level),
            verdict=verdict,
            level=level,
            withheld=withheld,
        )
        return replace(effect, judged=judged)

    def _predicted(
        self, study: _Study, effect: Effect, family: Family, place: int
    ) -> Effect:
        """Returns the effect with what further seeds can do for it."""
        if effect.verdict is not Verdict.INCONCLUSIVE or effect.withheld:
            return effect
        looks = study.results.looks
        count = family.counts[place]
        if looks is not None and count < looks.most:
            chance = chance_at(family, place, self._margin, looks.most)
            effect = replace(effect, chance=chance)
        needed = partial(seeds_needed, family, place, self._margin)
        return replace(effect, count_further=needed)

    def _final(
        self, study: _Study, row: CellResult, against: _Baseline, effect: Effect
    ) -> Effect:
        """Returns an effect as the study shows it."""
        line = against.lines[study.key(row)]
        shown_by = ""
        if effect == line.effect and line.study != study.results.name:
            shown_by = line.study
        effect = replace(
            effect,
            row=row.index,
            against=study.reference.index,
            labels=study.results.labels,
            shown_by=shown_by,
            shown_row=effect.row if shown_by else 0,
        )
        why = None
        if not self._may_test(study, row, line):
            why = WITHHELD[study.comparison(row).standing]
        elif line.exploratory:
            why = Withheld.KNOWN
        elif not line.is_decided:
            why = Withheld.PARTIAL if line.left_out else study.barred(row)
            if why is None and study.results.looks is None and study.is_open(None):
                why = Withheld.UNFINISHED
        if why is None and study.results.is_judged_across and effect.withheld is None:
            why = Withheld.ACROSS
        return effect if why is None else effect.without_verdict(why)

    # Runs without common seeds.

    def _unpaired(self, study: _Study, against: _Baseline) -> list[Effect]:
        """Returns the effects of rows whose runs have nothing in common.

        Each look of a row spends what the seeds since its last one allow, and Holm's
        test shares the part of the first family.
        """
        effects = {
            study.key(row): replace(
                unpaired(row, study.reference), labels=study.results.labels
            )
            for row in study.rows
        }
        groups: dict[tuple[float, int], list[str]] = {}
        for row in study.rows:
            key = study.key(row)
            line = against.lines[key]
            level = self._level_of_runs(study, row, line)
            number = len(against.first) if key in against.first else 1
            groups.setdefault((level, number), []).append(key)
        for (level, number), keys in groups.items():
            judged = by_holm(
                [effects[key] for key in keys],
                study.results.direction,
                self._margin,
                level,
                number,
            )
            effects |= dict(zip(keys, judged, strict=True))
        shown = []
        for row in study.rows:
            key = study.key(row)
            line = against.lines[key]
            effect = effects[key]
            mine = frozenset(row.statuses)
            baseline = frozenset(study.reference.statuses)
            if not self._may_test(study, row, line):
                pass
            elif line.is_seen(row, baseline):
                assert line.effect is not None
                effect = line.effect
            elif (
                not study.barred(row)
                and not line.exploratory
                and effect.estimate is not None
            ):
                if line.is_worse(effect, study.results.direction):
                    effect = effect.without_verdict(Withheld.NOT_BETTER)
                further = partial(
                    _further_runs, effect, row, study.reference, self._margin
                )
                effect = replace(effect, count_further=further)
                line.effect, line.seeds, line.baseline = effect, mine, baseline
                line.study = study.results.name
                line.values = row.values, study.reference.values
                if line.is_found:
                    self._release(line, against)
            shown.append(self._final(study, row, against, effect))
        return shown

    def _level_of_runs(self, study: _Study, row: CellResult, line: _Line) -> float:
        if study.is_whole:
            return LEVEL

        def level(row_seeds: int, baseline: int) -> float:
            if min(row_seeds, baseline) < 2:
                return 0.0
            return spending.spent(spending.seeds_of(row_seeds, baseline))

        now = level(len(row.values), len(study.reference.values))
        before = level(len(line.seeds), len(line.baseline))
        return line.share * max(now - before, 0.0)


class _Study:
    """A study of a group, with what the ledger asks of it."""

    def __init__(self, results: StudyResults) -> None:
        self.results = results
        self.reference = results.cells[0]
        self.rows = compared_cells(results)
        cells = [self.reference, *self.rows]
        self._keys = {cell.index: self.comparison(cell).key for cell in cells}
        if len({*self._keys.values(), ""}) <= len(cells):
            # A study that is in no store has none.
            self._keys = {cell.index: f"row {cell.index}" for cell in cells}
        # A file is judged as a whole: no row and no seed comes later.
        self.is_whole = results.before.is_whole

    def comparison(self, cell: CellResult) -> Comparison:
        return self.results.before.rows.get(cell.index, Comparison())

    def key(self, cell: CellResult) -> str:
        """Returns what identifies a row in all studies of the group."""
        return self._keys[cell.index]

    @property
    def looks(self) -> tuple[int | None, ...]:
        return self.results.looks.at if self.results.looks else (None,)

    def at(self, cell: CellResult, seeds: int | None) -> CellResult:
        """Returns a row with the seeds that it has at a look."""
        if seeds is None:
            return cell
        return cell.with_seeds([seed for seed in cell.statuses if seed < seeds])

    def reference_at(self, seeds: int | None) -> CellResult:
        if seeds is not None:
            seeds = max(seeds, self.results.baseline_seeds or 0)
        return self.at(self.reference, seeds)

    def rows_at(self, seeds: int | None) -> list[CellResult]:
        """Returns the rows that have got the seeds of a look."""
        if seeds is None or self.results.looks is None:
            return self.rows
        looks = self.results.looks.at
        place = looks.index(seeds)
        before = looks[place - 1] if place else 0
        return [row for row in self.rows if any(s >= before for s in row.statuses)]

    def is_open(self, seeds: int | None) -> bool:
        """Whether a trial of a look has not ended: a part of them would be another look."""
        if self.results.searching:
            return True
        if seeds is None:
            cells = [self.reference, *self.rows]
        else:
            rows = [self.at(row, seeds) for row in self.rows_at(seeds)]
            cells = [self.reference_at(seeds), *rows]
        return not all(
            status in RESOLVED for cell in cells for status in cell.statuses.values()
        )

    def barred(self, row: CellResult) -> Withheld | None:
        """Returns why a row has no verdict, however its other trials end, or None."""
        # A mean over the other seeds would be one of survivors.
        statuses = row.outcomes | self.reference.outcomes
        for status, reason in SURVIVORS.items():
            if status in statuses:
                return reason
        # The next run tries it again. A verdict before, and another one after it, would
        # be two chances.
        return Withheld.FAILED if Status.FAILED in statuses else None

    def compared(self, cell: CellResult, seen: _Seen) -> Effect:
        """Returns the effect of a row at a look, without an estimate."""
        effect = compared(cell, self.at_seeds(self.reference, seen.baseline))
        extra = len(seen.baseline) - len(seen.baseline & set(effect.seeds))
        if self.results.baseline_seeds is None:
            extra = 0
        return replace(effect, extra=extra, labels=self.results.labels)

    @staticmethod
    def at_seeds(cell: CellResult, seeds: frozenset[int]) -> CellResult:
        values = {
            seed: cell.values[seed] for seed in sorted(seeds & cell.values.keys())
        }
        return replace(cell, values=values)

    def by_itself(self, row: CellResult) -> Effect:
        """Returns the effect of a row by its own seeds, without a verdict."""
        effect = replace(paired(row, self.reference), labels=self.results.labels)
        if effect.estimate is None:
            return effect
        judged = Judged(
            p=1.0,
            p_same=1.0,
            verdict=Verdict.INCONCLUSIVE,
            level=0.0,
            withheld=Withheld.UNFINISHED,
        )
        return replace(effect, judged=judged)


def compared_cells(results: StudyResults) -> list[CellResult]:
    """Returns the cells that are compared with row 0."""
    return [
        cell
        for cell in results.cells[1:]
        if cell.same_as is None
        and cell.role in ("variant", "baseline")
        and cell.statuses
    ]


def by_holm(
    effects: Sequence[Effect],
    direction: Direction,
    margin: float,
    level: float,
    number: int,
) -> list[Effect]:
    """Returns effects, judged as one family by separate tests.

    Args:
        number: of the comparisons of the family, those that are left out included.
    """
    # Bonferroni's intervals are simultaneous, and Holm's test refines Bonferroni's.
    effects = [
        replace(effect, estimate=effect.estimate.at((level or LEVEL) / number))
        if effect.estimate
        else effect
        for effect in effects
    ]
    estimates = [effect.estimate for effect in effects if effect.estimate]
    # A row without an estimate counts in the family too: otherwise the verdicts of the
    # others could change when it gets one.
    verdicts = iter(verdicts_by_holm(estimates, margin, direction, level, number))
    return [
        replace(effect, judged=next(verdicts)) if effect.estimate else effect
        for effect in effects
    ]


def _mask(rows: Sequence[frozenset[int]], seeds: Sequence[int]) -> Array:
    return np.array([[seed in row for seed in seeds] for row in rows], dtype=bool)


def _with_estimate(effect: Effect, family: Family, place: int, test: RowTest) -> Effect:
    """Returns an effect with the estimate of a row of a family."""
    estimate = Estimate(
        value=test.mean,
        low=test.low,
        high=test.high,
        error=test.error,
        freedom=family.freedom(place),
        p=test.p,
    )
    return replace(effect, mean=test.mean, estimate=estimate)


def _further_runs(
    effect: Effect, cell: CellResult, reference: CellResult, margin: float
) -> int | None:
    """Returns the number of further runs that decide an unpaired comparison."""
    judged, estimate = effect.judged, effect.estimate
    if judged is None or estimate is None or judged.withheld or not judged.level:
        return None
    if effect.verdict is not Verdict.INCONCLUSIVE:
        return None
    runs = [list(row.values.values()) for row in (cell, reference)]
    first, second = (sd_of(values) ** 2 for values in runs)
    return runs_needed(
        estimate.value,
        (first, second),
        (len(runs[0]), len(runs[1])),
        margin,
        judged.level,
    )
