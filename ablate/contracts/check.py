"""One check of a part, and how it fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablate.errors import Infeasible


class BrokenContract(Exception):
    """A part does not keep what the others rely on; the message says what and why."""


@dataclass(frozen=True)
class Outcome:
    """How a check ended.

    Attributes:
        result: refused: the part declares that it does not fit any network of the check
            (`Infeasible`), so nothing was checked.
        why: the reason, unless it is ok.
    """

    result: Literal["ok", "refused", "BROKEN"]
    why: str = ""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        what: what holds if it passes, as a test report says it.
        run: raises BrokenContract, or whatever the part raises.
    """

    what: str
    run: Callable[[], None]

    def outcome(self) -> Outcome:
        """Runs the check."""
        try:
            self.run()
        except BrokenContract as error:
            return Outcome("BROKEN", str(error))
        except Infeasible as error:
            return Outcome("refused", str(error))
        except Exception as error:
            # The part's own mistake: its last line says most.
            last = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{Path(last.filename).name}:{last.lineno}"
            return Outcome("BROKEN", f"{type(error).__name__}: {error} ({line})")
        return Outcome("ok")


def require(condition: bool, message: str) -> None:
    """Raises BrokenContract with the message unless the condition holds."""
    if not condition:
        raise BrokenContract(message)
