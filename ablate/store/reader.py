"""Reads a store. Nothing here can write, because the connection does not allow it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from ablate.records import (
    VARIED,
    WITH_RESULT,
    CellResult,
    CorrectImages,
    Cost,
    Epoch,
    History,
    Known,
    Level,
    Space,
    Status,
    StudyResults,
    Trial,
)
from ablate.redeclared import changes
from ablate.space_data import chance_of, metrics_of
from ablate.store.database import patiently
from ablate.store.declarations import (
    Declaration,
    declarations_of,
    declared_data,
    inherited,
    is_searching,
    new_declaration,
    seeds_of_row_0_left_out,
    was_a_variant,
    without_split,
)
from ablate.store.history import (
    first_history,
    fresh_seeds,
    history_of,
    seeds_left_out,
    with_cells,
)
from ablate.store.images import images_of
from ablate.store.known_trials import declared_by, declared_late, known_when_declared
from ablate.store.moment import after_results
from ablate.store.rows import check_complete, check_metric, check_rows
from ablate.store.tables import (
    architectures,
    cell_trials,
    cells,
    epoch_metrics,
    epochs,
    levels,
    studies,
    trial_metrics,
    trials,
)
from ablate.store.trials import TrialReader, final_metric

COSTS = tuple(field.name for field in fields(Cost))
CHUNK = 500


class Reader(TrialReader):
    """Reads one store: its studies, what is known of trials, and single trials."""

    def costs(self, revision: int) -> dict[str, Cost]:
        """Returns costs by architecture hash, for one revision of the rules."""
        wanted = select(
            architectures.c.hash, *(architectures.c[name] for name in COSTS)
        ).where(architectures.c.cost_revision == revision)
        with self._engine.connect() as connection:
            return {row[0]: Cost(*row[1:]) for row in connection.execute(wanted)}

    def known(
        self, hashes: Iterable[str], *, with_epochs: bool = True
    ) -> dict[str, Known]:
        """Returns state and epochs of those trials that the store has."""
        wanted = list(hashes)
        return patiently(lambda: self._known(wanted, with_epochs=with_epochs))

    def _known(self, wanted: list[str], *, with_epochs: bool) -> dict[str, Known]:
        trials_known = dict[str, Known]()
        with self._engine.connect() as connection:
            for start in range(0, len(wanted), CHUNK):
                chunk = wanted[start : start + CHUNK]
                # States are read first, because a writer may be active: all epochs of a
                # trial that is seen as completed are in the store.
                states = connection.execute(
                    select(trials.c.hash, trials.c.status, trials.c.ended_at).where(
                        trials.c.hash.in_(chunk)
                    )
                ).all()
                final = _final_metrics(connection, chunk)
                curves: dict[str, list[Epoch]] = {}
                if with_epochs:
                    curves = _curves(connection, chunk)
                for key, state, ended_at in states:
                    trials_known[key] = Known(
                        status=Status(state),
                        epochs=tuple(curves.get(key, ())),
                        final=final.get(key, {}),
                        ended_at=ended_at,
                    )
        return trials_known

    def beginnings(self, trial: Trial) -> tuple[str, ...]:
        """Returns the same trial's shorter versions (fewer epochs), the longest first.

        Empty if a longer training does not begin in the same way.
        """
        if not trial.recipe.extends or trial.architecture.trainer:
            return ()
        wanted = (
            select(trials.c.hash, trials.c.epochs)
            .where(
                trials.c.architecture_hash == trial.architecture.hash,
                trials.c.seed == trial.seed,
            )
            .where(trials.c.epochs < trial.recipe.epochs, trials.c.epochs_done > 0)
            .order_by(trials.c.epochs.desc())
        )

        def read() -> Sequence[Any]:
            with self._engine.connect() as connection:
                return connection.execute(wanted).all()

        matches = patiently(read)
        return tuple(
            row.hash for row in matches if row.hash == _shorter(trial, row.epochs).hash
        )

    def seconds_per_flop_epoch(self, data: Mapping[str, Any]) -> float | None:
        """Returns the measured seconds per epoch and FLOP on these data.

        It is the median over recent trials; None if there are none.
        """
        wanted = (
            select(
                # FLOPs that were not counted are 0.
                trials.c.seconds
                / trials.c.epochs
                / func.coalesce(func.nullif(architectures.c.flops, 0), 1),
                trials.c.data,
            )
            .join(architectures, architectures.c.hash == trials.c.architecture_hash)
            .where(trials.c.seconds.is_not(None))
            .order_by(trials.c.ended_at.desc())
            .limit(1000)
        )
        mine = without_split(data)
        with self._engine.connect() as connection:
            rates = sorted(
                float(rate)
                for rate, trained_on in connection.execute(wanted)
                if without_split(trained_on) == mine
            )
        if rates:
            return rates[len(rates) // 2]
        return None

    def declarations(self, name: str) -> list[Declaration]:
        """Returns the declarations of a study, the first one first."""
        with self._engine.connect() as connection:
            number = connection.execute(
                select(studies.c.id).where(studies.c.name == name)
            ).scalar_one()
            return declarations_of(connection, number)

    def history(self, space: Space, code: Mapping[str, str]) -> History:
        """Returns the phases of a study, as if the space was declared now.

        Args:
            code: the versions of the user's own parts (`Plan.code`).
        """
        with self._engine.connect() as connection:
            study = _study_id(connection, space.name)
            if study is None:
                _, declared = inherited(connection, space, code)
                return history_of(declared) if declared else first_history(space, code)
            declared = declarations_of(connection, study)
            moment = after_results(connection)
            new = new_declaration(connection, study, space, code, moment)
        return history_of([*declared, new] if new else declared)

    def changes_since(self, space: Space, code: Mapping[str, str]) -> list[str]:
        """Returns what a space changes in the last declaration of its study.

        Empty if nothing is changed, or if there is no such study.

        Args:
            code: the versions of the user's own parts (`Plan.code`).
        """
        with self._engine.connect() as connection:
            study = _study_id(connection, space.name)
            if study is None:
                return []
            declared = declarations_of(connection, study)
        if not declared:
            return []
        return changes(declared[-1].space, declared_data(space, code))

    def known_before(
        self, space: Space, code: Mapping[str, str], hashes: Iterable[str]
    ) -> set[str]:
        """Returns the completed trials that a study would declare after their results.

        A trial that the study has declared before it was completed, or dropped, is none
        of these.

        Args:
            code: the versions of the user's own parts (`Plan.code`).
            hashes: of completed trials.
        """
        with self._engine.connect() as connection:
            study = _study_id(connection, space.name)
            if study is None:
                # A study under another name goes on with the history of its twin.
                study, _ = inherited(connection, space, code)
                is_new = True
            else:
                moment = after_results(connection)
                new = new_declaration(connection, study, space, code, moment)
                is_new = new is not None
            if study is None:
                return set(hashes)
            found = set(hashes) & declared_late(connection, study)
            if is_new:
                found |= set(hashes) - declared_by(connection, study)
        return found

    def correct_images(self, name: str) -> dict[tuple[int, int], CorrectImages]:
        """Returns which test images trials get right, by row and seed.

        Raises UnknownName if there is no such study.
        """
        self.study(name)
        with self._engine.connect() as connection:
            return images_of(connection, name)

    def results(self, name: str) -> StudyResults:
        """Returns all cells of a study with their known results. Raises UnknownName."""
        self.study(name)
        with self._engine.connect() as connection:
            study = (
                connection.execute(select(studies).where(studies.c.name == name))
                .mappings()
                .one()
            )
            mine = cells.c.study_id == study["id"]
            cell_rows = connection.execute(
                select(cells, *(architectures.c[n] for n in COSTS))
                .join(
                    architectures,
                    architectures.c.hash == cells.c.architecture_hash,
                    isouter=True,
                )
                .where(mine)
                .order_by(cells.c.number)
            )
            found = cell_rows.mappings().all()
            check_rows(
                name,
                [(row["number"], row["same_as"], row["control_of"]) for row in found],
            )
            told = connection.execute(
                select(levels.c.cell_id, levels.c.factor, levels.c.level, levels.c.read)
                .join(cells, cells.c.id == levels.c.cell_id)
                .where(mine)
                .order_by(levels.c.position)
            ).all()
            trained = connection.execute(
                select(
                    cell_trials.c.cell_id,
                    cell_trials.c.seed,
                    trials.c.status,
                    final_metric(study["metric"]),
                    trials.c.ended_at,
                )
                .join(cells, cells.c.id == cell_trials.c.cell_id)
                .join(trials, trials.c.hash == cell_trials.c.trial_hash)
                .where(mine)
                .order_by(cell_trials.c.seed)
            ).all()
            history = history_of(declarations_of(connection, study["id"]))
            known = known_when_declared(connection, study["id"])
            searching = is_searching(connection, study["id"], study["space"])
        by_cell_levels: dict[int, dict[str, Level]] = defaultdict(dict)
        unread: dict[int, set[str]] = defaultdict(set)
        check_complete(name, "the levels", told)
        check_complete(name, "the trials", (row[:3] for row in trained))
        # A row that cannot be built has no network.
        built = [row for row in found if row["architecture_hash"]]
        costs = map(itemgetter(*COSTS), built)
        check_complete(name, "the costs", costs)
        for cell, factor, level, read in told:
            by_cell_levels[cell][factor] = level
            if not read:
                unread[cell].add(factor)
        by_cell_trials: dict[int | None, list[_Ended]] = defaultdict(list)
        for cell, seed, status, value, ended_at in trained:
            phase = history.phase_of(known.get((cell, seed), ended_at))
            ended = _Ended(
                seed=seed,
                status=Status(status),
                value=value,
                phase=phase,
                known=phase < 0 or (cell, seed) in known,
            )
            by_cell_trials[cell].append(ended)
        history = self._with_row_0(history, study["id"], by_cell_trials[_row_0(found)])
        fresh = frozenset(fresh_seeds(study["space"]))
        check_metric(name, study["metric"], study["space"])
        metrics = metrics_of(study["space"])
        by_name = {one.name: one for one in metrics}
        metric = by_name[study["metric"]]
        cell_results = tuple(
            _cell_result(
                row,
                by_cell_levels[row["id"]],
                unread[row["id"]],
                by_cell_trials[row["id"]],
                fresh,
            )
            for row in found
        )
        return StudyResults(
            name=study["name"],
            question=study["question"],
            expect=study["expect"],
            source=study["source"],
            metric=metric,
            metrics=metrics,
            direction=study["direction"],
            document=study["document"],
            factors=tuple(dict.fromkeys(factor for _, factor, _, _ in told)),
            cells=cell_results,
            history=with_cells(history, cell_results),
            searching=searching,
            confirmation_seeds=tuple(sorted(fresh)),
            vary=tuple((study["space"] or {}).get("vary") or VARIED),
            labels=(study["space"] or {}).get("labels") or {},
            chance=chance_of(study["space"], study["metric"]),
        )

    def _with_row_0(
        self, history: History, study: int, trained: Sequence[_Ended]
    ) -> History:
        """Returns the history with what row 0 lacks of its known seeds.

        Args:
            trained: the trials of row 0.
        """
        known = [trial for trial in trained if trial.known]
        if not known:
            return history
        # A phase of -1 is before the first declaration. Known seeds that a later phase
        # added concern that phase only.
        later = [trial.phase for trial in known if trial.phase >= 0]
        with self._engine.connect() as connection:
            before = seeds_of_row_0_left_out(connection, study, history.begins[0])
            lost = seeds_of_row_0_left_out(connection, study, after_results(connection))
            chosen = len(known) > 1 and was_a_variant(connection, study)
        if before and len(later) < len(known) and not history.changed:
            history = replace(history, changed=seeds_left_out(before))
        if chosen and len(later) < len(known):
            history = replace(history, chosen_from=0)
        elif later and (lost or chosen):
            history = replace(history, chosen_from=min(later))
        return history

    def proposed(
        self, name: str, *, only_known: bool = False
    ) -> list[dict[str, Level]]:
        """Returns the levels of a study's cells in order; empty without such a study.

        Controls are left out, as they are not proposals.

        Args:
            only_known: leave out cells without any trial that has a result.
        """
        wanted = (
            select(cells.c.number, levels.c.factor, levels.c.level)
            .join(levels, levels.c.cell_id == cells.c.id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .where(cells.c.role != "control")
            .order_by(cells.c.number, levels.c.position)
        )
        if only_known:
            ended = select(cell_trials.c.cell_id).join(
                trials, trials.c.hash == cell_trials.c.trial_hash
            )
            wanted = wanted.where(
                cells.c.id.in_(
                    ended.where(trials.c.status.in_((*WITH_RESULT, Status.PRUNED)))
                )
            )
        levels_by_cell: dict[int, dict[str, Level]] = {}
        with self._engine.connect() as connection:
            for number, factor, level in connection.execute(wanted):
                levels_by_cell.setdefault(number, {})[factor] = level
        return [levels_by_cell[number] for number in sorted(levels_by_cell)]


def _final_metrics(
    connection: Connection, chunk: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns the final metrics of completed trials by hash."""
    rows = connection.execute(
        select(trial_metrics).where(trial_metrics.c.trial_hash.in_(chunk))
    )
    final: dict[str, dict[str, float]] = {}
    for row in rows:
        final.setdefault(row.trial_hash, {})[row.name] = row.value
    return final


