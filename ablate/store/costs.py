"""Reads costs: counted ones of networks, and measured ones of training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Engine, func, select

from ablate.budget import Used
from ablate.records import Cost
from ablate.records.stored import DeviceCosts
from ablate.store.database import patient
from ablate.store.declarations import without_split
from ablate.store.results import COSTS
from ablate.store.sql_tables import (
    all_cell_trials,
    architectures,
    attempts,
    cells,
    epochs,
    provenance,
    studies,
    trials,
)


class CostReader:
    """Reads what networks and their training cost."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @patient
    def counted(self, revision: int) -> dict[str, Cost]:
        """Returns costs by architecture hash, for one revision of the rules."""
        query = select(
            architectures.c.hash, *(architectures.c[name] for name in COSTS)
        ).where(architectures.c.cost_revision == revision)
        with self._engine.connect() as connection:
            return {row[0]: Cost(*row[1:]) for row in connection.execute(query)}

    @patient
    def seconds_per_flop_epoch(self, data: Mapping[str, Any]) -> float | None:
        """Returns the measured seconds per epoch and FLOP on these data.

        It is the median over recent trials; None if there are none.
        """
        query = (
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
        data_without_split = without_split(data)
        with self._engine.connect() as connection:
            rates = sorted(
                float(rate)
                for rate, trained_on in connection.execute(query)
                if without_split(trained_on) == data_without_split
            )
        if rates:
            return rates[len(rates) // 2]
        return None

    @patient
    def used(self, names: Collection[str] = ()) -> Used:
        """Returns what the runs of studies have used so far; of all, without names.

        Trials that were begun in runs of other studies are left out, and so are epochs
        that a trial took over from a shorter one.
        """
        run = attempts.c.provenance_id == provenance.c.id
        begun_here = (
            select(attempts.c.trial_hash)
            .join(provenance, run)
            .join(studies, studies.c.id == provenance.c.study_id)
            .distinct()
        )
        if names:
            begun_here = begun_here.where(studies.c.name.in_(names))
        begun = attempts.alias()
        # A trial that goes on from a shorter one starts at a later epoch; the epochs before
        # that one were paid for by the shorter trial.
        first = (begun.c.trial_hash == epochs.c.trial_hash) & (begun.c.number == 1)
        sums = (
            select(func.sum(epochs.c.seconds))
            .join(begun, first)
            .where(
                epochs.c.trial_hash.in_(begun_here),
                epochs.c.number > begun.c.first_epoch,
            )
        )
        with self._engine.connect() as connection:
            trials_begun = frozenset(connection.execute(begun_here).scalars())
            seconds = connection.execute(sums).scalar()
        return Used(trials_begun, seconds or 0.0)

    @patient
    def by_device(self, name: str) -> list[DeviceCosts]:
        """Returns what a study's training cost, by device."""
        last = (
            select(attempts.c.trial_hash, func.max(attempts.c.id).label("id"))
            .group_by(attempts.c.trial_hash)
            .subquery()
        )
        of_study = (
            select(all_cell_trials.c.trial_hash)
            .join(cells, cells.c.id == all_cell_trials.c.cell_id)
            .join(
                studies, (studies.c.name == name) & (cells.c.study_id == studies.c.id)
            )
            .distinct()
        )
        begun = attempts.alias()
        spent = (
            select(
                epochs.c.trial_hash,
                func.count().label("epochs"),
                func.sum(epochs.c.seconds).label("seconds"),
                func.count(epochs.c.joules).label("metered"),
                func.sum(epochs.c.joules).label("joules"),
            )
            .join(
                begun,
                (begun.c.trial_hash == epochs.c.trial_hash) & (begun.c.number == 1),
            )
            .where(
                epochs.c.trial_hash.in_(of_study), epochs.c.number > begun.c.first_epoch
            )
            .group_by(epochs.c.trial_hash)
            .subquery()
        )
        sums = (
            func.sum(spent.c[name]).label(name)
            for name in ("epochs", "seconds", "metered", "joules")
        )
        query = (
            select(attempts.c.device, func.count().label("trials"), *sums)
            .join(last, last.c.id == attempts.c.id)
            .join(spent, spent.c.trial_hash == attempts.c.trial_hash)
            .group_by(attempts.c.device)
            .order_by(attempts.c.device)
        )
        with self._engine.connect() as connection:
            return [DeviceCosts(**row) for row in connection.execute(query).mappings()]
