"""The sections of a declared study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Le

from ablate.records.base import (
    DESCRIPTIVE,
    MOST_AT_ONCE,
    MOST_CELLS,
    MOST_WHOLE,
    Level,
    Settings,
    level_text,
)
from ablate.records.metric import Direction, Metric
from ablate.records.model import Cost
from ablate.records.trial import VARIED, Source

# How many of the best cells of a search are confirmed, unless the space says otherwise.
CONFIRMED_CELLS = 3


@dataclass(frozen=True)
class Resources:
    """What one trial occupies."""

    cpus: Annotated[float, Gt(0), Le(MOST_AT_ONCE)] = 1
    """CPU cores of one trial; with a fraction, trials share a core. This number sets
    the number of threads, on which the last bits of sums depend.
    """
    gpus: Annotated[float, Ge(0), Le(MOST_AT_ONCE)] = 0
    """GPUs of one trial; with a fraction, trials share a GPU."""
    processes: Annotated[int, Ge(1), Le(MOST_AT_ONCE)] = 1
    """Processes that train one trial together, each on its even share of every batch:
    one per GPU, or all on the CPU, where they share `cpus`.
    """

    @property
    def threads(self) -> int:
        """Threads of each process.

        Sums depend on their number in the last bit, so it is the same in every
        executor.
        """
        return max(1, int(self.cpus / self.processes))


@dataclass(frozen=True)
class Scheduler:
    """Which trials are stopped early: none (fifo), or by one of Ray Tune's rules."""

    name: Literal["fifo", "asha", "hyperband", "median"] = "fifo"
    """The rule: fifo trains every trial to its end."""
    grace_epochs: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 1
    """Epochs that every trial is trained at least."""
    reduction: Annotated[int, Ge(2), Le(MOST_WHOLE)] = 4
    """For ASHA and HyperBand: ratio of the epochs at one rung to those at the rung
    before. At a rung, trials are compared and the worse ones stop.
    """
    samples: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 3
    """The median rule stops no trial before it can be compared with this many others."""

    @property
    def read(self) -> frozenset[str]:
        """The fields that this scheduler reads beside its name."""
        return frozenset(
            {"fifo": (), "median": ("grace_epochs", "samples")}.get(
                self.name, ("grace_epochs", "reduction")
            )
        )


@dataclass(frozen=True)
class Design:
    """Which cells of the space are trained."""

    name: Literal[
        "grid",
        "one-at-a-time",
        "leave-one-out",
        "add-one-in",
        "fractional",
        "plackett-burman",
        "random",
        "rows",
    ] = "grid"
    """The rule that lists the cells."""
    cells: Annotated[int, Ge(1), Le(MOST_CELLS)] | None = None
    """Number of cells, for the random design."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the random design."""
    resolution: Annotated[int, Ge(3), Le(5)] = 4
    """Resolution of a fractional design. With resolution R, no effect of p factors is
    confounded with one of fewer than R - p factors.
    """

    @property
    def read(self) -> frozenset[str]:
        """The fields that this design reads beside its name."""
        return frozenset(
            {"random": ("cells", "seed"), "fractional": ("resolution",)}.get(
                self.name, ()
            )
        )

    @property
    def two_levels(self) -> bool:
        """Whether each factor is at its baseline or at its full level."""
        return self.name in (
            "leave-one-out",
            "add-one-in",
            "fractional",
            "plackett-burman",
        )


