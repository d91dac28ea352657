"""The register of faults. A fault is one function, with what the user sees and what is kept.

The function does its fault to a running study and gives True, or False where that is not possible yet: no worker trains, no
checkpoint was written. It is then asked again, until the run has ended.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.faults.scene import Scene


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        sees, keeps: for the table, in a few words.
        when: while a run trains, at any instant of a run (which it ends), or between two runs.
        codes: exit codes that the run may have for it, besides 0 where it came too late to matter.
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

    @property
    def sigkill(self) -> bool:
        return self.name.startswith("SIGKILL")


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    when: Literal["training", "any", "between"],
    *,
    sees: str,
    keeps: str,
    codes: tuple[int, ...] = (),
    says: str = "",
    share: int = 3,
) -> Callable[[Callable[[Scene], bool]], Callable[[Scene], bool]]:
    """Registers a fault."""

    def register(inject: Callable[[Scene], bool]) -> Callable[[Scene], bool]:
        FAULTS[name] = Fault(name, sees, keeps, inject, when, frozenset(codes), says, share)
        return inject

    return register


def one_message(scene: Scene, what: str, tried: subprocess.CompletedProcess[str], part: str) -> None:
    """A refused command ends with code 2 and one message."""
    lines = [line for line in tried.stderr.splitlines() if line.startswith("error: ")]
    if tried.returncode != 2 or len(lines) != 1 or not re.search(part, lines[0]) or "Traceback" in tried.stderr:
        scene.problems.append(f"{what}: exit code {tried.returncode}, {tried.stderr[-1500:]}")
