"""The cost of each architecture, counted once."""

from __future__ import annotations

from ablate.errors import Infeasible
from ablate.parts import trainer_named
from ablate.records import UNCOUNTED, Architecture, Cost


class CostCache:
    """The cost by architecture: the stored one if there is one, else the counted one.

    It also remembers which architectures cannot be built. It imports torch only when
    it counts.
    """

    def __init__(self, known: dict[str, Cost]) -> None:
        self._known = known
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
        from ablate.cost import count

        try:
            return count(architecture)
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
