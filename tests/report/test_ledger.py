"""The ledger: what is particular about runs without common seeds and other families."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ablate.records import (
    Before,
    Comparison,
    Reported,
    Standing,
    Status,
    StudyResults,
)
from ablate.report.effects import control_effects, effects, level_of
from ablate.report.verdicts import Verdict, Withheld
from ablate.statistics import spending
from tests.benchmarks import load

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def values(*means: float, seeds: int = 6) -> Array:
    noise = np.random.default_rng(3).normal(0, 0.3, (len(means), seeds))
    return np.array(means)[:, None] + noise


def keyed(
    study: StudyResults, keys: str, *earlier: StudyResults, known: str = ""
) -> StudyResults:
    """A study of a group, with the key of each row."""
    rows = {
        number: Comparison(
            standing=Standing.KNOWN if key in known else Standing.TESTED, key=key
        )
        for number, key in enumerate(keys)
    }
    before = Before(generation=1 + len(earlier), rows=rows, studies=earlier)
    return replace(study, name=f"study {len(earlier)}", before=before)


def apart(study: StudyResults) -> StudyResults:
    return replace(study, reported=Reported(file="", is_paired=False))


def test_unpaired_survivors_have_no_verdict(trust: ModuleType) -> None:
    study = apart(trust.made(values(70, 80, 80), trust.names(3)))
    assert {effect.verdict for effect in effects(study, 0.5)} == {Verdict.HELPS}
    row_0, first, second = study.cells
    lost = replace(first, statuses={**first.statuses, 9: Status.DIVERGED})
    study = replace(study, cells=(row_0, lost, second))
    first_effect, second_effect = effects(study, 0.5)
    assert first_effect.withheld is Withheld.DIVERGED
    assert second_effect.verdict is Verdict.HELPS


@pytest.mark.parametrize("is_paired", [True, False])
def test_against_the_best_row_so_far_a_row_can_only_help(
    trust: ModuleType, is_paired: bool
) -> None:
    first = trust.made(values(70, 80), trust.names(2))
    second = trust.made(values(80, 60, 90), trust.names(3))
    if not is_paired:
        first, second = apart(first), apart(second)
    second = keyed(second, "bcd", keyed(first, "ab"), known="b")
    worse, better = effects(second, 0.5)
    assert worse.verdict is Verdict.INCONCLUSIVE
    assert worse.withheld is Withheld.NOT_BETTER
    assert better.verdict is Verdict.HELPS


def test_other_families_keep_a_level_if_rows_are_added(trust: ModuleType) -> None:
    """Their looks add up to less than the seeds allow, however many there are."""
    studies: list[StudyResults] = []
    levels = []
    for _ in range(6):
        study = keyed(trust.made(values(70, 71), trust.names(2)), "ab", *studies)
        levels.append(level_of(study))
        studies.append(replace(study, before=replace(study.before, studies=())))
    assert min(levels) > 0
    assert levels == sorted(levels, reverse=True)
    assert sum(levels) < spending.spent(6)


def test_a_control_says_how_many_seeds_would_decide(trust: ModuleType) -> None:
    study = trust.made(values(70, 70.3, 70), trust.names(3))
    row_0, variant, control = study.cells
    control = replace(control, role="control", control_of=1)
    study = replace(study, cells=(row_0, variant, control))
    (effect,) = control_effects(study, 0.2, declared=True)
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert effect.further is not None and effect.further > 0
