"""Connects the stages: space, plan, trial, execution, store, report. Whoever reads this file has read the system."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate import execution, provenance, report, space
from ablate.errors import AblateError, ExecutorError, Infeasible, StoreError
from ablate.records import (
    KNOWN,
    Architecture,
    Cost,
    Data,
    Diagnostics,
    Ended,
    Event,
    Job,
    Measured,
    Order,
    Plan,
    Space,
    Status,
    StudyResults,
    Trained,
    Trial,
)
from ablate.store.database import sqlite_file
from ablate.store.reader import Known, Reader, StudyStatus

if TYPE_CHECKING:
    import pandas as pd

Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Options:
    """Where results are kept and how trials run.

    Attributes:
        runs: folder of checkpoints, and of the store unless `store` names another.
        store: database URL or SQLite file.
        executor: ray or inline.
        cpus, gpus: how much of this machine may be used; by default all of it.
        ray_address: a running Ray cluster to join (HOST:PORT, or auto); by default Ray starts on this machine.
        checkpoints: folder, or URL of fsspec, that all nodes share; by default `runs`/checkpoints.

    Raises:
        ExecutorError: options that exclude each other.
    """

    runs: Path = Path("runs")
    store: str = ""
    executor: str = "ray"
    cpus: int | None = None
    gpus: int | None = None
    ray_address: str = ""
    checkpoints: str = ""

    def __post_init__(self) -> None:
        if not self.ray_address:
            return
        if self.executor != "ray":
            raise ExecutorError(f"--ray-address {self.ray_address} goes with --executor ray, not with {self.executor}")
        if self.cpus is not None or self.gpus is not None:
            raise ExecutorError(
                f"--cpus and --gpus are for this machine; with --ray-address {self.ray_address} the cluster's nodes say what "
                "they have (ray start --num-cpus, --num-gpus), and the space what a trial needs (resources)"
            )

    @property
    def url(self) -> str:
        return self.store or str(self.runs / "ablate.db")

    def checkpoints_of(self, store_id: str) -> str:
        """Where the checkpoints of a store's trials are: a URL, or a folder that is the same from every working directory."""
        root = self.checkpoints or str(self.runs / "checkpoints")
        return f"{root.rstrip('/')}/{store_id}" if "://" in root else str(Path(root, store_id).resolve())


