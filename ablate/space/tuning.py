"""The section `tune`: nuisance hyperparameters, and the settings that each row tries."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from ablate.errors import shortened, unknown
from ablate.records import (
    FIRST_TUNING_SEED,
    LENGTHS,
    Across,
    Criterion,
    Level,
    Metric,
    Seeds,
    Settings,
    Tune,
    is_number,
)
from ablate.space.context import Context, level_key
from ablate.space.levels import check_different, check_levels
from ablate.space.ranges import range_problem, takes_fractions
from ablate.space.schema import RangeForm, TuneForm
from ablate.text.document import Where

# The most settings of a row.
MOST_SETTINGS = 1000
# Drawn numbers are rounded to so many digits: neighbours differ by 1 % at most.
DIGITS = 3
# After so many repeated draws in a row, the ranges have no further setting.
PATIENCE = 100_000


def read_tune(
    context: Context, criterion: Criterion, seeds: Seeds, across: Across | None
) -> Tune | None:
    """The section `tune`; None if there is none, or it has a mistake.

    Args:
        across: the size of the space; None if there is none, or it has a mistake.
    """
    form = context.form.tune
    if form is None:
        return None
    problems = len(context.problems)
    _check_study(context, form, seeds)
    metric = _metric(context, form, criterion)
    if not form.hyperparameters:
        context.wrong(
            ("tune",),
            "tune names no hyperparameter; add one, as in recipe.lr: {low: 3e-4, high:"
            " 1e-2, scale: log}",
        )
    for name, declared in form.hyperparameters.items():
        _check_hyperparameter(context, name, declared)
    if len(context.problems) > problems or metric is None:
        return None
    draw, points = _points(context, form)
    if len(context.problems) > problems:
        return None
    ranges = {
        name: declared
        for name, declared in form.hyperparameters.items()
        if isinstance(declared, RangeForm)
    }
    return Tune(
        points=tuple(points),
        metric=metric.name,
        direction=metric.direction,
        seeds=form.seeds,
        repeat=form.repeat,
        at=_smallest(across) if form.at == "smallest" and across else {},
        draw=draw,
        levels={
            name: _ends(declared)
            if isinstance(declared, RangeForm)
            else tuple(declared)
            for name, declared in form.hyperparameters.items()
        },
        ranges={name: declared.scale for name, declared in ranges.items()},
    )


def _smallest(across: Across) -> Settings:
    """The smallest size; of sizes that are no numbers, the first."""
    numbers = [size for size in across.sizes if is_number(size)]
    are_numbers = len(numbers) == len(across.sizes)
    return {across.axis: min(numbers) if are_numbers else across.sizes[0]}


def _check_size(context: Context) -> None:
    """Notes why settings cannot be chosen at the smallest size."""
    across = context.form.across
    where: Where = ("tune", "at")
    if across is None:
        context.wrong(
            where,
            "tune.at names the size at which settings are chosen, and this space has one"
            " size; leave it out, or add across: {size.width: [16, 32, 64]}",
        )
        return
    if "data.train_images" in across.sizes:
        context.wrong(
            where,
            "at: smallest is for sizes of the network or of its training, not for"
            " data.train_images: write at: each",
        )
    if context.form.control is not None:
        context.wrong(
            where,
            "at: smallest and control exclude each other: the controls of a size are"
            " rows of this size alone; write at: each",
        )


def _ends(declared: RangeForm) -> tuple[Level, ...]:
    return (declared.low, declared.high)


def _check_study(context: Context, form: TuneForm, seeds: Seeds) -> None:
    """Notes sections of the study that do not go with `tune`."""
    if context.form.strategy is not None:
        context.wrong(
            ("tune",),
            "tune is for designs, whose rows are known; a search chooses its cells by"
            " results: write the hyperparameters under factors, or a design in the place"
            " of the strategy",
        )
    if seeds.looks is not None:
        context.wrong(
            ("tune",),
            "tune and seeds: {until_decided: N} exclude each other; write the number of"
            " seeds, as in seeds: 5",
        )
    if any(seed >= FIRST_TUNING_SEED for seed in seeds.numbers):
        context.wrong(
            ("seeds",),
            f"with tune, seeds are below {FIRST_TUNING_SEED:,}: the trials that choose"
            " settings have those from there on",
        )
    if form.at == "smallest":
        _check_size(context)
    if context.form.trainer is None and not _holds_out(context):
        data = context.form.data
        name = data if isinstance(data, str) else data.name
        context.wrong(
            ("tune",),
            "tune chooses settings on images that are held out from training, never on"
            f" test images; hold some out: data: {{name: {shortened(name)}, validation:"
            " 0.15}",
        )


def _holds_out(context: Context) -> bool:
    data = context.form.data
    return not isinstance(data, str) and bool(data.validation)


def _metric(context: Context, form: TuneForm, criterion: Criterion) -> Metric | None:
    """The metric that chooses: by default that of the study, on held-out images."""
    metrics = {
        metric.name: metric
        for metric in criterion.metrics
        if metric.compared and not metric.of
    }
    name = form.metric
    if name is None and context.form.trainer is not None:
        context.wrong(
            ("tune",),
            "tune needs to know which metric of the trainer is measured on data that are"
            " held out from training, and not on those of the table; add `metric:"
            f" NAME` to tune; it reports {', '.join(metrics)}",
        )
        return None
    if name is None:
        name = criterion.measured
    if name not in metrics:
        context.wrong(("tune", "metric"), partial(unknown, "metric", name, metrics))
        return None
    return metrics[name]


def _check_hyperparameter(
    context: Context, name: str, declared: RangeForm | Sequence[Level]
) -> None:
    """Notes what is wrong with a hyperparameter and its levels."""
    where: Where = ("tune", name)
    form = context.form
    if name.removeprefix("recipe.") in LENGTHS and name.startswith("recipe."):
        context.wrong(
            where,
            f"tune: {name} is the length of the training, which must be the same for all"
            " settings; write it under recipe, or under factors",
        )
        return
    for section, names in (
        ("factors", context.levels),
        ("fixed", form.fixed),
        ("recipe", _declared_recipe(context)),
    ):
        if name in names:
            context.wrong(
                where,
                f"{name} is under tune and under {section}; name it in one place",
            )
            return
    if name.startswith("data.") or name in ("backbone", "pretrained"):
        context.wrong(
            where,
            f"tune: {name} is no hyperparameter of the training; name it under factors",
        )
        return
    problems = len(context.problems)
    if isinstance(declared, RangeForm):
        problem = range_problem(declared)
        if declared.count is not None:
            problem = (
                "under tune, `settings` is the number of settings that each row tries;"
                " leave count out"
            )
        if problem:
            context.wrong(where, f"{name}: {problem}")
            return
        check_levels(context, where, name, (declared.low, declared.high))
        return
    if len(declared) < 2:
        context.wrong(
            where,
            f"{name} needs two levels or more, or a range, has {len(declared)}; what no"
            " row chooses belongs under `recipe` or `fixed`",
        )
    check_different(context, where, name, tuple(declared))
    if len(context.problems) == problems:
        check_levels(context, where, name, tuple(declared))


def _declared_recipe(context: Context) -> set[str]:
    """The fields that the section `recipe` gives."""
    recipe = context.form.recipe
    if isinstance(recipe, str):
        return set()
    return {f"recipe.{field}" for field in recipe.model_fields_set}


def _points(
    context: Context, form: TuneForm
) -> tuple[Literal["grid", "random", "sobol"], list[Settings]]:
    """The settings that each row tries, and how they were drawn."""
    has_range = any(
        isinstance(declared, RangeForm) for declared in form.hyperparameters.values()
    )
    combinations = math.inf
    if not has_range:
        combinations = math.prod(map(len, form.hyperparameters.values()))
    if form.settings is None:
        if has_range:
            context.wrong(
                ("tune",),
                "tune needs the number of settings that each row tries, such as"
                " settings: 8",
            )
            return "grid", []
        if combinations > MOST_SETTINGS:
            context.wrong(
                ("tune",),
                f"the levels under tune have {combinations:,} combinations, more than"
                f" {MOST_SETTINGS:,}; say how many of them each row tries, such as"
                " settings: 8",
            )
            return "grid", []
    if form.settings is not None and form.settings > combinations:
        context.wrong(
            ("tune", "settings"),
            f"tune.settings = {form.settings}, but its levels have"
            f" {combinations} combinations; write {combinations} at most, or leave"
            " settings out to try all of them",
        )
        return "grid", []
    if form.settings in (None, combinations) and form.draw is None:
        names = list(form.hyperparameters)
        lists = [list(form.hyperparameters[name]) for name in names]
        return "grid", [
            dict(zip(names, levels, strict=True))
            for levels in itertools.product(*lists)
        ]
    if form.settings is None:
        context.wrong(
            ("tune", "draw"),
            "without `settings`, each row tries all combinations of the levels; leave"
            " draw out, or add the number of settings, such as settings: 8",
        )
        return "grid", []
    draw = form.draw or "random"
    shares = _sobol if draw == "sobol" else _random
    axes = {
        name: _axis(context, name, declared)
        for name, declared in form.hyperparameters.items()
    }
    points = _drawn(axes, shares(len(axes)), form.settings)
    if len(points) < form.settings:
        context.wrong(
            ("tune", "settings"),
            f"tune.settings = {form.settings}, but its ranges have only {len(points)}"
            f" different settings of {DIGITS} digits; write wider ranges, or a list of"
            " levels",
        )
    return draw, points


class _Axis:
    """A hyperparameter as a function from shares (0 to 1) to levels."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self._levels = levels

    def at(self, share: float) -> Level:
        return self._levels[min(int(share * len(self._levels)), len(self._levels) - 1)]