@dataclass(frozen=True)
class Strategy:
    """How a search proposes cells.

    A proposal depends on the seed and on the results of earlier proposals, in their
    order, except the last `parallel` - 1. It never depends on timing, kills or
    machines.
    """

    name: Literal[
        "random", "quasi-random", "tpe", "gp", "nsga2", "nsga3", "cmaes", "brute-force"
    ] = "tpe"
    """The sampler of Optuna that proposes cells."""
    cells: Annotated[int, Ge(1), Le(MOST_CELLS)] | None = None
    """Distinct cells that fit the limits, the baseline included."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the sampler."""
    parallel: Annotated[int, Ge(1), Le(MOST_AT_ONCE)] = 4
    """Cells in training at once, at most."""
    confirm: Annotated[int, Ge(2), Le(1000)] | None = None
    """Fresh seeds on which the best cells and row 0 are trained when the search has
    ended. Tables show the means over these seeds. The selection of the best cells does
    not inflate these means. Only these cells get verdicts.
    """
    confirm_cells: Annotated[int, Ge(1), Le(MOST_CELLS)] | None = None
    """How many of the best cells are confirmed; 3 by default."""

    @property
    def confirmed_cells(self) -> int:
        """How many of the best cells are confirmed."""
        if self.confirm is None:
            return 0
        if self.confirm_cells is None:
            return CONFIRMED_CELLS
        return self.confirm_cells


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds at which verdicts are taken, while seeds are being added.

    A cell that is decided gets no further seed.
    """

    # Seeds of every cell at the first look.
    first: Annotated[int, Ge(1), Le(MOST_WHOLE)]
    # Seeds of a cell at the last look.
    most: Annotated[int, Ge(1), Le(1000)]
    # Seeds between two looks.
    step: Annotated[int, Ge(1), Le(MOST_WHOLE)]

    @property
    def at(self) -> tuple[int, ...]:
        """The numbers of seeds, in their order."""
        # The last step may be shorter than the others.
        return (*range(self.first, self.most, self.step), self.most)

    @property
    def number(self) -> int:
        return len(self.at)


@dataclass(frozen=True)
class Diagnostics:
    """What is measured inside a network."""

    # Which diagnostics.
    names: tuple[str, ...] = ()
    # Number of test images that they are taken on.
    images: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 64
    # Also after each so many epochs; None: at the end only.
    every: Annotated[int, Ge(1), Le(MOST_WHOLE)] | None = None

    def due(self, epoch: int, *, is_last: bool) -> bool:
        """Whether diagnostics are taken after an epoch."""
        return bool(self.names) and (
            is_last or (self.every is not None and epoch % self.every == 0)
        )


Relation: TypeAlias = Literal["<=", "<", ">=", ">"]


@dataclass(frozen=True)
class CostOf:
    """A cost of the cell, or of the baseline."""

    name: str
    of_baseline: bool


@dataclass(frozen=True)
class LevelOf:
    """The cell's level of a factor."""

    factor: str


@dataclass(frozen=True)
class Arithmetic:
    """A sum, difference, product or quotient."""

    left: Term
    operator: str
    right: Term


Term: TypeAlias = "float | CostOf | LevelOf | Arithmetic"


@dataclass(frozen=True)
class Limit:
    """A bound on costs or levels."""

    # The bound as the space declares it.
    text: str
    left: Term
    relation: Relation
    right: Term


# What stays of a completed trial's checkpoint: all of it, so that a longer training can
# begin there; the last weights and those that were best on a validation split, without
# the optimiser; or nothing.
Keep: TypeAlias = Literal["last", "best", "none"]


@dataclass(frozen=True)
class DeclaredTeacher:
    """A teacher as a space declares it."""

    backbone: str
    # A checkpoint file, or timm for the published weights.
    weights: str
    # Levels of its factors.
    settings: Settings = field(default_factory=dict)


# A comparison: a row by its number or by the levels in which it differs from row 0, or
# a factor by its name.
Primary: TypeAlias = "int | str | Settings"


@dataclass(frozen=True)
class Claim:
    """What a study asks and what it tests."""

    # What the study asks, in a sentence.
    question: str
    # The claim that it tests.
    expect: str = ""
    # Where the claim is from.
    source: str = ""
    # Name of the paper's table that the study reproduces; empty: none.
    published: str = ""


@dataclass(frozen=True)
class Network:
    """Which networks are trained, and for which task."""

    backbone: str
    # A checkpoint file, timm for the published weights, or empty.
    pretrained: str = ""
    # The teacher of all cells whose recipe distils.
    teacher: DeclaredTeacher | None = None
    # What the networks are trained for.
    task: str = "classification"
    # What turns the backbone into a network of the task; empty: its own classifier.
    head: str = ""
    # The user's trainer; empty: built-in training.
    trainer: str = ""


@dataclass(frozen=True)
class Factors:
    """What varies between cells, and what does not."""

    # Levels by factor, the baseline's first. `backbone`, `pretrained`,
    # `data.image_size` and `recipe.FIELD` can vary too.
    levels: Mapping[str, tuple[Level, ...]] = field(metadata={"key": "factors"})
    # Levels of factors that do not vary.
    fixed: Settings
    baseline: Settings
    # The full level of each factor, for designs with two levels (`two_levels`).
    full: Settings
    # The cells of the design `rows`. A factor that a row does not name is as in the
    # unmodified backbone.
    rows: tuple[Settings, ...] = ()
    # Factors whose levels change together: the first of one with the first of the others.
    together: tuple[tuple[str, ...], ...] = ()
    # Whether `remove` is the built-in factor: leave-one-out then leaves out each part.
    removes_parts: bool = field(default=False, metadata={DESCRIPTIVE: True})
    # Combinations of levels that are not trained.
    exclude: tuple[Settings, ...] = ()
    # The scale (linear or log) of each factor whose levels are declared as a range.
    ranges: Mapping[str, str] = field(
        default_factory=dict, metadata={DESCRIPTIVE: True}
    )

    @property
    def axes(self) -> list[tuple[Settings, ...]]:
        """What varies by itself: the levels of a factor, or of factors together."""
        axes: list[tuple[Settings, ...]] = []
        for name in self.levels:
            group = next((group for group in self.together if name in group), (name,))
            if name != group[0]:
                continue
            columns = (self.levels[member] for member in group)
            options = zip(*columns, strict=True)
            axes.append(
                tuple(dict(zip(group, option, strict=True)) for option in options)
            )
        return axes

    def excluded_by(self, levels: Settings) -> str:
        """The combination under `exclude` that levels contain; empty if there is none."""
        settings = {**self.fixed, **levels}
        for combination in self.exclude:
            if all(settings.get(name) == level for name, level in combination.items()):
                return ", ".join(
                    f"{name}: {level_text(level)}"
                    for name, level in combination.items()
                )
        return ""


