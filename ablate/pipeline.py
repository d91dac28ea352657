"""Connects the stages: space, plan, trial, execution, store, report.

Whoever reads this file has read the system.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ablate import execution, provenance, queue, space
from ablate.errors import (
    MOST_CHARACTERS,
    AblateError,
    ExecutorError,
    Infeasible,
    StoreError,
    UnknownName,
    first,
    shortened,
    unknown,
)
from ablate.filesystems import remove_checkpoint
from ablate.records import (
    COST_REVISION,
    KNOWN,
    Architecture,
    Cell,
    Cost,
    Ended,
    Event,
    Job,
    Known,
    Order,
    Plan,
    Space,
    Status,
    Trial,
)
from ablate.store.catalogue import StudyStatus
from ablate.store.database import exists
from ablate.store.reader import Reader

if TYPE_CHECKING:
    from ablate.plan.search import Search
    from ablate.store.writer import Writer

Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Options:
    """Where results are kept and how trials run.

    Attributes:
        runs: folder of checkpoints, and of the store unless `store` names another.
        store: database URL or SQLite file.
        executor: ray or inline.
        cpus, gpus: how much of this machine may be used; by default all of it.
        ray_address: a running Ray cluster to join (HOST:PORT, or auto); by default Ray
            starts on this machine.
        checkpoints: folder, or URL of fsspec, that all nodes share; by default
            `runs`/checkpoints.
        log: to which services epochs are told while trials run: tensorboard, mlflow,
            wandb.

    Raises:
        ExecutorError: options that exclude each other.
        UnknownName: no such service.
    """

    runs: Path = Path("runs")
    store: str = ""
    executor: str = "ray"
    cpus: int | None = None
    gpus: int | None = None
    ray_address: str = ""
    checkpoints: str = ""
    log: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.log:
            if name not in execution.SERVICES:
                raise UnknownName(unknown("service", name, tuple(execution.SERVICES)))
        if self.log and self.executor != "ray":
            raise ExecutorError(
                f"--log {self.log[0]} goes with --executor ray, not with"
                f" {self.executor}"
            )
        if not self.ray_address:
            return
        if self.executor != "ray":
            raise ExecutorError(
                f"--ray-address {self.ray_address} goes with --executor ray, not with"
                f" {self.executor}"
            )
        if self.cpus is not None or self.gpus is not None:
            raise ExecutorError(
                "--cpus and --gpus are for this machine; with --ray-address"
                f" {self.ray_address} the cluster's nodes say what they have (ray start"
                " --num-cpus, --num-gpus), and the space what a trial needs"
                " (resources)"
            )

    @property
    def url(self) -> str:
        return self.store or str(self.runs / "ablate.db")

    def checkpoints_of(self, store_id: str) -> str:
        """Where the checkpoints of a store's trials are: a URL, or a folder that is the
        same from every working directory.
        """
        return f"{self.checkpoints_root}/{store_id}"

    @property
    def checkpoints_root(self) -> str:
        """Where the checkpoints of all stores are: a URL, or an absolute folder."""
        root = self.checkpoints or str(self.runs / "checkpoints")
        if "://" in root:
            return root.rstrip("/")
        return str(Path(root).resolve())


@dataclass(frozen=True)
class Preview:
    """A plan, what is known of its trials, and how long the rest would take in seconds
    (None: nobody can say).

    Of a search it is what has been proposed so far; `more` cells are to come (None: as
    many as there are). Where seeds are added until something is decided, it has those
    that are due by now, and `whole` all that there may be.
    """

    plan: Plan
    known: dict[str, Known]
    to_train: tuple[Trial, ...]
    seconds: float | None
    more: int | None = 0
    whole: Plan | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    `undiagnosed` counts trials that were known before, in which nobody has looked yet,
    though the space asks for it.
    """

    study: str
    trials: int
    known_before: int
    trained: int
    failed: int
    unfinished: int
    interrupted: bool
    undiagnosed: int = 0