@dataclass(frozen=True)
class Preview:
    """A plan, what is known of its trials, and how long the rest would take in seconds (None: nobody can say)."""

    plan: Plan
    known: dict[str, Known]
    to_train: tuple[Trial, ...]
    seconds: float | None


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `undiagnosed` counts trials that were known before, in which nobody has looked yet, though the space
    asks for it."""

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
    event: Listener = lambda event: None
    stop: Callable[[], bool] = lambda: False


class Costs:
    """Cost by architecture: from the store where it is known, else counted, once."""

    def __init__(self, known: dict[str, Cost]) -> None:
        self._known, self._refused = known, dict[str, str]()

    def __call__(self, architecture: Architecture) -> Cost:
        from ablate.cost import count

        key = architecture.hash
        if key in self._refused:
            raise Infeasible(self._refused[key])
        if key not in self._known:
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


def preview(declared: Space, url: str, options: Options | None = None, *, probe: bool = True) -> Preview:
    """What running a space would do. Reads the store if there is one; `probe` times a few steps where it holds no times."""
    found = _plan(declared, url)
    known = _known(url, found)
    to_train = _to_train(found, known)
    return Preview(found, known, to_train, _estimate(found, to_train, url, options or Options(), probe))


def run(
    declared: Space, file: str, options: Options, hooks: Hooks | None = None, executor: execution.Executor | None = None
) -> Outcome:
    """Trains whatever of a space is not known yet, and stores it.

    The same space again trains nothing; a new level or seed trains what is new; after any kill, it goes on where it was.

    Raises:
        AblateError: the store, the data or the executor cannot do it; nothing is lost.
    """
    from ablate.cost import REVISION
    from ablate.store.writer import Writer

    hooks = hooks or Hooks()
    with Writer(options.url) as writer:
        work = executor or execution.make(options.executor, options.ray_address)
        try:
            if not _seems_done(declared, options.url):
                work.prepare(options.cpus, options.gpus)
            shown = preview(declared, options.url, options, probe=False)
            hooks.planned(shown)
            study = writer.register(shown.plan, file, REVISION)
            unfinished = shown.to_train
            if unfinished:
                _try_out(options.checkpoints)
                writer.begin(study, declared.document, provenance.collect())
                tally = _Tally(writer.write, hooks.event)
                work.run(_order(shown, options, writer.store_id), tally.emit, hooks.stop)
                unfinished = tuple(trial for trial in unfinished if tally.ended.get(trial.hash, Status.RUNNING) == Status.RUNNING)
                failed = sum(status == Status.FAILED for status in tally.ended.values())
            else:
                failed = 0
        finally:
            work.close()
    trained = len(shown.to_train) - len(unfinished) - failed
    total = len(shown.plan.trials)
    known = total - len(shown.to_train)
    undiagnosed = _undiagnosed(declared, options.url) if known and declared.diagnostics.names else 0
    return Outcome(declared.name, total, known, trained, failed, len(unfinished), bool(unfinished), undiagnosed)


def _try_out(checkpoints: str) -> None:
    if "://" in checkpoints:
        from ablate.training.storage import try_out

        try_out(checkpoints)


def _undiagnosed(declared: Space, url: str) -> int:
    with Reader(url) as reader:
        return reader.undiagnosed(declared.name, declared.diagnostics.names)


def resume(
    study: str | None, options: Options, hooks: Hooks | None = None, executor: execution.Executor | None = None
) -> Outcome:
    """Finishes what was not finished of a study, by default of the one last worked on, from its stored declaration.

    Raises:
        UnknownName: the store has no such study.
        StoreError: there is nothing to resume.
    """
    with Reader(options.url) as reader:
        found = reader.study(study) if study else _last_unfinished(reader.studies())
    return run(space.load(found.document, found.file), found.file, options, hooks, executor)


def _last_unfinished(studies: list[StudyStatus]) -> StudyStatus:
    if not studies:
        raise StoreError("the store holds no study yet; `ablate run FILE` makes one")
    return next((study for study in reversed(studies) if study.unfinished), studies[-1])


@dataclass(frozen=True)
class Looked:
    """What a diagnosis came to: trials looked at, and those that are not trained to their end or have no checkpoint."""

    studies: tuple[str, ...]
    trials: int
    without: int


def diagnose(
    targets: tuple[str, ...], wanted: Diagnostics, options: Options, hear: Callable[[int, int], None] = lambda done, all_: None
) -> Looked:
    """Takes diagnostics of trained networks from their checkpoints, and stores them.

    Args:
        targets: names of studies, or hashes of trials (or their beginnings).
        hear: is told how many of how many trials are done.

    Raises:
        UnknownName: there is no such study or trial.
        AblateError: a diagnostic cannot be taken, or the store is being written to.
    """
    from ablate.diagnostics import require
    from ablate.store.writer import Writer
    from ablate.training.look import look

    require(wanted.names)
    with Reader(options.url) as reader:
        found = [reader.target(target) for target in targets]
        studies = tuple(dict.fromkeys(study for study, _ in found))
        documents = {study: reader.study(study) for study in studies}
        chosen: dict[str, tuple[Trained, Data]] = {}
        for study, key in found:
            data = space.load(documents[study].document, documents[study].file, stored=True).data
            chosen |= {trial.hash: (trial, data) for trial in reader.trained(study) if key in (None, trial.hash)}
    without = 0
    with Writer(options.url) as writer:
        root = options.checkpoints_of(writer.store_id)
        for done, (trial, data) in enumerate(chosen.values()):
            hear(done, len(chosen))
            taken = look(trial, data, f"{root}/{trial.hash}", wanted) if trial.completed else None
            if taken is None:
                without += 1
            else:
                writer.write(Measured(trial.hash, taken))
    return Looked(studies, len(chosen) - without, without)


def cost_plan(declared: Space, url: str) -> Plan:
    """The plan of a space with the cost of each cell; cells may all be infeasible. Needs neither data nor a store."""
    from ablate.cost import REVISION
    from ablate.plan import make_plan

    costs: dict[str, Cost] = {}
    if _has_store(url):
        with Reader(url) as reader:
            costs = reader.costs(REVISION)
    return make_plan(declared, Costs(costs))


def _plan(declared: Space, url: str) -> Plan:
    made = cost_plan(declared, url)
    if not made.trials:
        reasons = "\n".join(f"  row {cell.index}: {cell.note}" for cell in made.cells)
        raise AblateError(f"no cell of {declared.name} can be trained:\n{reasons}")
    return made


def _has_store(url: str) -> bool:
    file = sqlite_file(url)
    return file is None or file.is_file()


def _known(url: str, found: Plan) -> dict[str, Known]:
    if not _has_store(url):
        return {}
    with Reader(url) as reader:
        return reader.known([trial.hash for trial in found.trials])


def _seems_done(declared: Space, url: str) -> bool:
    """Whether this very document was run to its end, so that starting workers would most likely be for nothing."""
    with Reader(url) as reader:
        return any(
            study.name == declared.name and study.document == declared.document and not study.unfinished
            for study in reader.studies()
        )


def _to_train(found: Plan, known: dict[str, Known]) -> tuple[Trial, ...]:
    """Trials without a result. One that another study's scheduler stopped has one only for a study that stops trials too."""
    results = (*KNOWN, Status.PRUNED) if found.space.scheduler.name != "fifo" else KNOWN
    return tuple(trial for trial in found.trials if trial.hash not in known or known[trial.hash].status not in results)


