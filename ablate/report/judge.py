"""Takes the verdicts of a family of rows, at once or in looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ablate.records import LEVEL, RESOLVED, CellResult, Direction, Looks, Status
from ablate.report.effect import Effect, compared, paired
from ablate.report.family import family_of
from ablate.report.verdicts import (
    Estimate,
    Judged,
    Verdict,
    Withheld,
    level_of_look,
    rescaled,
    verdict_of,
)
from ablate.statistics.noise import Family, RowTest
from ablate.statistics.seeds_needed import chance_at, seeds_needed


@dataclass(frozen=True)
class Judge:
    """Takes the verdicts on rows that are compared with one reference.

    Attributes:
        level: the probability of a false verdict that the study may use; 0: it has no
            verdict.
        next_level: the same of the next study that compares these rows.
        left_out: comparisons that count although they are not among the rows.
        primary: rows that are tested before the others, one after the other.
        others: rows with the same reference that are not tested here. Their noise is
            used too.
        baseline_seeds: the number of seeds that the reference was declared to have, if
            it is not that of the rows.
    """

    direction: Direction
    margin: float
    looks: Looks | None
    level: float
    next_level: float
    left_out: int = 0
    primary: tuple[int | None, ...] = ()
    others: Sequence[CellResult] = ()
    baseline_seeds: int | None = None

    def effects(
        self, cells: Sequence[CellResult], reference: CellResult
    ) -> list[Effect]:
        """Returns the effects of the rows, in the order of the cells."""
        if self.looks is None:
            return self.together(cells, reference, look=0)
        return self.in_looks(cells, reference, self.looks)

    def together(
        self,
        cells: Sequence[CellResult],
        reference: CellResult,
        look: int,
        decided: Collection[Effect] = (),
        given_up: Sequence[CellResult] = (),
    ) -> list[Effect]:
        """Returns the effects of one family, in the order of the cells.

        Args:
            decided: rows with a verdict from an earlier look. Which rows are left
                depends on their values, so a row without a difference still counts
                when others are tested for one, and the other way round.
            given_up: rows that got no further seeds at an earlier look. They count,
                too, and their noise is used.
        """
        same = sum(effect.verdict is Verdict.SAME for effect in decided)
        before = len(given_up) + self.left_out
        planned = len(cells) + same + before
        level = level_of_look(self.looks, look, self.level)
        extra = self._extra(cells, reference)
        whole: list[Effect] = []
        tested: list[int] = []
        for number, cell in enumerate(cells):
            if _has_failed(cell) or _has_failed(reference):
                whole.append(_failed(cell, reference, planned, level))
                continue
            whole.append(compared(cell, reference))
            if len(whole[-1].seeds) > 1:
                tested.append(number)
        family = family_of(
            reference.values,
            [cells[number].values for number in tested],
            planned=planned,
            planned_same=len(cells) + len(decided) - same + before,
            others=self._noise_of_others(reference),
            given_up=[cell.values for cell in given_up if _has_pair(cell, reference)],
            extra=extra,
        )
        if family is None:
            return whole
        # A study without a level shows the interval of 95 %.
        tests = family.tests(self.margin, level or LEVEL)
        gates = self._gates(cells, reference, decided, extra)
        blocking = dict(zip(gates, [0.0, *gates.values()], strict=False))
        for row, (number, test) in enumerate(zip(tested, tests, strict=True)):
            if test is None:
                continue
            cell = cells[number]
            effect = replace(whole[number], extra=len(extra))
            if cell.index in gates:
                alone = _family_of_one(cell, reference, extra)
                effect = replace(effect, primary=True)
                if alone is None:
                    # All differences are equal: there is no spread to test against.
                    whole[number] = effect
                    continue
                first = alone.tests(self.margin, level or LEVEL)[0]
                assert first is not None, "a family has noise"
                effect = _with_estimate(effect, alone, 0, first)
                judged = self._with_verdict(
                    effect,
                    gates[cell.index],
                    test.p_same,
                    level,
                    blocked_by=blocking[cell.index],
                )
                whole[number] = self._predicted(judged, alone, 0, look)
                continue
            # The primary rows must differ before this one can.
            closed = max(gates.values(), default=0.0)
            judged = self._with_verdict(
                _with_estimate(effect, family, row, test),
                max(closed, test.p_adjusted),
                test.p_same,
                level,
                blocked_by=closed,
            )
            whole[number] = self._predicted(judged, family, row, look)
        return whole

    def _extra(
        self, cells: Sequence[CellResult], reference: CellResult
    ) -> tuple[float, ...]:
        """Returns the values of the reference at seeds that no row was declared to have."""
        if self.baseline_seeds is None:
            return ()
        declared = set[int]().union(*(cell.statuses for cell in cells))
        return tuple(
            value
            for seed, value in sorted(reference.values.items())
            if seed not in declared
        )

    def _noise_of_others(self, reference: CellResult) -> list[Mapping[int, float]]:
        """Returns the values of the rows that are not tested here, by seed.

        Only those that have all seeds of the reference: fewer would change the
        simulation for the rows that are tested.
        """
        seeds = reference.values.keys()
        return [other.values for other in self.others if seeds <= other.values.keys()]

    def _gates(
        self,
        cells: Sequence[CellResult],
        reference: CellResult,
        decided: Collection[Effect],
        extra: Sequence[float],
    ) -> dict[int, float]:
        """Returns the p values of the primary rows, in their order.

        Each is tested at the full level, but only if all before it differ from row 0
        (fixed sequence; Maurer, Hothorn and Lehmacher 1995). So the p value of a row is
        the largest one up to it.

        Args:
            decided: as for `together`.
            extra: as for `family_of`.
        """
        by_row = {cell.index: cell for cell in cells}
        verdicts = {effect.row: effect.verdict for effect in decided}
        gates: dict[int, float] = {}
        largest = 0.0
        for row in self.primary:
            if row in by_row:
                alone = _family_of_one(by_row[row], reference, extra)
                test = alone.tests(self.margin, LEVEL)[0] if alone else None
                largest = max(largest, test.p_adjusted if test else 1.0)
            elif row is not None and verdicts.get(row) not in (
                Verdict.HELPS,
                Verdict.HURTS,
            ):
                largest = 1.0
            if row is not None:
                gates[row] = largest
        return gates

    def _with_verdict(
        self,
        effect: Effect,
        p: float,
        p_same: float,
        level: float,
        *,
        blocked_by: float,
    ) -> Effect:
        """Returns an effect with its verdict.

        Args:
            p: the adjusted p value; for a primary row, the largest one up to it.
            blocked_by: the largest p value of the primary rows before this row.
        """
        assert effect.mean is not None, "a row with an estimate has a mean"
        verdict = verdict_of(effect.mean, self.direction, p, p_same, level)
        withheld = None
        if level == 0:
            withheld = Withheld.FINAL
        elif verdict is Verdict.INCONCLUSIVE and blocked_by >= level:
            withheld = Withheld.NOT_TESTED
        judged = Judged(
            p=rescaled(p, level),
            p_same=rescaled(p_same, level),
            verdict=verdict,
            level=level,
            withheld=withheld,
        )
        return replace(effect, judged=judged)

    def _predicted(self, effect: Effect, family: Family, row: int, look: int) -> Effect:
        """Returns the effect with what further seeds can do for it.

        They belong to the next look, or, if the row gets none, to the next generation.
        """
        if effect.verdict is not Verdict.INCONCLUSIVE or effect.withheld:
            return effect
        level = self.next_level
        if self.looks is not None and look + 1 < self.looks.number:
            effect = replace(effect, chance=self._chance(family, row, self.looks))
            if not effect.is_given_up:
                level = level_of_look(self.looks, look + 1, self.level)
        if level == 0:
            return effect
        count = partial(seeds_needed, family, row, self.margin, level)
        return replace(effect, count_further=count)

    def _chance(self, family: Family, row: int, looks: Looks) -> float:
        """Returns the probability of a conclusive verdict at the last look."""
        level = level_of_look(looks, looks.number - 1, self.level)
        if level == 0 or looks.most <= family.counts[row]:
            return 0.0
        return chance_at(family, row, self.margin, level, looks.most)

    def in_looks(
        self, cells: Sequence[CellResult], reference: CellResult, looks: Looks
    ) -> list[Effect]:
        """Returns the effects of a study that adds seeds to undecided rows.

        A verdict is taken from the seeds of its look, and later looks do not change it:
        a row that is decided gets no further seeds. Nor does a row that is given up. It
        keeps the effect of its last look.
        """
        decided: dict[int, Effect] = {}
        given_up: list[CellResult] = []
        by_row: dict[int, Effect] = {}
        open_ = list(cells)
        for look, count in enumerate(looks.at):
            judged = self.together(
                [_first_seeds(cell, count) for cell in open_],
                _first_seeds(reference, max(count, self.baseline_seeds or 0)),
                look,
                decided.values(),
                given_up,
            )
            # This is the last look that has data: its verdicts count once all of its
            # trials have ended, because a part of them would be another look.
            if not any(_has_more(cell, count) for cell in open_):
                if not all(_is_complete(cell, count) for cell in (*open_, reference)):
                    judged = [
                        effect.without_verdict(Withheld.UNFINISHED) for effect in judged
                    ]
                by_row |= {effect.row: effect for effect in judged}
                break
            by_row |= {effect.row: effect for effect in judged}
            decided |= {
                effect.row: effect
                for effect in judged
                if effect.verdict is not Verdict.INCONCLUSIVE
            }
            left = [cell for cell in open_ if cell.index not in decided]
            open_ = [cell for cell in left if _has_more(cell, count)]
            given_up += [cell for cell in left if not _has_more(cell, count)]
        return [by_row[cell.index] for cell in cells]


def _family_of_one(
    cell: CellResult, reference: CellResult, extra: Sequence[float]
) -> Family | None:
    """Returns a row as a family of its own, whose test is Student's paired t.

    If the reference has extra seeds, the p value is simulated.
    """
    if not _has_pair(cell, reference):
        return None
    return family_of(reference.values, [cell.values], planned=1, extra=extra)


def _with_estimate(effect: Effect, family: Family, row: int, test: RowTest) -> Effect:
    """Returns an effect with the estimate of a row of a family."""
    estimate = Estimate(
        value=test.mean,
        low=test.low,
        high=test.high,
        error=test.error,
        freedom=family.freedom(row),
        p=test.p,
    )
    return replace(effect, mean=test.mean, estimate=estimate)


def _has_failed(cell: CellResult) -> bool:
    """Whether a trial of the cell failed. The next run tries it again."""
    return Status.FAILED in cell.statuses.values()


def _failed(
    cell: CellResult, reference: CellResult, planned: int, level: float
) -> Effect:
    """Returns the effect of a row with failed trials, or of any if row 0 has some.

    A verdict before the next try, and another after it, would be two chances.
    """
    effect = paired(cell, reference)
    if effect.estimate is None:
        return effect
    judged = Judged(
        p=rescaled(min(1.0, planned * effect.estimate.p), level),
        p_same=1.0,
        verdict=Verdict.INCONCLUSIVE,
        level=level,
        withheld=Withheld.FAILED,
    )
    return replace(effect, judged=judged)


def _first_seeds(cell: CellResult, count: int) -> CellResult:
    """Returns the cell with its first seeds only."""
    return cell.with_seeds([seed for seed in cell.statuses if seed < count])


def _is_complete(cell: CellResult, count: int) -> bool:
    """Whether the trials of a look have ended."""
    return all(
        status in RESOLVED for seed, status in cell.statuses.items() if seed < count
    )


def _has_pair(cell: CellResult, reference: CellResult) -> bool:
    """Whether the cell shares enough seeds with the reference to tell of its noise."""
    return len(compared(cell, reference).seeds) > 1


def _has_more(cell: CellResult, count: int) -> bool:
    return any(seed >= count for seed in cell.statuses)
