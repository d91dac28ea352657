"""Effects of factors on simulated grids with known effects: a part of `make trust`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from made_up import MARGIN, SAID, drawn, made, space_of

from ablate.plan.designs import combinations
from ablate.records import Design, Level, Seeds, StudyResults
from ablate.report.factorial import Factorial, Term

# Planted effects of two factors, and what both do together beside.
A, B, AB = 0.6, -0.3, 0.5


def varying_factor(generator: np.random.Generator, seeds: int) -> StudyResults:
    """A 2 x 2 x 2 grid without effects on average: what factor a does differs from seed
    to seed (sd 1 point).
    """
    levels: list[dict[str, Level]] = [
        dict(zip("abc", cell, strict=True))
        for cell in itertools.product((0, 1), (0, 1), (0, 1))
    ]
    values = drawn(generator, [0.0] * 8, seeds)
    slopes = generator.normal(0, 1, seeds)
    values += np.array([[cell["a"]] for cell in levels], dtype=float) * slopes
    return made(values, levels)


def false_main_effects(count: int, seeds: int) -> tuple[float, float]:
    """The share of such studies with a main effect that helps or hurts, and how often
    the interval of factor a contains 0.
    """
    generator = np.random.default_rng(37)
    base: dict[str, Level] = dict.fromkeys("abc", 0)
    wrong = inside = 0
    for _ in range(count):
        model = Factorial(varying_factor(generator, seeds), base)
        terms = model.main_effects(MARGIN, "max")
        wrong += any(term.judged and term.judged.verdict in SAID for term in terms)
        assert terms[0].estimate is not None
        inside += terms[0].estimate.low <= 0 <= terms[0].estimate.high
    return wrong / count, inside / count


def factorial_study(generator: np.random.Generator, seeds: int) -> StudyResults:
    levels: list[dict[str, Level]] = [
        dict(zip("abc", cell, strict=True))
        for cell in itertools.product((0, 1), (0, 1), (0, 1))
    ]
    means = [
        A * bool(cell["a"]) + B * bool(cell["b"]) + AB * bool(cell["a"] and cell["b"])
        for cell in levels
    ]
    return made(drawn(generator, means, seeds), levels)


def truth_of(term: Term) -> float:
    """What was planted: averages over the other factor hold half of the interaction."""
    found = {("a",): A + AB / 2, ("b",): B + AB / 2, ("c",): 0.0, ("a", "b"): AB}.get(
        term.factors, 0.0
    )
    if term.kind == "alone":
        return {"a": A, "b": B}.get(term.factors[0], 0.0)
    if term.kind == "left out":
        return {"a": A + AB, "b": B + AB}.get(term.factors[0], 0.0)
    return found


def coverage_of_terms(count: int, seeds: int) -> Iterator[tuple[str, float, float]]:
    """For each kind of term how often its interval holds what was planted, and its mean
    error.
    """
    generator = np.random.default_rng(13)
    inside: dict[str, list[bool]] = {}
    errors: dict[str, list[float]] = {}
    base: dict[str, Level] = dict.fromkeys("abc", 0)
    full: dict[str, Level] = dict.fromkeys("abc", 1)
    for _ in range(count):
        model = Factorial(factorial_study(generator, seeds), base)
        found = [
            *model.main_effects(MARGIN, "max"),
            *model.interactions(MARGIN, "max"),
            *model.contributions(full, MARGIN, "max"),
        ]
        for term in found:
            assert term.estimate is not None
            inside.setdefault(term.kind, []).append(
                term.estimate.low <= truth_of(term) <= term.estimate.high
            )
            errors.setdefault(term.kind, []).append(
                term.estimate.value - truth_of(term)
            )
    for kind, held in inside.items():
        yield kind, float(np.mean(held)), float(np.mean(errors[kind]))


def coverage_of_fraction(count: int, seeds: int) -> float:
    """The same for main effects in a fraction of resolution IV of six factors, two of
    which interact.
    """
    factors: dict[str, tuple[Level, ...]] = dict.fromkeys("abcdef", (0, 1))
    space = space_of(factors, Design("fractional"), Seeds(numbers=(0,)))
    levels = [dict(cell) for cell in combinations(space)]
    means = [
        A * bool(cell["a"]) + B * bool(cell["b"]) + AB * bool(cell["a"] and cell["b"])
        for cell in levels
    ]
    generator = np.random.default_rng(17)
    inside = []
    for _ in range(count):
        model = Factorial(
            made(drawn(generator, means, seeds), levels), space.factors.baseline
        )
        for term in model.main_effects(MARGIN, "max"):
            assert term.estimate is not None
            inside.append(term.estimate.low <= truth_of(term) <= term.estimate.high)
    return float(np.mean(inside))