@dataclass
class Hooks:
    """What the caller wants to hear of while a study runs, and how it asks to stop."""

    planned: Callable[[Preview], None] = lambda preview: None
    proposed: Callable[[list[Cell]], None] = lambda cells: (
        None
    )  # with the trials that are to be trained
    event: Listener = lambda event: None
    stop: Callable[[], bool] = lambda: False


class Costs:
    """Cost by architecture: from the store where it is known, else counted, once."""

    def __init__(self, known: dict[str, Cost]) -> None:
        self._known, self._refused = known, dict[str, str]()

    def __call__(self, architecture: Architecture) -> Cost:
        key = architecture.hash
        if key in self._refused:
            raise Infeasible(self._refused[key])
        if key not in self._known:
            from ablate.cost import count

            try:
                self._known[key] = count(architecture)
            except Infeasible as error:
                self._refused[key] = str(error)
                raise
            except (MemoryError, RuntimeError) as error:
                if "memory" not in str(error).lower():
                    raise
                self._refused[key] = "it does not fit into this machine's memory"
                raise Infeasible(self._refused[key]) from error
        return self._known[key]


def preview(
    declared: Space, url: str, options: Options | None = None, *, probe: bool = True
) -> Preview:
    """What running a space would do.

    Reads the store if there is one; `probe` times a few steps where it holds no times.
    """
    found, more = _plan(declared, url)
    known, whole = _known(url, found), None
    if declared.looks:
        from ablate.rounds import granted

        whole, again = found, _again(declared)
        found, _ = granted(
            found, {key: one for key, one in known.items() if one.status not in again}
        )
    to_train = tuple(
        trial
        for trial in found.trials
        if trial.hash not in known or known[trial.hash].status not in _results(declared)
    )
    return Preview(
        plan=found,
        known=known,
        to_train=to_train,
        seconds=_estimate(found, to_train, url, options or Options(), probe),
        more=more,
        whole=whole,
    )


def run(
    declared: Space,
    file: str,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
) -> Outcome:
    """Trains whatever of a space is not known yet, and stores it.

    The same space again trains nothing; a new level or seed trains what is new; after
    any kill, it goes on where it was. Several drivers may do so at once where the store
    is shared by them.

    Raises:
        AblateError: the store, the data or the executor cannot do it; nothing is lost.
    """
    from ablate.store.writer import Writer

    hooks = hooks or Hooks()
    with ExitStack() as opened:
        logs = execution.Logs(
            options.log, options.runs, declared.name, _naming(declared)
        )
        # A new store is made when the plan stands: what is refused leaves nothing
        # behind.
        if exists(options.url):
            writer = opened.enter_context(Writer(options.url))
        else:
            writer = None
        work = executor or execution.make(options.executor, options.ray_address, logs)
        try:
            if writer is None or not _seems_done(declared, options.url):
                work.prepare(options.cpus, options.gpus)
            shown = preview(declared, options.url, options, probe=False)
            if writer is None:
                writer = opened.enter_context(Writer(options.url))
                if _holds_studies(options.url):
                    # Another driver made the store meanwhile.
                    shown = preview(declared, options.url, options, probe=False)
            hooks.planned(shown)
            with Reader(options.url) as reader:
                # What a search has proposed may be more than this driver knows of; rows
                # of a design are none of it.
                whole = shown.more == 0 or not _was_search(declared, reader)
            study = writer.register(
                shown.plan, file, COST_REVISION, _again(declared), whole=whole
            )
            tally = _Tally(writer.write, hooks.event)
            if declared.keep == "none":
                folder = options.checkpoints_of(writer.store_id)
                tally.completed = lambda key: remove_checkpoint(f"{folder}/{key}")
            if shown.to_train or shown.more != 0:
                _try_out(options.checkpoints)
                writer.begin(study, declared.document, provenance.collect())
                with Reader(options.url) as reader:
                    source = _source(shown, study, writer, reader, hooks)
                    jobs = _queue(shown, options, writer, reader, source)
                    tally.returned = jobs.returned
                    work.run(_order(shown, options, jobs), tally.emit, hooks.stop)
                    finished = source.finished
                    if finished and isinstance(source, queue.Searched):
                        writer.trim(study, source.cells)
            else:
                finished = True
        finally:
            work.close()
        outcome = _outcome(declared, options.url, tally, finished)
        if not outcome.interrupted and not outcome.failed:
            writer.finish(study)
    return outcome


