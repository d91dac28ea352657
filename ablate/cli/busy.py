"""Says that a command is still at work, if it takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablate.cli.output import duration, tell_line

# The first line comes after so many seconds, and each other one after twice as many.
FIRST = 4.0


@contextmanager
def busy(what: str, first: float = FIRST) -> Iterator[None]:
    """Prints a line on stderr now and then while this lasts; none if it is short.

    Args:
        what: the work, as `counting costs`.
        first: seconds until the first line.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_lines, args=(what, first, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _lines(what: str, first: float, ended: threading.Event) -> None:
    begin = time.monotonic()
    wait = first
    while not ended.wait(wait):
        tell_line(f"{what}: {duration(time.monotonic() - begin)} so far")
        wait *= 2
