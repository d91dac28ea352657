"""A test of `make test` takes at most two seconds of CPU time, or is a proof.

CPU time, not wall time: other work on the machine fails no test. What a fixture prepares
is not counted, and a test that imports much, or computes what the cache then keeps for
others, is not judged: it may be the first one that needs torch, or a simulation. With
SLOWEST=FILE, the slowest tests are written there.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

MOST_SECONDS = 2.0
# Tests with these marks may take longer; `make test` leaves them out.
LONG = ("proof", "ray", "browser", "gpu")
# A test that imports more modules is not judged.
MOST_IMPORTS = 50
LISTED = 50
USED = "seconds of CPU time"
FIRST = "is the first one that needs something"

_slowest: list[tuple[float, float, str]] = []


def seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Measures a test."""
    start, modules, files = seconds(), len(sys.modules), cached_files()
    try:
        yield
    finally:
        used = seconds() - start
        imports = len(sys.modules) - modules
        is_first = imports > MOST_IMPORTS or cached_files() != files
        item.user_properties += [(USED, used), (FIRST, is_first)]


def cached_files() -> int:
    """The number of files in the cache that the tests share."""
    folder = os.environ.get("ABLATE_CACHE", "")
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test that took too long."""
    report = yield
    if call.when != "call" or not report.passed:
        return report
    measured = dict(item.user_properties)
    used = float(str(measured[USED]))
    is_long = any(map(item.get_closest_marker, LONG))
    if used > MOST_SECONDS and not measured[FIRST] and not is_long:
        report.outcome = "failed"
        report.longrepr = (
            f"it took {used:.1f} {USED}, and a test may take {MOST_SECONDS:g}: shorten it,"
            " or mark it as a proof"
        )
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps how long a test took."""
    if report.when == "call":
        used = float(str(dict(report.user_properties).get(USED, 0.0)))
        _slowest.append((used, report.duration, report.nodeid))


def pytest_sessionfinish() -> None:
    """Writes the slowest tests. With several processes, only the first one does."""
    file = os.environ.get("SLOWEST")
    if not file or "PYTEST_XDIST_WORKER" in os.environ:
        return
    lines = [
        f"{used:7.1f} s CPU {wall:7.1f} s {name}\n"
        for used, wall, name in sorted(_slowest, reverse=True)[:LISTED]
    ]
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text("".join(lines))