def _holds_studies(url: str) -> bool:
    with Reader(url) as reader:
        return bool(reader.studies())


def _naming(declared: Space) -> tuple[str, ...]:
    """The factors whose levels name a trial's run elsewhere: a control is told from the
    baseline by its width.
    """
    return (
        *declared.factors,
        *(
            ["size.width"]
            if declared.control and "size.width" not in declared.factors
            else []
        ),
    )


def _try_out(checkpoints: str) -> None:
    if "://" in checkpoints:
        from ablate.training.storage import try_out

        try_out(checkpoints)


def _results(declared: Space) -> tuple[Status, ...]:
    """States that count as a result.

    A trial that another study's scheduler stopped has one only where trials are stopped
    too.
    """
    if declared.scheduler.name != "fifo":
        return (*KNOWN, Status.PRUNED)
    return KNOWN


def _again(declared: Space) -> tuple[Status, ...]:
    """States of trials that are to be trained again, or on."""
    return tuple(
        status
        for status in (Status.FAILED, Status.PRUNED)
        if status not in _results(declared)
    )


def _source(
    shown: Preview, study: int, writer: Writer, reader: Reader, hooks: Hooks
) -> queue.Source:
    """Where the trials come from: the plan, or a search that goes on from what is
    stored of it.
    """
    declared = shown.plan.space
    if (
        declared.strategy is None
        and declared.scheduler.name == "fifo"
        and shown.whole is None
    ):
        return queue.Planned(shown.to_train)
    if declared.strategy is None and shown.whole is None:
        # A scheduler compares each trial with those before it: neighbours of a grid,
        # one after the other, would mislead it.
        return queue.Planned(
            tuple(sorted(shown.to_train, key=lambda trial: trial.hash))
        )
    registered = {trial.hash for trial in shown.plan.trials}
    again = _again(declared)

    def results(hashes: Iterable[str], with_epochs: bool = True) -> dict[str, Known]:
        # Before a cell is registered, its trials may stand there as failed in some
        # other study; afterwards that is news. One that another study's scheduler
        # stopped is to be trained on.
        known = reader.known(hashes, with_epochs=with_epochs).items()
        return {
            key: found
            for key, found in known
            if found.status not in again
            or (found.status == Status.FAILED and key in registered)
        }

    def proposed(changed: list[Cell]) -> None:
        writer.extend(study, changed, COST_REVISION, again, registered)
        hashes = [trial.hash for cell in changed for trial in cell.trials]
        registered.update(hashes)
        done = {
            key
            for key, known in results(hashes).items()
            if known.status in _results(declared)
        }
        hooks.proposed(
            [
                replace(
                    c,
                    trials=tuple(trial for trial in c.trials if trial.hash not in done),
                )
                for c in changed
            ]
        )

    if shown.whole is not None:
        from ablate.rounds import UntilDecided

        return UntilDecided(
            shown.whole, shown.plan, partial(results, with_epochs=False), proposed
        )
    return queue.Searched(_search(declared, reader, results), proposed)


def _search(
    declared: Space,
    reader: Reader | None,
    results: Callable[[Iterable[str]], dict[str, Known]],
) -> Search:
    """The search of a space, with what was proposed of it before; of a study that was a
    design, with what is known of it.
    """
    from ablate.plan.search import Search

    if reader is None:
        return Search(declared, Costs({}), results)
    chosen = reader.proposed(
        declared.name, only_known=not _was_search(declared, reader)
    )
    return Search(declared, Costs(reader.costs(COST_REVISION)), results, chosen)


