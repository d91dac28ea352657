"""Connects the stages: space, plan, trial, execution, store, report.

Read `run` first: it is the table of contents of the whole system.

    _preview_and_create   space -> plan; what the store knows of its trials; what is left
                          to train
    _register             the plan goes into the store
    _train                a source hands out trials, a queue leases them, an executor
                          trains them, and every event is stored before the hooks receive
                          it
    _outcome              read back from the store

`preview` does the first step only, for `ablate plan`.

At any time, the store alone decides which trials have a result. If a run is killed at
any line, the next run begins at the top, finds the results in the store, and trains the
rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ablate import execution
from ablate.budget import BudgetMeter
from ablate.errors import StoreError
from ablate.machine import provenance
from ablate.machine.filesystems import remove_checkpoint
from ablate.own import registry
from ablate.records import (
    COST_REVISION,
    WITH_RESULT,
    Cell,
    EarlyStop,
    Ended,
    Event,
    Job,
    Order,
    Plan,
    Space,
    Status,
    Trial,
)
from ablate.scheduling.cost_cache import Count
from ablate.scheduling.first_failures import FirstFailures
from ablate.scheduling.options import Options
from ablate.scheduling.policy import Policy
from ablate.scheduling.preview import Preview, make_preview, propose
from ablate.scheduling.queue import Queue, Searched, Source
from ablate.scheduling.sources import StoredTrials, make_source
from ablate.scheduling.stored_space import (
    validated_space,
    was_search,
    with_last_until_decided,
)
from ablate.store.catalogue import StudyStatus
from ablate.store.database import exists
from ablate.store.reader import Reader
from ablate.store.session import StoreSession

__all__ = [
    "Hooks",
    "Options",
    "Outcome",
    "Preview",
    "cost_plan",
    "preview",
    "resume",
    "run",
]


@dataclass(frozen=True)
class Outcome:
    """The result of a run, in numbers of trials.

    Attributes:
        trials: all trials of the study.
        known_before: trials that had a result before the run, or that another driver
            trained during the run.
        trained: trials that this run completed, pruned, or found to diverge.
        unfinished: trials that are planned or running.
        interrupted: whether trials or proposals are left for another run.
        undiagnosed: completed trials that still lack the requested diagnostics.
        exhausted: the limit of the budget that ended the run, as `--max-trials 20`.
        gave_up: the error in which all of the first trials ended, so that the run
            stopped; empty if it did not.
    """

    study: str
    trials: int
    known_before: int
    trained: int
    failed: int
    unfinished: int
    interrupted: bool
    undiagnosed: int = 0
    exhausted: str = ""
    gave_up: str = ""


@dataclass
class Hooks:
    """What the caller hears while a study runs, and how it asks the run to stop.

    Attributes:
        planned: receives the preview before training begins.
        proposed: receives new cells, and cells that get more seeds, each with the
            trials that are left to train.
        event: receives every event after it is stored.
        stop: returns True if the run is to stop.
    """

    planned: Callable[[Preview], None] = lambda preview: None
    proposed: Callable[[list[Cell]], None] = lambda cells: None
    event: Callable[[Event], None] = lambda event: None
    stop: Callable[[], bool] = lambda: False


def preview(
    declared: Space, url: str, options: Options | None = None, *, probe: bool = True
) -> Preview:
    """What a run of a space would do. Trains no trial and stores nothing.

    Args:
        url: the store; it need not exist.
        probe: time a few training steps if the store holds no times.
    """
    with Reader(url) if exists(url) else nullcontext() as reader:
        if reader is not None:
            declared = with_last_until_decided(declared, reader)
        return make_preview(declared, reader, options or Options(), probe=probe)


def cost_plan(declared: Space, url: str) -> Plan:
    """The plan of a space with the cost of each cell.

    Unlike `preview`, it accepts a space whose cells are all infeasible. It needs
    neither data nor a store.
    """
    with Reader(url) if exists(url) else nullcontext() as reader:
        plan, _ = propose(declared, reader)
        return plan


def run(
    declared: Space,
    file: str,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
) -> Outcome:
    """Trains the trials of a space that have no result yet, and stores their results.

    Running the same space again trains nothing. With a new level or seed, it trains
    what is new. After a kill, it goes on where it was. Several drivers may run one
    study at once if their store is a server.

    Args:
        file: the name of the space's file, which `resume` and reports show.
        executor: what trains the trials; by default the one that `options` name.

    Raises:
        AblateError: the store, the data or the executor cannot do it. No stored result
            is lost.
    """
    hooks = hooks or Hooks()
    with StoreSession(options.url) as store:
        if store.exists:
            declared = with_last_until_decided(declared, store.reader)
        # This also closes an executor that the caller has passed.
        with closing(executor or _make_executor(declared, options)) as chosen:
            # Ray starts in the background while the costs of the plan are counted.
            if not _seems_finished(declared, store):
                chosen.prepare(
                    options.cpus, options.gpus, declared.resources, declared.data
                )
            preview = _preview_and_create(declared, options, store, chosen.count)
            hooks.planned(preview)
            study_id = _register(preview, file, store)
            recorder = _Recorder(
                store,
                hooks,
                _checkpoint_remover(declared, options, store),
                _meter(declared, options, store),
                FirstFailures(
                    is_first=not any(
                        trial.status in WITH_RESULT for trial in preview.known.values()
                    )
                ),
            )
            # Whether all trials have been handed out, and all cells proposed.
            all_handed_out = True
            if preview.has_work:
                all_handed_out = _train(
                    preview, study_id, options, store, chosen, hooks, recorder
                )
        outcome = _outcome(
            declared, store.reader, recorder, all_handed_out=all_handed_out
        )
        # `register` has cleared `finished_at`, which an earlier run may have set. Failed
        # trials are left to the next run, but a search has proposed all of its cells.
        if not outcome.interrupted:
            store.writer.finish(study_id)
    return outcome


def resume(
    study: str | None,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
) -> Outcome:
    """Finishes a study from its stored YAML text.

    Args:
        study: its name; by default the last study that is not finished, or the last
            one if all are finished.

    Raises:
        UnknownName: the store has no such study.
        StoreError: there is no store, or it has no study.
    """
    with Reader(options.url) as reader:
        if study:
            status = reader.study(study)
        else:
            status = _last_unfinished(reader.studies())
    declared = validated_space(status)
    return run(declared, status.file, options, hooks, executor)


def _last_unfinished(studies: list[StudyStatus]) -> StudyStatus:
    if not studies:
        raise StoreError("the store holds no study yet; `ablate run FILE` makes one")
    for study in reversed(studies):
        # All trials of a search may have results while cells are still to be
        # proposed.
        if study.unfinished or not study.finished:
            return study
    return studies[-1]


def _make_executor(declared: Space, options: Options) -> execution.Executor:
    # The level of each factor names a trial's run in a logging service. A control
    # differs from the baseline in its width.
    names = list(declared.factors.levels)
    if declared.control and "size.width" not in names:
        names.append("size.width")
    logs = execution.Logs(options.log, options.runs, declared.name, tuple(names))
    return execution.make(options.executor, options.ray_address, logs)


def _meter(declared: Space, options: Options, store: StoreSession) -> BudgetMeter:
    """A meter that knows what earlier runs of the study have used."""
    if not options.budget.is_limited:
        return BudgetMeter(options.budget)
    return BudgetMeter(
        budget=options.budget,
        before=store.reader.used(declared.name),
        devices=declared.resources.devices,
    )


def _seems_finished(declared: Space, store: StoreSession) -> bool:
    """Whether the last run of this document finished, so no workers start early.

    This is a guess, made before the plan. If there is work after all, `executor.run`
    starts the workers.
    """
    if not store.exists:
        return False
    # `study.unfinished` counts failed trials too, which a run trains again.
    return any(
        study.name == declared.name
        and study.document == declared.document
        and study.space is not None
        # `--until-decided` changes the looks, but not the document.
        and study.space.seeds.looks == declared.seeds.looks
        and not study.unfinished
        and study.finished
        for study in store.reader.studies()
    )


def _preview_and_create(
    declared: Space, options: Options, store: StoreSession, count: Count
) -> Preview:
    """The preview. Creates the store afterwards if there is none.

    A space that is refused thus leaves nothing behind.
    """
    preview = make_preview(
        declared, store.reader_if_any, options, probe=False, count=count
    )
    if not store.exists:
        _try_out(options.checkpoints)
    if not store.exists and store.create():
        # `create` is true if another driver has stored studies meanwhile. The
        # preview is then out of date.
        preview = make_preview(
            declared, store.reader, options, probe=False, count=count
        )
    return preview


def _register(preview: Preview, file: str, store: StoreSession) -> int:
    """Stores the study with its cells and trials. Returns its number."""
    declared = preview.plan.space
    # Whether stored cells that the plan lacks are left over from an earlier
    # declaration. While a search goes on they may not be: another driver may have
    # stored them.
    drop_others = preview.more_cells == 0 or not was_search(declared.name, store.reader)
    return store.writer.register(
        preview.plan,
        file,
        COST_REVISION,
        Policy.of(declared).again,
        drop_others=drop_others,
        full=preview.full_plan,
    )


def _train(
    preview: Preview,
    study_id: int,
    options: Options,
    store: StoreSession,
    executor: execution.Executor,
    hooks: Hooks,
    recorder: _Recorder,
) -> bool:
    """Trains until the source has no more trials, or until the user stops the run.

    Returns:
        whether the source has handed out all of its trials. Some may still lack a
        result; `_outcome` counts them as unfinished.
    """
    declared = preview.plan.space
    policy = Policy.of(declared)
    _try_out(options.checkpoints)
    store.writer.begin(study_id, declared.document, provenance.collect())
    stored = StoredTrials(
        study=study_id,
        policy=policy,
        reader=store.reader,
        writer=store.writer,
        trials=preview.plan.trials,
        announce=hooks.proposed,
        searched=declared if declared.strategy is not None else None,
    )
    source = make_source(
        preview.plan,
        preview.full_plan,
        preview.to_train,
        stored,
        store.reader,
        preview.generation,
        executor.count,
    )
    jobs = _queue(preview, source, policy, options, store, recorder.meter)
    # Set only now: the recorder is made before the queue, because `_outcome` needs it
    # even if there is nothing to train.
    recorder.returned = jobs.returned
    executor.run(
        _order(preview, options, jobs),
        recorder.record,
        recorder.must_stop,
    )
    # An earlier search of this study may have stored more cells than this one.
    if source.has_ended and isinstance(source, Searched):
        store.writer.trim(study_id, source.cells)
    return source.has_ended


def _try_out(checkpoints: str) -> None:
    """Raises CheckpointError if the URL of the checkpoints cannot be written to."""
    if "://" in checkpoints:
        from ablate.training.storage import try_out

        try_out(checkpoints)


def _queue(
    preview: Preview,
    source: Source,
    policy: Policy,
    options: Options,
    store: StoreSession,
    meter: BudgetMeter,
) -> Queue:
    """The queue that leases each trial of the source before it hands it out as a job."""
    declared = preview.plan.space
    folder = options.checkpoints_of(store.writer.store_id)
    _make_private(folder)
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

    def early_stop(trial: Trial) -> EarlyStop:
        if trial.seed in confirming:
            return "apart"
        return "compared" if trial.hash in reference else "allowed"

    def job(trial: Trial) -> Job:
        known = preview.known
        if grows or store.writer.shared:
            # The preview did not see what was added or trained since.
            known = store.reader.known([trial.hash])
        history = known[trial.hash].epochs if trial.hash in known else ()
        return Job(
            trial=trial,
            checkpoints=folder,
            resources=declared.resources,
            history=history,
            diagnostics=declared.diagnostics,
            beginnings=store.reader.beginnings(trial),
            keep=declared.keep,
            sources=registry.sources(),
            early_stop=early_stop(trial),
        )

    return Queue(source, lambda key: store.writer.claim(key, not_again), job, meter)


def _make_private(folder: str) -> None:
    """Makes a local folder that only this user can read."""
    path = folder.removeprefix("file://")
    if "://" not in path:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)


def _order(preview: Preview, options: Options, jobs: Queue) -> Order:
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
    # `recipe.epochs` may be a factor; a scheduler needs the longest training.
    epochs = [declared.recipe.epochs, *declared.factors.levels.get("recipe.epochs", ())]
    return Order(
        jobs=jobs,
        metric=declared.criterion.metric,
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
    )


def _checkpoint_remover(
    declared: Space, options: Options, store: StoreSession
) -> Callable[[str], None]:
    """The function to call with the hash of a completed trial.

    It removes the trial's checkpoint if the space says `keep: none`, and otherwise
    does nothing.
    """
    if declared.keep != "none":
        return lambda key: None
    folder = options.checkpoints_of(store.writer.store_id)
    return lambda key: remove_checkpoint(f"{folder}/{key}")


def _outcome(
    declared: Space, reader: Reader, recorder: _Recorder, *, all_handed_out: bool
) -> Outcome:
    """The outcome of a run, counted by the stored status of its trials."""
    states = reader.study(declared.name).by_status
    undiagnosed = 0
    if declared.diagnostics.names:
        undiagnosed = reader.undiagnosed(declared.name, declared.diagnostics.names)
    total = sum(states.values())
    failed = states.get(Status.FAILED, 0)
    unfinished = states.get(Status.PLANNED, 0) + states.get(Status.RUNNING, 0)
    # Only trials of this run: other drivers may have trained some meanwhile.
    trained = sum(
        status in (*WITH_RESULT, Status.PRUNED) for status in recorder.ended.values()
    )
    return Outcome(
        study=declared.name,
        trials=total,
        known_before=total - failed - unfinished - trained,
        trained=trained,
        failed=failed,
        unfinished=unfinished,
        interrupted=not all_handed_out or unfinished > 0,
        undiagnosed=undiagnosed,
        exhausted=recorder.meter.exhausted,
        gave_up=recorder.failures.error,
    )


@dataclass
class _Recorder:
    """Stores each event, then passes it on. Executors may call it from any thread.

    Attributes:
        remove_checkpoint_of: receives the hash of a completed trial once its result is
            stored.
        meter: counts what the run uses of its budget.
        failures: notices that the first trials fail in the same way.
        ended: the last status of each trial that ended.
        returned: receives the hash of a trial that came back without a result.
    """

    store: StoreSession
    hooks: Hooks
    remove_checkpoint_of: Callable[[str], None]
    meter: BudgetMeter
    failures: FirstFailures
    ended: dict[str, Status] = field(default_factory=dict)
    returned: Callable[[str], None] = lambda key: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def must_stop(self) -> bool:
        """Whether the run is to end before all trials are trained."""
        return self.hooks.stop() or self.meter.must_stop or bool(self.failures.error)

    def record(self, event: Event) -> None:
        with self._lock:
            if not self.store.writer.write(event):
                # The lease ran out, and another driver has taken the trial over.
                self.returned(event.trial)
                return
            self.meter.count(event)
            self.failures.count(event)
            if isinstance(event, Ended):
                self._end(event)
            # Under the lock, so that a hook receives one event at a time.
            self.hooks.event(event)

    def _end(self, event: Ended) -> None:
        self.ended[event.trial] = event.status
        # The attempt was interrupted, or another process still trains the trial.
        if event.status == Status.RUNNING:
            self.returned(event.trial)
        if event.status == Status.COMPLETED:
            self.remove_checkpoint_of(event.trial)
