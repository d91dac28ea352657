"""What factors do over all cells of a study: main effects, two-factor interactions, and
what each factor contributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ablate.errors import AblateError
from ablate.records import CellResult, Level, Looks, StudyResults
from ablate.report.blocks import Blocks, Vector, is_observed, representatives
from ablate.report.verdicts import Estimate, Judged, judge

# Shapley values are sums over all subsets of the factors.
MOST_FACTORS = 12


@dataclass(frozen=True)
class Term:
    """An effect of one or two factors, from their first levels to others, on average
    over all other factors.

    Attributes:
        factors: one factor of a main effect or a contribution, two of an interaction.
        levels: the level of each factor that is compared with its baseline.
        kind: main, interaction, alone, left out or shapley.
        estimate: None where the design cannot tell it from other effects.
    """

    factors: tuple[str, ...]
    levels: tuple[Level, ...]
    kind: str
    estimate: Estimate | None
    judged: Judged | None = None


class Factorial:
    """The factors of a study, each against its level in the baseline.

    A study whose cells are a full grid is fitted by the mean of each cell. Of any
    other, main effects and two-factor interactions are fitted, or main effects alone
    where the design cannot tell both apart (`additive`).

    Args:
        looks: at which numbers of seeds verdicts are taken, where more are added until
            something is decided.

    Raises:
        AblateError: there is no spread to measure.
    """

    def __init__(
        self,
        results: StudyResults,
        baseline: Mapping[str, Level],
        looks: Looks | None = None,
    ) -> None:
        self._results, self._base = results, dict(baseline)
        self._looks = looks.number if looks else 1
        # A control is told by its width, which no cell of the space varies.
        self._names = tuple(name for name in results.factors if name in baseline)
        self._cells = representatives(results, self._names)
        self._levels = {name: self._observed_levels(name) for name in self._names}
        self.additive = False
        self._blocks = Blocks(results) if self.is_grid else self._regression()

    def _observed_levels(self, name: str) -> tuple[Level, ...]:
        """The levels of a factor, the baseline's first."""
        levels = [
            cell.levels[name]
            for cell in self._results.cells
            if is_observed(cell) and name in cell.levels
        ]
        return tuple(dict.fromkeys([self._base[name], *levels]))

    @cached_property
    def is_grid(self) -> bool:
        """Whether every combination of levels was trained, or is one that was."""
        wanted = math.prod(len(levels) for levels in self._levels.values())
        return wanted <= len(self._cells) and all(
            combination in self._cells and is_observed(self._cells[combination])
            for combination in itertools.product(*self._levels.values())
        )

    @property
    def sd(self) -> float:
        """Standard deviation of a single training around its cell's and its seed's
        mean.
        """
        return self._blocks.sd

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `sd`."""
        return self._blocks.freedom

    def _regression(self) -> Blocks:
        blocks = Blocks(self._results, lambda cell: self._columns(cell, 2))
        others = [
            (name, level)
            for name, levels in self._levels.items()
            for level in levels[1:]
        ]
        if all(
            self._slope(blocks, ((name, level),)) is not None for name, level in others
        ):
            return blocks
        self.additive = True
        return Blocks(self._results, lambda cell: self._columns(cell, 1))

    def _columns(self, cell: CellResult, order: int) -> Vector:
        """One column for the mean, each level but the first, and each pair of them.

        What is not read is as at the baseline.
        """
        main: list[Vector] = []
        for name, levels in self._levels.items():
            level = self._base[name]
            if name not in cell.unread:
                level = cell.levels.get(name, level)
            main.append(np.array([float(level == other) for other in levels[1:]]))
        columns = [np.ones(1), *main]
        if order == 2:
            for one, other in itertools.combinations(main, 2):
                columns.append(np.outer(one, other).ravel())
        return np.concatenate(columns)

    def main_effects(self, margin: float, direction: str) -> list[Term]:
        """One term a factor and level but the first: its difference to the first, on
        average over the levels of all others.
        """
        return self._judged(
            [
                Term(
                    factors=(name,),
                    levels=(level,),
                    kind="main",
                    estimate=self._average({name: level}),
                )
                for name, levels in self._levels.items()
                for level in levels[1:]
            ],
            margin,
            direction,
        )

    def interactions(self, margin: float, direction: str) -> list[Term]:
        """One term a pair of factors and of levels: by how much both together differ
        from the sum of each alone.
        """
        return self._judged(
            [
                Term(
                    factors=(a, b),
                    levels=(x, y),
                    kind="interaction",
                    estimate=self._average({a: x, b: y}),
                )
                for a, b in itertools.combinations(self._levels, 2)
                for x in self._levels[a][1:]
                for y in self._levels[b][1:]
            ],
            margin,
            direction,
        )

    def _average(self, changed: Mapping[str, Level]) -> Estimate | None:
        """The change of some factors together less what fewer of them change, on
        average over the levels of the others.
        """
        if not self.is_grid:
            return self._slope(self._blocks, tuple(changed.items()))
        others = [name for name in self._levels if name not in changed]
        combinations = list(itertools.product(*(self._levels[name] for name in others)))
        weights = []
        for combination in combinations:
            fixed = dict(zip(others, combination, strict=True))
            for subset in _subsets(changed):
                sign = (-1) ** (len(changed) - len(subset))
                levels = {
                    **self._base,
                    **fixed,
                    **{name: changed[name] for name in subset},
                }
                weights.append((sign / len(combinations), self._cell(levels)))
        return self._blocks.contrast(weights)

    def _slope(
        self, blocks: Blocks, changed: Sequence[tuple[str, Level]]
    ) -> Estimate | None:
        """The same in a regression, where a factor's average change holds half of each
        interaction with it.
        """
        if self.additive and len(changed) > 1:
            return None
        template = self._results.cells[0]
        names = [name for name, _ in changed]
        others = [name for name in self._levels if name not in names]
        weights = []
        for subset in _subsets(names):
            sign = (-1) ** (len(names) - len(subset))
            on = {name: level for name, level in changed if name in subset}
            corner = replace(template, levels={**self._base, **on}, unread=frozenset())
            if self.additive:
                weights.append((float(sign), corner))
                continue
            # The model has no term beyond pairs. So the average over the levels of all
            # others is the sum of the averages over each of them alone, less what is
            # counted more than once: the corner, in all but one of these averages.
            weights.append((sign * (1.0 - len(others)), corner))
            for other in others:
                for level in self._levels[other]:
                    moved = {**self._base, **on, other: level}
                    weight = sign / len(self._levels[other])
                    weights.append((weight, replace(corner, levels=moved)))
        return blocks.contrast(weights)

    def _cell(self, levels: Mapping[str, Level]) -> CellResult:
        return self._cells[tuple(levels[name] for name in self._names)]

    def contributions(
        self, full: Mapping[str, Level], margin: float, direction: str
    ) -> list[Term]:
        """What each factor that `full` sets off its baseline adds: alone, when it is
        left out of the full model, and its Shapley value (its marginal contribution on
        average over all orders of adding factors; Shapley 1953), where all subsets were
        trained.

        Raises:
            AblateError: none of these cells was trained.
        """
        players = [
            name
            for name in self._levels
            if name in full and full[name] != self._base[name]
        ]
        found: list[Term] = []
        for kind in ("alone", "left out", "shapley"):
            terms = [
                Term(
                    factors=(name,),
                    levels=(full[name],),
                    kind=kind,
                    estimate=self._contribution(kind, name, players, full),
                )
                for name in players
            ]
            found += [term for term in terms if term.estimate is not None]
        if not found:
            raise AblateError(
                f"{self._results.name} has no cell in which one factor alone is on, or"
                " alone is off; use design: add-one-in, leave-one-out, or grid for"
                " Shapley values"
            )
        return self._judged(found, margin, direction)

    def _contribution(
        self, kind: str, name: str, players: Sequence[str], full: Mapping[str, Level]
    ) -> Estimate | None:
        rest = [player for player in players if player != name]
        if kind == "shapley":
            if len(players) > MOST_FACTORS:
                return None
            size = len(players)
            each = [
                (1 / (size * math.comb(size - 1, len(subset))), subset)
                for subset in _subsets(rest)
            ]
        else:
            each = [(1.0, () if kind == "alone" else tuple(rest))]
        weights: list[tuple[float, CellResult]] = []
        for weight, subset in each:
            without = {**self._base, **{player: full[player] for player in subset}}
            for sign, levels in ((1, {**without, name: full[name]}), (-1, without)):
                cell = self._cells.get(tuple(levels[factor] for factor in self._names))
                if cell is None or not is_observed(cell):
                    return None
                weights.append((sign * weight, cell))
        return self._by_cell.contrast(weights)

    def _judged(self, terms: list[Term], margin: float, direction: str) -> list[Term]:
        """Terms with their verdicts, as one family."""
        found = iter(
            judge(
                [term.estimate for term in terms if term.estimate],
                margin,
                direction,
                self._looks,
            )
        )
        return [
            replace(term, judged=next(found)) if term.estimate else term
            for term in terms
        ]

    @cached_property
    def _by_cell(self) -> Blocks:
        if self.is_grid:
            return self._blocks
        return Blocks(self._results)


def _subsets(names: Iterable[str]) -> list[tuple[str, ...]]:
    every = tuple(names)
    return [
        subset
        for size in range(len(every) + 1)
        for subset in itertools.combinations(every, size)
    ]
