"""The cost of each architecture, counted once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import astuple
from functools import cache as cache_once
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ablate.errors import Infeasible
from ablate.machine.cpus import usable_cpus
from ablate.own import registry
from ablate.parts import trainer_named
from ablate.records import COST_REVISION, UNCOUNTED, Architecture, Cost

Count = Callable[[Architecture], Cost]

# From so many architectures on, several processes count: importing torch takes as long as
# counting a hundred small networks.
MANY = 300
# The libraries whose networks and operators are counted.
LIBRARIES = ("torch", "torchvision", "timm", "fvcore")


class CostCache:
    """The cost by architecture: the stored one if there is one, else the counted one.

    A counted cost is kept in the user's cache folder, so that the next command need not
    count it, unless the architecture has parts of a user. The same holds for the reason
    why an architecture cannot be built. It imports torch only when it counts.

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

    def ahead(self, architectures: Callable[[], Iterable[Architecture]]) -> None:
        """Counts many architectures on all cores, for the calls that follow.

        With few of them, or one core, it does nothing: each call counts one.
        """
        cores = usable_cpus()
        if self._counted is not _counted or self._has_own_rules or cores < 2:
            return
        from ablate.machine import cache

        different = {each.hash: each for each in architectures()}
        missing = [
            each
            for key, each in different.items()
            if key not in self._known
            and not each.code
            and not each.trainer
            and not cache.has(_key(each))
        ]
        if len(missing) >= MANY:
            from ablate.execution.counting import count_ahead

            count_ahead(missing, cores, _kept)

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
    """Returns the cost from the cache folder; counts it if it is not there.

    The cache also has the reason why a network cannot be built, as the bytes of its text.

    Raises:
        Infeasible: it cannot be built.
    """
    import numpy as np

    from ablate.machine import cache

    def counted() -> np.ndarray[Any, Any]:
        try:
            return np.array(astuple(count(architecture)), dtype=np.int64)
        except Infeasible as error:
            return np.frombuffer(str(error).encode(), dtype=np.uint8)

    kept = cache.array(_key(architecture), counted)
    if kept.dtype == np.uint8:
        raise Infeasible(kept.tobytes().decode())
    return Cost(*map(int, kept))


def _key(architecture: Architecture) -> str:
    return f"cost {revision()} {architecture.hash}"


@cache_once
def revision() -> str:
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
    # A network that does not fit into the memory is refused.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return " ".join([str(COST_REVISION), stamp.hexdigest(), str(memory), *libraries])
