"""Effects of factors over all cells of a study.

There are main effects, two-factor interactions, and the contribution of each factor.

What it guarantees: every number is a contrast of cells, a weighted sum whose weights
add up to 0, estimated with its error by one linear model (`blocks.Blocks`). An effect
that the design does not determine is None, never a guess.

How: a main effect is "level minus baseline level", and an interaction is "both changed,
minus each changed alone, plus none changed". Both are averaged with equal weights over
the levels of all other factors. In a full grid these are contrasts of trained cells. In
any other design a regression on main effects and pairs predicts the missing cells.

What would break it: counting a folded cell as a cell of its own (it has no training of
its own), weights that depend on the number of seeds of a cell, or a third-order term in
`_columns`, because `_slope` relies on there being none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ablate.errors import AblateError
from ablate.records import (
    LEVEL,
    RESOLVED,
    CellResult,
    Level,
    Status,
    StudyResults,
)
from ablate.records.primary import primary_factors
from ablate.report.blocks import Blocks, Vector, is_observed, representatives
from ablate.report.confirmation import with_all_seeds
from ablate.report.effects import level_of
from ablate.report.ledger import SURVIVORS, WITHHELD
from ablate.report.verdicts import (
    Estimate,
    Judged,
    Verdict,
    Withheld,
    verdict_of,
    verdicts_by_holm,
)

# Shapley values are sums over all subsets of the factors, so their cost doubles with
# each factor.
MOST_FACTORS = 12


@dataclass(frozen=True)
class Term:
    """An effect of one or two factors, changed from their baseline to other levels.

    It is averaged over all other factors.

    Attributes:
        factors: one factor of a main effect or a contribution, two of an interaction.
        levels: the level of each factor that is compared with its baseline.
        kind: main, interaction, alone, left out or shapley.
        estimate: None if the design cannot separate it from other effects.
    """

    factors: tuple[str, ...]
    levels: tuple[Level, ...]
    kind: str
    estimate: Estimate | None
    judged: Judged | None = None

    def without_verdict(self, why: Withheld) -> Term:
        """Returns the term with its estimate, but without a verdict."""
        if self.judged is None:
            return self
        judged = replace(self.judged, verdict=Verdict.INCONCLUSIVE, withheld=why)
        return replace(self, judged=judged)


class Factorial:
    """The factors of a study, each compared with its baseline level.

    If the cells of a study form a full grid, the model has one mean per cell. Otherwise
    it has main effects and two-factor interactions, or only main effects if the design
    cannot separate the two (`additive`).

    Args:
        looks: the numbers of seeds at which verdicts are taken, for a study that adds
            seeds until it is decided.

    Raises:
        AblateError: there is no spread to measure, or seeds do not pair runs.
    """

    def __init__(
        self,
        results: StudyResults,
        baseline: Mapping[str, Level],
    ) -> None:
        if not results.is_paired:
            raise AblateError(
                f"{results.name}: effects over several rows compare them seed by seed, and"
                " these runs do not have the same seeds in all rows"
            )
        # Seeds are blocks, so those of row 0 alone tell nothing.
        results = with_all_seeds(results).without_extra_seeds()
        self._results, self._base = results, dict(baseline)
        self._level = level_of(results)
        # A control differs in its width, which is not a factor of the space.
        self._names = tuple(name for name in results.factors if name in baseline)
        self._cells = representatives(results, self._names)
        self._levels = {name: self._observed_levels(name) for name in self._names}
        self.additive = False
        # A full grid needs no model: means of cells are unbiased whatever interacts.
        self._blocks = Blocks(results) if self.is_grid else self._regression()

    def _observed_levels(self, name: str) -> tuple[Level, ...]:
        """Returns the observed levels of a factor, that of the baseline first."""
        levels = [
            cell.levels[name]
            for cell in self._results.cells
            if is_observed(cell) and name in cell.levels
        ]
        return tuple(dict.fromkeys([self._base[name], *levels]))

    @cached_property
    def is_grid(self) -> bool:
        """Whether every combination of levels was trained, or repeats one that was."""
        # The product of the levels may be huge; it is only visited if there are as many
        # cells.
        cells = math.prod(len(levels) for levels in self._levels.values())
        return cells <= len(self._cells) and all(
            combination in self._cells and is_observed(self._cells[combination])
            for combination in itertools.product(*self._levels.values())
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the factors, in the order of the study."""
        return self._names

    def grid(self) -> tuple[Vector, Vector, Vector]:
        """Returns the cells of a full grid.

        Returns:
            the mean of each cell, shape (cells,), around an unknown constant, with
            seeds as blocks; the covariance of these means from training, shape (cells,
            cells); and the number of each cell's level, shape (cells, factors). Folded
            cells have the mean of the cell that they repeat, and its noise.
        """
        every = list(itertools.product(*self._levels.values()))
        cells = [self._cells[combination] for combination in every]
        rows = np.array([self._blocks.row_of_mean(cell) for cell in cells])
        means = rows @ self._blocks.values
        places = itertools.product(
            *(range(len(levels)) for levels in self._levels.values())
        )
        return means, self.sd**2 * rows @ rows.T, np.array(list(places))

    @property
    def sd(self) -> float:
        """Standard deviation of a single training around its cell's and seed's mean."""
        return self._blocks.sd

    @property
    def by_seed(self) -> bool:
        """Whether effects are computed seed by seed (see `blocks.BY_SEED`)."""
        return self._blocks.by_seed

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `sd`."""
        return self._blocks.freedom

    def _regression(self) -> Blocks:
        # Interactions are kept if every main effect remains estimable with them. If
        # not, a model with main effects alone is the most that the design can support.
        blocks = Blocks(self._results, lambda cell: self._columns(cell, 2))
        slopes = [self._slope(blocks, (pair,)) for pair in self._other_levels()]
        if None not in slopes:
            return blocks
        self.additive = True
        return Blocks(self._results, lambda cell: self._columns(cell, 1))

    def _columns(self, cell: CellResult, order: int) -> Vector:
        """Returns the columns of a cell: the mean, each level, and each pair of levels.

        The baseline level of a factor has no column. A factor that is not read counts
        as being at its baseline level.
        """
        main: list[Vector] = []
        for name, levels in self._levels.items():
            level = self._base[name]
            if name not in cell.unread:
                level = cell.levels.get(name, level)
            main.append(np.array([float(level == other) for other in levels[1:]]))
        columns = [np.ones(1), *main]
        if order == 2:
            for first, other in itertools.combinations(main, 2):
                columns.append(np.outer(first, other).ravel())
        return np.concatenate(columns)

    def main_effects(self, margin: float, direction: str) -> list[Term]:
        """Returns one term per factor and level other than the baseline's.

        It is the difference to the baseline level, averaged over the levels of all
        others.
        """
        terms = []
        for name, level in self._other_levels():
            estimate = self._average({name: level})
            terms.append(
                Term(factors=(name,), levels=(level,), kind="main", estimate=estimate)
            )
        return self._judged_in_order(terms, margin, direction)

    def _judged_in_order(
        self, terms: list[Term], margin: float, direction: str
    ) -> list[Term]:
        """Returns main effects, those of primary factors tested before the others.

        The levels of a factor are one family. The next factor is tested if all of them
        differ, so all of its p values are at least the largest one before.
        """
        primary = primary_factors(self._results.primary)
        groups: dict[str, list[Term]] = {name: [] for name in (*primary, "")}
        for term in terms:
            (name,) = term.factors
            groups[name if name in primary else ""].append(term)
        judged: dict[tuple[tuple[str, ...], tuple[Level, ...]], Term] = {}
        gate = 0.0
        for group in groups.values():
            tested = [
                self._behind(gate, term, direction)
                for term in self._judged(group, margin, direction)
            ]
            judged |= {(term.factors, term.levels): term for term in tested}
            p_values = [term.judged.p if term.judged else 1.0 for term in tested]
            gate = max([gate, *p_values])
        return [judged[term.factors, term.levels] for term in terms]

    def _behind(self, gate: float, term: Term, direction: str) -> Term:
        """Returns a term whose p value is at least that of the terms before it."""
        if term.judged is None or term.estimate is None:
            return term
        p = max(gate, term.judged.p)
        verdict = verdict_of(
            term.estimate.value, direction, p, term.judged.p_same, LEVEL
        )
        withheld = term.judged.withheld
        if withheld is None and verdict is Verdict.INCONCLUSIVE and gate >= LEVEL:
            withheld = Withheld.NOT_TESTED
        judged = replace(term.judged, p=p, verdict=verdict, withheld=withheld)
        why = self._withheld
        if why is not None:
            judged = replace(judged, verdict=Verdict.INCONCLUSIVE, withheld=why)
        return replace(term, judged=judged)

    @cached_property
    def _withheld(self) -> Withheld | None:
        """Why main effects get no verdict now, if they get none."""
        if self._results.is_judged_across:
            return Withheld.ACROSS
        if not primary_factors(self._results.primary):
            return None
        cells = self._cells.values()
        for cell in cells:
            compared = self._results.before.rows.get(cell.index)
            if cell.index and compared is not None:
                why = WITHHELD.get(compared.standing)
                if why is not None:
                    return why
        statuses = set[Status]().union(*(cell.outcomes for cell in cells))
        for status, reason in SURVIVORS.items():
            if status in statuses:
                return reason
        if self._results.searching or not statuses <= set(RESOLVED):
            return Withheld.UNFINISHED
        return Withheld.FAILED if Status.FAILED in statuses else None

    def _other_levels(self) -> list[tuple[str, Level]]:
        """Each factor with each level but its first."""
        pairs: list[tuple[str, Level]] = []
        for name, levels in self._levels.items():
            pairs += [(name, level) for level in levels[1:]]
        return pairs

    def interactions(self, margin: float, direction: str) -> list[Term]:
        """Returns one term per pair of factors and pair of levels.

        It is the difference between the effect of both together and the sum of each
        alone.
        """
        terms = []
        for a, b in itertools.combinations(self._levels, 2):
            for x, y in itertools.product(self._levels[a][1:], self._levels[b][1:]):
                estimate = self._average({a: x, b: y})
                terms.append(
                    Term(
                        factors=(a, b),
                        levels=(x, y),
                        kind="interaction",
                        estimate=estimate,
                    )
                )
        return self._judged(terms, margin, direction)

    def _average(self, changed: Mapping[str, Level]) -> Estimate | None:
        """Estimates the joint change of some factors beyond what fewer of them change.

        It is averaged over the levels of the other factors.
        """
        if not self.is_grid:
            return self._slope(self._blocks, tuple(changed.items()))
        others = [name for name in self._levels if name not in changed]
        combinations = list(itertools.product(*(self._levels[name] for name in others)))
        weights = []
        for combination in combinations:
            fixed = dict(zip(others, combination, strict=True))
            # Inclusion and exclusion: + for all factors changed, - for one less, + for
            # two less. For one factor that is a difference, for two the interaction.
            # Every combination of the others weighs the same, so no level of theirs is
            # favoured.
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
        """Estimates the same in a regression.

        There the average change of a factor includes a share of each interaction with
        it.
        """
        if self.additive and len(changed) > 1:
            return None
        # The cells below need not exist: the model only needs their levels.
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
            # The model has no term beyond pairs. The average over the levels of all
            # others is therefore the sum of the averages over each of them alone, minus
            # what is counted more than once: the corner is in every one of these
            # averages, and must count once.
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
        """Returns what each factor adds that `full` changes from its baseline.

        There are three kinds: alone, left out of the full model, and the Shapley value
        (its marginal contribution averaged over all orders of adding factors; Shapley
        1953) if all subsets were trained.

        Raises:
            AblateError: none of these cells was trained.
        """
        players = [
            name
            for name in self._levels
            if name in full and full[name] != self._base[name]
        ]
        terms_found: list[Term] = []
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
            terms_found += [term for term in terms if term.estimate is not None]
        if not terms_found:
            raise AblateError(
                f"{self._results.name} has no cell in which only one factor is changed,"
                f" and none in which only one is left out{self._designs}"
            )
        return self._judged(terms_found, margin, direction)

    @property
    def _designs(self) -> str:
        """What gives contributions; empty for runs that were trained elsewhere."""
        if self._results.reported is not None:
            return ""
        return (
            "; use design: add-one-in or leave-one-out, or grid, which also gives Shapley"
            " values"
        )

    def _contribution(
        self, kind: str, name: str, players: Sequence[str], full: Mapping[str, Level]
    ) -> Estimate | None:
        rest = [player for player in players if player != name]
        if kind == "shapley":
            if len(players) > MOST_FACTORS:
                return None
            size = len(players)
            each = [
                # The share of all orders in which exactly these factors come before
                # this one: |S|! (n - |S| - 1)! / n!, for n factors.
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
        """Returns the terms with their verdicts, judged as one family."""
        verdicts = iter(
            verdicts_by_holm(
                [term.estimate for term in terms if term.estimate],
                margin,
                direction,
                self._level,
            )
        )
        judged = [
            replace(term, judged=next(verdicts)) if term.estimate else term
            for term in terms
        ]
        if not self._results.is_judged_across:
            return judged
        return [term.without_verdict(Withheld.ACROSS) for term in judged]

    @cached_property
    def _by_cell(self) -> Blocks:
        if self.is_grid:
            return self._blocks
        # A contribution compares trained cells, not predictions: it must not rely on
        # the absence of higher interactions.
        return Blocks(self._results)


def _subsets(names: Iterable[str]) -> list[tuple[str, ...]]:
    every = tuple(names)
    subsets: list[tuple[str, ...]] = []
    for size in range(len(every) + 1):
        subsets += itertools.combinations(every, size)
    return subsets