def _was_search(declared: Space, reader: Reader) -> bool:
    """Whether the study was a search when it was last run."""
    stored = (study for study in reader.studies() if study.name == declared.name)
    return any(
        space.load(study.document, study.file, stored=True).strategy is not None
        for study in stored
    )


def _outcome(declared: Space, url: str, tally: _Tally, finished: bool) -> Outcome:
    """What a run came to, by what is stored of its study."""
    with Reader(url) as reader:
        states = reader.study(declared.name).states
        if declared.diagnostics.names:
            looked = reader.undiagnosed(declared.name, declared.diagnostics.names)
        else:
            looked = 0
    total = sum(states.values())
    failed = states.get(Status.FAILED, 0)
    unfinished = states.get(Status.PLANNED, 0) + states.get(Status.RUNNING, 0)
    trained = sum(
        status not in (Status.FAILED, Status.RUNNING) for status in tally.ended.values()
    )
    known = total - failed - unfinished - trained
    return Outcome(
        study=declared.name,
        trials=total,
        known_before=known,
        trained=trained,
        failed=failed,
        unfinished=unfinished,
        interrupted=not finished or unfinished > 0,
        undiagnosed=looked,
    )


def resume(
    study: str | None,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
) -> Outcome:
    """Finishes what was not finished of a study, by default of the one last worked on,
    from its stored declaration.

    Raises:
        UnknownName: the store has no such study.
        StoreError: there is nothing to resume.
    """
    with Reader(options.url) as reader:
        if study:
            found = reader.study(study)
        else:
            found = _last_unfinished(reader.studies())
    return run(
        space.load(found.document, found.file), found.file, options, hooks, executor
    )


def _last_unfinished(studies: list[StudyStatus]) -> StudyStatus:
    if not studies:
        raise StoreError("the store holds no study yet; `ablate run FILE` makes one")
    return next(
        (
            study
            for study in reversed(studies)
            if study.unfinished or not study.finished
        ),
        studies[-1],
    )


def cost_plan(declared: Space, url: str) -> Plan:
    """The plan of a space with the cost of each cell; cells may all be infeasible.

    Needs neither data nor a store.
    """
    return _proposals(declared, url)[0]


def _proposals(declared: Space, url: str) -> tuple[Plan, int | None]:
    """All cells of a design, or those that a search has proposed, and how many are to
    come.
    """
    from ablate.plan import make_plan

    with Reader(url) if exists(url) else nullcontext() as reader:
        if declared.strategy is None:
            return (
                make_plan(
                    declared, Costs(reader.costs(COST_REVISION) if reader else {})
                ),
                0,
            )
        again = _again(declared)

        def results(hashes: Iterable[str]) -> dict[str, Known]:
            known = reader.known(hashes) if reader else {}
            return {
                key: found for key, found in known.items() if found.status not in again
            }

        search = _search(declared, reader, results)
        search.advance()
        return search.plan, search.more


def _plan(declared: Space, url: str) -> tuple[Plan, int | None]:
    made, more = _proposals(declared, url)
    if not made.trials and not more:
        reasons = "\n".join(
            first(
                [
                    f"  row {cell.index}: {shortened(cell.note, MOST_CHARACTERS)}"
                    for cell in made.cells
                ],
                "rows",
            )
        )
        raise AblateError(f"no cell of {declared.name} can be trained:\n{reasons}")
    return made, more


def _known(url: str, found: Plan) -> dict[str, Known]:
    if not exists(url):
        return {}
    with Reader(url) as reader:
        return reader.known([trial.hash for trial in found.trials])


def _seems_done(declared: Space, url: str) -> bool:
    """Whether this very document was run to its end, so that starting workers would
    most likely be for nothing.
    """
    with Reader(url) as reader:
        return any(
            study.name == declared.name
            and study.document == declared.document
            and not study.unfinished
            and study.finished
            for study in reader.studies()
        )


