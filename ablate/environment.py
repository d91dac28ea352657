"""Numbers of seconds that the environment may set, for those who run ablate where the
usual ones do not fit.
"""

from __future__ import annotations

import math
import os

from ablate.errors import AblateError


def seconds(name: str, usual: float, *, or_never: bool = False) -> float:
    """The seconds that an environment variable says, else the usual ones.

    Args:
        or_never: 0 is allowed, and means never.

    Raises:
        AblateError: it says no positive number.
    """
    said = os.environ.get(name, "")
    try:
        found = float(said) if said else usual
    except ValueError:
        found = math.nan
    if math.isfinite(found) and (found > 0 or (or_never and found == 0)):
        return found
    least = "0 (never) or more" if or_never else "above 0"
    raise AblateError(
        f"{name} = {said!r} is no number of seconds {least}; write one as in"
        f" {name}={usual:g}, or unset it"
    )
