"""The cells of a space, with their trials."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from ablate.records.base import Settings
from ablate.records.model import Architecture, Cost
from ablate.records.space import Space
from ablate.records.trial import Trial

Role: TypeAlias = Literal["reference", "baseline", "variant", "control"]
# What a trial at one setting of the nuisance hyperparameters is for. tuning: it chooses
# the setting of its row. row 0: it has the setting of row 0, to compare with.
Stage: TypeAlias = Literal["tuning", "row 0"]


@dataclass(frozen=True)
class AtSetting:
    """A trial of a row at one of the settings that it tries. No table shows it."""

    stage: Stage
    # The number of the setting.
    setting: int
    trial: Trial
    # Of its network, which may have another size than the row.
    cost: Cost


@dataclass(frozen=True)
class Cell:
    """One combination of levels in a plan.

    Exactly one of these is true: the cell has trials, it repeats another cell, or it is
    infeasible. While a cell with `at_settings` has no setting yet, it has no `trials`.
    """

    # Number of the cell, and of its row in the table.
    index: int
    levels: Settings
    role: Role
    # Factors that the model does not read at these levels, such as the number of blocks
    # of a shortcut if there is none.
    unread: frozenset[str] = frozenset()
    architecture: Architecture | None = None
    cost: Cost | None = None
    # Those of the table, one per seed.
    trials: tuple[Trial, ...] = ()
    # With nuisance hyperparameters: the training that identifies the row, at the recipe
    # of the space. It need not be trained.
    base: Trial | None = None
    # With nuisance hyperparameters: the training at each setting, with some seed.
    by_setting: tuple[Trial, ...] = ()
    # With nuisance hyperparameters: the number of the setting of each of `trials`.
    settings: tuple[int, ...] = ()
    # With nuisance hyperparameters: the trials beside those of the table.
    at_settings: tuple[AtSetting, ...] = ()
    # Number of the cell that trains the same.
    same_as: int | None = None
    # Why the cell repeats another one, or is infeasible.
    note: str = ""
    # For a control: the number of its variant.
    control_of: int | None = None

    @property
    def feasible(self) -> bool:
        # A folded cell has no trials of its own, so it is not feasible here either.
        return bool(self.trials or self.at_settings)

    @property
    def all_trials(self) -> tuple[Trial, ...]:
        """The trials of the table, and those beside it."""
        return (*(at.trial for at in self.at_settings), *self.trials)


@dataclass(frozen=True)
class Plan:
    """All cells of a space, in the order of the table."""

    space: Space
    cells: tuple[Cell, ...]

    @cached_property
    def code(self) -> dict[str, str]:
        """The versions of the user's own parts that build and train the cells."""
        versions: dict[str, str] = {}
        for cell in self.cells:
            if cell.architecture is not None:
                versions.update(cell.architecture.code)
            for trial in cell.all_trials:
                versions.update(trial.code)
        return versions

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Each distinct trial once: first one seed of every cell, then the next seed.

        An interrupted study thus has a few seeds of all cells, not all seeds of a few.
        """
        rows = [cell.all_trials for cell in self.cells if cell.all_trials]
        in_turn = (
            trial
            for seed in itertools.zip_longest(*rows)
            for trial in seed
            if trial is not None
        )
        return tuple({trial.hash: trial for trial in in_turn}.values())
