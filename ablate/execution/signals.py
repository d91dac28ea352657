"""Handlers of signals that stay in the process that has set them.

A fork inherits the handlers of its parent. A process of a user's
`multiprocessing.Pool` would then not end by SIGTERM, and the pool would wait for ever.
So a fork of a process that calls `keep` has the handlers of a new process.

A signal that reaches the fork before its handlers are reset waits until they are: the
signals are blocked during the fork. Otherwise Python would swallow it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Those that end a new process. Ctrl-C raises an exception, which a hook of a fork cannot
# pass on.
ENDS = (signal.SIGTERM, signal.SIGHUP)
# What a handler was before `keep`, by signal.
_kept: dict[int, Any] = {}
# The mask of the thread that forks.
_mask = threading.local()


def keep(number: int, handler: Callable[..., None]) -> Any:
    """Sets a handler for this process and none of its forks; returns the old one."""
    before = signal.signal(number, handler)
    _kept.setdefault(number, before)
    return before


def give_back(number: int, handler: Any) -> None:
    """Sets a handler that `keep` returned."""
    _kept.pop(number, None)
    signal.signal(number, handler)


def leave_to_driver() -> None:
    """Makes this process wait for its driver, which decides what a signal means.

    The signals have handlers, because programs that this process starts would inherit
    ignored signals.
    """
    for number in STOPS:
        keep(number, _do_nothing)


def _do_nothing(*_: object) -> None:
    pass


def _before_fork() -> None:
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)


def _after_fork_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _after_fork_in_child() -> None:
    while _kept:
        number, handler = _kept.popitem()
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
