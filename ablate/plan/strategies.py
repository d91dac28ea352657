"""Strategies of a search: Optuna's samplers through ask and tell.

The only module that imports Optuna.

Optuna's study lives in memory and is rebuilt from the store. For each proposal a
sampler is made anew, seeded by the search's seed and the proposal's number: what it
proposes is a function of these and of what was told, so a search that goes on after a
kill proposes what it would have proposed without one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
)
from optuna.importance import (
    FanovaImportanceEvaluator,
    PedAnovaImportanceEvaluator,
    get_param_importances,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from ablate.errors import AblateError
from ablate.records import Level, Settings, Strategy

# Of the genetic strategies: a search here has tens of cells, where Optuna's default of
# 50 would be one random generation.
POPULATION = 10


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log and its warnings that a sampler is experimental."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _quasi_random(seed: int, first: int) -> BaseSampler:
    # One sequence for the whole search; Optuna counts its points in the study.
    return optuna.samplers.QMCSampler(
        scramble=True, seed=first, independent_sampler=RandomSampler(seed)
    )


# Samplers by name, made from the proposal's seed and from the search's.
SAMPLERS: Mapping[str, Callable[[int, int], BaseSampler]] = {
    "random": lambda seed, first: RandomSampler(seed),
    "quasi-random": _quasi_random,
    "tpe": lambda seed, first: optuna.samplers.TPESampler(
        seed=seed, multivariate=True, group=True, constant_liar=True
    ),
    "gp": lambda seed, first: optuna.samplers.GPSampler(
        seed=seed, independent_sampler=RandomSampler(seed)
    ),
    "nsga2": lambda seed, first: optuna.samplers.NSGAIISampler(
        seed=seed, population_size=POPULATION
    ),
    "nsga3": lambda seed, first: optuna.samplers.NSGAIIISampler(
        seed=seed, population_size=POPULATION
    ),
    "cmaes": lambda seed, first: optuna.samplers.CmaEsSampler(
        seed=seed, independent_sampler=RandomSampler(seed)
    ),
    "brute-force": lambda seed, first: optuna.samplers.BruteForceSampler(seed=seed),
}
# Those that note in the study what they did when they were asked; they must be asked
# again when a search is rebuilt.
REMEMBERING = frozenset({"quasi-random", "nsga2", "nsga3", "cmaes"})


def is_ordered(levels: Sequence[Level]) -> bool:
    """Whether levels are numbers, so that a sampler may think of what lies between."""
    return all(
        isinstance(level, int | float) and not isinstance(level, bool)
        for level in levels
    )


@dataclass(frozen=True)
class Factor:
    """One factor as a sampler sees it: its levels, and whether the model reads it given
    the levels chosen before.
    """

    name: str
    levels: tuple[Level, ...]
    is_read: Callable[[Settings], bool]

    @property
    def choices(self) -> tuple[Level, ...]:
        """The levels in the order of the sampler's numbers."""
        if is_ordered(self.levels):
            return tuple(sorted(self.levels))
        return self.levels

    @property
    def distribution(self) -> BaseDistribution:
        last = len(self.levels) - 1
        if is_ordered(self.levels):
            return IntDistribution(0, last)
        return CategoricalDistribution(tuple(range(last + 1)))


@dataclass(frozen=True)
class Verdict:
    """What came of a proposal: completed with one value an objective, pruned with the
    metric by epoch, or failed.
    """

    state: str
    values: tuple[float, ...] = ()
    curve: Mapping[int, float] | None = None


def _direction(word: str) -> Literal["maximize", "minimize"]:
    if word == "max":
        return "maximize"
    return "minimize"


