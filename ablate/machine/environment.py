"""Times in seconds that environment variables can change.

They are for machines on which the defaults do not fit.
"""

from __future__ import annotations

import math
import os

from ablate.errors import AblateError


def seconds(name: str, usual: float, *, or_never: bool = False) -> float:
    """Returns the seconds in an environment variable; by default `usual`.

    Args:
        or_never: 0 is allowed, and means never.

    Raises:
        AblateError: the value is not a positive number.
    """
    value = os.environ.get(name, "")
    try:
        number = float(value) if value else usual
    except ValueError:
        number = math.nan
    if math.isfinite(number) and (number > 0 or (or_never and number == 0)):
        return number
    least = "from 0 up (0: never)" if or_never else "above 0"
    raise AblateError(
        f"{name} = {value!r} is not a number of seconds {least}; set it as in"
        f" {name}={usual:g}, or unset it"
    )


# A checkpoint is written after an epoch if more seconds than this have passed since the
# last one, so a kill may cost these seconds and the running epoch. One is also written
# when a trial ends or is interrupted.
# It is read here, so that a wrong value ends the driver and not each trial.
CHECKPOINT_SECONDS = seconds("ABLATE_CHECKPOINT_SECONDS", 20)
