"""Strategies of a search: Optuna's samplers through its ask-and-tell interface.

This is the only module that imports Optuna.

Optuna's study lives in memory and is rebuilt from the store. Each proposal uses a new
sampler, seeded by the seed of the search and the number of the proposal. A proposal is
therefore a function of these two and of the reported outcomes, so a search that resumes
after a kill makes the proposals that it would have made without one.
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
    FloatDistribution,
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
from ablate.records import Factors, Level, Settings, Strategy, is_number
from ablate.statistics.numbers import scale_of
from ablate.text.advice import option

# Population of the genetic strategies. A search has tens of cells, so Optuna's default
# of 50 would make it one random generation.
POPULATION = 10


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Optuna's log and its warnings that a sampler is experimental."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _quasi_random(seed: int, first: int) -> BaseSampler:
    # The whole search uses one sequence, so its seed is that of the search. Optuna
    # stores the position in the sequence in the study.
    return optuna.samplers.QMCSampler(
        scramble=True, seed=first, independent_sampler=RandomSampler(seed)
    )


# Samplers by name. Each factory takes the seed of the proposal and the seed of the
# search.
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
# Samplers that store state in the study when they are asked. When a search is rebuilt
# they must be asked again, or that state is missing.
REMEMBERING = frozenset({"quasi-random", "nsga2", "nsga3", "cmaes"})


def is_ordered(levels: Sequence[Level]) -> bool:
    """Whether all levels are numbers, so that a sampler may interpolate."""
    return all(map(is_number, levels))


@dataclass(frozen=True)
class SearchFactor:
    """One factor as a sampler sees it.

    It has levels, and a function that says whether the model reads the factor, given
    the levels chosen so far.
    """

    name: str
    levels: tuple[Level, ...]
    is_read: Callable[[Settings], bool]

    @property
    def choices(self) -> tuple[Level, ...]:
        """The levels, in the order of the integers that the sampler uses for them."""
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
class CellOutcome:
    """The outcome of a proposal.

    It is completed with one value per objective, pruned with the metric by epoch, or
    failed.
    """

    state: str
    values: tuple[float, ...] = ()
    curve: Mapping[int, float] | None = None


def _direction(word: str) -> Literal["maximize", "minimize"]:
    if word == "max":
        return "maximize"
    return "minimize"


class Sampler:
    """Asks one of Optuna's samplers for levels and reports the outcomes to it.

    Args:
        factors: in an order in which earlier factors decide whether a later one is
            read.
        otherwise: levels for factors that are not read.
        directions: `max` or `min` of each objective.
    """

    def __init__(
        self,
        strategy: Strategy,
        factors: Sequence[SearchFactor],
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
        """Returns the levels of a proposal: the sampler's own, or `chosen` if given.

        Args:
            number: number of the proposal, from 0.
            chosen: levels of a stored proposal. They are enqueued, so that the sampler
                records them as its own.
        """
        name = self._strategy.name
        with _quiet():
            if chosen is not None:
                fields = {
                    f.name: f.choices.index(chosen[f.name])
                    for f in self._factors
                    if f.name in chosen
                }
                self._study.enqueue_trial(fields)
            # Replaying a stored cell needs no expensive model fit: its levels are
            # given, and these samplers keep no state of their own.
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
                # Optuna calls a sampler lazily, and not at all if every level is
                # enqueued. Reading this property forces the call.
                _ = trial.relative_params
            levels: dict[str, Level] = dict(self._otherwise)
            for factor in self._factors:
                if factor.is_read(levels):
                    levels[factor.name] = factor.choices[self._suggest(trial, factor)]
            # In the order of the space, not of reading.
            return {name: levels[name] for name in self._otherwise}

    def _suggest(self, trial: optuna.Trial, factor: SearchFactor) -> int:
        last = len(factor.levels) - 1
        if is_ordered(factor.levels):
            return trial.suggest_int(factor.name, 0, last)
        return int(trial.suggest_categorical(factor.name, range(last + 1)))

    def constrain(self, number: int, violations: Mapping[str, float]) -> None:
        """Reports by how much a proposal violates each limit.

        The value is zero or less if it keeps the limit.
        """
        for name, violation in violations.items():
            self._open[number].set_constraint(name, violation)

    def refuse(self, number: int) -> None:
        """Reports that a proposal breaks a limit or cannot be built.

        Samplers that support constraints ignore its values. The other samplers must
        learn to avoid it, so it gets the worst values so far.
        """
        with _quiet():
            if self._worst:
                outcome = CellOutcome("completed", tuple(self._worst))
            else:
                outcome = CellOutcome("failed")
            self._finish(self._open.pop(number), outcome)

    def tell(self, number: int, outcome: CellOutcome) -> None:
        """Reports the outcome of a proposal."""
        trial = self._open.pop(number)
        if outcome.state == "completed":
            pairs = zip(
                outcome.values,
                self._worst or outcome.values,
                self._directions,
                strict=True,
            )
            self._worst = [
                min(new, old) if direction == "maximize" else max(new, old)
                for new, old, direction in pairs
            ]
        with _quiet():
            self._finish(trial, outcome)

    def _finish(self, trial: optuna.Trial, outcome: CellOutcome) -> None:
        if self._strategy.name == "brute-force":
            # Once nothing is left, the brute-force sampler stops Optuna's optimization
            # loop. There is no such loop here, and Optuna would raise an error.
            self._study.sampler = RandomSampler(0)
        if outcome.state == "completed":
            self._study.tell(trial, list(outcome.values))
        elif outcome.state == "pruned" and outcome.curve and len(self._directions) == 1:
            for epoch, value in sorted(outcome.curve.items()):
                trial.report(value, epoch)
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, state=TrialState.FAIL)


@dataclass(frozen=True)
class Exported:
    """A cell in the form in which it is exported to Optuna.

    It has the levels that are read, the outcome, the violation of each limit, and
    attributes to display.
    """

    levels: Settings
    outcome: CellOutcome
    violations: Mapping[str, float]
    attributes: Mapping[str, Any]


def export(
    cells: Sequence[Exported],
    factors: Factors,
    directions: Mapping[str, str],
    to: str,
    name: str,
) -> None:
    """Writes cells as a study of an Optuna storage, with the levels of the space.

    Args:
        directions: `max` or `min` by objective.
        to: URL of the storage, such as sqlite:///optuna.db.

    Raises:
        AblateError: the storage already has a study of that name, or cannot be opened.
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
            # The type of the error depends on the driver of the storage.
            raise AblateError(
                f"{option('optuna')} {to}: {error}; write a URL such as sqlite:///optuna.db"
            ) from error
        study.set_metric_names(list(directions))
        study.add_trials(_trials(cells, factors, len(directions)))