class Sampler:
    """Asks one of Optuna's samplers for levels, and tells it what came of them.

    Args:
        factors: in an order in which each is read, or not, by those before it.
        otherwise: levels of factors that are not read.
        directions: `max` or `min` of each objective.
    """

    def __init__(
        self,
        strategy: Strategy,
        factors: Sequence[Factor],
        otherwise: Settings,
        directions: Sequence[str],
    ) -> None:
        self._strategy = strategy
        self._factors = factors
        self._otherwise = otherwise
        self._directions = [_direction(direction) for direction in directions]
        self._open: dict[int, optuna.Trial] = {}
        self._worst: list[float] = []
        with _quiet():
            self._study = optuna.create_study(
                directions=self._directions, sampler=RandomSampler(0)
            )

    def ask(self, number: int, chosen: Settings | None = None) -> Settings:
        """The levels of a proposal: the sampler's, or those chosen by somebody else.

        Args:
            number: of the proposal, from 0.
        """
        name = self._strategy.name
        with _quiet():
            if chosen is not None:
                known = {
                    f.name: f.choices.index(chosen[f.name])
                    for f in self._factors
                    if f.name in chosen
                }
                self._study.enqueue_trial(known)
            cheap = chosen is not None and name not in REMEMBERING
            seed = int(
                np.random.SeedSequence((self._strategy.seed, number)).generate_state(1)[
                    0
                ]
            )
            if cheap:
                self._study.sampler = RandomSampler(seed)
            else:
                self._study.sampler = SAMPLERS[name](seed, self._strategy.seed)
            trial = self._open[number] = self._study.ask()
            if name in REMEMBERING:
                # Optuna would not ask its sampler where all levels are given.
                _ = trial.relative_params
            levels: dict[str, Level] = dict(self._otherwise)
            for factor in self._factors:
                if factor.is_read(levels):
                    levels[factor.name] = factor.choices[self._suggest(trial, factor)]
            # In the order of the space, not of reading.
            return {name: levels[name] for name in self._otherwise}

    def _suggest(self, trial: optuna.Trial, factor: Factor) -> int:
        last = len(factor.levels) - 1
        if is_ordered(factor.levels):
            return trial.suggest_int(factor.name, 0, last)
        return int(trial.suggest_categorical(factor.name, range(last + 1)))

    def constrain(self, number: int, violations: Mapping[str, float]) -> None:
        """Tells by how much a proposal breaks each limit: zero or less where it keeps
        it.
        """
        for name, violation in violations.items():
            self._open[number].set_constraint(name, violation)

    def refuse(self, number: int) -> None:
        """Tells that a proposal was not trained, as it breaks limits or cannot be
        built.

        Samplers that know constraints do not look at its values; the others must be
        told to keep away: it gets the worst so far.
        """
        with _quiet():
            if self._worst:
                verdict = Verdict("completed", tuple(self._worst))
            else:
                verdict = Verdict("failed")
            self._finish(self._open.pop(number), verdict)

    def tell(self, number: int, verdict: Verdict) -> None:
        """Tells what came of a proposal."""
        trial = self._open.pop(number)
        if verdict.state == "completed":
            pairs = zip(
                verdict.values,
                self._worst or verdict.values,
                self._directions,
                strict=True,
            )
            self._worst = [
                min(new, old) if direction == "maximize" else max(new, old)
                for new, old, direction in pairs
            ]
        with _quiet():
            self._finish(trial, verdict)

    def _finish(self, trial: optuna.Trial, verdict: Verdict) -> None:
        if self._strategy.name == "brute-force":
            # It would stop a loop that is not there.
            self._study.sampler = RandomSampler(0)
        if verdict.state == "completed":
            self._study.tell(trial, list(verdict.values))
        elif verdict.state == "pruned" and verdict.curve and len(self._directions) == 1:
            for epoch, value in sorted(verdict.curve.items()):
                trial.report(value, epoch)
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, state=TrialState.FAIL)


@dataclass(frozen=True)
class Exported:
    """A cell for Optuna: the levels that are read, what came of it, by how much it
    breaks limits, and what to show beside.
    """

    levels: Settings
    verdict: Verdict
    violations: Mapping[str, float]
    attributes: Mapping[str, Any]


