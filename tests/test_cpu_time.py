"""The rule on the CPU time of a test."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import time
import pytest

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_busy():
    busy(0.3)

@pytest.mark.proof
def test_proof():
    busy(0.3)

def test_waits():
    time.sleep(0.3)

def test_quick():
    pass
"""


def test_a_test_that_takes_long_fails_unless_it_is_a_proof(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nmarkers = proof\n")
    pytester.makepyfile(TESTS)
    with monkeypatch.context() as shorter:
        shorter.delenv("PYTEST_XDIST_WORKER", raising=False)
        shorter.setenv("SLOWEST", "slowest.txt")
        shorter.setattr("tests.cpu_time.MOST_SECONDS", 0.2)
        shorter.setattr("tests.cpu_time._slowest", [])
        result = pytester.runpytest_inprocess("-p", "tests.cpu_time")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["it took 0.3 seconds of CPU time*mark it as a proof"])
    listed = (pytester.path / "slowest.txt").read_text()
    assert {line.split("::")[1] for line in listed.splitlines()[:2]} == {
        "test_busy",
        "test_proof",
    }