@dataclass(frozen=True)
class Seeds:
    """With which seeds each cell is trained, and what a seed decides."""

    # All seeds that a cell may get.
    numbers: tuple[int, ...] = field(metadata={"key": "seeds"})
    # What a seed decides.
    vary: tuple[Source, ...] = VARIED
    # A cell gets its next seed only while it is no worse than the cell that was the best
    # one when it was proposed.
    adaptive: bool = False
    # When verdicts are taken, if seeds are added until the study is decided.
    looks: Looks | None = None
    # The number of seeds of row 0, if it has more than the other rows.
    baseline: Annotated[int, Ge(2), Le(1000)] | None = field(
        default=None, metadata={"key": "baseline_seeds"}
    )

    @property
    def of_row_0(self) -> tuple[int, ...]:
        """All seeds that row 0 may get: further ones follow the largest."""
        more = (self.baseline or 0) - len(self.numbers)
        first = max(self.numbers, default=-1) + 1
        return (*self.numbers, *range(first, first + more))


# Seeds of trials that choose settings begin here: no row of a table has them.
FIRST_TUNING_SEED = 1_000_000


def axis_label(axis: str) -> str:
    """Returns the last part of an axis of sizes, as tables name it: `width`."""
    return axis.rpartition(".")[2].replace("_", " ")


