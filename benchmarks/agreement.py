"""Verdicts with few seeds against those of twenty, on real trainings: `make agreement`.

Twelve small networks are trained with twenty seeds each on scikit-learn's digits
(agreement.yaml). Studies with three or five of these seeds are drawn many times, and
their verdicts are compared with those of all twenty. A second table removes the
effects: each row is shifted to the mean of row 0, so that every `helps` or `hurts` is
false, while the noise stays that of real trainings.

--train trains what is missing and writes agreement.csv. --write writes
docs/results/agreement.md.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from machine import machine_text
from made_up import SAID, Vector, decided, made, planned

from ablate.records import LEVEL, Level, Looks, StudyResults
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.pairing import seed_share
from ablate.report.verdicts import Verdict
from ablate.results.study import Study

HERE = Path(__file__).parent
FILE = HERE / "agreement.csv"
PAGE = HERE.parent / "docs" / "results" / "agreement.md"
SPACE = "benchmarks/agreement.yaml"
# The numbers of seeds of the studies that are drawn.
FEW = (3, 5)
MARGIN = 0.5


@dataclass(frozen=True)
class Design:
    """How many seeds a study has.

    Attributes:
        name: as it stands under `seeds:`.
        looks: of a study with the same seeds for all rows, there is one.
        baseline: seeds of row 0, if they are not those of the other rows.
    """

    name: str
    looks: Looks
    baseline: int | None = None

    @property
    def most(self) -> int:
        return max(self.looks.most, self.baseline or 0)


def equal(seeds: int, baseline: int | None = None) -> Design:
    name = f"{{count: {seeds}, baseline: {baseline}}}" if baseline else str(seeds)
    # The only look has the whole level.
    return Design(name, Looks(seeds, seeds, 1), baseline)


DESIGNS = (
    equal(3),
    equal(4),
    equal(5),
    equal(3, 6),
    equal(3, 10),
    equal(4, 8),
    Design("{until_decided: 6}", Looks(3, 6, 3)),
    Design("{until_decided: 6, baseline: 8}", Looks(3, 6, 3), 8),
    Design("{until_decided: 12}", Looks(3, 12, 3)),
)
# The rows whose effects are found with few seeds.
LARGEST = (5, 6)


def train(store: str) -> None:
    """Trains the space and writes one line per row and seed."""
    command = ["ablate", "run", SPACE, "--store", store]
    subprocess.run(command, check=True, cwd=HERE.parent)
    results = Study("agreement", store).results()
    first = results.cells[0].levels
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "change", "seed", "top1"])
        for cell in results.cells:
            changed = [
                f"{name} = {level}"
                for name, level in cell.levels.items()
                if level != first[name]
            ]
            for seed, value in sorted(cell.values.items()):
                writer.writerow([cell.index, "; ".join(changed), seed, value])


def stored() -> tuple[list[str], Vector]:
    """Returns what each row changes, and values of shape (rows, seeds)."""
    with FILE.open(newline="") as file:
        lines = list(csv.DictReader(file))
    changes = {int(line["row"]): line["change"] for line in lines}
    seeds = max(int(line["seed"]) for line in lines) + 1
    values = np.full((len(changes), seeds), math.nan)
    for line in lines:
        values[int(line["row"]), int(line["seed"])] = float(line["top1"])
    return list(changes.values()), values


def study(changes: Sequence[str], values: Vector) -> StudyResults:
    levels: list[dict[str, Level]] = [{"change": change} for change in changes]
    return made(values, levels)


def judged(changes: Sequence[str], values: Vector) -> list[Effect]:
    return effects(study(changes, values), MARGIN)


def without_effects(values: Vector, chosen: Vector) -> Vector:
    """Returns the chosen seeds of each row, with the mean of row 0.

    The mean of n of N seeds varies less around the mean of all N than that of n new
    seeds would, by the factor sqrt(1 - n / N). So it is scaled up by this factor, and
    the spread within the chosen seeds stays.
    """
    drawn = values[:, chosen]
    means = drawn.mean(axis=1, keepdims=True)
    away = means - values.mean(axis=1, keepdims=True)
    scale = math.sqrt(1 - len(chosen) / values.shape[1])
    return drawn - means + values[0].mean() + away / scale


def with_effects(values: Vector, chosen: Vector) -> Vector:
    return values[:, chosen]


@dataclass(frozen=True)
class Reached:
    """What studies of a design reach.

    Attributes:
        trials: their mean number.
        largest: the share that finds each of the largest effects.
        false: the share with a false verdict, after each row is shifted to the mean of
            row 0.
    """

    trials: float
    largest: tuple[float, ...]
    false: float


def reached(values: Vector, design: Design, count: int) -> Reached:
    """Draws studies of a design. Row 0 has more of the drawn seeds than the others."""
    generator = np.random.default_rng(design.most)
    plan = planned(len(values), design.looks, MARGIN, design.baseline)
    hits = np.zeros(len(LARGEST))
    trials = wrong = 0
    for _ in range(count):
        chosen = generator.choice(values.shape[1], design.most, replace=False)
        by_row, used = decided(plan, values[:, chosen])
        hits += [by_row[row - 1].verdict in SAID for row in LARGEST]
        trials += used
        null = np.zeros((len(values), design.most))
        null[0] = without_effects(values, chosen)[0]
        few = chosen[: design.looks.most]
        null[1:, : len(few)] = without_effects(values, few)[1:]
        by_row, _ = decided(plan, null)
        wrong += any(effect.verdict in SAID for effect in by_row)
    return Reached(
        trials=trials / count, largest=tuple(hits / count), false=wrong / count
    )


def reached_with_known_noise(values: Vector, seeds: int, count: int) -> list[float]:
    """How often the largest effects are found if the noise of each row is known.

    It is that of the differences over all seeds. The limit is Bonferroni's.
    """
    generator = np.random.default_rng(seeds)
    differences = values[1:] - values[0]
    error = differences.std(axis=1, ddof=1) / math.sqrt(seeds)
    limit = NormalDist().inv_cdf(1 - LEVEL / 2 / len(differences))
    hits = np.zeros(len(differences))
    for _ in range(count):
        chosen = generator.choice(values.shape[1], seeds, replace=False)
        hits += np.abs(differences[:, chosen].mean(axis=1)) > limit * error
    return [hits[row - 1] / count for row in LARGEST]


def design_lines(values: Vector, count: int) -> list[str]:
    """Returns how many trials it takes to find the largest effects."""
    lines = [
        "## Fewer trials",
        "",
        (
            "How often the two largest effects are found, by what stands under `seeds:`,"
            " and in how many studies without effects a verdict is false."
        ),
        "",
        "| seeds | trials | found, row 5 | found, row 6 | false |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for design in DESIGNS:
        result = reached(values, design, count)
        shares = " | ".join(map(percent, (*result.largest, result.false)))
        lines.append(f"| `{design.name}` | {result.trials:.0f} | {shares} |")
    known = {
        seeds: " and ".join(
            map(percent, reached_with_known_noise(values, seeds, count))
        )
        for seeds in FEW
    }
    return [
        *lines,
        "",
        (
            "A test that knows the noise of each difference finds them in"
            f" {known[3]} (3 seeds, {3 * len(values)} trials) and {known[5]} (5 seeds,"
            f" {5 * len(values)} trials) of studies."
        ),
        "",
    ]


@dataclass(frozen=True)
class Drawn:
    """Verdicts of studies with few seeds.

    Attributes:
        said: the number of studies with each verdict, by row.
        any_said: the share of studies in which some row helps or hurts.
        any_against: the share in which some row has the verdict opposite to that of all
            seeds.
    """

    said: dict[int, Counter[Verdict]]
    any_said: float
    any_against: float


def draw(
    changes: Sequence[str],
    values: Vector,
    seeds: int,
    count: int,
    take: Callable[[Vector, Vector], Vector],
) -> Drawn:
    """Draws studies with some of the seeds, and takes their verdicts."""
    generator = np.random.default_rng(seeds)
    truth = {effect.row: effect.verdict for effect in judged(changes, values)}
    opposite = {Verdict.HELPS: Verdict.HURTS, Verdict.HURTS: Verdict.HELPS}
    said: dict[int, Counter[Verdict]] = {row: Counter() for row in truth}
    some = against = 0
    for _ in range(count):
        chosen = generator.choice(values.shape[1], seeds, replace=False)
        found = judged(changes, take(values, chosen))
        for effect in found:
            said[effect.row][effect.verdict] += 1
        some += any(effect.verdict in SAID for effect in found)
        against += any(
            opposite.get(effect.verdict) == truth[effect.row] for effect in found
        )
    return Drawn(said=said, any_said=some / count, any_against=against / count)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def report(changes: Sequence[str], values: Vector, count: int) -> str:
    """Returns the page."""
    truth = judged(changes, values)
    draws = {n: draw(changes, values, n, count, with_effects) for n in FEW}
    nulls = {n: draw(changes, values, n, count, without_effects) for n in FEW}
    seeds = values.shape[1]
    share = seed_share(study(changes, values))
    assert share is not None, "twenty seeds tell the share"
    lines = [
        "# Verdicts with few seeds, on real trainings",
        "",
        (
            f"{len(changes)} small vision transformers, {seeds} seeds each, on"
            " scikit-learn's 8 x 8 digits (`benchmarks/agreement.yaml`). Their"
            f" accuracies are in `benchmarks/agreement.csv`. Three of the {seeds}"
            f" seeds are drawn at random, {count:,} times; each draw counts as one"
            " study. The same is done with five seeds. For each row, the table has the"
            f" verdict with all {seeds} seeds, and the share of the small studies in"
            " which the verdict is helps or hurts."
        ),
        "",
        "| row | sd | difference from row 0 | verdict, 20 seeds | 3 seeds | 5 seeds |",
        "|-----|---:|-----------:|-------------------|--------:|--------:|",
    ]
    for effect in truth:
        shares = [
            percent(sum(draws[n].said[effect.row][one] for one in SAID) / count)
            for n in FEW
        ]
        spread = values[effect.row].std(ddof=1)
        lines.append(
            f"| {changes[effect.row]} | {spread:.2f} | {effect.mean:+.2f} |"
            f" {effect.verdict} | {' | '.join(shares)} |"
        )
    against = [percent(draws[n].any_against) for n in FEW]
    false = [percent(nulls[n].any_said) for n in FEW]
    lines += [
        "",
        (
            f"Row 0 has a standard deviation of {values[0].std(ddof=1):.2f} points. The"
            " rows differ in their noise by a factor of"
            f" {max(values.std(axis=1)) / min(values.std(axis=1)):.0f}; those with a"
            " depthwise kernel vary least."
        ),
        "",
        "| studies | 3 seeds | 5 seeds |",
        "|---------|--------:|--------:|",
        "| in which a row helps although it hurts with all seeds, or the reverse |"
        f" {' | '.join(against)} |",
        (
            "| with a false verdict, after each row is shifted to the mean of row 0"
            f" (no effects) | {' | '.join(false)} |"
        ),
        "",
        (
            f"The seed's share of the variance of a training is {share:.2f}, so pairing"
            f" by seed leaves {100 * (1 - share):.0f} % of the variance of a difference"
            " ([statistics.md](../statistics.md#noise-and-tests))."
        ),
        "",
        *design_lines(values, count),
        f"Command: `make agreement WRITE=1`, {machine_text()}.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000, help="studies")
    parser.add_argument("--train", metavar="STORE", help="train into this store")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train)
    changes, values = stored()
    text = report(changes, values, arguments.count)
    print(text)
    if arguments.write:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
