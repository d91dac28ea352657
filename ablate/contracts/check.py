"""One check of a part, and how it fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class BrokenContract(Exception):
    """A part does not keep what the others rely on; the message says what and why."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        what: what holds if it passes, as a test report says it.
        run: raises BrokenContract, or whatever the part raises.
    """

    what: str
    run: Callable[[], None]

    def problem(self) -> str:
        """Runs the check. Returns why it failed; empty if it passed."""
        try:
            self.run()
        except BrokenContract as error:
            return str(error)
        except Exception as error:
            # The part's own mistake: its last line says most.
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            return f"{type(error).__name__}: {error} ({place})"
        return ""


def require(condition: bool, message: str) -> None:
    """Raises BrokenContract with the message unless the condition holds."""
    if not condition:
        raise BrokenContract(message)
