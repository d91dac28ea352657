"""The error budget of a store: which verdicts stand beside those of other studies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special

from ablate.report.verdicts import LEVEL
from ablate.statistics.error_budget import (
    FIRST_WEALTH,
    ErrorBudget,
    StudyTest,
    error_budget,
    weight,
)


def budget(*p_values: float) -> ErrorBudget:
    tests = [
        StudyTest(name=str(number), p_values={"row 1": p})
        for number, p in enumerate(p_values)
    ]
    return error_budget(tests)


def test_weights_fall_and_add_up_to_one() -> None:
    weights = [weight(lag) for lag in range(1, 1000)]
    assert all(after < before for before, after in itertools.pairwise(weights))
    # The rest of the series: Hurwitz's zeta.
    rest = special.zeta(1.5, 1000) / special.zeta(1.5)
    assert sum(weights) + rest == pytest.approx(1)


def test_levels_are_those_of_lord() -> None:
    """By hand: two findings, at the second and the fourth study."""
    found = budget(0.5, 1e-6, 0.5, 1e-6, 0.5)
    first, earned = FIRST_WEALTH, LEVEL - FIRST_WEALTH
    expected = [
        first * weight(1),
        first * weight(2),
        first * weight(3) + earned * weight(1),
        first * weight(4) + earned * weight(2),
        first * weight(5) + earned * weight(3) + LEVEL * weight(1),
    ]
    assert [line.level for line in found.lines] == pytest.approx(expected)
    assert found.next_level == pytest.approx(
        first * weight(6) + earned * weight(4) + LEVEL * weight(2)
    )


def test_a_level_does_not_depend_on_its_own_study_or_later_ones() -> None:
    before = budget(0.5, 0.001, 0.2)
    after = budget(0.5, 0.001, 0.9, 1e-9, 1e-9)
    assert [line.level for line in before.lines] == [
        line.level for line in after.lines[:3]
    ]


def test_levels_add_up_to_five_per_cent_of_the_findings() -> None:
    generator = np.random.default_rng(1)
    p_values = generator.random(300) ** 4
    found = budget(*p_values)
    spent = findings = 0.0
    for line in found.lines:
        spent += line.level
        findings += bool(line.standing)
        assert spent <= LEVEL * max(1.0, findings)
    assert findings > 50


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_few_studies_with_findings_have_a_false_one(share: float) -> None:
    """Sixty studies with five rows each, some of which have one true effect."""
    generator = np.random.default_rng(2)
    false = found = first = 0
    repetitions = 400
    for _ in range(repetitions):
        has_effect = generator.random(60) < share
        z = generator.standard_normal((60, 5))
        z[:, 0] += 5 * has_effect
        p_values = np.minimum(1.0, 5 * 2 * special.ndtr(-np.abs(z)))
        tests = [
            StudyTest(name=str(one), p_values={str(k): p for k, p in enumerate(row)})
            for one, row in enumerate(p_values)
        ]
        for line, true in zip(error_budget(tests).lines, has_effect, strict=True):
            found += bool(line.standing)
            false += any(not true or name != "0" for name in line.standing)
            first += any(not true or name != "0" for name in line.own)
    assert false <= LEVEL * max(repetitions, found) * 1.2
    assert first > 3 * false, "without the budget there are many more"
    if share == 0.3:
        assert found > 5 * repetitions


def test_a_study_without_a_test_has_no_finding() -> None:
    found = error_budget([StudyTest(name="empty", p_values={})])
    assert found.lines[0].test.p == 1.0
    assert found.lines[0].standing == ()
