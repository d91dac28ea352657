"""Reading a store. Nothing here can write: the connection itself refuses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import event, func, select
from sqlalchemy.exc import DBAPIError

from ablate.errors import StoreError, UnknownName, unknown
from ablate.records import (
    KNOWN,
    Architecture,
    CellResult,
    Cost,
    Epoch,
    Known,
    Level,
    Recipe,
    Status,
    StudyResults,
    Trained,
    Trial,
)
from ablate.store.database import limited, open_reader
from ablate.store.tables import (
    architectures,
    attempts,
    cell_trials,
    cells,
    diagnostics,
    epochs,
    levels,
    provenance,
    studies,
    trials,
)

COSTS = tuple(field.name for field in fields(Cost))
METRICS = ("top1", "top5", "loss")
PROVENANCE = ("command", "ablate", "commit", "dirty", "python", "torch", "timm", "ray", "platform", "cpu", "gpus", "started_at")
CHUNK = 500


@dataclass(frozen=True)
class StudyStatus:
    """How far a study is: number of its trials by state, and epochs done of epochs asked for."""

    name: str
    question: str
    document: str
    file: str
    results_view: str
    updated_at: datetime
    states: Mapping[Status, int]
    epochs_done: int
    epochs: int
    finished: bool

    @property
    def unfinished(self) -> int:
        """Trials that a resume would train; of a search, those that have been proposed."""
        return sum(n for state, n in self.states.items() if state in (Status.PLANNED, Status.RUNNING, Status.FAILED))


class Reader:
    """Reads one store. Raises StoreError where there is none, or where it is damaged."""

    def __init__(self, url: str) -> None:
        self._engine = open_reader(url)
        event.listen(self._engine, "handle_error", _readable)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def studies(self) -> list[StudyStatus]:
        """All studies, the latest last."""
        counts = (
            select(cells.c.study_id, trials.c.status, func.count(), func.sum(trials.c.epochs_done), func.sum(trials.c.epochs))
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            .group_by(cells.c.study_id, trials.c.status)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(select(studies).order_by(studies.c.updated_at, studies.c.id)).mappings().all()
            by_study: dict[int, list[Any]] = {}
            for row in connection.execute(counts):
                by_study.setdefault(row[0], []).append(row)
        return [
            StudyStatus(
                row["name"],
                row["question"],
                row["document"],
                row["file"],
                row["results_view"],
                row["updated_at"],
                {Status(r[1]): r[2] for r in by_study.get(row["id"], [])},
                sum(r[3] for r in by_study.get(row["id"], [])),
                sum(r[4] for r in by_study.get(row["id"], [])),
                row["finished_at"] is not None,
            )
            for row in rows
        ]

    def study(self, name: str) -> StudyStatus:
        """One study. Raises UnknownName with the nearest name."""
        found = {study.name: study for study in self.studies()}
        if name not in found:
            raise UnknownName(unknown("study", name, found) if found else f"unknown study '{name}'; the store holds none yet")
        return found[name]

    def costs(self, revision: int) -> dict[str, Cost]:
        """Cost by architecture's hash, of those counted by the rules of that revision."""
        wanted = select(architectures.c.hash, *(architectures.c[name] for name in COSTS)).where(
            architectures.c.cost_revision == revision
        )
        with self._engine.connect() as connection:
            return {row[0]: Cost(*row[1:]) for row in connection.execute(wanted)}

    def known(self, hashes: Iterable[str], *, with_epochs: bool = True) -> dict[str, Known]:
        """State and epochs of those trials that the store has."""
        wanted, found = list(hashes), dict[str, Known]()
        with self._engine.connect() as connection:
            for start in range(0, len(wanted), CHUNK):
                chunk = wanted[start : start + CHUNK]
                # States first: somebody may be writing, and whoever is seen to be completed has all epochs in the store.
                final = [trials.c[name] for name in METRICS]
                states = connection.execute(select(trials.c.hash, trials.c.status, *final).where(trials.c.hash.in_(chunk))).all()
                curves: dict[str, list[Epoch]] = {}
                if with_epochs:
                    for row in connection.execute(select(epochs).where(epochs.c.trial_hash.in_(chunk)).order_by(epochs.c.number)):
                        curves.setdefault(row[0], []).append(Epoch(*row[1:]))
                for key, state, *values in states:
                    final_values = {name: value for name, value in zip(METRICS, values, strict=True) if value is not None}
                    found[key] = Known(Status(state), tuple(curves.get(key, ())), final_values)
        return found

    def beginnings(self, trial: Trial) -> tuple[str, ...]:
        """Trials that are the same but for fewer epochs, the longest first. None where a longer training begins otherwise."""
        if not trial.recipe.extends:
            return ()
        wanted = (
            select(trials.c.hash, trials.c.recipe, trials.c.data, trials.c.start)
            .where(trials.c.architecture_hash == trial.architecture.hash, trials.c.seed == trial.seed)
            .where(trials.c.epochs < trial.recipe.epochs, trials.c.epochs_done > 0)
            .order_by(trials.c.epochs.desc())
        )
        mine = trial.recipe.canonical()
        start = trial.start.identity if trial.start else None
        with self._engine.connect() as connection:
            return tuple(
                row.hash
                for row in connection.execute(wanted)
                if {**row.recipe, "epochs": mine["epochs"]} == mine and row.data == trial.data.canonical() and row.start == start
            )

    def seconds_per_flop_epoch(self, data: Mapping[str, Any]) -> float | None:
        """Measured seconds an epoch on these data for each FLOP of the network, the median over recent trials, if any."""
        wanted = (
            select(trials.c.seconds / trials.c.epochs / architectures.c.flops, trials.c.data)
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.seconds.is_not(None))
            .order_by(trials.c.ended_at.desc())
            .limit(1000)
        )
        with self._engine.connect() as connection:
            rates = sorted(float(rate) for rate, trained_on in connection.execute(wanted) if trained_on == data)
        return rates[len(rates) // 2] if rates else None

    def results(self, name: str) -> StudyResults:
        """All cells of a study with what is known of them. Raises UnknownName."""
        self.study(name)
        with self._engine.connect() as connection:
            study = connection.execute(select(studies).where(studies.c.name == name)).mappings().one()
            mine = cells.c.study_id == study["id"]
            cell_rows = connection.execute(
                select(cells, *(architectures.c[n] for n in COSTS))
                .join(architectures, architectures.c.hash == cells.c.architecture_hash, isouter=True)
                .where(mine)
                .order_by(cells.c.number)
            )
            found = cell_rows.mappings().all()
            told = connection.execute(
                select(levels.c.cell_id, levels.c.factor, levels.c.level, levels.c.read)
                .join(cells, cells.c.id == levels.c.cell_id)
                .where(mine)
                .order_by(levels.c.position)
            ).all()
            trained = connection.execute(
                select(cell_trials.c.cell_id, cell_trials.c.seed, trials.c.status, trials.c[study["metric"]])
                .join(cells, cells.c.id == cell_trials.c.cell_id)
                .join(trials, trials.c.hash == cell_trials.c.trial_hash)
                .where(mine)
                .order_by(cell_trials.c.seed)
            ).all()
        by_cell_levels: dict[int, dict[str, Level]] = defaultdict(dict)
        unread: dict[int, set[str]] = defaultdict(set)
        for cell, factor, level, read in told:
            by_cell_levels[cell][factor] = level
            if not read:
                unread[cell].add(factor)
        by_cell_trials: dict[int, list[tuple[int, Status, float | None]]] = defaultdict(list)
        for cell, seed, status, value in trained:
            by_cell_trials[cell].append((seed, Status(status), value))
        return StudyResults(
            **{key: study[key] for key in ("name", "question", "expect", "source", "metric", "direction", "document")},
            factors=tuple(dict.fromkeys(factor for _, factor, _, _ in told)),
            cells=tuple(
                _cell_result(row, by_cell_levels[row["id"]], unread[row["id"]], by_cell_trials[row["id"]]) for row in found
            ),
        )

    def proposed(self, name: str, *, only_known: bool = False) -> list[dict[str, Level]]:
        """The levels of a study's cells in their order; none where there is no such study. Controls are no proposals.

        Args:
            only_known: leave out cells that have no trial with a result.
        """
        wanted = (
            select(cells.c.number, levels.c.factor, levels.c.level)
            .join(levels, levels.c.cell_id == cells.c.id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .where(cells.c.role != "control")
            .order_by(cells.c.number, levels.c.position)
        )
        if only_known:
            ended = select(cell_trials.c.cell_id).join(trials, trials.c.hash == cell_trials.c.trial_hash)
            wanted = wanted.where(cells.c.id.in_(ended.where(trials.c.status.in_((*KNOWN, Status.PRUNED)))))
        found: dict[int, dict[str, Level]] = {}
        with self._engine.connect() as connection:
            for number, factor, level in connection.execute(wanted):
                found.setdefault(number, {})[factor] = level
        return [found[number] for number in sorted(found)]

    def query(
        self, statement: str, *, most: int | None = None, seconds: float | None = None
    ) -> tuple[list[str], list[Sequence[Any]]]:
        """Column names and rows of one reading statement.

        Args:
            most: so many rows and no more.
            seconds: after which the statement is broken off.

        Raises:
            StoreError: the statement is wrong, is none that only reads, or takes too long.
        """
        with self._engine.connect() as connection, limited(connection, seconds):
            try:
                result = connection.exec_driver_sql(statement)
                if not result.returns_rows:
                    raise StoreError("the statement returns no rows; `ablate query` takes one SELECT")
                rows = result.fetchall() if most is None else result.fetchmany(most)
                return list(result.keys()), [tuple(row) for row in rows]
            except (DBAPIError, StoreError) as error:
                reason = str(getattr(error, "orig", None) or error.__cause__ or error)
                if "not authorized" in reason or "readonly" in reason or "read-only" in reason:
                    reason = "a query can only read: one SELECT over the tables and views"
                if "interrupted" in reason or "statement timeout" in reason:
                    reason = f"it took longer than {seconds:g} s; ask for less, as with WHERE or LIMIT"
                raise StoreError(f"the query failed: {reason}") from None
            except Warning as error:
                raise StoreError(f"the query failed: {error}") from None

    def trials(self, name: str) -> list[dict[str, Any]]:
        """The trials of a study: cell, seed, state, metrics, attempts, the last line of the last error, what was taken from
        the weights that it started from."""
        tries = (
            select(attempts.c.trial_hash, func.count().label("attempts"), func.max(attempts.c.id).label("last"))
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        last = attempts.alias()
        wanted = (
            select(
                cells.c.number.label("row"),
                cell_trials.c.seed,
                *(trials.c[key] for key in ("status", "epochs_done", "epochs", "top1", "top5", "loss", "seconds")),
                func.coalesce(tries.c.attempts, 0).label("attempts"),
                trials.c.hash.label("trial"),
                last.c.error,
                last.c.weights,
            )
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            .join(tries, tries.c.trial_hash == trials.c.hash, isouter=True)
            .join(last, last.c.id == tries.c.last, isouter=True)
            .where(studies.c.name == name)
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(wanted).mappings()]
        for row in rows:
            row["error"] = row["error"].strip().splitlines()[-1] if row["error"] and row["error"].strip() else ""
            row["weights"] = row["weights"] or ""
        return rows

    def target(self, text: str) -> tuple[str, str | None]:
        """A study by its name, with None, or a trial by its hash or the beginning of it, with a study that has it.

        Raises:
            UnknownName: there is neither.
        """
        names = {study.name for study in self.studies()}
        if text in names:
            return text, None
        wanted = (
            select(studies.c.name, cell_trials.c.trial_hash)
            .join(cells, cells.c.study_id == studies.c.id)
            .join(cell_trials, cell_trials.c.cell_id == cells.c.id)
            .where(cell_trials.c.trial_hash.startswith(text, autoescape=True))
            .order_by(studies.c.updated_at.desc())
        )
        with self._engine.connect() as connection:
            found = connection.execute(wanted).all()
        hashes = {row[1] for row in found}
        if not hashes or len(text) < 4:
            raise UnknownName(unknown("study or trial", text, names) + "; `ablate status STUDY` lists trials")
        if len(hashes) > 1:
            raise UnknownName(f"'{text}' begins {len(hashes)} trials; write more of the hash")
        return str(found[0][0]), str(found[0][1])

    def diagnostics(self, name: str) -> list[str]:
        """The diagnostics that are stored of a study's trials. Raises UnknownName."""
        self.study(name)
        wanted = (
            select(diagnostics.c.name)
            .distinct()
            .join(cell_trials, cell_trials.c.trial_hash == diagnostics.c.trial_hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .where(diagnostics.c.layer >= 0)
        )
        with self._engine.connect() as connection:
            return sorted(connection.execute(wanted).scalars())

    def trained(self, name: str) -> list[Trained]:
        """The trials of a study, each once."""
        wanted = (
            select(trials.c.hash, trials.c.recipe, trials.c.status, architectures)
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        built = ("backbone", "image_size", "channels", "classes", "settings")
        found = [
            Trained(
                row[0], Architecture(*(getattr(row, key) for key in built)), Recipe(**row.recipe), row.status == Status.COMPLETED
            )
            for row in rows
        ]
        return list({trial.hash: trial for trial in found}.values())

    def undiagnosed(self, name: str, names: Sequence[str]) -> int:
        """Completed trials of a study in which not all of these diagnostics were looked for."""
        wanted = (
            select(trials.c.hash, diagnostics.c.name)
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .join(diagnostics, diagnostics.c.trial_hash == trials.c.hash, isouter=True)
            .where(trials.c.status == Status.COMPLETED)
            .distinct()
        )
        taken: dict[str, set[str]] = defaultdict(set)
        with self._engine.connect() as connection:
            for key, stored in connection.execute(wanted):
                taken[key].add((stored or "").partition(".")[0])
        return sum(not set(names) <= found for found in taken.values())

    def layers(self, name: str, diagnostic: str) -> list[dict[str, Any]]:
        """A diagnostic of a study's completed trials at its last epoch: cell, seed, layer, value or numbers.

        Raises:
            UnknownName: there is no such study, or none of its trials has that diagnostic.
        """
        stored = self.diagnostics(name)
        if diagnostic not in stored:
            raise UnknownName(
                unknown("diagnostic", diagnostic, stored)
                if stored
                else f"no diagnostic of {name} is stored; take them with: ablate diagnose {name}"
            )
        mine = (studies.c.name == name) & (cells.c.study_id == studies.c.id)
        with self._engine.connect() as connection:
            last = (
                select(diagnostics.c.trial_hash, func.max(diagnostics.c.epoch).label("epoch"))
                .where(diagnostics.c.name == diagnostic)
                .group_by(diagnostics.c.trial_hash)
                .subquery()
            )
            wanted = (
                select(cells.c.number.label("cell"), cell_trials.c.seed, diagnostics.c.epoch, diagnostics.c.layer)
                .add_columns(diagnostics.c.value, diagnostics.c.numbers)
                .join(cell_trials, cell_trials.c.trial_hash == diagnostics.c.trial_hash)
                .join(cells, cells.c.id == cell_trials.c.cell_id)
                .join(studies, mine)
                .join(last, (last.c.trial_hash == diagnostics.c.trial_hash) & (last.c.epoch == diagnostics.c.epoch))
                .join(trials, trials.c.hash == diagnostics.c.trial_hash)
                .where(diagnostics.c.name == diagnostic, diagnostics.c.layer >= 0, trials.c.status == Status.COMPLETED)
                .order_by(cells.c.number, cell_trials.c.seed, diagnostics.c.layer)
            )
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def circumstances(self, name: str) -> list[dict[str, Any]]:
        """On what each completed trial of a study ended: row, seed, trial, and device, threads and provenance of its last
        attempt.

        Raises UnknownName.
        """
        self.study(name)
        last = (
            select(attempts.c.trial_hash, func.max(attempts.c.id).label("id"))
            .where(attempts.c.status == Status.COMPLETED)
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        wanted = (
            select(
                cells.c.number.label("row"),
                cell_trials.c.seed,
                trials.c.hash.label("trial"),
                attempts.c.device,
                attempts.c.threads,
                attempts.c.host,
                *(provenance.c[key] for key in PROVENANCE),
            )
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .join(trials, trials.c.hash == cell_trials.c.trial_hash)
            .join(last, last.c.trial_hash == trials.c.hash)
            .join(attempts, attempts.c.id == last.c.id)
            .join(provenance, provenance.c.id == attempts.c.provenance_id)
            .order_by(cells.c.number, cell_trials.c.seed)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def spent(self, name: str) -> list[dict[str, Any]]:
        """By device the number of a study's trials and the seconds that they were trained, from their stored epochs."""
        last = select(attempts.c.trial_hash, func.max(attempts.c.id).label("id")).group_by(attempts.c.trial_hash).subquery()
        mine = (
            select(cell_trials.c.trial_hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id))
            .distinct()
        )
        seconds = (
            select(epochs.c.trial_hash, func.sum(epochs.c.seconds).label("seconds"))
            .where(epochs.c.trial_hash.in_(mine))
            .group_by(epochs.c.trial_hash)
            .subquery()
        )
        wanted = (
            select(attempts.c.device, func.count().label("trials"), func.sum(seconds.c.seconds).label("seconds"))
            .join(last, last.c.id == attempts.c.id)
            .join(seconds, seconds.c.trial_hash == attempts.c.trial_hash)
            .group_by(attempts.c.device)
            .order_by(attempts.c.device)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def trial(self, text: str) -> dict[str, Any]:
        """A trial by its hash or the beginning of it: its study, row, seed, state, metrics, recipe, data, network.

        Raises UnknownName.
        """
        study, key = self.target(text)
        if key is None:
            raise UnknownName(f"'{text}' is a study, no trial")
        wanted = (
            select(
                trials,
                cells.c.number.label("row"),
                cells.c.role,
                *(architectures.c[name] for name in ("backbone", "image_size", "settings", "params", "flops")),
            )
            .join(cell_trials, cell_trials.c.trial_hash == trials.c.hash)
            .join(cells, cells.c.id == cell_trials.c.cell_id)
            .join(studies, studies.c.id == cells.c.study_id)
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.hash == key, studies.c.name == study)
            .order_by(cells.c.number)
            .limit(1)
        )
        with self._engine.connect() as connection:
            return {"study": study, **connection.execute(wanted).mappings().one()}

    def layers_of(self, trial: str) -> list[dict[str, Any]]:
        """The diagnostics of a trial at the last epoch that each was taken: name, layer, value or numbers."""
        mine = diagnostics.c.trial_hash == trial
        last = select(diagnostics.c.name, func.max(diagnostics.c.epoch).label("epoch")).where(mine).group_by(diagnostics.c.name)
        latest = last.subquery()
        wanted = (
            select(diagnostics.c.name, diagnostics.c.layer, diagnostics.c.value, diagnostics.c.numbers)
            .join(latest, (latest.c.name == diagnostics.c.name) & (latest.c.epoch == diagnostics.c.epoch))
            .where(mine, diagnostics.c.layer >= 0)
            .order_by(diagnostics.c.name, diagnostics.c.layer)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def attempts(self, trial: str) -> list[dict[str, Any]]:
        """All attempts at a trial, in their order."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(attempts).where(attempts.c.trial_hash == trial).order_by(attempts.c.number))
            return [dict(row) for row in rows.mappings()]


def _readable(context: Any) -> None:
    """A database that cannot be read is a message for a person."""
    raise StoreError(f"the store cannot be read: {context.original_exception}") from context.original_exception


def _cell_result(
    row: Any, levels_: Mapping[str, Level], unread: set[str], trained: Sequence[tuple[int, Status, float | None]]
) -> CellResult:
    return CellResult(
        index=row["number"],
        levels=levels_,
        unread=frozenset(unread),
        role=row["role"],
        note=row["note"],
        same_as=row["same_as"],
        control_of=row["control_of"],
        cost=Cost(*(row[name] for name in COSTS)) if row["params"] is not None else None,
        states={seed: status for seed, status, _ in trained},
        values={seed: value for seed, status, value in trained if status == Status.COMPLETED and value is not None},
    )