# Of a list. With each further one, fANOVA of Optuna takes 1.5 times as long: 0.5 s with 12
# levels, 86 s with 24 (2 cores).
MOST_LEVELS = 14


def importances(
    cells: Sequence[Exported], factors: Factors, direction: str
) -> dict[str, dict[str, float]]:
    """Returns the importance of each factor among completed cells, as shares.

    The evaluators are Optuna's: PED-ANOVA (what distinguishes the better cells,
    Watanabe et al. 2023) and fANOVA (variance explained by a random forest, Hutter et
    al. 2014; only factors that are read in all cells, and only if no list of levels has
    more than `MOST_LEVELS`).

    Raises:
        AblateError: fewer than four cells are completed.
    """
    completed = [cell for cell in cells if cell.outcome.state == "completed"]
    # Shares do not depend on the unit, and squares of very large numbers have no float.
    scale = scale_of(cell.outcome.values[0] for cell in completed)
    done = [
        replace(
            cell,
            outcome=replace(cell.outcome, values=(cell.outcome.values[0] / scale,)),
        )
        for cell in completed
    ]
    if len(done) < 4:
        raise AblateError(
            f"importance needs at least four completed cells; there are {len(done)}"
        )
    with _quiet():
        study = optuna.create_study(direction=_direction(direction))
        trials = _trials(done, factors, 1)
        study.add_trials(trials)
        evaluators = {
            "ped_anova": PedAnovaImportanceEvaluator(),
            "fanova": FanovaImportanceEvaluator(seed=0),
        }
        by_evaluator: dict[str, dict[str, float]] = {}
        for name, evaluator in evaluators.items():
            if name == "fanova" and _most_categories(trials) > MOST_LEVELS:
                by_evaluator[name] = {}
                continue
            try:
                by_evaluator[name] = get_param_importances(study, evaluator=evaluator)
            except RuntimeError:
                # All cells have the same value, so there is no variance to explain.
                by_evaluator[name] = {}
        return by_evaluator


def _most_categories(trials: Sequence[optuna.trial.FrozenTrial]) -> int:
    """Returns the number of levels of the longest list of levels."""
    return max(
        (
            len(distribution.choices)
            for trial in trials
            for distribution in trial.distributions.values()
            if isinstance(distribution, CategoricalDistribution)
        ),
        default=0,
    )


STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def _trials(
    cells: Sequence[Exported], factors: Factors, objectives: int
) -> list[optuna.trial.FrozenTrial]:
    # The levels of the current declaration, and those of cells from an earlier one.
    choices: dict[str, dict[Level, None]] = {}
    for cell in cells:
        for name, level in cell.levels.items():
            known_levels = choices.setdefault(
                name, dict.fromkeys(factors.levels.get(name, ()))
            )
            known_levels[level] = None
    distributions = {
        name: _distribution(tuple(levels), factors.ranges.get(name, ""))
        for name, levels in choices.items()
    }
    with _quiet():
        return [_trial(cell, distributions, objectives) for cell in cells]


def _distribution(levels: tuple[Level, ...], scale: str) -> BaseDistribution:
    """Returns the distribution of a factor's levels.

    Args:
        scale: linear or log for a range; empty for a list, whose levels are categories.
    """
    if not scale:
        return CategoricalDistribution(levels)
    low, high = min(levels), max(levels)
    if all(isinstance(level, int) for level in levels):
        return IntDistribution(int(low), int(high), log=scale == "log")
    return FloatDistribution(float(low), float(high), log=scale == "log")


def _trial(
    cell: Exported,
    distributions: Mapping[str, BaseDistribution],
    objectives: int,
) -> optuna.trial.FrozenTrial:
    return optuna.create_trial(
        state=STATES[cell.outcome.state],
        values=_values(cell),
        params=dict(cell.levels),
        distributions={name: distributions[name] for name in cell.levels},
        intermediate_values=_curve(cell, objectives),
        user_attrs=dict(cell.attributes),
        constraints=dict(cell.violations) or None,
    )


def _values(cell: Exported) -> list[float] | None:
    if cell.outcome.state != "completed":
        return None
    return list(cell.outcome.values)


def _curve(cell: Exported, objectives: int) -> dict[int, float]:
    """Returns the values by epoch; Optuna allows none for several objectives."""
    if objectives > 1:
        return {}
    return dict(cell.outcome.curve or {})
