"""The section that says how many trainings a cell gets, and what their seeds decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.errors import AblateError
from ablate.records import SOURCES, VARIED, Looks, Seeds, Source, Space
from ablate.space.context import Context
from ablate.space.schema import (
    AdaptiveForm,
    DataForm,
    SeedsForm,
    UntilDecidedForm,
)
from ablate.text.advice import option

# The forms that say more than a number of seeds.
FULL = (SeedsForm, AdaptiveForm, UntilDecidedForm)
# Seeds between two looks, unless the space says otherwise.
LOOK_STEP = 3


def read_seeds(context: Context) -> Seeds:
    """The section `seeds`."""
    numbers = _numbers(context)
    return Seeds(
        numbers=numbers,
        vary=_vary(context),
        adaptive=isinstance(context.form.seeds, AdaptiveForm),
        looks=_looks(context),
        baseline=_baseline(context, numbers),
    )


def until_decided(space: Space, most: int) -> Space:
    """The space with seeds that are added until the study is decided.

    Args:
        most: the most seeds of a cell, as `seeds: {until_decided: N}` declares them.

    Raises:
        AblateError: the space is a search, stops trials early, lets rows choose their
            settings, lists its seeds, or declares them as final.
    """
    name = option("until_decided")
    if space.strategy is not None:
        raise AblateError(
            f"{name} {most} works for designs only, and {space.name} is a search;"
            " write seeds: {adaptive: N} instead"
        )
    if space.tune is not None:
        raise AblateError(
            f"{name} {most} and tune exclude each other; in {space.name}, write more"
            f" seeds instead, as in seeds: {most}"
        )
    if space.across is not None:
        raise AblateError(
            f"{name} {most} and across exclude each other: all sizes have the same"
            f" seeds; in {space.across.ladder}, write more seeds instead, as in seeds:"
            f" {most}"
        )
    if space.scheduler.name != "fifo":
        raise AblateError(
            f"{name} {most} compares trials that are trained to their end; leave the"
            " scheduler out"
        )
    numbers = space.seeds.numbers
    if numbers != tuple(range(len(numbers))):
        raise AblateError(
            f"{name} {most} adds seeds 0, 1, 2, ..., but {space.name} has a list of"
            f" seeds. Write their number instead, as in seeds: {len(numbers)}"
        )
    looks = space.seeds.looks
    if looks is None:
        # A verdict needs a spread, and a spread needs two seeds.
        looks = Looks(first=max(2, len(numbers)), most=most, step=LOOK_STEP)
    if looks.first >= most:
        raise AblateError(
            f"{name} {most} is the largest number of seeds of a cell; it must be above"
            f" {looks.first}, the number of seeds at the start"
        )
    seeds = replace(
        space.seeds, numbers=tuple(range(most)), looks=replace(looks, most=most)
    )
    return replace(space, seeds=seeds)


def _numbers(context: Context) -> tuple[int, ...]:
    """The seeds that a cell has, or may get."""
    seeds = context.form.seeds
    if isinstance(seeds, AdaptiveForm):
        return tuple(range(seeds.adaptive))
    if isinstance(seeds, UntilDecidedForm):
        return tuple(range(seeds.until_decided))
    if isinstance(seeds, SeedsForm):
        seeds = seeds.count
    if isinstance(seeds, int):
        return tuple(range(seeds))
    seen: set[int] = set()
    for seed in seeds:
        if seed in seen:
            context.wrong(("seeds",), f"seeds: {seed} is a duplicate")
            break
        seen.add(seed)
    return tuple(seeds)


def _looks(context: Context) -> Looks | None:
    """The looks of a study that adds seeds until it is decided, or None."""
    seeds = context.form.seeds
    if not isinstance(seeds, UntilDecidedForm):
        return None
    if seeds.start >= seeds.until_decided:
        context.wrong(
            ("seeds",),
            f"until_decided = {seeds.until_decided} is the most seeds of a cell, and"
            f" must be more than start = {seeds.start}, the seeds that every cell gets",
        )
    if context.form.scheduler != "fifo":
        context.wrong(
            ("seeds",),
            "seeds: {until_decided: N} compares trials that are trained to their end;"
            " leave the scheduler out",
        )
    return Looks(seeds.start, seeds.until_decided, seeds.step)


def _baseline(context: Context, numbers: Sequence[int]) -> int | None:
    """The number of seeds of row 0, if it is not that of the other rows."""
    seeds = context.form.seeds
    if not isinstance(seeds, SeedsForm | UntilDecidedForm):
        return None
    if seeds.baseline is None:
        return None
    if context.form.strategy is not None:
        context.wrong(
            ("seeds", "baseline"),
            "seeds.baseline works for designs only; in a search, cells are compared with"
            " row 0 on the seeds of strategy.confirm: leave baseline out",
        )
        return None
    least = len(numbers)
    if isinstance(seeds, UntilDecidedForm):
        least = seeds.start
    if seeds.baseline <= least:
        context.wrong(
            ("seeds", "baseline"),
            f"seeds.baseline = {seeds.baseline} is the number of seeds of row 0, and must"
            f" be more than {least}, that of the other rows; or leave it out",
        )
        return None
    return seeds.baseline


def _vary(context: Context) -> tuple[Source, ...]:
    """What a seed decides, in the order of `SOURCES`."""
    seeds = context.form.seeds
    if not isinstance(seeds, FULL) or seeds.vary is None:
        return VARIED
    vary = tuple(source for source in SOURCES if source in seeds.vary)
    if len(vary) < len(seeds.vary):
        listed = ", ".join(seeds.vary)
        context.wrong(("seeds", "vary"), f"seeds.vary: a duplicate in [{listed}]")
    if vary != VARIED and context.form.trainer is not None:
        context.wrong(
            ("seeds", "vary"),
            f"seeds.vary works for built-in training; trainer {context.form.trainer}"
            " decides itself what a seed stands for: leave vary out",
        )
        return VARIED
    if "split" in vary:
        _check_split(context)
    return vary


def _check_split(context: Context) -> None:
    """Notes a split that has nothing to draw."""
    images = context.form.data
    if isinstance(images, DataForm) and (images.validation or images.train_images):
        return
    name = images.name if isinstance(images, DataForm) else images
    context.wrong(
        ("seeds", "vary"),
        "seeds.vary: a split draws which training images are held out or used, and this"
        f" study uses all of them; hold some out, as in data: {{name: {name},"
        " validation: 0.1}, or leave split out",
    )