def _order(shown: Preview, options: Options, store_id: str) -> Order:
    declared = shown.plan.space
    folder = options.checkpoints_of(store_id)
    curves = {key: known.epochs for key, known in shown.known.items() if known.epochs}
    looked = declared.diagnostics
    jobs = tuple(Job(trial, folder, declared.resources, curves.get(trial.hash, ()), looked) for trial in shown.to_train)
    mine = {trial.hash for trial in shown.to_train}
    return Order(
        jobs,
        declared.metric,
        declared.direction,
        declared.scheduler,
        options.cpus,
        options.gpus,
        {key: epochs for key, epochs in curves.items() if key not in mine},
    )


def _estimate(found: Plan, to_train: tuple[Trial, ...], url: str, options: Options, probe: bool) -> float | None:
    """Seconds that training would take: from epochs that the store has of these data, else from a few timed steps."""
    if not to_train:
        return 0.0
    declared = found.space
    costs = {cell.architecture.hash: cell.cost for cell in found.cells if cell.architecture and cell.cost}
    per_flop = None
    if _has_store(url):
        with Reader(url) as reader:
            per_flop = reader.seconds_per_flop_epoch(declared.data.canonical())
    if per_flop is None and probe and declared.data.images and not declared.resources.gpus:
        from ablate.training.probe import seconds_per_image

        first = to_train[0]
        per_image = seconds_per_image(first.architecture, first.recipe.batch_size, threads=max(1, int(declared.resources.cpus)))
        per_flop = per_image * declared.data.images / costs[first.architecture.hash].flops
    if per_flop is None:
        return None
    slots = max(1, int((options.cpus or os.cpu_count() or 1) / declared.resources.cpus))
    total = sum(per_flop * costs[trial.architecture.hash].flops * trial.recipe.epochs for trial in to_train)
    return total / min(slots, len(to_train))


@dataclass
class _Tally:
    """Stores each event, then passes it on; remembers how trials ended. Executors may call from any thread."""

    write: Listener
    listener: Listener
    ended: dict[str, Status] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def emit(self, event: Event) -> None:
        with self._lock:
            self.write(event)
            if isinstance(event, Ended):
                self.ended[event.trial] = event.status
            self.listener(event)


@dataclass(frozen=True)
class Study:
    """The results of a study in a store, for Python.

    >>> study = ablate.run("search_spaces/quickstart.yaml")
    >>> print(study.table())
    """

    name: str
    store: str

    def results(self) -> StudyResults:
        """All cells with their levels, costs, states and values."""
        with Reader(self.store) as reader:
            return reader.results(self.name)

    def table(self, form: str = "md") -> str:
        """The study's table as md, latex, csv or json."""
        return report.render(report.results_grid(self.results()), form)

    def published(self) -> dict[int, float]:
        """The top-1 that the study's paper prints, by row. Raises AblateError where the study names no table."""
        from ablate.published import matching_row, tables

        results = self.results()
        declared = space.load(results.document, self.name, stored=True)
        if not declared.published:
            raise AblateError(f"{self.name} names no published table; add one to its file, as in `published: augvit/table3`")
        table = tables()[declared.published]
        fixed = {"backbone": declared.backbone, "data.image_size": declared.data.image_size, **declared.fixed}
        rows = {cell.index: matching_row(table, report.shown_levels(cell), fixed) for cell in results.cells}
        found = {index: row.top1 for index, row in rows.items() if row is not None and row.top1 is not None}
        if not found:
            raise AblateError(f"no row of {self.name} is one of {declared.published}, so there is nothing to show beside it")
        return found

    def diagnostics(self) -> list[str]:
        """The diagnostics that are stored of its trials."""
        with Reader(self.store) as reader:
            return reader.diagnostics(self.name)

    def layers(self, diagnostic: str) -> list[report.Line]:
        """A diagnostic by layer, means over seeds, one line a cell. Raises UnknownName where none is stored."""
        with Reader(self.store) as reader:
            return report.lines(reader.results(self.name), reader.layers(self.name, diagnostic))

    def frame(self) -> pd.DataFrame:
        """One row a cell and seed: a column for each factor, metric and cost."""
        import pandas as pd

        columns, rows = self.wide()
        return pd.DataFrame(rows, columns=columns)

    def wide(self) -> tuple[list[str], list[Any]]:
        """Columns and rows of the study's wide SQL view."""
        with Reader(self.store) as reader:
            view = reader.study(self.name).results_view
            columns, rows = reader.query(f'SELECT * FROM "{view}" ORDER BY cell, seed')
        return columns, list(rows)
