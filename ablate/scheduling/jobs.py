"""What the executor of a run gets: its jobs, and what they may use."""

from __future__ import annotations

from collections.abc import Callable

from ablate.budget import BudgetMeter
from ablate.machine.filesystems import make_private
from ablate.own import registry
from ablate.parts import checkout_of
from ablate.records import (
    Diagnostics,
    EarlyStop,
    Job,
    Order,
    Plan,
    Status,
    Trial,
)
from ablate.scheduling.options import Options
from ablate.scheduling.policy import Policy
from ablate.scheduling.preview import Preview
from ablate.scheduling.queue import Queue, Source
from ablate.store.session import StoreSession


def make_queue(
    preview: Preview,
    source: Source,
    options: Options,
    store: StoreSession,
    meter: BudgetMeter,
    follow: Callable[[Trial], None],
) -> Queue:
    """The queue that leases each trial of the source before it hands it out as a job.

    Args:
        follow: receives each trial that is handed out.
    """
    declared = preview.plan.space
    policy = Policy.of(declared)
    folder = options.checkpoints_of(store.writer.store_id)
    make_private(folder)
    logs = options.logs_of(store.writer.store_id)
    # `register` has reset the trials that failed in an earlier run to planned. A trial
    # that is failed now has failed since, and this run does not train it again.
    # Only a shared store looks at this; on SQLite every claim is granted, and the
    # source alone decides what is trained.
    not_again = (*policy.results, Status.FAILED)
    grows = declared.strategy is not None or preview.full_plan is not None

    # A confirmation is trained to its end, whatever the scheduler of the search is.
    confirming = declared.confirmation_seeds

    # A search may drop its row 0 like any other cell; the verdicts of a design need it.
    reference = set[str]()
    if declared.strategy is None:
        reference = {
            trial.hash for trial in (preview.full_plan or preview.plan).cells[0].trials
        }

    # Some rows would be left with fewer settings if all were compared with each other.
    groups = _groups(preview.full_plan or preview.plan)

    def early_stop(trial: Trial) -> EarlyStop:
        if declared.tune is not None:
            return "allowed" if trial.hash in groups else "apart"
        if trial.seed in confirming:
            return "apart"
        return "compared" if trial.hash in reference else "allowed"

    def diagnostics_of(trial: Trial) -> Diagnostics:
        if trial.hash in groups:
            # It only chooses a setting.
            return Diagnostics()
        return declared.diagnostics

    def job(trial: Trial) -> Job:
        follow(trial)
        stored = preview.known
        if grows or store.writer.shared:
            # The preview did not see what was added or trained since.
            stored = store.reader.trials.known([trial.hash])
        history = stored[trial.hash].epochs if trial.hash in stored else ()
        return Job(
            trial=trial,
            checkpoints=folder,
            log=str(logs / f"{trial.hash}.txt"),
            resources=declared.resources,
            history=history,
            diagnostics=diagnostics_of(trial),
            beginnings=store.reader.trials.beginnings(trial),
            keep=declared.keep,
            sources=registry.sources(),
            early_stop=early_stop(trial),
            group=groups.get(trial.hash, ""),
            checkout=checkout_of(trial, options.commits),
        )

    return Queue(source, lambda key: store.writer.claim(key, not_again), job, meter)


def _groups(plan: Plan) -> dict[str, str]:
    """The row of each trial that chooses a setting."""
    return {
        at.trial.hash: f"row {cell.index}"
        for cell in plan.cells
        for at in cell.at_settings
        if at.stage == "tuning"
    }


def make_order(preview: Preview, options: Options, jobs: Queue) -> Order:
    """What the executor gets: the jobs, what they may use, and for a scheduler the
    epochs of earlier trials that it compares them with (`peers`).
    """
    declared = preview.plan.space
    # A trial to train brings its epochs with its own job.
    no_peers = {trial.hash for trial in preview.to_train}
    # Confirmations follow the search, so no trial of it is compared with them.
    confirming = declared.confirmation_seeds
    no_peers.update(
        trial.hash for trial in preview.plan.trials if trial.seed in confirming
    )
    groups = _groups(preview.full_plan or preview.plan)
    if declared.tune is not None:
        no_peers.update(preview.known.keys() - groups.keys())
    # `recipe.epochs` may be a factor; a scheduler needs the longest training.
    epochs = [declared.recipe.epochs, *declared.factors.levels.get("recipe.epochs", ())]
    return Order(
        jobs=jobs,
        metric=declared.criterion.measured,
        direction=declared.criterion.direction,
        resources=declared.resources,
        epochs=max(int(number) for number in epochs),
        scheduler=declared.scheduler,
        cpus=options.cpus,
        gpus=options.gpus,
        peers={
            key: known.epochs
            for key, known in preview.known.items()
            if known.epochs and key not in no_peers
        },
        groups=groups,
    )
