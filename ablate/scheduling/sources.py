"""The source of a run's trials: a plan, a search, or a plan whose seeds grow.

A source hands out trials as results allow. `StoredTrials` connects it with the store:
it stores the cells that the source adds, and says what is known of their trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ablate.records import (
    COST_REVISION,
    RESOLVED,
    Before,
    Cell,
    Known,
    Plan,
    Space,
    Status,
    Trial,
)
from ablate.scheduling.cost_cache import CostCache, Count
from ablate.scheduling.growing import Grow, Growing
from ablate.scheduling.policy import Policy
from ablate.scheduling.queue import Planned, Searched, Source

if TYPE_CHECKING:
    from ablate.scheduling.search import Search
    from ablate.store.reader import Reader
    from ablate.store.writer import Writer

Announce = Callable[[list[Cell]], None]


class StoredTrials:
    """The trials that a run has registered in its study, and what is known of them.

    Args:
        study: the number of the study in the store.
        trials: those that are registered already.
        announce: receives each new cell, with the trials that are left to train.
        searched: the space, if a search adds the cells.
    """

    def __init__(
        self,
        study: int,
        policy: Policy,
        reader: Reader,
        writer: Writer,
        trials: Iterable[Trial],
        announce: Announce,
        searched: Space | None = None,
    ) -> None:
        self._searched = searched
        self._study = study
        self._policy = policy
        self._reader = reader
        self._writer = writer
        self._announce = announce
        self._registered = {trial.hash for trial in trials}

    def known(self, hashes: Iterable[str]) -> dict[str, Known]:
        """Status and epochs of those trials whose status this run accepts."""
        return self._news(self._reader.trials.known(hashes))

    def known_without_epochs(self, hashes: Iterable[str]) -> dict[str, Known]:
        """The same without epochs, which is faster."""
        return self._news(self._reader.trials.known(hashes, with_epochs=False))

    def ended(self, hashes: Iterable[str]) -> dict[str, Known]:
        """Status and epochs of those trials that have ended."""
        # Most trials that are asked for are still open, and epochs are slow to read.
        known = self.known_without_epochs(hashes)
        return self.known(
            key for key, trial in known.items() if trial.status in RESOLVED
        )

    def _news(self, known: dict[str, Known]) -> dict[str, Known]:
        """The trials whose status this run accepts.

        A trial that this run trains again is left out: one that another study left
        failed or pruned. A failed trial that this run has registered is kept:
        registering reset it to planned, so it has failed since.
        """
        return {
            key: trial
            for key, trial in known.items()
            if trial.status not in self._policy.again
            or (trial.status == Status.FAILED and key in self._registered)
        }

    def add(self, changed: list[Cell]) -> None:
        """Stores new cells, and cells that get another seed."""
        self._writer.extend(
            self._study,
            changed,
            COST_REVISION,
            self._policy.again,
            self._registered,
            searched=self._searched,
        )
        hashes = [trial.hash for cell in changed for trial in cell.all_trials]
        self._registered.update(hashes)
        known = self.known(hashes)
        self._announce([self._without_results(cell, known) for cell in changed])

    def _without_results(self, cell: Cell, known: dict[str, Known]) -> Cell:
        def is_left(trial: Trial) -> bool:
            return not self._policy.is_result(known.get(trial.hash))

        return replace(
            cell,
            trials=tuple(filter(is_left, cell.trials)),
            at_settings=tuple(at for at in cell.at_settings if is_left(at.trial)),
        )


def growth(full_plan: Plan, before: Before) -> Grow:
    """Returns which trials of a plan are due, from what is known.

    Args:
        full_plan: all seeds that cells may get.
        before: what was declared before the study.
    """
    if full_plan.space.tune is not None:
        from ablate.scheduling.tuning import with_settings

        return lambda known: with_settings(full_plan, known)
    from ablate.scheduling.until_decided import granted

    return lambda known: granted(full_plan, known, before)


def make_source(
    plan: Plan,
    full_plan: Plan | None,
    to_train: Sequence[Trial],
    stored: StoredTrials,
    reader: Reader,
    before: Before,
    count: Count | None = None,
) -> Source:
    """The source of a run's trials.

    Args:
        plan: the cells and seeds that are due now.
        full_plan: all seeds that cells may get, if the plan grows with results.
        to_train: the trials of `plan` that have no result.
        before: what was declared before the study.
        count: counts the cost of an architecture, if not this process.
    """
    space = plan.space
    if full_plan is not None:
        needs_epochs = bool(space.tune or space.criterion.compared.of)
        return Growing(
            plan=full_plan,
            begun=plan,
            grow=growth(full_plan, before),
            results=stored.ended if needs_epochs else stored.known_without_epochs,
            more=stored.add,
        )
    if space.strategy is not None:
        search = make_search(space, reader, stored.known, count)
        return Searched(search, stored.add)
    if space.scheduler.name == "fifo":
        return Planned(tuple(to_train))
    # A scheduler compares each trial with those before it. Neighbours of a grid, one
    # after the other, would mislead it; hashes shuffle them, always in the same way.
    return Planned(tuple(sorted(to_train, key=lambda trial: trial.hash)))


def make_search(
    space: Space,
    reader: Reader | None,
    results: Callable[[Iterable[str]], dict[str, Known]],
    count: Count | None = None,
) -> Search:
    """The search of a space, continued from the stored cells of its study.

    If the study was a design when it was last run, only cells with a result are
    taken over.
    """
    from ablate.scheduling.search import Search
    from ablate.scheduling.stored_space import was_search

    if reader is None:
        return Search(space, CostCache({}, count), results)
    chosen = reader.studies.proposed(
        space.name, only_known=not was_search(space.name, reader)
    )
    costs = CostCache(reader.costs.counted(COST_REVISION), count)
    return Search(space, costs, results, chosen)
