"""The short version of `make faults`: a few kills with a fixed seed."""

from __future__ import annotations

import pytest

from tests.faults.kill import main


@pytest.mark.slow
@pytest.mark.ray
def test_killed_drivers_and_workers_change_nothing() -> None:
    found = main(seed=2, count=2)
    assert found.problems == []
    assert found.kills.total() == 2
