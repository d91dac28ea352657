"""What a user's trainer keeps: two epochs, resume, seeds, and a network per level."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ablate.contracts.check import BrokenContract, Check, require
from ablate.cost import count
from ablate.errors import Infeasible
from ablate.factors.factor import OneOf, Whole
from ablate.own import registry
from ablate.parts import Trainer, trainer_named
from ablate.records import TRAINER, Architecture, Data, Epoch, Level, Recipe, Trial
from ablate.training.checkpoint import read_checkpoint
from ablate.training.own import make_own

EPOCHS = 2


def trainer_checks(trainer: Trainer) -> Iterator[Check]:
    """Yields the checks of one trainer."""
    if trainer.problem:
        yield Check("is declared without a mistake", partial(_check_declared, trainer))
        return
    yield Check(f"reports {EPOCHS} epochs", partial(_check_reports, trainer))
    yield Check("gives the same for the same seed", partial(_check_repeatable, trainer))
    yield Check("gives another result for another seed", partial(_check_seed, trainer))
    yield Check(
        "resumes after its first epoch with the same result",
        partial(_check_resume, trainer),
    )
    if trainer.model is None:
        return
    for settings in _each_level(trainer):
        levels = ", ".join(f"{name} = {level}" for name, level in settings.items())
        yield Check(
            f"the network is built and counted at {levels or 'its only level'}",
            partial(_check_cost, trainer, settings),
        )


def _check_declared(trainer: Trainer) -> None:
    trainer_named(trainer.name)


def _first_levels(trainer: Trainer) -> dict[str, Level]:
    levels: dict[str, Level] = {}
    for name, allowed in trainer.factors.items():
        if isinstance(allowed, OneOf):
            levels[name] = allowed.levels[0]
        elif isinstance(allowed, Whole):
            levels[name] = max(allowed.least, 1)
        elif allowed.closed:
            levels[name] = allowed.least
        else:
            # Any number above the bound.
            levels[name] = allowed.least + 1e-3
    return levels


def _each_level(trainer: Trainer) -> Iterator[dict[str, Level]]:
    """The first levels, and each other level once."""
    first = _first_levels(trainer)
    yield first
    for name, allowed in trainer.factors.items():
        if isinstance(allowed, OneOf):
            for level in allowed.levels[1:]:
                yield {**first, name: level}


def _architecture(trainer: Trainer, settings: dict[str, Level]) -> Architecture:
    return Architecture(
        backbone=f"{TRAINER}{trainer.name}",
        image_size=0,
        channels=0,
        classes=0,
        settings=settings,
        code=registry.identity("trainer", trainer),
    )


def _trial(trainer: Trainer, seed: int = 0) -> Trial:
    name = f"{TRAINER}{trainer.name}"
    return Trial(
        architecture=_architecture(trainer, _first_levels(trainer)),
        recipe=replace(Recipe(), epochs=1 if trainer.reports_once else EPOCHS),
        data=Data(name=name, path="", image_size=0, channels=0, classes=0),
        seed=seed,
    )


def _trained(trial: Trial, folder: Path, stop_after: int = EPOCHS) -> list[Epoch]:
    """Trains so many epochs, with a checkpoint after the last one."""
    trial_folder = folder / trial.hash
    work = make_own(trial, trial_folder, device="cpu", threads=1)
    try:
        while not work.finished and len(work.epochs) < stop_after:
            work.epoch()
        work.save()
        return list(work.epochs)
    finally:
        work.close()


def _in_folder(trial: Trial) -> list[Epoch]:
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        return _trained(trial, Path(folder))


def _check_reports(trainer: Trainer) -> None:
    epochs = _in_folder(_trial(trainer))
    numbers = [epoch.number for epoch in epochs]
    expected = [1] if trainer.reports_once else [1, 2]
    require(numbers == expected, f"it reported the epochs {numbers}")


def _saved(folder: Path) -> bool:
    """Whether a trial can go on from its folder."""
    if (folder / "script" / "checkpoint").exists():
        return True
    state = read_checkpoint(str(folder), folder.name)
    return bool(state and state.get("files"))


def _values(epochs: list[Epoch]) -> list[dict[str, float]]:
    return [dict(epoch.metrics) for epoch in epochs]


def _check_repeatable(trainer: Trainer) -> None:
    first, other = _in_folder(_trial(trainer)), _in_folder(_trial(trainer))
    _require_equal(_values(first), _values(other), "the same seed gives another result")


def _check_seed(trainer: Trainer) -> None:
    first, other = _in_folder(_trial(trainer, 0)), _in_folder(_trial(trainer, 1))
    require(
        _values(first) != _values(other),
        "two seeds give the same result, so the spread over seeds would be 0; use"
        " trial.seed, or torch's, numpy's or Python's random numbers",
    )


def _check_resume(trainer: Trainer) -> None:
    trial = _trial(trainer)
    expected = _in_folder(trial)
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        _trained(trial, Path(folder), stop_after=1)
        require(
            _saved(Path(folder) / trial.hash),
            "nothing is saved, so an interrupted trial starts again; give save= to"
            " trial.report and resume= to trial.epochs, or {checkpoint} to a command",
        )
        epochs = _trained(trial, Path(folder))
    _require_equal(
        _values(epochs),
        _values(expected),
        "a resumed trial gives another result; save and load all of its state",
    )


def _require_equal(
    epochs: list[dict[str, float]], expected: list[dict[str, float]], message: str
) -> None:
    for number, (epoch, other) in enumerate(zip(epochs, expected, strict=True), 1):
        require(
            epoch == other, f"{message}: epoch {number} has {epoch}, before {other}"
        )


def _check_cost(trainer: Trainer, settings: dict[str, Level]) -> None:
    try:
        count(_architecture(trainer, settings))
    except Infeasible as error:
        raise BrokenContract(str(error)) from error