def _curves(connection: Connection, chunk: Sequence[str]) -> dict[str, list[Epoch]]:
    """Returns the epochs of trials by hash, in their order."""
    # Epochs are read first: a writer may add one in between, and each of those read
    # must have its metrics.
    rows = connection.execute(
        select(epochs).where(epochs.c.trial_hash.in_(chunk)).order_by(epochs.c.number)
    ).all()
    measured: dict[tuple[str, int], dict[str, float]] = {}
    for key, number, name, value in connection.execute(
        select(
            epoch_metrics.c.trial_hash,
            epoch_metrics.c.epoch,
            epoch_metrics.c.name,
            epoch_metrics.c.value,
        ).where(epoch_metrics.c.trial_hash.in_(chunk))
    ):
        measured.setdefault((key, number), {})[name] = value
    curves: dict[str, list[Epoch]] = {}
    for row in rows:
        epoch = Epoch(
            number=row.number,
            metrics=measured.get((row.trial_hash, row.number), {}),
            lr=row.lr,
            seconds=row.seconds,
            joules=row.joules,
        )
        curves.setdefault(row.trial_hash, []).append(epoch)
    return curves


def _shorter(trial: Trial, epochs: int) -> Trial:
    """Returns the same trial with fewer epochs."""
    return replace(trial, recipe=replace(trial.recipe, epochs=epochs))


