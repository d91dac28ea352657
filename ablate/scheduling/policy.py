"""Which stored trials a run accepts as results, and which it trains again."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.records import WITH_RESULT, Known, Space, Status


@dataclass(frozen=True)
class Policy:
    """The rule of one study, which all parts of a run apply.

    Attributes:
        results: statuses that count as a result.
        again: statuses of trials that are trained again or continued.
    """

    results: tuple[Status, ...]
    again: tuple[Status, ...]

    @classmethod
    def of(cls, space: Space) -> Policy:
        """The rule for a space.

        A trial that a scheduler pruned is a result only where trials are pruned too. In
        a study without a scheduler it is trained to its end.
        """
        if space.scheduler.name == "fifo":
            return cls(results=WITH_RESULT, again=(Status.FAILED, Status.PRUNED))
        return cls(results=(*WITH_RESULT, Status.PRUNED), again=(Status.FAILED,))

    def is_result(self, known: Known | None) -> bool:
        """Whether nothing is left to train for a trial."""
        return known is not None and known.status in self.results