def _queue(
    shown: Preview,
    options: Options,
    writer: Writer,
    reader: Reader,
    source: queue.Source,
) -> queue.Queue:
    declared = shown.plan.space
    folder = options.checkpoints_of(writer.store_id)
    if "://" not in folder.removeprefix("file://"):
        Path(folder.removeprefix("file://")).mkdir(
            mode=0o700, parents=True, exist_ok=True
        )
    # What failed in an earlier run was planned again when the study was registered:
    # what fails now, failed.
    results = (*_results(declared), Status.FAILED)

    def job(trial: Trial) -> Job:
        changing = (
            declared.strategy is not None or shown.whole is not None or writer.shared
        )
        known = (reader.known([trial.hash]) if changing else shown.known).get(
            trial.hash
        )
        history = known.epochs if known else ()
        return Job(
            trial=trial,
            checkpoints=folder,
            resources=declared.resources,
            history=history,
            diagnostics=declared.diagnostics,
            beginnings=reader.beginnings(trial),
            keep=declared.keep,
        )

    return queue.Queue(source, lambda key: writer.claim(key, results), job)


def _order(shown: Preview, options: Options, jobs: queue.Queue) -> Order:
    declared = shown.plan.space
    mine = {trial.hash for trial in shown.to_train}
    epochs = [declared.recipe.epochs, *declared.factors.get("recipe.epochs", ())]
    return Order(
        jobs=jobs,
        metric=declared.metric,
        direction=declared.direction,
        resources=declared.resources,
        epochs=max(int(number) for number in epochs),
        scheduler=declared.scheduler,
        cpus=options.cpus,
        gpus=options.gpus,
        peers={
            key: known.epochs
            for key, known in shown.known.items()
            if known.epochs and key not in mine
        },
    )


def _estimate(
    found: Plan, to_train: tuple[Trial, ...], url: str, options: Options, probe: bool
) -> float | None:
    """Seconds that training would take: from epochs that the store has of these data,
    else from a few timed steps.
    """
    if not to_train:
        return 0.0
    declared = found.space
    costs = {
        cell.architecture.hash: cell.cost
        for cell in found.cells
        if cell.architecture and cell.cost
    }
    per_flop = None
    if exists(url):
        with Reader(url) as reader:
            per_flop = reader.seconds_per_flop_epoch(to_train[0].data.canonical())
    if (
        per_flop is None
        and probe
        and declared.data.images
        and not declared.resources.gpus
    ):
        from ablate.training.probe import seconds_per_image

        first = to_train[0]
        per_image = seconds_per_image(
            first.architecture,
            first.recipe.batch_size,
            threads=max(1, int(declared.resources.cpus)),
        )
        per_flop = (
            per_image * declared.data.images / costs[first.architecture.hash].flops
        )
    if per_flop is None:
        return None
    slots = max(1, int((options.cpus or os.cpu_count() or 1) / declared.resources.cpus))
    total = sum(
        per_flop * costs[trial.architecture.hash].flops * trial.recipe.epochs
        for trial in to_train
    )
    return total / min(slots, len(to_train))


@dataclass
class _Tally:
    """Stores each event, then passes it on; remembers how trials ended.

    Executors may call from any thread.
    """

    write: Callable[[Event], bool]
    listener: Listener
    ended: dict[str, Status] = field(default_factory=dict)
    returned: Callable[[str], None] = lambda key: None
    completed: Callable[[str], None] = lambda key: (
        None
    )  # once its result is in the store
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def emit(self, event: Event) -> None:
        with self._lock:
            if not self.write(event):
                # Another driver has taken the trial over, because this one was not
                # heard of for too long.
                self.returned(event.trial)
                return
            if isinstance(event, Ended):
                self.ended[event.trial] = event.status
                if event.status == Status.RUNNING:
                    self.returned(event.trial)
                if event.status == Status.COMPLETED:
                    self.completed(event.trial)
            self.listener(event)
