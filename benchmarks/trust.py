"""Tests the statistics on simulated studies with known effects: `make trust`.

Draws studies from a known model (cell means, a random seed effect, noise), passes them
through the same functions that tables, verdicts and dashboards use, and compares the
output with the known effects. --write writes docs/trust.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import across
import chains
import elsewhere
import numpy as np
import tuning
import workflows
from factor_effects import (
    coverage_of_fraction,
    coverage_of_terms,
    factorial_study,
    false_main_effects,
)
from images import image_lines, image_proofs
from made_up import (
    BEYOND,
    MARGIN,
    NOISE,
    NOISES,
    SAID,
    SEED_SD,
    UNEQUAL,
    Noise,
    Proof,
    decided,
    drawn,
    in_steps,
    made,
    names,
    normal,
    planned,
    skewed_variants,
)
from row_0 import false_verdicts as false_with_extra_seeds
from users import fooled, tunes_the_baseline_of_declared_studies, user_proofs

from ablate.records import (
    Before,
    Looks,
    StudyResults,
)
from ablate.report.effect import LEAST_CHANCE, paired
from ablate.report.effects import effects
from ablate.report.factorial import Factorial
from ablate.report.pareto import pareto_table
from ablate.report.verdicts import Verdict, verdicts_by_holm
from ablate.statistics.seeds_needed import MOST

# What other commands measure, each named below its table.
MORE = Path(__file__).parent / "more_trust.md"
NO_FALSE_VERDICT = (
    "studies without effects that have a verdict *helps* or *hurts*: at most 5 %"
)


def false_verdicts(
    count: int,
    cells: int,
    seeds: int,
    noise: Noise = normal,
    images: int | None = None,
) -> float:
    """The share of studies without any effect in which `helps` or `hurts` is said of
    some cell.
    """
    generator = np.random.default_rng(cells * 1000 + seeds)
    wrong = 0
    for _ in range(count):
        values = drawn(generator, [0.0] * cells, seeds, noise)
        values = values if images is None else in_steps(values, images)
        results = made(values, names(cells))
        wrong += any(effect.verdict in SAID for effect in effects(results, MARGIN))
    return wrong / count


def with_primary(results: StudyResults, rows: Sequence[int]) -> StudyResults:
    """The study with rows that were declared as primary, in this order."""
    return replace(results, primary=tuple(rows))


def false_primary(
    count: int, cells: int, seeds: int, noise: Noise, *, first_differs: bool
) -> float:
    """The share of studies in which `helps` or `hurts` is said of a row without effect,
    if the first half of the rows are primary.

    Args:
        first_differs: whether the first of them has an effect of five standard
            deviations, so that the next ones are tested.
    """
    generator = np.random.default_rng(43)
    means = [0.0] * cells
    if first_differs:
        means[1] = 5 * NOISE
    primary = range(1, cells // 2 + 1)
    wrong = 0
    for _ in range(count):
        results = made(drawn(generator, means, seeds, noise), names(cells))
        found = effects(with_primary(results, primary), MARGIN)
        wrong += any(
            effect.verdict in SAID for effect in found if not means[effect.row]
        )
    return wrong / count


def power(
    count: int, cells: int, seeds: int, size: float
) -> tuple[float, float, float]:
    """Shares of studies in which an effect is found: by `ablate`, by `ablate` if the
    row is the first primary comparison, and by paired t tests adjusted by Holm.

    One row has an effect, the others have none.

    Args:
        size: the effect, in standard deviations of a single training.
    """
    generator = np.random.default_rng(31)
    means = [0.0, size * NOISE, *[0.0] * (cells - 2)]
    found = first = by_holm = 0
    for _ in range(count):
        results = made(drawn(generator, means, seeds), names(cells))
        declared = with_primary(results, [])
        effect = effects(declared, MARGIN)[0]
        found += effect.verdict is Verdict.HELPS
        declared = with_primary(results, [1])
        primary = effects(declared, MARGIN)[0]
        first += primary.verdict is Verdict.HELPS
        pairs = [paired(cell, results.cells[0]) for cell in results.cells[1:]]
        estimates = [pair.estimate for pair in pairs if pair.estimate is not None]
        by_holm += (
            verdicts_by_holm(estimates, MARGIN, "max")[0].verdict is Verdict.HELPS
        )
    return found / count, first / count, by_holm / count


def false_same(
    count: int, rows: int, seeds: int, noise: Noise, margin: float, *, mixed: bool
) -> float:
    """The share of studies in which `no difference` is said of a cell that differs by
    just the margin.

    Args:
        mixed: whether the differences have both signs.
    """
    generator = np.random.default_rng(7)
    means = [0.0]
    for row in range(rows):
        means.append(-margin if mixed and row % 2 else margin)
    wrong = 0
    for _ in range(count):
        values = drawn(generator, means, seeds, noise)
        found = effects(made(values, names(rows + 1)), margin)
        wrong += any(effect.verdict is Verdict.SAME for effect in found)
    return wrong / count


def until_decided(
    count: int,
    means: Sequence[float],
    looks: Looks,
    margin: float = MARGIN,
    noise: Noise = normal,
    baseline: int | None = None,
) -> tuple[float, float]:
    """Studies to which seeds are added until each cell is decided: the share with
    `helps` or `hurts`, and the mean number of trials in per cent of all that might have
    been.
    """
    generator = np.random.default_rng(11)
    plan = planned(len(means), looks, margin, baseline)
    most = max(looks.most, baseline or 0)
    said = trials = 0
    for _ in range(count):
        values = drawn(generator, means, most, noise)
        found, used = decided(plan, values)
        trials += used
        said += any(effect.verdict in SAID for effect in found)
    return said / count, 100 * trials / count / len(plan.trials)


def coverage_of_rows(
    count: int, seeds: int, noise: Noise = normal
) -> tuple[float, float]:
    """How often the intervals of all rows contain the planted effects at once, and the
    mean error of the estimate of row 1 in points.
    """
    generator = np.random.default_rng(seeds)
    truth = np.array([0.0, 0.8, -0.4, 0.0])
    inside, errors = 0, []
    for _ in range(count):
        values = drawn(generator, truth, seeds, noise)
        estimates = [
            effect.estimate for effect in effects(made(values, names(4)), MARGIN)
        ]
        inside += all(
            estimate is not None and estimate.low <= planted <= estimate.high
            for estimate, planted in zip(estimates, truth[1:], strict=True)
        )
        assert estimates[0] is not None
        errors.append(estimates[0].value - truth[1])
    return inside / count, float(np.mean(errors))


def decided_by_further(count: int, rows: int, seeds: int, size: float) -> float:
    """The share of inconclusive rows that the named number of further seeds decides.

    Args:
        count: studies in which the row is inconclusive.
        rows: compared with row 0; the first of them has an effect.
        size: the effect, in standard deviations of a single training.
    """
    generator = np.random.default_rng([19, rows, seeds, int(size)])
    means = [0.0, size * NOISE, *[0.0] * (rows - 1)]
    decided: list[bool] = []
    while len(decided) < count:
        before = drawn(generator, means, seeds)
        results = made(before, names(rows + 1))
        # A prediction takes longer than a verdict.
        quick = effects(results, MARGIN)[0]
        if quick.verdict is not Verdict.INCONCLUSIVE:
            continue
        first = effects(results, MARGIN)[0]
        if first.further is None or first.further > MOST:
            continue
        both = np.concatenate([before, drawn(generator, means, first.further)], axis=1)
        second = replace(
            made(both, names(rows + 1)),
            before=Before(generation=2, studies=(results,)),
        )
        after = effects(second, MARGIN)
        decided.append(after[0].verdict is not Verdict.INCONCLUSIVE)
    return float(np.mean(decided))


def pareto_calibration(count: int) -> tuple[float, float]:
    """Mean probability of being on the front that cells are given, and the share of
    them that truly are: of those between 0.2 and 0.8, where it matters.
    """
    generator = np.random.default_rng(23)
    told, true = [], []
    flops = [1, 1, 2, 2, 3, 3]
    for _ in range(count):
        means = generator.normal(0, 3 * NOISE, len(flops))
        data = pareto_table(
            made(drawn(generator, means, 4), names(len(flops)), flops),
            {"top1": "max", "flops": "min"},
        ).data
        for row in data:
            if 0.2 <= row["probability"] <= 0.8:
                better = (
                    m >= means[row["row"]] and f <= flops[row["row"]]
                    for m, f in zip(means, flops, strict=True)
                )
                told.append(row["probability"])
                true.append(sum(better) == 1)
    return float(np.mean(told)), float(np.mean(true))


def against_mixed_model(count: int) -> float:
    """The largest difference, in points, between our estimates and those of
    statsmodels' mixed model with random seeds.
    """
    import pandas as pd
    import statsmodels.formula.api as smf

    generator = np.random.default_rng(29)
    largest = 0.0
    for _ in range(count):
        results = factorial_study(generator, 5)
        rows = [
            {**c.levels, "seed": seed, "y": value}
            for c in results.cells
            for seed, value in c.values.items()
        ]
        frame = pd.DataFrame(rows).assign(
            **{name: lambda f, n=name: f[n] - 0.5 for name in "abc"}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = smf.mixedlm("y ~ a * b * c", frame, groups=frame["seed"]).fit()
        model = Factorial(results, dict.fromkeys("abc", 0))
        for term in [
            *model.main_effects(MARGIN, "max"),
            *model.interactions(MARGIN, "max"),
        ]:
            assert term.estimate is not None
            largest = max(
                largest,
                abs(term.estimate.value - fitted.params[":".join(term.factors)]),
            )
    return largest


def primary_proofs(count: int) -> Iterator[Proof]:
    """What holds for rows that are tested one after the other."""
    settings = itertools.product((3, 5), NOISES, (False, True))
    for seeds, name, first_differs in settings:
        setting = f"4 of 7 rows primary, {seeds} seeds, {name}"
        if first_differs:
            setting += "; only the first primary row has an effect"
        share = false_primary(
            count, 8, seeds, NOISES[name], first_differs=first_differs
        )
        yield Proof(
            promise=(
                "studies in which a row without an effect has the verdict *helps* or"
                " *hurts*: at most 5 %"
            ),
            setting=setting,
            measured=share,
            low=0,
            high=0.05,
            count=count,
        )


def short_proofs(count: int) -> dict[str, Iterator[Proof]]:
    """The promises by their kind, with few repetitions: `count` of those that are shares
    of studies.

    Those of seeds until decided take too long: each pattern of seeds is simulated.
    """
    users = max(100, count // 8)
    return {
        "studies": study_proofs(count),
        "row 0": row_0_proofs(count // 4),
        "tuning": tuning.proofs(count // 4),
        "across": across.proofs(count // 8),
        "elsewhere": elsewhere.proofs(count // 4),
        "targets": elsewhere.target_proofs(count),
        "chains": chains.proofs(count // 4),
        "images": image_proofs(users),
        "users": user_proofs(users),
        "workflows": workflows.proofs(count),
    }


def printed(which: str, count: int) -> list[Proof]:
    """Measures the promises of one kind and prints each."""
    kinds = {
        "studies": study_proofs,
        "until decided": until_decided_proofs,
        "row 0": row_0_proofs,
        "tuning": tuning.proofs,
        "across": across.proofs,
        "elsewhere": elsewhere.proofs,
        "targets": elsewhere.target_proofs,
        "chains": chains.proofs,
        "images": image_proofs,
        "users": user_proofs,
        "workflows": workflows.proofs,
    }
    measured = []
    for proof in kinds[which](count):
        measured.append(proof)
        print(
            f"{'ok ' if proof.holds else 'NOT'} {100 * proof.measured:5.1f} % "
            f" {proof.promise} ({proof.setting})",
            flush=True,
        )
    return measured


def until_decided_proofs(count: int) -> Iterator[Proof]:
    """That seeds may be added until a study is decided, whatever its noise is."""
    looks = Looks(3, 12, 3)
    for baseline, (name, noise) in itertools.product((None, 9), NOISES.items()):
        more = f", {baseline} seeds of row 0 at the start" if baseline else ""
        yield Proof(
            promise=NO_FALSE_VERDICT,
            setting=f"8 cells, until decided, 3 to 12 seeds{more}, {name}",
            measured=until_decided(
                count, [0.0] * 8, looks, noise=noise, baseline=baseline
            )[0],
            low=0,
            high=0.05,
            count=count,
        )


# Cells, seeds of a row and of row 0, and the seed's share of the variance.
UNEQUAL_SEEDS = ((2, 3, 6, 0.0), (8, 4, 8, 0.0), (8, 4, 8, 0.8), (21, 4, 12, 0.5))


def row_0_proofs(count: int) -> Iterator[Proof]:
    """That row 0 may have more seeds than the other rows."""
    for (cells, seeds, row_0, share), name in itertools.product(UNEQUAL_SEEDS, NOISES):
        yield Proof(
            promise=NO_FALSE_VERDICT,
            setting=(
                f"{cells} cells, {seeds} seeds, {row_0} of row 0, seed's share"
                f" {share:g}, {name}"
            ),
            measured=false_with_extra_seeds(count, cells, seeds, row_0, share, name),
            low=0,
            high=0.05,
            count=count,
        )


def noise_proofs(count: int) -> Iterator[Proof]:
    """What is promised for eight cells under each noise."""
    for seeds, name in itertools.product((3, 5), NOISES):
        share = false_verdicts(count, 8, seeds, NOISES[name])
        yield Proof(
            promise=NO_FALSE_VERDICT,
            setting=f"8 cells, {seeds} seeds, {name}",
            measured=share,
            low=0,
            high=0.05,
            count=count,
        )


def study_proofs(count: int) -> Iterator[Proof]:
    """What is promised for a study that is declared once."""
    wrong = NO_FALSE_VERDICT
    for cells, seeds in ((2, 3), (3, 2), (4, 4), (16, 5), (8, 10)):
        yield Proof(
            promise=wrong,
            setting=f"{cells} cells, {seeds} seeds",
            measured=false_verdicts(count, cells, seeds),
            low=0,
            high=0.05,
            count=count,
        )
    yield from noise_proofs(count)
    yield from primary_proofs(max(200, count // 2))
    yield Proof(
        promise=wrong,
        setting="5 cells, 3 seeds, 360 test images",
        measured=false_verdicts(count, 5, 3, images=360),
        low=0,
        high=0.05,
        count=count,
    )
    few = max(200, count // 5)
    looks = Looks(3, 12, 3)
    share, _ = until_decided(count, [0.0] * 5, looks)
    yield Proof(
        promise=wrong,
        setting="5 cells, until decided, 3 to 12 seeds",
        measured=share,
        low=0,
        high=0.05,
        count=count,
    )
    share = until_decided(few, [0.0] * 21, Looks(10, 13, 3), margin=2 * NOISE)[0]
    yield Proof(
        promise=wrong,
        setting=(
            "21 cells, until decided, 10 to 13 seeds, a margin so wide that most verdicts are"
            " *no difference*"
        ),
        measured=share,
        low=0,
        high=0.05,
        count=few,
    )
    for rows, seeds, name, margin, mixed in (
        (2, 5, "equal noise", MARGIN, True),
        (4, 10, "row 0 with 25 times the variance", 4.84 * NOISE, True),
        (7, 3, "row 0 with 5 times the variance", 10 * NOISE, True),
        (7, 5, "one row with 25 times the variance", 4 * NOISE, False),
    ):
        signs = "both signs" if mixed else "one sign"
        yield Proof(
            promise=(
                "studies in which a row has the verdict *no difference*, with effects as"
                " large as the margin: at most 5 %"
            ),
            setting=(
                f"{rows + 1} cells, {seeds} seeds, {name}, effects of {signs}, margin"
                f" {margin:g}"
            ),
            measured=false_same(count, rows, seeds, NOISES[name], margin, mixed=mixed),
            low=0,
            high=0.05,
            count=count,
        )
    for seeds in (2, 3, 5, 10):
        for name in ("equal noise", *UNEQUAL):
            yield Proof(
                promise=(
                    "studies whose 95 % intervals contain all true effects: 95 % or"
                    " more"
                ),
                setting=f"3 rows, {seeds} seeds, {name}",
                measured=coverage_of_rows(count, seeds, NOISES[name])[0],
                low=0.95,
                high=1,
                count=count,
            )
    held = "95 % intervals that contain the true effect: 93 to 97 %"
    for kind, share, _ in coverage_of_terms(few, 3):
        yield Proof(
            promise=held,
            setting=f"{TERMS[kind]}, 2 x 2 x 2 grid, 3 seeds",
            measured=share,
            low=0.93,
            high=0.97,
            count=few,
        )
    for seeds in (5, 8):
        setting = (
            f"2 x 2 x 2 grid, {seeds} seeds, an effect that varies over seeds and is zero"
            " on average"
        )
        share, covered = false_main_effects(few, seeds)
        yield Proof(
            promise=(
                "studies without effects in which a main effect has the verdict *helps*"
                " or *hurts*: at most 5 %"
            ),
            setting=setting,
            measured=share,
            low=0,
            high=0.05,
            count=few,
        )
        yield Proof(
            promise=held,
            setting=setting,
            measured=covered,
            low=0.93,
            high=0.97,
            count=few,
        )
    yield Proof(
        promise=held,
        setting="main effects, fraction of resolution IV, 3 seeds",
        measured=coverage_of_fraction(few, 3),
        low=0.93,
        high=0.97,
        count=few,
    )
    for rows, seeds, size in itertools.product((1, 6), (3, 5), (0, 1)):
        yield Proof(
            promise=(
                "of the inconclusive rows, the share that gets a conclusive verdict with"
                " the N further seeds that `ablate` names: 45 to 55 %"
            ),
            setting=(
                f"{rows} row{'s' if rows > 1 else ''}, {seeds} seeds, a difference of"
                f" {size} standard deviations"
            ),
            measured=decided_by_further(few, rows, seeds, size),
            low=0.45,
            high=0.55,
            count=few,
        )
    probability, share = pareto_calibration(few)
    yield Proof(
        promise=(
            "of the cells whose P(front) in `ablate pareto` is 0.2 to 0.8, the share on"
            " the true front: within 3 percentage points of the mean P(front) of these"
            f" cells ({100 * probability:.0f} %)"
        ),
        setting="6 cells",
        measured=share,
        low=probability - 0.03,
        high=probability + 0.03,
        count=few,
    )


# What the settings of effects of factors are called.
TERMS = {
    "main": "main effects",
    "interaction": "interactions",
    "alone": "effects of adding a factor alone",
    "left out": "effects of leaving a factor out",
    "shapley": "Shapley values",
}


def biases(count: int) -> Iterator[tuple[str, float]]:
    """Mean errors of estimates, in points."""
    yield "rows, 3 seeds", coverage_of_rows(count, 3)[1]
    for kind, _, error in coverage_of_terms(max(200, count // 5), 3):
        yield f"{TERMS[kind]}, 2 x 2 x 2 grid, 3 seeds", error


def _power_line(count: int, seeds: int) -> str:
    each = [power(count, 8, seeds, size) for size in (1, 2, 3)]
    texts = [
        f"{100 * ours:.0f} / {100 * first:.0f} % ({100 * holm:.0f} %)"
        for ours, first, holm in each
    ]
    return f"| {seeds} | {' | '.join(texts)} |"


def _skewed_text(count: int) -> str:
    shares = [
        f"{100 * false_verdicts(count, 2, seeds, skewed_variants):.1f} % ({seeds} seeds)"
        for seeds in (3, 5, 10)
    ]
    return f"{', '.join(shares[:-1])} and {shares[-1]}"


# Numbers of cells and seeds for the noises that the verdicts do not promise to survive.
LARGER = ((8, 3), (8, 5), (8, 10), (21, 5), (21, 10))


def _large_text(count: int) -> str:
    shares = [
        f"{100 * decided_by_further(count, rows, seeds, 3):.0f} % ({rows}"
        f" row{'s' if rows > 1 else ''}, {seeds} seeds)"
        for rows, seeds in itertools.product((1, 6), (3, 5))
    ]
    return (
        "The number of further seeds that `ablate` names for an inconclusive row is for"
        " small differences. If the difference is three standard deviations, this number"
        f" decides {', '.join(shares[:-1])} and {shares[-1]} of the inconclusive rows:"
        " in such a row, the difference looks smaller than it is."
    )


def _beyond_line(count: int, name: str) -> str:
    shares = [
        false_verdicts(count if cells < 21 else count // 2, cells, seeds, BEYOND[name])
        for cells, seeds in LARGER
    ]
    return f"| {name} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |"


# Which of seven rows differ from row 0, by so many standard deviations.
CHANGES = {
    "one row, 1 sd": (1, 1),
    "one row, 2 sd": (1, 2),
    "one row, 3 sd": (1, 3),
    "four rows, 2 sd": (4, 2),
}


def _until_decided_lines(count: int) -> list[str]:
    """What seeds until decided find, beside equal numbers of seeds for all rows."""
    lines = [
        "## Seeds until decided",
        "",
        (
            "How often the differences of a study with seven rows are found, and with"
            " how many trials on average. An inconclusive row gets no further seeds if"
            " they would bring a conclusive verdict with a probability below"
            f" {100 * LEAST_CHANCE:g} %. The seed's share of the variance of a training is"
            " 0.8, so seeds of row 0 do not help here."
        ),
        "",
        f"| seeds | {' | '.join(CHANGES)} |",
        f"| --- |{' ---: |' * len(CHANGES)}",
    ]
    for baseline in (None, 12):
        more = f", baseline: {baseline}" if baseline else ""
        cells = []
        for rows, size in CHANGES.values():
            share, trials = found_until_decided(count, rows, size, baseline)
            cells.append(f"{100 * share:.0f} %, {trials:.0f}")
        lines.append(f"| `{{until_decided: 12{more}}}` | {' | '.join(cells)} |")
    for seeds in (5, 7, 9, 12):
        cells = [
            f"{100 * found_at_once(count, rows, size, seeds):.0f} %, {8 * seeds}"
            for rows, size in CHANGES.values()
        ]
        lines.append(f"| {seeds} | {' | '.join(cells)} |")
    return [*lines, ""]


def _means(rows: int, size: float) -> list[float]:
    return [0.0, *[size * NOISE] * rows, *[0.0] * (7 - rows)]


def found_until_decided(
    count: int, rows: int, size: float, baseline: int | None
) -> tuple[float, float]:
    """The share of differences that are found, and the mean number of trials."""
    generator = np.random.default_rng(12)
    plan = planned(8, Looks(3, 12, 3), baseline=baseline)
    hits = trials = 0
    for _ in range(count):
        values = drawn(generator, _means(rows, size), 12)
        found, used = decided(plan, values)
        hits += sum(effect.verdict is Verdict.HELPS for effect in found[:rows])
        trials += used
    return hits / count / rows, trials / count


def found_at_once(count: int, rows: int, size: float, seeds: int) -> float:
    """The share of differences that are found with equal numbers of seeds."""
    generator = np.random.default_rng(12)
    hits = 0
    for _ in range(count):
        results = made(drawn(generator, _means(rows, size), seeds), names(8))
        found = effects(with_primary(results, ()), MARGIN)
        hits += sum(effect.verdict is Verdict.HELPS for effect in found[:rows])
    return hits / count / rows


def _declared_text(count: int) -> str:
    """What the choice among groups gives, of which only one is trained."""
    shares = []
    for rows in (1, 7):
        user = tunes_the_baseline_of_declared_studies(20)
        share = fooled(count, user, 20 + rows - 1, NOISES["equal noise"])
        shares.append(f"{100 * share:.0f} %")
    return (
        "The error rate counts groups. A user declares 20 studies with equal baselines"
        " before any of them has results, and trains only the one whose row 0 turns out"
        f" best: this study has a false verdict in {shares[0]} (2 cells) and {shares[1]}"
        " (8 cells) of cases. If the baselines are trained first, and the studies are"
        " declared afterwards, the table above applies."
    )


def report(found: Sequence[Proof], count: int, seconds: float) -> str:
    """The document."""
    lines = [
        "# Can the verdicts be trusted?",
        "",
        (
            "Simulated studies with known effects go through the functions that"
            " tables, verdicts and dashboards use (`benchmarks/trust.py`). Each"
            " simulated result is a sum of three terms: the true mean of its cell, an"
            f" effect of the seed that is equal in all cells (sd {SEED_SD:g} point),"
            f" and the noise of one training (sd {NOISE:g} points). The margin is"
            f" {MARGIN:g} points, unless the setting names another one."
        ),
        "",
        (
            "A measured share is itself uncertain. If the true share is 5 %, its"
            " standard deviation is 0.2 percentage points with 10,000 repetitions, 0.3"
            " with 5,000 and 0.5 with 2,000."
        ),
        "",
        "| promise | setting | measured | repetitions |",
        "|---------|---------|---------:|------------:|",
        *(
            f"| {p.promise} | {p.setting} | {100 * p.measured:.1f} % | {p.count:,} |"
            for p in found
        ),
        "",
        "## Power",
        "",
        (
            "One of seven rows has an effect; the columns are its sizes. The unit is the"
            " standard deviation over seeds, after the mean of each seed has been"
            " subtracted. Each entry of the table has three numbers: how often the effect"
            " is found by default; after the slash, how often it is found if its row is the first"
            " `primary` comparison; in brackets, how often paired t tests of each row,"
            " adjusted by Holm, find it at 5 %."
        ),
        "",
        "| seeds | 1 sd | 2 sd | 3 sd |",
        "|------:|-----:|-----:|-----:|",
        *(_power_line(count, seeds) for seeds in (3, 4, 5, 10)),
        "",
        "## Workflows",
        "",
        (
            "One row differs by two or three standard deviations; how often users find it"
            " who work so (`benchmarks/workflows.py`)."
        ),
        "",
        *workflows.lines(),
        "",
        "## What the verdicts do not promise",
        "",
        (
            "The table has the percentage of studies without effects that have a"
            " verdict *helps* or *hurts*, if several rows are noisier than the others,"
            " or if only the noise of the variants is skewed:"
        ),
        "",
        f"| noise | {' | '.join(f'{cells} cells, {seeds} seeds' for cells, seeds in LARGER)} |",
        f"|-------|{'---:|' * len(LARGER)}",
        *(_beyond_line(count, name) for name in BEYOND),
        "",
        (
            "With a single comparison and lognormal noise in the variant alone,"
            f" {_skewed_text(count)} of studies without an effect have a false verdict."
        ),
        "",
        (
            "With fewer than five seeds, the intervals of factor effects assume that"
            " an effect is the same for every seed. If an effect varies over seeds,"
            " but is zero on average,"
            f" {100 * false_main_effects(count // 5, 3)[0]:.0f} % of studies with 3"
            " seeds (2 x 2 x 2 grid) have a main effect with the verdict *helps* or"
            " *hurts*."
        ),
        "",
        *image_lines(count),
        _declared_text(count // 5),
        "",
        _large_text(count // 5),
        "",
        "## Estimates",
        "",
        (
            "Mean error of the estimates, in points (the true effects are 0.3 to 1.1"
            " points):"
        ),
        "",
        "| estimate | mean error |",
        "|----------|-----------:|",
        *(f"| {name} | {error:+.4f} |" for name, error in biases(count)),
        "",
        (
            "Over 20 studies, the estimates differ by at most"
            f" {against_mixed_model(20):.1e} points from those of statsmodels' mixed"
            " model with seeds as a random effect."
        ),
        "",
        *_until_decided_lines(count // 5),
        (
            "Command: `make trust` with the numbers of repetitions above,"
            f" {date.today()}, {seconds:.0f} s on"
            f" {os.cpu_count()} cores ({platform.machine()}). The test suite contains a"
            " shorter run (tests/benchmarks/test_trust.py)."
        ),
        "",
    ]
    return "\n".join(lines) + MORE.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="repetitions")
    parser.add_argument("--users", type=int, default=1_000, help="the same for users")
    parser.add_argument("--write", action="store_true", help="write docs/trust.md")
    arguments = parser.parse_args()
    start = time.perf_counter()
    parts = {
        "studies": arguments.count,
        "until decided": arguments.count // 2,
        "row 0": arguments.count,
        "tuning": arguments.count,
        "across": arguments.count // 5,
        "elsewhere": arguments.count // 2,
        "targets": arguments.count,
        "chains": arguments.count // 10,
        "images": arguments.users,
        "users": arguments.users,
        "workflows": arguments.count,
    }
    with ProcessPoolExecutor(2) as pool:
        measured = pool.map(printed, parts.keys(), parts.values())
    found = list(itertools.chain(*measured))
    text = report(found, arguments.count, time.perf_counter() - start)
    print(text)
    if arguments.write:
        (Path(__file__).parents[1] / "docs" / "trust.md").write_text(text)
    return int(not all(proof.holds for proof in found))


if __name__ == "__main__":
    sys.exit(main())
