"""The section that says how many trainings a cell gets, and what their seeds decide."""

from __future__ import annotations

from ablate.records import SOURCES, VARIED, Looks, Source
from ablate.space.context import Context
from ablate.space.schema import (
    AdaptiveForm,
    DataForm,
    FinalForm,
    SeedsForm,
    UntilDecidedForm,
)

# The forms that say more than a number of seeds.
FULL = (SeedsForm, AdaptiveForm, UntilDecidedForm, FinalForm)


def read_seeds(context: Context) -> tuple[int, ...]:
    """The seeds that a cell has, or may get."""
    seeds = context.form.seeds
    if isinstance(seeds, AdaptiveForm):
        return tuple(range(seeds.adaptive))
    if isinstance(seeds, UntilDecidedForm):
        return tuple(range(seeds.until_decided))
    if isinstance(seeds, FinalForm):
        seeds = seeds.final
    elif isinstance(seeds, SeedsForm):
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


def read_looks(context: Context) -> Looks | None:
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


def read_vary(context: Context) -> tuple[Source, ...]:
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
