"""The cost of each architecture, counted once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import astuple
from functools import cache as cache_once
from importlib.metadata import version
from pathlib import Path

from ablate.errors import Infeasible
from ablate.own import registry
from ablate.parts import trainer_named
from ablate.records import COST_REVISION, UNCOUNTED, Architecture, Cost

Count = Callable[[Architecture], Cost]

# The libraries whose networks and operators are counted.
LIBRARIES = ("torch", "torchvision", "timm", "fvcore")


class CostCache:
    """The cost by architecture: the stored one if there is one, else the counted one.

    A counted cost is kept in the user's cache folder, so that the next command need not
    count it, unless the architecture has parts of a user. It also remembers which
    architectures cannot be built. It imports torch only when it counts.

    Args:
        costs: stored costs, by the hash of the architecture.
        count: counts an architecture without parts of a user, in another process.
    """

    def __init__(self, costs: dict[str, Cost], count: Count | None = None) -> None:
        # A rule of the user for an operator may have changed since, and other processes
        # do not have it.
        self._has_own_rules = bool(registry.of_kind("operator"))
        self._known = {} if self._has_own_rules else costs
        self._counted = count or _counted
        self._refused: dict[str, str] = {}

    def __call__(self, architecture: Architecture) -> Cost:
        """The cost of an architecture. Raises Infeasible if it cannot be built."""
        key = architecture.hash
        if key in self._refused:
            raise Infeasible(self._refused[key])
        if key not in self._known:
            self._known[key] = self._count(architecture)
        return self._known[key]

    def _count(self, architecture: Architecture) -> Cost:
        if architecture.trainer and trainer_named(architecture.trainer).model is None:
            # Decided here, so that torch is not imported to count nothing.
            return UNCOUNTED
        try:
            if architecture.code or self._has_own_rules:
                # A user's code can read what its identity does not name.
                return _counted(architecture)
            return _kept(architecture, self._counted)
        except Infeasible as error:
            self._refused[architecture.hash] = str(error)
            raise
        except (MemoryError, RuntimeError) as error:
            # torch reports a failed allocation as a RuntimeError.
            if "memory" not in str(error).lower():
                raise
            reason = "it does not fit into this machine's memory"
            self._refused[architecture.hash] = reason
            raise Infeasible(reason) from error


def _counted(architecture: Architecture) -> Cost:
    from ablate.cost import count

    return count(architecture)


def _kept(architecture: Architecture, count: Count) -> Cost:
    """Returns the cost from the cache folder; counts it if it is not there."""
    import numpy as np

    from ablate.machine import cache

    numbers = cache.array(
        f"cost {_revision()} {architecture.hash}",
        lambda: np.array(astuple(count(architecture)), dtype=np.int64),
    )
    return Cost(*map(int, numbers))


@cache_once
def _revision() -> str:
    """Returns what a counted cost depends on besides the architecture.

    This is more than the revision of stored costs: a change of this package counts at
    once.
    """
    stamp = hashlib.sha256()
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*.py")):
        stat = file.stat()
        stamp.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    libraries = [f"{name} {version(name)}" for name in LIBRARIES]
    return " ".join([str(COST_REVISION), stamp.hexdigest(), *libraries])