def export(
    cells: Sequence[Exported],
    factors: Mapping[str, tuple[Level, ...]],
    directions: Mapping[str, str],
    to: str,
    name: str,
) -> None:
    """Writes cells as a study of an Optuna storage, each level as it is written in the
    space.

    Args:
        directions: `max` or `min` by objective.
        to: URL of the storage, as sqlite:///optuna.db.

    Raises:
        AblateError: the storage has a study of that name already, or cannot be opened.
    """
    with _quiet():
        try:
            study = optuna.create_study(
                storage=to,
                study_name=name,
                directions=[_direction(d) for d in directions.values()],
            )
        except optuna.exceptions.DuplicatedStudyError:
            raise AblateError(
                f"{to} has a study '{name}' already; delete it there, or name another"
                " storage"
            ) from None
        except Exception as error:
            # Of whatever kind the storage's driver raises.
            raise AblateError(
                f"--optuna {to}: {error}; write a URL such as sqlite:///optuna.db"
            ) from error
        study.set_metric_names(list(directions))
        study.add_trials(_trials(cells, factors, len(directions)))


def importances(
    cells: Sequence[Exported], factors: Mapping[str, tuple[Level, ...]], direction: str
) -> dict[str, dict[str, float]]:
    """How much each factor matters among completed cells, as shares, by Optuna's
    evaluators: PED-ANOVA (what sets the better cells off, Watanabe et al. 2023) and
    fANOVA (variance explained by a random forest, Hutter et al. 2014; only factors that
    are read in all cells).

    Raises:
        AblateError: fewer than four cells are completed.
    """
    done = [
        replace(cell, verdict=replace(cell.verdict, values=cell.verdict.values[:1]))
        for cell in cells
        if cell.verdict.state == "completed"
    ]
    if len(done) < 4:
        raise AblateError(
            "importance is told from four completed cells and more; there are"
            f" {len(done)}"
        )
    with _quiet():
        study = optuna.create_study(direction=_direction(direction))
        study.add_trials(_trials(done, factors, 1))
        evaluators = {
            "ped_anova": PedAnovaImportanceEvaluator(),
            "fanova": FanovaImportanceEvaluator(seed=0),
        }
        found = {}
        for name, evaluator in evaluators.items():
            try:
                found[name] = get_param_importances(study, evaluator=evaluator)
            except RuntimeError:
                # All cells came to the same: there is no variance to explain.
                found[name] = {}
        return found


STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def _trials(
    cells: Sequence[Exported], factors: Mapping[str, tuple[Level, ...]], objectives: int
) -> list[optuna.trial.FrozenTrial]:
    # Levels of today's declaration, and those that cells of an earlier one were at.
    choices: dict[str, dict[Level, None]] = {}
    for cell in cells:
        for name, level in cell.levels.items():
            known = choices.setdefault(name, dict.fromkeys(factors.get(name, ())))
            known[level] = None
    distributions = {
        name: CategoricalDistribution(tuple(levels)) for name, levels in choices.items()
    }
    with _quiet():
        return [_trial(cell, distributions, objectives) for cell in cells]


def _trial(
    cell: Exported,
    distributions: Mapping[str, CategoricalDistribution],
    objectives: int,
) -> optuna.trial.FrozenTrial:
    return optuna.create_trial(
        state=STATES[cell.verdict.state],
        values=_values(cell),
        params=dict(cell.levels),
        distributions={name: distributions[name] for name in cell.levels},
        intermediate_values=_curve(cell, objectives),
        user_attrs=dict(cell.attributes),
        constraints=dict(cell.violations) or None,
    )


def _values(cell: Exported) -> list[float] | None:
    if cell.verdict.state != "completed":
        return None
    return list(cell.verdict.values)


def _curve(cell: Exported, objectives: int) -> dict[int, float]:
    """The values by epoch. Optuna has none in a search for several objectives."""
    if objectives > 1:
        return {}
    return dict(cell.verdict.curve or {})
