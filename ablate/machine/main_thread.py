"""Runs a user's training function in the main thread where that is possible.

Python allows only the main thread to set handlers of signals, and some libraries do so.
The main thread of a worker does nothing but run a user's functions (`lend`), and another
thread answers the requests. In any other process, a function gets a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import NoReturn


class Running:
    """A function that runs, in the main thread or in one of its own."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._ended = threading.Event()

    def run(self) -> None:
        """Runs the function."""
        try:
            self._function()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    def join(self, seconds: float | None = None) -> None:
        """Waits until it has ended, for so long at most."""
        self._ended.wait(seconds)


class _Lender:
    """The main thread of a worker, as others see it."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Running] = queue.SimpleQueue()
        self._last: Running | None = None
        self.is_open = False

    def give(self, task: Running) -> bool:
        """Has the main thread run a task; returns False if it is busy or not lent."""
        if not self.is_open or (self._last is not None and self._last.is_alive()):
            return False
        self._last = task
        self._tasks.put(task)
        return True

    def serve(self) -> NoReturn:
        self.is_open = True
        while True:
            self._tasks.get().run()


_lender = _Lender()


def lend() -> NoReturn:
    """Runs functions in this thread, the main thread, until the process ends."""
    _lender.serve()


def start(function: Callable[[], None]) -> Running:
    """Runs a function in the main thread if it is lent, else in a thread of its own."""
    running = Running(function)
    if not _lender.give(running):
        threading.Thread(target=running.run, name="trainer", daemon=True).start()
    return running
