"""A clock that can be set, for every Python process of a run.

`ABLATE_TEST_CLOCK` names a file with the seconds by which the clock is wrong; it may
change at any time. `datetime.now` is made in C and stays right: whatever of ablate asks
for the time of day asks `time.time`.
"""

import os
import time

_FILE = os.environ.get("ABLATE_TEST_CLOCK", "")
_time, _time_ns, _monotonic = time.time, time.time_ns, time.monotonic
_seen = [0.0, -1.0]


def _wrong_by() -> float:
    if _monotonic() - _seen[1] > 0.2:
        _seen[1] = _monotonic()
        try:
            with open(_FILE) as stream:
                _seen[0] = float(stream.read() or 0)
        except (OSError, ValueError):
            pass
    return _seen[0]


def install() -> None:
    """Replaces the clock where the variable names a file."""
    if _FILE:
        time.time = lambda: _time() + _wrong_by()
        time.time_ns = lambda: _time_ns() + int(_wrong_by() * 1e9)
