"""What tuning chose: the expected best setting, edges and choices by hand."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.records import CellResult, Direction, Tune
from ablate.report.tuning import (
    Edge,
    TunedRow,
    _near,
    best_setting,
    edges_of,
    expected_best,
    sensitivity,
)

SCORES = st.lists(
    st.floats(0, 100, allow_nan=False), min_size=1, max_size=7, unique=True
)


@given(SCORES, st.sampled_from(["max", "min"]))
def test_the_expected_best_is_the_mean_over_all_choices(
    scores: list[float], direction: Direction
) -> None:
    best = max if direction == "max" else min
    curve = expected_best(scores, direction)
    assert [point.settings for point in curve] == list(range(1, len(scores) + 1))
    for point in curve:
        choices = list(itertools.combinations(scores, point.settings))
        values = sorted(best(choice) for choice in choices)
        assert point.mean == pytest.approx(statistics.fmean(values))
        assert point.low <= point.high
        below = sum(value < point.low for value in values) / len(values)
        above = sum(value > point.high for value in values) / len(values)
        assert below <= 0.1 + 1e-9
        assert above <= 0.1 + 1e-9
    assert curve[-1].low == curve[-1].high == best(scores)


def test_of_equal_settings_the_first_is_chosen() -> None:
    assert best_setting({2: [80.0], 0: [70.0], 1: [80.0]}, "max") == 1
    assert best_setting({2: [0.1], 0: [0.3], 1: [0.1]}, "min") == 1


def test_a_setting_with_a_lost_trial_is_the_last_choice() -> None:
    assert best_setting({0: [90.0, None], 1: [70.0, 72.0]}, "max") == 1
    assert best_setting({3: [None], 5: [None]}, "max") == 3


def tune(draws: list[float]) -> Tune:
    return Tune(
        points=tuple({"recipe.lr": level} for level in draws),
        metric="top1",
        direction="max",
        levels={"recipe.lr": (min(draws), max(draws))},
        ranges={"recipe.lr": "log"},
    )


def row(scores: dict[int, float], close: tuple[int, ...] | None = ()) -> TunedRow:
    return TunedRow(
        cell=CellResult(
            index=1,
            levels={},
            unread=frozenset(),
            role="variant",
            note="",
            same_as=None,
            cost=None,
            statuses={},
            values={},
        ),
        scores=scores,
        close=close,
        at_row_0=None,
        own=None,
        gain=None,
        gain_interval=None,
        has_setting_of_row_0=False,
    )


def test_settings_near_the_best_are_counted() -> None:
    declared = tune([1e-3, 2e-3, 4e-3, 8e-3])
    scores = {0: 80.0, 1: 79.1, 2: 78.0, 3: 70.0}
    assert _near(scores, declared, 0.5) == 2
    assert _near(scores, declared, 1.0) == 3
    assert _near(scores, declared, None) is None


def test_the_best_setting_at_an_edge() -> None:
    declared = tune([1e-3, 2e-3, 4e-3])
    assert edges_of(row({0: 70, 1: 75, 2: 80}), declared) == [
        Edge("recipe.lr", 4e-3, is_low=False)
    ]
    assert edges_of(row({0: 80, 1: 75, 2: 70}), declared) == [
        Edge("recipe.lr", 1e-3, is_low=True)
    ]
    assert edges_of(row({0: 70, 1: 80, 2: 75}), declared) == []


def test_no_objection_if_a_setting_inside_is_about_as_good() -> None:
    declared = tune([1e-3, 2e-3, 4e-3])
    assert edges_of(row({0: 70, 1: 79.9, 2: 80}, close=(1,)), declared) == []


def test_words_have_no_edge() -> None:
    declared = Tune(
        points=({"recipe.schedule": "cosine"}, {"recipe.schedule": "constant"}),
        metric="top1",
        direction="max",
        levels={"recipe.schedule": ("cosine", "constant")},
    )
    assert edges_of(row({0: 70, 1: 80}), declared) == []


def test_the_sensitivity_is_the_mean_distance_from_the_best() -> None:
    declared = tune([1e-3, 2e-3, 4e-3])
    assert sensitivity(row({0: 70, 1: 80, 2: 75}), declared) == pytest.approx(5)
    assert sensitivity(row({0: 70}), declared) is None
