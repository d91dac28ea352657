"""Notices that the first trials of a study all fail in the same way.

Then the others would fail too, and a run that goes on wastes their time. As many trials
must fail as run at once, and at least two, all with the same error and before any
metric. Trials that have failed come last in the next run, so that a run gets beyond
rows that cannot be trained.
"""

from __future__ import annotations

import re

from ablate.records import Ended, Event, Progressed, Started, Status

# A single failure says nothing of the other trials.
LEAST = 2
# What differs between equal errors of two trials: numbers, addresses, hashes.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+")


class FirstFailures:
    """Counts the failures of a run.

    Args:
        is_first: whether the study has no result yet.

    Attributes:
        error: the last line of the common error; empty if the run is to go on.
    """

    def __init__(self, *, is_first: bool) -> None:
        self._watches = is_first
        self._running: set[str] = set()
        self._most_at_once = 0
        self._errors: list[str] = []
        self.error = ""

    def count(self, event: Event) -> None:
        """Takes one event of the run into account."""
        if not self._watches:
            return
        if isinstance(event, Started):
            self._running.add(event.trial)
            self._most_at_once = max(self._most_at_once, len(self._running))
        elif isinstance(event, Progressed):
            self._watches = False
        elif isinstance(event, Ended):
            self._running.discard(event.trial)
            self._end(event)

    def _end(self, event: Ended) -> None:
        if event.status == Status.RUNNING:
            # An interruption, or a trial that goes back to the queue.
            return
        if event.status != Status.FAILED:
            self._watches = False
            return
        lines = [line for line in event.error.splitlines() if line.strip()]
        self._errors.append(lines[-1].strip() if lines else "")
        kinds = {_VARIABLE.sub("#", error) for error in self._errors}
        if len(kinds) > 1:
            self._watches = False
        elif len(self._errors) >= max(LEAST, self._most_at_once):
            self.error = self._errors[0]
