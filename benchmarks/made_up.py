"""Made-up studies with known effects, for `trust.py` and `users.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.records import (
    Architecture,
    Before,
    Cell,
    CellResult,
    Claim,
    Cost,
    Criterion,
    Data,
    Design,
    Factors,
    Known,
    Level,
    Looks,
    Network,
    Plan,
    Recipe,
    Resources,
    Scheduler,
    Seeds,
    Space,
    Status,
    StudyResults,
    Trial,
)
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict
from ablate.scheduling.until_decided import granted, results_of
from ablate.tasks import classification

# Spread of seeds that all cells share, and of a single training beside, in points: as
# on a small test set.
SEED_SD, NOISE = 1.0, 0.5
MARGIN = 0.5
SAID = (Verdict.HELPS, Verdict.HURTS)
Vector = np.ndarray[Any, Any]
Noise = Callable[[np.random.Generator, tuple[int, int]], Vector]


@dataclass(frozen=True)
class Proof:
    """One promise: the share that was measured over so many repetitions, and between
    which bounds it must lie.
    """

    promise: str
    setting: str
    measured: float
    low: float
    high: float
    count: int

    @property
    def holds(self) -> bool:
        """Within the bounds, or so close that chance alone may have put it there (three
        standard errors of a share).
        """
        error = 3 * math.sqrt(
            max(self.measured * (1 - self.measured), 1e-9) / self.count
        )
        return self.low - error <= self.measured <= self.high + error


def made(
    values: Vector,
    levels: Sequence[dict[str, Level]],
    flops: Sequence[int] | None = None,
) -> StudyResults:
    """A study with these values, one row a cell and one column a seed."""
    cells = tuple(
        CellResult(
            index=index,
            levels=own,
            unread=frozenset(),
            role="variant" if index else "reference",
            note="",
            same_as=None,
            cost=Cost(
                params=1,
                flops=flops[index] if flops else 1,
                flops_paper=1,
                activations=1,
                elementwise=1,
            ),
            statuses=dict.fromkeys(range(len(row)), Status.COMPLETED),
            values=dict(enumerate(map(float, row))),
        )
        for index, (own, row) in enumerate(zip(levels, values, strict=True))
    )
    return StudyResults(
        name="made-up",
        question="",
        expect="",
        source="",
        metric=classification.METRICS[0],
        direction="max",
        factors=tuple(levels[0]),
        cells=cells,
    )


def normal(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    return generator.normal(0, NOISE, shape)


def heavy(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Student's t with 4 degrees of freedom, of the same spread: now and then a bad
    run.
    """
    return generator.standard_t(4, shape) * NOISE / math.sqrt(2)


