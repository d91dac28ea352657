"""A search: a strategy proposes cells one by one, from the results so far.

A search is a function of the space and of results: rebuilt from the same results, it
makes the same proposals. This holds because proposal number k sees exactly the outcomes
of proposals 0 to k - `parallel`, never more, in whatever order trials end.

Two cursors over the list of cells keep this order. Cells before `_told` have an outcome
that the sampler knows. Cells from `_told` to `_asked` are proposed and still open.
Cells from `_asked` on were stored by an earlier run; the sampler is asked for them
again, with their levels given, so that its state becomes what it was.

What would break it: telling the sampler an outcome as soon as it arrives, deciding
seeds by the best cell of this moment instead of the best one when the cell was proposed
(`CellOutcomes.propose`), or any random draw that does not depend on the seed of the
strategy and the number of the proposal alone.

When all outcomes are known, `confirm` trains the best cells and row 0 on fresh seeds.
The sampler never sees these: the outcome of a cell is that of the seeds of the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ablate.plan.cells import Cells, Costs
from ablate.records import Cell, Plan, Settings, Space, Trial
from ablate.scheduling.combinations import Combinations, with_earlier_levels
from ablate.scheduling.outcomes import CellOutcomes, Results
from ablate.scheduling.strategies import Sampler

# After this many proposals in a row without a new trainable cell, the next one is drawn
# uniformly from the combinations that are left.
PATIENCE = 10


class Search:
    """A search of a space.

    It is a function of the space and of results: rebuilt from the same results, it
    makes the same proposals. Proposal number k is made when the results of all
    proposals up to k - `parallel` are known, from these alone.

    Args:
        costs: returns the cost of an architecture; raises Infeasible if it cannot be
            built.
        results: returns state and epochs by hash, for those trials that are known.
        chosen: the cells proposed before, in their order. Those that the space still
            allows are kept.
    """

    def __init__(
        self,
        space: Space,
        costs: Costs,
        results: Results,
        chosen: Sequence[Settings] = (),
    ) -> None:
        assert space.strategy is not None
        self._space = space
        self._strategy = space.strategy
        self._made = Cells(space, costs)
        self._combinations = Combinations(
            with_earlier_levels(space, chosen), self._strategy.seed
        )
        self._outcomes = CellOutcomes(space, results)
        self._sampler = Sampler(
            self._strategy,
            self._combinations.factors,
            space.factors.baseline,
            tuple(space.criterion.objectives.values()),
        )
        # The two cursors; see the head of this module.
        self._asked = self._told = 0
        self._refused: set[int] = set()
        # Trials that were handed out, and the number of seeds that each cell had then.
        self._given: set[str] = set()
        self._seeds: dict[int, int] = {}
        # Proposals in a row that gave no trainable cell.
        self._useless = 0
        self._exhausted = False
        # The cells that are trained on fresh seeds; None while the search goes on.
        self._confirmed: frozenset[int] | None = None
        # Stored cells are added in their old order, so that each keeps its number. If
        # the space now asks for fewer cells, the last ones are left out.
        for levels in self._combinations.still_allowed(chosen):
            if self._made.cells and self.more_cells == 0:
                break
            self._add(levels)

    @property
    def plan(self) -> Plan:
        """The cells proposed so far, as a plan."""
        return Plan(
            self._space, tuple(self._with_seeds(cell) for cell in self._made.cells)
        )

    def _with_seeds(self, cell: Cell) -> Cell:
        """Returns the cell with the trials that it needs, given the results so far."""
        trials = cell.trials
        if self._space.seeds.adaptive:
            trials = self._outcomes.needs(cell)[0]
        return replace(cell, trials=(*trials, *self._confirmation(cell)))

    def _confirmation(self, cell: Cell) -> tuple[Trial, ...]:
        """Returns the trials of a cell on fresh seeds; none if it is not confirmed."""
        if not self._confirmed or cell.index not in self._confirmed:
            return ()
        first = cell.trials[0]
        return tuple(
            replace(first, seed=seed) for seed in self._space.confirmation_seeds
        )

    @property
    def more_cells(self) -> int | None:
        """The number of cells still to be proposed; None if it is not fixed."""
        if self._exhausted:
            return 0
        number = self._strategy.cells
        if number is None:
            return None
        return max(0, number - sum(cell.feasible for cell in self._made.cells))

    def advance(self) -> list[Cell]:
        """Proposes as many cells as the results allow.

        Returns the new cells and the cells that get another seed.
        """
        # Cells before this one were resolved earlier, so their seeds are final.
        first = self._told
        # Proposal k waits for the outcomes up to k - parallel, and the sampler learns
        # no later outcome before it is asked. Asking earlier would lose information;
        # telling more would make proposals depend on which trial ends first.
        while (
            self._asked < len(self._made.cells) or self.more_cells != 0
        ) and self._tell(self._asked - self._strategy.parallel):
            if not self._propose(self._asked):
                self._exhausted = True
        cells = self._made.cells[first : self._asked]
        if self._strategy.confirm and self._has_ended():
            self._confirmed = self._outcomes.best(
                self._made.cells, self._strategy.confirmed_cells
            )
            cells = self._made.cells
        open_cells = [self._with_seeds(cell) for cell in cells]
        changed = [
            cell
            for cell in open_cells
            if self._seeds.get(cell.index) != len(cell.trials)
        ]
        self._seeds.update((cell.index, len(cell.trials)) for cell in changed)
        return changed

    def wanted(self) -> list[Trial]:
        """Returns the trials to train now, in their order, each of them only once.

        Call `advance` first.
        """
        to_train = []
        for cell in self._made.cells[self._told : self._asked]:
            trials, _ = self._outcomes.needs(cell)
            for trial in trials:
                if trial.hash in self._given:
                    continue
                self._given.add(trial.hash)
                if not self._outcomes.is_resolved(trial):
                    to_train.append(trial)
        for trial in self._fresh_trials():
            if trial.hash not in self._given:
                self._given.add(trial.hash)
                if not self._outcomes.has_result(trial):
                    to_train.append(trial)
        return to_train

    def _fresh_trials(self) -> list[Trial]:
        """Returns the trials on fresh seeds, one seed of every cell after the other."""
        rows = [self._confirmation(cell) for cell in self._made.cells]
        in_turn = zip(*(row for row in rows if row), strict=True)
        return list(itertools.chain.from_iterable(in_turn))

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to propose or to train."""
        if not self._has_ended():
            return False
        if self._strategy.confirm is None:
            return True
        return self._confirmed is not None and all(
            map(self._outcomes.has_result, self._fresh_trials())
        )

    def _has_ended(self) -> bool:
        """Whether all cells are proposed, and their outcomes are known."""
        # Telling the sampler here changes no proposal, because none is left to make.
        return (
            self.more_cells == 0
            and self._asked == len(self._made.cells)
            and self._tell(self._asked - 1)
        )

    def _tell(self, last: int) -> bool:
        """Reports the outcomes of the proposals up to number `last` to the sampler.

        Returns False if an outcome is not known yet.
        """
        while self._told <= last:
            cell = self._made.cells[self._told]
            # `_propose` has already reported that a refused cell is infeasible.
            if cell.index not in self._refused:
                # A folded cell has no trials of its own; its outcome is that of the
                # cell that it repeats.
                source = (
                    cell if cell.same_as is None else self._made.cells[cell.same_as]
                )
                outcome = self._outcomes.outcome(source)
                if outcome is None:
                    return False
                self._sampler.tell(cell.index, outcome)
            self._told += 1
        return True

    def _propose(self, number: int) -> bool:
        """Asks the sampler for the proposal of that number.

        A stored cell keeps its levels.

        Returns False if nothing is left to propose.
        """
        is_known = number < len(self._made.cells)
        chosen = self._made.cells[number].levels if is_known else None
        if chosen is None and self._combinations.is_exhausted:
            return False
        if chosen is None and self._useless >= PATIENCE:
            # The sampler repeats earlier proposals, or proposes infeasible ones.
            chosen = self._combinations.draw(number)
            if chosen is None:
                return False
        # The sampler is asked also if the levels are known: it must see every proposal
        # to be in the same state as in an uninterrupted search.
        levels = self._sampler.ask(number, chosen)
        cell = self._made.cells[number] if is_known else self._add(levels)
        self._asked += 1
        self._useless = 0 if cell.feasible else self._useless + 1
        self._sampler.constrain(number, self._made.violations(cell))
        if not cell.feasible and cell.same_as is None:
            self._refused.add(number)
            self._sampler.refuse(number)
        self._outcomes.propose(number, self._made.cells[: self._told])
        return True

    def _add(self, levels: Settings) -> Cell:
        self._combinations.add(levels)
        return self._made.add(levels)
