"""Reads from what trials were trained: files, versions and settings."""

from __future__ import annotations

from sqlalchemy import Engine, select

from ablate.records import WITH_RESULT, Status
from ablate.records.stored import TrainedIdentity
from ablate.store.database import patient
from ablate.store.sql_tables import (
    architectures,
    provenance,
    sources,
    trials,
)


class IdentityReader:
    """Reads from what trials were trained."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @patient
    def of_files(self) -> dict[str, str]:
        """Returns the identity of users' files by the hash of their syntax."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(sources.c.syntax, sources.c.identity))
            return {row[0]: row[1] for row in rows}

    @patient
    def files(self) -> dict[str, dict[str, str]]:
        """Returns the hash of each file's syntax, by the identity of a user's part."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(sources.c.identity, sources.c.files))
            return {row[0]: row[1] for row in rows}

    @patient
    def last_versions(self) -> dict[str, str]:
        """Returns the versions of Python, torch and timm in the last run; {} without one."""
        query = (
            select(provenance.c.python, provenance.c.torch, provenance.c.timm)
            .order_by(provenance.c.id.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return dict(row) if row else {}

    @patient
    def trained(self, most: int) -> list[TrainedIdentity]:
        """Returns what the latest trials that ended were trained from."""
        query = (
            select(
                trials.c.recipe,
                trials.c.data,
                trials.c.code,
                trials.c.start,
                trials.c.teacher,
                trials.c.vary,
                trials.c.seed,
                trials.c.status,
                architectures.c.backbone,
                architectures.c.settings,
                architectures.c.code.label("built_by"),
                architectures.c.classes,
                architectures.c.head,
            )
            .join(architectures)
            .where(trials.c.status.in_((*WITH_RESULT, Status.FAILED)))
            .order_by(trials.c.ended_at.desc())
            .limit(most)
        )
        with self._engine.connect() as connection:
            return [
                TrainedIdentity(
                    backbone=row.backbone,
                    settings=row.settings,
                    code={**(row.built_by or {}), **(row.code or {})},
                    recipe=row.recipe,
                    data=row.data,
                    classes=row.classes,
                    head=row.head,
                    start=row.start or "",
                    teacher=row.teacher or "",
                    vary=row.vary or (),
                    seed=row.seed,
                    status=Status(row.status),
                )
                for row in connection.execute(query)
            ]
