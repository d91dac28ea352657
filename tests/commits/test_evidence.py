"""The evidence for a proposal: an e-value by hand, and what it promises."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ablate.records import Decision
from ablate.statistics import evidence
from ablate.statistics.evidence import decide, needed, share_of

NEVER = 1e100


def test_the_shares_of_all_proposals_add_up_to_one_at_most() -> None:
    numbers = np.arange(1, 2_000_001) + evidence.OFFSET
    shares = 1 / (numbers * np.log(numbers) ** 2) / evidence.TOTAL
    assert share_of(1) == pytest.approx(shares[0])
    # The rest is at most the integral from the last number on.
    total = shares.sum() + 1 / math.log(numbers[-1]) / evidence.TOTAL
    assert 0.999 < total <= 1


def test_what_is_needed_falls_with_each_kept_proposal() -> None:
    assert needed(1, 0) == pytest.approx(1 / (0.05 * share_of(1)))
    assert needed(7, 2) == pytest.approx(needed(7, 0) / 3)
    assert needed(50, 0) > needed(1, 0)


def test_the_first_bet_is_half_of_the_stake() -> None:
    assert decide([0.3], [], NEVER, most=600).value == 1.5
    assert decide([-0.3], [], NEVER, most=600).value == 0.5
    assert decide([0.0], [], NEVER, most=600).value == 1


def test_a_later_bet_knows_the_noise_by_hand() -> None:
    # Earlier differences 1 and 3: median 2, deviations 1 and 1, each times sqrt(2).
    noise = 1.4826 * math.sqrt(2)
    odds = 2 * 2 * 0.5 / noise
    wanted = 2 / (1 + math.exp(-odds))
    assert decide([0.5], [[1.0, 3.0]], NEVER, most=600).value == pytest.approx(wanted)
    # Odds are capped: a difference of any size changes the stake by little more.
    best = decide([1e9], [[1.0, 3.0]], NEVER, most=600)
    assert best.value == pytest.approx(2 / (1 + math.exp(-3)))


def test_a_bet_is_fair() -> None:
    """Whatever is known before, a difference and its opposite have factors of mean 1."""
    for known, size in itertools.product(
        ([], [[1.0, 2.0]], [[0.0, 0.0]], [[5.0]]), (1e-12, 0.1, 3.0, 1e12, math.inf)
    ):
        up, down = (
            decide([sign * size], known, NEVER, most=600).value for sign in (1, -1)
        )
        assert up + down == pytest.approx(2)
        assert up > 1


def test_the_mean_of_the_evidence_is_one_without_a_difference() -> None:
    """Over all signs of fixed sizes: exactly, whatever the sizes are."""
    sizes = [0.3, 2.0, 0.01, 5.0, 0.7, 1.1, 0.0, 40.0, 0.2, 3.0]
    total = 0.0
    signs = list(itertools.product((1, -1), repeat=len(sizes)))
    give_up, evidence.GIVE_UP = evidence.GIVE_UP, 0.0
    try:
        for each in signs:
            differences = [sign * size for sign, size in zip(each, sizes, strict=True)]
            total += decide(differences, [[0.5, 1.5, 9.0]], NEVER, most=600).value
    finally:
        evidence.GIVE_UP = give_up
    assert total / len(signs) == pytest.approx(1)


def test_a_decision_does_not_change_with_later_seeds() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        differences = [float(each) for each in generator.normal(1, 1, 20)]
        whole = decide(differences, [[0.1, 1.3, -0.4]], 400.0)
        for number in range(1, 21):
            part = decide(differences[:number], [[0.1, 1.3, -0.4]], 400.0)
            if number < whole.seeds:
                assert part.decision is Decision.MORE_SEEDS
            else:
                assert (part.decision, part.value) == (whole.decision, whole.value)


def test_a_clear_gain_is_kept_and_a_loss_is_discarded_at_once() -> None:
    kept = decide([2.0 + 0.1 * (seed % 3) for seed in range(20)], [], needed(1, 0))
    assert kept.decision is Decision.KEEP
    assert kept.seeds == 11
    lost = decide([-2.0, -2.1, -2.2], [[0.1, 0.2]], needed(1, 0))
    assert (lost.decision, lost.seeds) == (Decision.DISCARD, 1)
    assert lost.reason == "its seeds speak against it"


def test_equal_results_end_after_two_seeds() -> None:
    same = decide([0.0, 0.0, 5.0], [], needed(1, 0))
    assert (same.decision, same.seeds) == (Decision.DISCARD, 2)
    assert "exactly the same results" in same.reason
    assert decide([0.0, 1.0], [], needed(1, 0)).decision is Decision.MORE_SEEDS


def test_a_proposal_that_cannot_be_kept_any_more_is_discarded() -> None:
    ended = decide([0.1, -0.05, 0.1, -0.05] * 3, [], needed(1, 0), most=12)
    assert ended.decision is Decision.DISCARD
    assert ended.reason == "12 seeds could no longer show that it is better"
    assert decide([1.0] * 30, [], 1e12).seeds <= 20


def test_training_that_diverged_counts() -> None:
    assert decide([-math.inf], [], needed(1, 0)).decision is Decision.DISCARD
    gained = decide([math.inf] * 20, [], needed(1, 0))
    assert gained.decision is Decision.KEEP
    known = decide([math.inf, 0.5], [[math.inf, 1.0, 2.0]], NEVER, most=600)
    assert math.isfinite(known.value)
