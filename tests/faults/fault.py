"""The register of faults.

A fault is one function, with what the user sees and what is kept.

The function does its fault to a running study and gives True, or False where that is
not possible yet: no worker trains, no checkpoint was written. It is then asked again,
until the run has ended.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.faults.phases import Place
from tests.faults.scene import Scene
from tests.faults.stores import Kind

# Faults that one run has before the one that ends it.
IN_ONE_RUN = 6


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        sees, keeps: for the table, in a few words.
        row: the row of the table in which the fault is counted.
        aim: where in a trial's life a kill is aimed at; nothing for one that comes at
            any instant.
        possible: whether the fault can happen in the run at hand at all.
        when: while a run trains, at any instant of a run (which it ends), or between
            two runs.
        codes: exit codes that the run may have for it, besides 0 where it came too late
            to matter.
        says: what standard error must hold where the run ended with such a code.
        share: how often it is drawn, in comparison.
    """

    name: str
    sees: str
    keeps: str
    inject: Callable[[Scene], bool]
    when: Literal["training", "any", "between"]
    codes: frozenset[int]
    says: str
    share: int
    row: str
    aim: Place | None
    possible: Callable[[Scene], bool]

    @property
    def sigkill(self) -> bool:
        return is_sigkill(self.row)


def is_sigkill(row: str) -> bool:
    """Whether the faults of a row are SIGKILLs."""
    return row.startswith("SIGKILL")


def always(scene: Scene) -> bool:
    """The condition of a fault that is possible in every run."""
    return True


def on_sqlite(scene: Scene) -> bool:
    """The condition of a fault that is made to a SQLite file."""
    return scene.store.kind == Kind.SQLITE


def on_postgresql(scene: Scene) -> bool:
    """The condition of a fault that is made to a database server."""
    return scene.store.kind == Kind.POSTGRESQL


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    when: Literal["training", "any", "between"],
    *,
    sees: str,
    keeps: str,
    codes: tuple[int, ...] = (),
    says: str = "",
    share: int = 2,
    row: str = "",
    aim: Place | None = None,
    possible: Callable[[Scene], bool] = always,
) -> Callable[[Callable[[Scene], bool]], Callable[[Scene], bool]]:
    """Registers a fault."""

    def register(inject: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
        FAULTS[name] = Fault(
            name=name,
            sees=sees,
            keeps=keeps,
            inject=inject,
            when=when,
            codes=frozenset(codes),
            says=says,
            share=share,
            row=row or name,
            aim=aim,
            possible=possible,
        )
        return inject

    return register


def one_message(
    scene: Scene, what: str, tried: subprocess.CompletedProcess[str], part: str
) -> None:
    """A refused command ends with code 2 and one message."""
    lines = [line for line in tried.stderr.splitlines() if line.startswith("error: ")]
    if (
        tried.returncode != 2
        or len(lines) != 1
        or not re.search(part, lines[0])
        or "Traceback" in tried.stderr
    ):
        scene.problems.append(
            f"{what}: exit code {tried.returncode}, {tried.stderr[-1500:]}"
        )