class _Range(_Axis):
    """A hyperparameter with a range."""

    def __init__(self, low: float, high: float, scale: str, *, whole: bool) -> None:
        self._low, self._high = low, high
        self._is_log = scale == "log"
        self._whole = whole

    def at(self, share: float) -> Level:
        low, high = self._low, self._high
        if self._is_log:
            # Not by a power of high / low, which may be too large a number.
            number = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            number = low + (high - low) * share
        number = round(number) if self._whole else float(f"{number:.{DIGITS}g}")
        return min(max(number, low), high)


def _axis(context: Context, name: str, declared: RangeForm | Sequence[Level]) -> _Axis:
    if not isinstance(declared, RangeForm):
        return _Axis(declared)
    whole = not takes_fractions(context, ("tune", name), name, declared)
    low, high = declared.low, declared.high
    if not whole:
        low, high = float(low), float(high)
    return _Range(low, high, declared.scale, whole=whole)


def _random(axes: int) -> Iterator[Sequence[float]]:
    """Yields independent points, always the same ones.

    More settings thus include the ones before.
    """
    generator = random.Random(0)
    while True:
        yield [generator.random() for _ in range(axes)]


def _sobol(axes: int) -> Iterator[Sequence[float]]:
    """Yields the points of a scrambled Sobol sequence, always the same ones."""
    from scipy.stats import qmc

    engine = qmc.Sobol(axes, scramble=True, rng=0)
    while True:
        with warnings.catch_warnings():
            # It prefers powers of two, and more settings must keep the ones before.
            warnings.simplefilter("ignore")
            yield engine.random(1)[0].tolist()


def _drawn(
    axes: Mapping[str, _Axis], shares: Iterator[Sequence[float]], settings: int
) -> list[Settings]:
    """Returns different settings in the order in which they are drawn."""
    points: dict[tuple[tuple[bool, Level], ...], Settings] = {}
    repeats = 0
    while len(points) < settings and repeats < PATIENCE:
        levels = [
            axis.at(share)
            for axis, share in zip(axes.values(), next(shares), strict=True)
        ]
        key = tuple(map(level_key, levels))
        repeats = repeats + 1 if key in points else 0
        points.setdefault(key, dict(zip(axes, levels, strict=True)))
    return list(points.values())
