"""What a run of a space would do: its plan, what is known of it, and how long it takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.data import presence
from ablate.errors import MOST_CHARACTERS, AblateError, first, shortened
from ablate.machine import provenance
from ablate.machine.cpus import usable_cpus
from ablate.own import registry
from ablate.records import (
    COST_REVISION,
    Architecture,
    Before,
    Cell,
    Cost,
    Known,
    Plan,
    Primary,
    Resources,
    Space,
    Status,
    Trial,
)
from ablate.records.primary import primary_is_elsewhere, primary_rows
from ablate.scheduling.cost_cache import CostCache, Count, revision
from ablate.scheduling.options import Options
from ablate.scheduling.policy import Policy
from ablate.scheduling.sources import growth, make_search
from ablate.store.reader import Reader
from ablate.text.advice import option

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Preview:
    """A plan, and what a run would do with it.

    Attributes:
        plan: all cells of a design, or the cells that a search has proposed so far. If
            seeds are added until the study is decided, the seeds that are due now.
        known: status and epochs by trial, for those that the store has.
        to_train: the trials without a result.
        not_chosen: trials without a result that the options leave out, by their hashes.
        shared: trials that an earlier size has, too, by their hashes. It trains them.
        later: the number of trials, at most, that rows get when they have chosen their
            settings.
        later_seconds: estimated time of these.
        seconds: estimated time of the training; None if unknown.
        more_cells: number of cells that a search will still propose, 0 for a design; None
            if unlimited.
        full_plan: the plan with all seeds that cells may get, if seeds are added until the
            study is decided, or if rows choose their settings; otherwise None.
        before: what was declared before, as if the study was declared now.
        is_next: whether the run makes a new generation of a stored study.
        changes: what the space changes in its study as it was last run.
    """

    plan: Plan
    known: dict[str, Known]
    to_train: tuple[Trial, ...]
    seconds: float | None
    more_cells: int | None = 0
    full_plan: Plan | None = None
    before: Before = field(default_factory=Before)
    is_next: bool = False
    changes: tuple[str, ...] = ()
    not_chosen: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    later: int = 0
    later_seconds: float | None = None

    @property
    def data_problem(self) -> str:
        """That the data of the trials to train are not on this machine, and how to get
        them; empty if they are here.
        """
        # One look for each place, not for each trial.
        places = {
            (trial.data.name, trial.data.path): trial.data for trial in self.to_train
        }
        if self.more_cells != 0:
            data = self.plan.space.data
            places.setdefault((data.name, data.path), data)
        return next(filter(None, map(presence.problem, places.values())), "")

    @property
    def known_trials(self) -> int:
        """The number of its own trials that have a result."""
        others = len(self.to_train) + len(self.not_chosen) + len(self.shared)
        return len(self.plan.trials) - others

    @property
    def has_work(self) -> bool:
        """Whether there is anything to train, now or later."""
        return bool(self.to_train) or bool(self.later) or self.more_cells != 0


def make_preview(
    space: Space,
    reader: Reader | None,
    options: Options,
    *,
    probe: bool = True,
    count: Count | None = None,
    earlier: Iterable[Plan] = (),
) -> Preview:
    """What a run would do.

    Args:
        reader: the store, if there is one.
        earlier: the plans of the sizes that are trained before.
        count: counts the cost of an architecture, if not this process.
        probe: time a few training steps if the store holds no times.

    Raises:
        AblateError: no cell of the space can be trained.
    """
    plan, more = propose(space, reader, count)
    if not plan.trials and not more:
        reasons = [
            f"  row {cell.index}: {shortened(cell.note, MOST_CHARACTERS)}"
            for cell in plan.cells
        ]
        lines = "\n".join(first(reasons, "rows"))
        raise AblateError(f"no cell of {space.name} can be trained:\n{lines}")
    _check_primary(plan)
    known = reader.trials.known(trial.hash for trial in plan.trials) if reader else {}
    policy = Policy.of(space)
    full_plan = None
    later: list[Trial] = []
    before = Before()
    is_next = False
    changes: tuple[str, ...] = ()
    if reader is not None:
        declaration = reader.studies.declaration(plan)
        before = declaration.before
        is_next = declaration.retired is not None
        changes = declaration.changes
    if space.seeds.looks or space.tune:
        full_plan = plan
        grow = growth(full_plan, before)
        accepted = {
            key: trial
            for key, trial in known.items()
            if trial.status not in policy.again
        }
        plan, _ = grow(accepted)
        added = [trial.hash for trial in plan.trials if trial.hash not in known]
        if added and reader is not None:
            known |= reader.trials.known(added)
        if space.tune:
            later = _later(full_plan, plan)
    shared = {trial.hash for other in earlier for trial in other.trials}
    shared &= {trial.hash for trial in plan.trials}
    to_train = [
        trial
        for trial in plan.trials
        if trial.hash not in shared and not policy.is_result(known.get(trial.hash))
    ]
    not_chosen = frozenset[str]()
    if options.rows or options.seeds:
        chosen = _chosen(plan, options)
        not_chosen = frozenset(trial.hash for trial in to_train) - chosen
        to_train = [trial for trial in to_train if trial.hash in chosen]
    # Trials that have failed come last: others may not fail.
    to_train.sort(key=lambda trial: _has_failed(known.get(trial.hash)))
    seconds, later_seconds = _seconds(
        plan, (to_train, later), reader, options, probe=probe
    )
    return Preview(
        plan=plan,
        known=known,
        to_train=tuple(to_train),
        seconds=seconds,
        more_cells=more,
        full_plan=full_plan,
        before=before,
        is_next=is_next,
        changes=changes,
        not_chosen=not_chosen,
        shared=frozenset(shared),
        later=len(later),
        later_seconds=later_seconds,
    )


def _later(full_plan: Plan, plan: Plan) -> list[Trial]:
    """The trials that rows get when they have chosen their settings, at most.

    The trials of the full plan stand for them: they cost as much.
    """
    later: list[Trial] = []
    for cell, now in zip(full_plan.cells, plan.cells, strict=True):
        # A row other than row 0 is also trained at the setting of row 0.
        number = len(cell.trials) - len(now.trials)
        if cell.index:
            at_row_0 = sum(at.stage == "row 0" for at in now.at_settings)
            number += len(full_plan.space.seeds.numbers) - at_row_0
        later += cell.trials[:1] * (number if cell.trials else 0)
    return later


def _chosen(plan: Plan, options: Options) -> set[str]:
    """The hashes of the trials that the options of a run choose by row and seed.

    Raises:
        AblateError: there is no such row or seed, or the study decides by itself which
            trials come next.
    """
    space = plan.space
    if space.strategy is not None or space.seeds.looks or space.tune:
        raise AblateError(
            f"{option('row')} and {option('seed')} are for a plan that is known from the"
            " beginning, not for a search, for seeds that are added until it is decided,"
            " or for rows that choose their settings (tune)"
        )
    rows = range(len(plan.cells))
    for row in options.rows:
        if row not in rows:
            raise AblateError(
                f"{option('row')} {row}: the plan has the rows 0 to {rows[-1]}"
            )
        if not _cell_of(plan, row).trials:
            raise AblateError(
                f"{option('row')} {row}: it is not trained: {plan.cells[row].note}"
            )
    seeds = {trial.seed for trial in plan.trials}
    for seed in options.seeds:
        if seed not in seeds:
            listed = ", ".join(map(str, first(sorted(seeds), "seeds")))
            raise AblateError(
                f"{option('seed')} {seed}: the seeds of the plan are {listed}"
            )
    return {
        trial.hash
        for row in options.rows or rows
        for trial in _cell_of(plan, row).trials
        if not options.seeds or trial.seed in options.seeds
    }


def _cell_of(plan: Plan, row: int) -> Cell:
    """The cell of a row, or the one that trains the same."""
    cell = plan.cells[row]
    return cell if cell.same_as is None else plan.cells[cell.same_as]


def _has_failed(known: Known | None) -> bool:
    return known is not None and known.status == Status.FAILED


def _check_primary(plan: Plan) -> None:
    """Raises AblateError if the plan lacks a row that the space names as primary."""
    primary = plan.space.criterion.primary
    rows = primary_rows(primary, plan.cells)
    missing = [
        comparison
        for comparison, row in zip(primary, rows, strict=False)
        if row is None
    ]
    if not missing or primary_is_elsewhere(primary):
        return
    numbers = [str(cell.index) for cell in plan.cells[1:] if cell.trials]
    raise AblateError(
        f"{plan.space.name}: primary: no row of the plan is"
        f" {_comparison_text(missing[0])}; name a row by all levels in which it differs"
        f" from row 0, or by its number ({', '.join(first(numbers, 'rows'))})"
    )


def _comparison_text(comparison: Primary) -> str:
    if isinstance(comparison, Mapping):
        levels = ", ".join(f"{name}: {level}" for name, level in comparison.items())
        return f"{{{levels}}}"
    return str(comparison)


def propose(
    space: Space, reader: Reader | None, count: Count | None = None
) -> tuple[Plan, int | None]:
    """All cells of a design, or those that a search has proposed so far.

    Returns:
        the plan, and the number of cells to come (None: unlimited).
    """
    registry.set_identities(reader.identities.of_files() if reader else {})
    if space.strategy is None:
        from ablate.plan import make_plan

        costs = CostCache(reader.costs.counted(COST_REVISION) if reader else {}, count)
        costs.ahead(lambda: _architectures(space))
        return make_plan(space, costs), 0
    again = Policy.of(space).again

    def results(hashes: Iterable[str]) -> dict[str, Known]:
        known = reader.trials.known(hashes) if reader else {}
        return {key: trial for key, trial in known.items() if trial.status not in again}

    search = make_search(space, reader, results, count)
    search.advance()
    return search.plan, search.more_cells


def _architectures(space: Space) -> list[Architecture]:
    """Returns the architectures of a design, as far as they follow from no cost."""
    from ablate.plan import make_plan

    found: list[Architecture] = []

    def collect(architecture: Architecture) -> Cost:
        found.append(architecture)
        return Cost(params=1, flops=1, flops_paper=1, activations=1, elementwise=1)

    # A mistake is found again when the plan is made.
    with contextlib.suppress(AblateError):
        make_plan(space, collect)
    return found


def _seconds(
    plan: Plan,
    stages: Sequence[Sequence[Trial]],
    reader: Reader | None,
    options: Options,
    *,
    probe: bool,
) -> list[float | None]:
    """The estimated time of each stage of the training in seconds; None if unknown.

    The time of an epoch is assumed to be proportional to FLOPs. The factor comes from
    stored epochs on these data, or else from a few timed steps.
    """
    to_train = [trial for stage in stages for trial in stage]
    if not to_train:
        return [0.0 for _ in stages]
    space = plan.space
    flops = {
        # A network whose FLOPs were not counted has 0; the time is then per epoch.
        cell.architecture.hash: cell.cost.flops or 1
        for cell in plan.cells
        if cell.architecture and cell.cost
    }
    for cell in plan.cells:
        for at in cell.at_settings:
            flops.setdefault(at.trial.architecture.hash, at.cost.flops or 1)
        for trial in cell.by_setting:
            if cell.cost:
                flops.setdefault(trial.architecture.hash, cell.cost.flops or 1)
    per_flop = None
    if reader is not None:
        per_flop = reader.costs.seconds_per_flop_epoch(to_train[0].data.canonical())
    if per_flop is None and probe:
        per_flop = _timed(space, to_train[0], flops)
    if per_flop is None:
        return [None for _ in stages]
    slots = trials_at_once(space.resources, options)
    times: list[float | None] = []
    for stage in stages:
        total = sum(
            per_flop * flops[trial.architecture.hash] * trial.recipe.epochs
            for trial in stage
        )
        times.append(total / max(1, min(slots, len(stage))))
    return times


def trials_at_once(resources: Resources, options: Options) -> int:
    """How many trials this machine trains at once, by its CPU cores and GPUs."""
    cpus = options.cpus or usable_cpus()
    slots = int(cpus / resources.cpus)
    if resources.gpus:
        # A share of a GPU is of one GPU.
        if resources.gpus < 1:
            by_gpus = _gpus(options) * int(1 / resources.gpus)
        else:
            by_gpus = int(_gpus(options) / resources.gpus)
        slots = min(slots, by_gpus)
    return max(1, slots)


def _gpus(options: Options) -> int:
    if options.gpus is not None:
        return options.gpus
    import torch

    return torch.cuda.device_count()


def _timed(space: Space, trial: Trial, flops: dict[str, int]) -> float | None:
    """Seconds per FLOP and epoch, from a few steps on this machine's CPU."""
    if not space.data.images or space.resources.gpus:
        return None
    from ablate.machine import cache

    architecture, batch = trial.architecture, trial.recipe.batch_size
    threads = max(1, int(space.resources.cpus))

    def measured() -> np.ndarray[Any, Any]:
        import numpy as np

        from ablate.training.probe import seconds_per_image

        return np.array(seconds_per_image(architecture, batch, threads=threads))

    key = (
        f"seconds {revision()} {provenance.cpu()} {architecture.hash} {batch} {threads}"
    )
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    # A user's code can change, and a busy machine is not always busy.
    per_image = (
        measured() if is_busy or architecture.code else cache.array(key, measured)
    )
    return float(per_image) * space.data.images / flops[architecture.hash]
