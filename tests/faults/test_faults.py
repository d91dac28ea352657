"""The short version of `make faults`: a few faults with a fixed seed."""

from __future__ import annotations

import random

import pytest

from tests.faults.fault import FAULTS
from tests.faults.harness import draw, main


def test_two_hundred_faults_are_of_every_kind_and_sixty_are_sigkills() -> None:
    deck = draw(200, random.Random(0))
    assert len(deck) == 200
    assert {kind.name for kind in deck} == set(FAULTS)
    assert sum(kind.sigkill for kind in deck) >= 60


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.proof
def test_faults_change_nothing() -> None:
    kinds = ["SIGKILL of the driver", "SIGKILL of a worker", "checkpoint with a flipped bit"]
    found = main(seed=3, count=3, names=kinds)
    assert found.problems == []
    assert found.tried.total() == 3
