"""Reads and writes the chains of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from ablate.errors import StoreError, UnknownName, unknown
from ablate.records import Decision, Declared, Proposal
from ablate.store.database import open_writer, patient, write_transaction
from ablate.store.moment import now
from ablate.store.sql_tables import proposals


class ChainReader:
    """Reads the chains of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @patient
    def names(self) -> list[str]:
        """Returns the names of all chains."""
        query = select(proposals.c.chain).distinct().order_by(proposals.c.chain)
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    @patient
    def proposals(self, chain: str) -> list[Proposal]:
        """Returns the proposals of a chain; none if there is no such chain."""
        query = (
            select(proposals)
            .where(proposals.c.chain == chain)
            .order_by(proposals.c.number)
        )
        with self._engine.connect() as connection:
            return [_proposal(row) for row in connection.execute(query).mappings()]

    @patient
    def declared(self, chain: str) -> Declared:
        """Returns what holds for a chain. Raises UnknownName."""
        query = select(proposals.c.declared).where(
            proposals.c.chain == chain, proposals.c.number == 0
        )
        with self._engine.connect() as connection:
            stored = connection.execute(query).scalar()
        if stored is None:
            raise UnknownName(unknown("chain", chain, self.names()))
        return Declared(**stored)


def add_proposal(
    url: str, proposal: Proposal, declared: Declared | None = None
) -> None:
    """Stores a new proposal.

    Args:
        declared: of the first baseline: what holds for the whole chain.

    Raises:
        StoreError: another process has proposed meanwhile, or the store cannot be
            written to.
    """
    row = {
        "chain": proposal.chain,
        "number": proposal.number,
        "declared": asdict(declared) if declared is not None else {},
        "begun_at": now(),
        **_row(proposal),
    }
    engine = open_writer(url)
    try:
        with write_transaction(engine) as connection:
            connection.execute(insert(proposals).values(row))
    except IntegrityError:
        raise _other(proposal) from None
    finally:
        engine.dispose()


def update_proposal(url: str, proposal: Proposal) -> None:
    """Stores how far an open proposal has come. What was decided stays.

    Raises:
        StoreError: it is not open, or the store cannot be written to.
    """
    engine = open_writer(url)
    try:
        with write_transaction(engine) as connection:
            done = connection.execute(
                update(proposals)
                .where(
                    proposals.c.chain == proposal.chain,
                    proposals.c.number == proposal.number,
                    proposals.c.identity == proposal.identity,
                    proposals.c.decision == Decision.MORE_SEEDS,
                )
                .values(_row(proposal))
            )
        if not done.rowcount:
            raise _other(proposal)
    finally:
        engine.dispose()


def put_results(
    url: str, chain: str, number: int, results: Mapping[int, float | None]
) -> None:
    """Adds results of a baseline, whose decision stays.

    Raises:
        StoreError: the store cannot be written to.
    """
    place = (proposals.c.chain == chain) & (proposals.c.number == number)
    engine = open_writer(url)
    try:
        with write_transaction(engine) as connection:
            # Another process may add results, too.
            query = select(proposals.c.results).where(place).with_for_update()
            before = connection.execute(query).scalar_one()
            every = {**before, **_stored(results)}
            connection.execute(update(proposals).where(place).values(results=every))
    finally:
        engine.dispose()


def _other(proposal: Proposal) -> StoreError:
    return StoreError(
        f"another process has proposed to the chain {proposal.chain} meanwhile; type the"
        " command again"
    )


def _row(proposal: Proposal) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": proposal.name,
        "identity": proposal.identity,
        "source": proposal.source,
        "decision": proposal.decision,
        "reason": proposal.reason,
        "against": proposal.against,
        "evidence": proposal.evidence,
        "needed": proposal.needed,
        "results": _stored(proposal.results),
        "trials": proposal.trials,
        "seconds": proposal.seconds,
    }
    if proposal.decision is not Decision.MORE_SEEDS:
        row["ended_at"] = now()
    return row


def _stored(results: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(seed): result for seed, result in results.items()}


def _proposal(row: Any) -> Proposal:
    return Proposal(
        chain=row["chain"],
        number=row["number"],
        name=row["name"],
        identity=row["identity"],
        source=row["source"],
        decision=Decision(row["decision"]),
        reason=row["reason"],
        against=row["against"],
        evidence=row["evidence"],
        needed=row["needed"],
        results={int(seed): result for seed, result in row["results"].items()},
        trials=row["trials"],
        seconds=row["seconds"],
    )
