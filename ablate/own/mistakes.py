"""Errors of a user's code while a network is built: a row that does not fit, or a mistake."""

from __future__ import annotations

import bdb
import sysconfig
import traceback
from pathlib import Path

from ablate.errors import AblateError, Infeasible, PartError, shortened

# What Python raises for a mistake in the code. Networks raise other errors, such as
# ValueError and torch's RuntimeError, for sizes that do not fit.
MISTAKES = (
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    TypeError,
    ZeroDivisionError,
)
_LIBRARIES = (
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
)


def refusal(what: str, error: Exception) -> AblateError:
    """What to raise from an error of a user's code.

    A mistake (PartError) stops the plan. Any other error makes the row infeasible.

    Args:
        what: what could not be done.
    """
    if isinstance(error, bdb.BdbQuit):
        return AblateError("the debugger was left")
    reason = f"{what}: {error_text(error)}"
    if isinstance(error, MISTAKES):
        return PartError(
            f"{reason}. To open the debugger there, type: ablate try FILE --pdb"
        )
    return Infeasible(reason)


def error_text(error: Exception) -> str:
    """The type and the first line of an error, with the line of the user's code."""
    lines = str(error).splitlines() or [""]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_LIBRARIES)
    ]
    where = ""
    if frames:
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    return f"{type(error).__name__}: {shortened(lines[0])}{where}"


def cause(error: BaseException) -> BaseException | None:
    """The error of other code that led to a message; None if there is none."""
    reason = error.__cause__
    while isinstance(reason, AblateError):
        reason = reason.__cause__
    return reason