@dataclass(frozen=True)
class Tune:
    """Nuisance hyperparameters: each row is trained at its own best setting of them."""

    # The settings that each row tries, the same for all rows.
    points: tuple[Settings, ...]
    # The metric by which a row's setting is chosen.
    metric: str
    # Whether it is better when it is larger.
    direction: Direction
    # Seeds of each setting.
    seeds: Annotated[int, Ge(1), Le(100)] = 1
    # Whether each seed of the table has a setting of its own, chosen by its own trials.
    repeat: bool = False
    # The size at which settings are chosen, as axis and size; empty: that of the row.
    at: Settings = field(default_factory=dict)
    # How the settings were drawn: all combinations of the listed levels (grid),
    # independently (random), or from a scrambled Sobol sequence.
    draw: Literal["grid", "random", "sobol"] = field(
        default="random", metadata={DESCRIPTIVE: True}
    )
    # The declared levels of each hyperparameter: the ends of a range, or a list.
    levels: Mapping[str, tuple[Level, ...]] = field(
        default_factory=dict, metadata={DESCRIPTIVE: True}
    )
    # The scale (linear or log) of each hyperparameter that is declared as a range.
    ranges: Mapping[str, str] = field(
        default_factory=dict, metadata={DESCRIPTIVE: True}
    )

    @property
    def size_text(self) -> str:
        """The size at which settings are chosen, in words; empty: that of the row."""
        return "".join(
            f"{axis_label(axis)} {level_text(at)}" for axis, at in self.at.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters."""
        return tuple(self.levels)

    def seeds_that_choose(self, seed: int) -> tuple[int, ...]:
        """Returns the seeds of the trials that choose the setting of a table's seed."""
        own = seed if self.repeat else 0
        return tuple(
            FIRST_TUNING_SEED * number + own for number in range(1, self.seeds + 1)
        )


@dataclass(frozen=True)
class Prediction:
    """The effect of a row at a larger size, stated before that size is trained.

    Attributes:
        row: its number.
        value: the predicted difference from row 0.
        low, high: the interval of the mean difference that will be measured there.
    """

    row: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Across:
    """One size of a ladder: the sizes at which every row is trained.

    Attributes:
        ladder: the name under which the studies of all sizes are shown.
        axis: what the size is, such as `size.width`.
        sizes: all sizes, in the order of the document.
        number: which of them the study has; their number: the predicted size.
        per: what is doubled along the sizes.
        predict: a larger size at which effects are predicted; None: there is none.
        predictions: the predicted effects, once all sizes are trained.
        predicted_position: where the predicted size lies on the axis.
        predicted_at: when they were stored, in UTC.
        predicted_from: a hash of what they were made from.
    """

    ladder: str = field(metadata={DESCRIPTIVE: True})
    axis: str
    sizes: tuple[Level, ...]
    number: Annotated[int, Ge(0)] = field(metadata={DESCRIPTIVE: True})
    per: Literal["compute", "params", "number"] = field(metadata={DESCRIPTIVE: True})
    predict: Level | None = field(default=None, metadata={DESCRIPTIVE: True})
    predictions: tuple[Prediction, ...] = field(
        default=(), metadata={DESCRIPTIVE: True}
    )
    predicted_position: float | None = field(default=None, metadata={DESCRIPTIVE: True})
    predicted_at: str = field(default="", metadata={DESCRIPTIVE: True})
    predicted_from: str = field(default="", metadata={DESCRIPTIVE: True})

    @property
    def all_sizes(self) -> tuple[Level, ...]:
        """The sizes in the order of the document, and the predicted one."""
        if self.predict is None:
            return self.sizes
        return (*self.sizes, self.predict)

    @property
    def is_predicted(self) -> bool:
        """Whether the study has the predicted size."""
        return self.number == len(self.sizes)

    @property
    def size(self) -> Level:
        """The size of the study."""
        return self.all_sizes[self.number]

    @property
    def study(self) -> str:
        """The name of the study: `mine/width-32`."""
        return self.studies[self.number]

    @property
    def studies(self) -> list[str]:
        """The names of the studies of all sizes, the predicted one included."""
        label = self.axis.rpartition(".")[2]
        texts = [f"{label}-{level_text(size)}" for size in self.all_sizes]
        slugs = [re.sub(r"[^A-Za-z0-9_.-]", "-", text).strip("-.") for text in texts]
        return [f"{self.ladder}/{slug}" for slug in slugs]

    @property
    def label(self) -> str:
        """The last part of the axis, as tables name it: `width`."""
        return axis_label(self.axis)

    @property
    def size_text(self) -> str:
        """The size with its axis: `width 32`."""
        return f"{self.label} {level_text(self.size)}"

    @property
    def unit(self) -> str:
        """What is doubled along the sizes, in words."""
        if self.per == "number":
            return self.label
        return {"compute": "training compute", "params": "parameters"}[self.per]

    def position(self, cost: Cost | None, images: int | None) -> float | None:
        """Returns where the size of the study lies on the axis, in units that double.

        Args:
            cost: that of row 0.
            images: the images that a training of row 0 sees.

        Returns:
            FLOPs of all its images in forward passes, parameters, or the number itself;
            None if it is not known.
        """
        if self.per == "number":
            return float(self.size)
        if cost is None:
            return None
        if self.per == "params":
            return float(cost.params) or None
        if not images:
            return None
        return float(cost.flops) * images or None

    def texts(self) -> list[str]:
        """The sizes as text, in the order of the document."""
        return [level_text(size) for size in self.sizes]


@dataclass(frozen=True)
class Reported:
    """Where the results of a study are from that were not trained here.

    Attributes:
        file: what they were read from; empty: a frame in memory.
        content: SHA-256 of the file; of a folder or a frame, that of the runs as they were
            read. Empty: the runs are not kept.
        command: what judges them again, without the name under which they are kept.
        labels: the seed of each number, if seeds are no whole numbers.
        is_paired: whether runs of two rows with the same seed belong together.
        notes: what a reader has to know of the runs.
    """

    file: str
    is_paired: bool
    content: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def again(self, study: str) -> str:
        """Returns what keeps the runs again, after the file has changed.

        Args:
            study: the name of the study.
        """
        name = study.partition("@")[0]
        if not self.file:
            return f"{self.command}.keep({name!r})"
        return f"{self.command} --keep --name {name}"


@dataclass(frozen=True)
class Criterion:
    """By what cells are compared, and which comparisons come first."""

    # Name of the metric that decides.
    metric: str
    # Whether the metric is better when it is larger.
    direction: Direction
    # What a search optimises, the metric first, and in which direction.
    objectives: Mapping[str, Direction] = field(default_factory=dict)
    # All metrics that training measures; `metric` is one of their names.
    metrics: tuple[Metric, ...] = field(default=(), metadata={DESCRIPTIVE: True})
    # Least difference of the metric that matters.
    margin: Annotated[float, Ge(0)] = 0.5
    # Comparisons that are tested one after the other, each at the full level, before
    # all others: rows, or main effects of factors.
    primary: tuple[Primary, ...] = ()

    @property
    def compared(self) -> Metric:
        """The metric by which cells are compared."""
        return next(metric for metric in self.metrics if metric.name == self.metric)

    @property
    def measured(self) -> str:
        """The name of the metric that is measured after each epoch."""
        return self.compared.measured