def _row_0(cell_rows: Sequence[Any]) -> int | None:
    """Returns the key of row 0, or None if there are no cells."""
    return cell_rows[0]["id"] if cell_rows else None


class _Ended(NamedTuple):
    """What is known of the trial of a cell and a seed."""

    seed: int
    status: Status
    value: float | None
    phase: int
    known: bool


def _study_id(connection: Connection, name: str) -> int | None:
    """Returns the number of a study; None if there is no such study."""
    wanted = select(studies.c.id).where(studies.c.name == name)
    found: int | None = connection.execute(wanted).scalar()
    return found


def _cell_result(
    row: Any,
    levels_: Mapping[str, Level],
    unread: set[str],
    trained: Sequence[_Ended],
    fresh: frozenset[int] = frozenset(),
) -> CellResult:
    """Returns the result of a cell.

    Args:
        fresh: seeds on which a search confirms its best cells. If a cell other than
            row 0 has some, only these are its result: the others chose it.
    """
    # The seeds that chose a cell favour it. They would bias its mean, so they are kept
    # apart from those that confirm it.
    chose: Mapping[int, float] = {}
    if row["number"] > 0 and any(trial.seed in fresh for trial in trained):
        chose = _values(trial for trial in trained if trial.seed not in fresh)
        trained = [trial for trial in trained if trial.seed in fresh]
    return CellResult(
        index=row["number"],
        levels=levels_,
        unread=frozenset(unread),
        role=row["role"],
        note=row["note"],
        same_as=row["same_as"],
        control_of=row["control_of"],
        cost=(
            Cost(*(row[name] for name in COSTS)) if row["params"] is not None else None
        ),
        statuses={trial.seed: trial.status for trial in trained},
        values=_values(trained),
        search_values=chose,
        phase_of={trial.seed: trial.phase for trial in trained},
        known=frozenset(trial.seed for trial in trained if trial.known),
    )


def _values(trained: Iterable[_Ended]) -> dict[int, float]:
    """Returns the values of completed trials by seed."""
    return {
        trial.seed: trial.value
        for trial in trained
        # A store from elsewhere may contain what training refuses.
        if trial.status == Status.COMPLETED
        and trial.value is not None
        and math.isfinite(trial.value)
    }