def collapsing(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Normal noise, and one training in ten loses ten points."""
    lost = generator.random(shape) < 0.1
    return normal(generator, shape) - 10 * lost


def skewed(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Lognormal noise of the same spread, equally skewed in all cells."""
    raw = np.exp(generator.normal(0, 1, shape))
    return NOISE * (raw - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


def skewed_variants(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Lognormal noise in all rows but row 0, whose noise is normal."""
    values = skewed(generator, shape)
    values[0] = generator.normal(0, NOISE, shape[1])
    return values


def noisy_cells(number: Sequence[int], variance: float) -> Noise:
    """Normal noise, in some cells with a multiple of the variance."""

    def noise(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
        values = normal(generator, shape)
        values[list(number)] *= math.sqrt(variance)
        return values

    return noise


def own_sds(factor: float) -> Noise:
    """Normal noise, in each cell with a standard deviation of its own.

    They are drawn anew for each study, evenly on a log scale, over this factor.
    """

    def noise(generator: np.random.Generator, shape: tuple[int, int]) -> Vector:
        sds = np.exp(generator.uniform(0, math.log(factor), (shape[0], 1)))
        return normal(generator, shape) * sds

    return noise


# The noises under which at most 5 % of studies may see an effect that is not there.
NOISES: dict[str, Noise] = {
    "equal noise": normal,
    "one row with 5 times the variance": noisy_cells([1], 5),
    "one row with 25 times the variance": noisy_cells([1], 25),
    "row 0 with 5 times the variance": noisy_cells([0], 5),
    "row 0 with 25 times the variance": noisy_cells([0], 25),
    "lognormal noise": skewed,
    "one training in ten collapses": collapsing,
    "heavy tails": heavy,
}
UNEQUAL = ("one row with 25 times the variance", "row 0 with 25 times the variance")
# Beyond the promise: shown, with what was measured.
BEYOND: dict[str, Noise] = {
    "two rows with 25 times the variance": noisy_cells([1, 2], 25),
    "three rows with 25 times the variance": noisy_cells([1, 2, 3], 25),
    "a standard deviation of its own in each cell, over a factor of 5": own_sds(5),
    "a standard deviation of its own in each cell, over a factor of 11": own_sds(11),
    "half of the rows with 5 times the variance": noisy_cells([1, 2, 3, 4], 5),
    "lognormal noise in all rows but row 0": skewed_variants,
}


def drawn(
    generator: np.random.Generator,
    means: Sequence[float],
    seeds: int,
    noise: Noise = normal,
    seed_sd: float = SEED_SD,
) -> Vector:
    """Values of cells with these means: each seed raises or lowers all cells alike, and
    each training is noisy.
    """
    return (
        75
        + np.asarray(means)[:, None]
        + generator.normal(0, seed_sd, (1, seeds))
        + noise(generator, (len(means), seeds))
    )


def in_steps(values: Vector, images: int) -> Vector:
    """Accuracies as a test set of so many images gives them."""
    return np.round(values / 100 * images) / images * 100


def names(count: int) -> list[dict[str, Level]]:
    return [{"cell": number} for number in range(count)]


def space_of(
    levels: Mapping[str, tuple[Level, ...]],
    design: Design,
    seeds: Seeds,
    margin: float = MARGIN,
) -> Space:
    """A space with these factors; the first level of each is the baseline."""
    return Space(
        name="made-up",
        named=True,
        document="",
        claim=Claim(question=""),
        network=Network(backbone="vit"),
        factors=Factors(
            levels=levels,
            fixed={},
            baseline={name: each[0] for name, each in levels.items()},
            full={name: each[-1] for name, each in levels.items()},
        ),
        design=design,
        seeds=seeds,
        data=Data(name="digits", path="", image_size=8, channels=1, classes=10),
        recipe=Recipe(),
        criterion=Criterion(
            metric="top1",
            direction="max",
            metrics=classification.METRICS,
            margin=margin,
        ),
        resources=Resources(),
        scheduler=Scheduler(),
    )


def planned(
    cells: int, looks: Looks, margin: float = MARGIN, baseline: int | None = None
) -> Plan:
    """A plan of cells that have as many seeds as they may come to.

    Args:
        baseline: the number of seeds of row 0, if it is not that of the others.
    """
    space = space_of(
        {"cell": tuple(range(cells))},
        Design(),
        Seeds(numbers=tuple(range(looks.most)), looks=looks, baseline=baseline),
        margin,
    )
    return Plan(
        space,
        tuple(
            Cell(
                number,
                {"cell": number},
                "variant" if number else "reference",
                architecture=(
                    architecture := Architecture(
                        backbone="vit",
                        image_size=8,
                        channels=1,
                        classes=10,
                        settings={"cell": number},
                    )
                ),
                cost=Cost(
                    params=1, flops=1, flops_paper=1, activations=1, elementwise=1
                ),
                trials=tuple(
                    Trial(
                        architecture=architecture,
                        recipe=space.recipe,
                        data=space.data,
                        seed=seed,
                    )
                    for seed in (
                        space.seeds.numbers if number else space.seeds.of_row_0
                    )
                ),
            )
            for number in range(cells)
        ),
    )


def decided(plan: Plan, values: Vector) -> tuple[Sequence[Effect], int]:
    """The effects of a study to which seeds are added, and its number of trials.

    Args:
        values: one row a cell and one column a seed; what is not asked for is not used.
    """
    known: dict[str, Known] = {}
    before = Before()
    cut, has_ended = granted(plan, known, before)
    while not has_ended:
        for cell in cut.cells:
            for trial in cell.trials:
                value = float(values[cell.index, trial.seed])
                known[trial.hash] = Known(Status.COMPLETED, (), {"top1": value})
        cut, has_ended = granted(plan, known, before)
    return (
        effects(
            results_of(cut, known, before),
            plan.space.criterion.margin,
        ),
        sum(len(cell.trials) for cell in cut.cells),
    )
