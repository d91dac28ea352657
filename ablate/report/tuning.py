"""What tuning chose in each row, and what it changed.

Scores are the metric that chooses, on the images that are held out from training. The
expected best score by number of settings is that of Dodge et al. (EMNLP 2019), in the
unbiased form of Tang et al. (ACL 2020, equation 5). The sensitivity is that of Wortsman
et al. (arXiv 2309.14322), as a mean over the settings that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.records import (
    Before,
    CellResult,
    Direction,
    Status,
    StudyResults,
    Tune,
    is_number,
)
from ablate.records.stored import TriedSetting
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.verdicts import Estimate
from ablate.statistics.numbers import mean_of, sd_of

# The band of the expected best score: this share of the choices of so many settings lies
# below it, and as many above.
TAIL = 0.1
# Settings whose scores are so many standard deviations below the best are near it. A row
# with no more of them than hyperparameters has probably not found its best setting
# (`benchmarks/tuning.py --sharper`).
NEAR = 2.0
# A trial that ended in one of these gives no score.
LOST = (Status.DIVERGED, Status.PRUNED, Status.ABANDONED, Status.COMPLETED)


def best_setting(
    scores: Mapping[int, Sequence[float | None]], direction: Direction
) -> int:
    """Returns the setting with the best mean; of equal ones, the first.

    Args:
        scores: those of each setting's trials; None: the trial did not complete. A
            setting with such a trial is worse than all others.
    """
    means = mean_scores(scores)
    if not means:
        return min(scores)
    best = max(means.values()) if direction == "max" else min(means.values())
    return min(setting for setting, mean in means.items() if mean == best)


def mean_scores(scores: Mapping[int, Sequence[float | None]]) -> dict[int, float]:
    """Returns the mean score of each setting whose trials all completed."""
    means = {}
    for setting, of_setting in scores.items():
        values = [value for value in of_setting if value is not None]
        if values and len(values) == len(of_setting):
            means[setting] = mean_of(values)
    return means


@dataclass(frozen=True)
class Edge:
    """A hyperparameter whose best level is the outermost one that was tried.

    Attributes:
        level: the best level.
        is_low: whether it is the smallest one, otherwise the largest.
    """

    name: str
    level: float
    is_low: bool


@dataclass(frozen=True)
class TunedRow:
    """A row, the settings that it tried, and what its own setting changed.

    Attributes:
        cell: the row, at the settings that it chose.
        scores: the mean score of each setting; of all choices, if there are several.
        close: the settings whose score is less than a standard error below the best,
            the best left out. None: the noise is not known yet.
        near: how many settings, the best included, have scores within NEAR standard
            deviations of the best one. None: the noise is not known yet.
        at_row_0: the effect at the settings of row 0.
        own: the effect at the settings of each row.
        lost: the number of settings without a score: a trial of theirs diverged, was
            stopped early or was abandoned.
        different: the number of settings that are different trainings. A row that does
            not read a hyperparameter has fewer of them.
        gain: the metric at the row's own settings minus that at the settings of row 0;
            None: they are the same, or not trained.
        gain_interval: its interval; None: it has none.
        has_setting_of_row_0: whether the row has chosen what row 0 has chosen.
    """

    cell: CellResult
    scores: Mapping[int, float]
    close: tuple[int, ...] | None
    at_row_0: Effect | None
    own: Effect | None
    gain: float | None
    gain_interval: Estimate | None
    has_setting_of_row_0: bool
    near: int | None = None
    lost: int = 0
    different: int = 0

    def best_score(self, tune: Tune) -> float | None:
        """Returns the best score of a setting; None before the first one."""
        if not self.scores:
            return None
        if tune.direction == "max":
            return max(self.scores.values())
        return min(self.scores.values())

    def all_scores(self, tune: Tune) -> list[float]:
        """Returns the scores of all settings; a lost one counts as the worst of them."""
        scores = list(self.scores.values())
        if not scores:
            return []
        worst = min(scores) if tune.direction == "max" else max(scores)
        return [*scores, *[worst] * self.lost]

    @property
    def is_coin_toss(self) -> bool:
        """Whether another setting may as well be the best one."""
        return bool(self.close)


def tuned_rows(
    results: StudyResults, tried: Sequence[TriedSetting], margin: float
) -> list[TunedRow]:
    """Returns the rows of a study with nuisance hyperparameters, row 0 first.

    Args:
        tried: the trials of the rows at the settings that they try.
        margin: the least difference that matters.
    """
    tune = results.tune
    assert tune is not None
    own = {effect.row: effect for effect in effects(results, margin)}
    shared = _at_row_0(results, tried)
    at_row_0 = {effect.row: effect for effect in effects(shared, margin)}
    noise = _noise(tried)
    rows = []
    for cell, same in zip(results.cells, shared.cells, strict=True):
        if cell.same_as is not None or not any(t.row == cell.index for t in tried):
            continue
        scores = _scores(tried, cell.index)
        gains = _gains(cell, same) if cell.index else []
        rows.append(
            TunedRow(
                cell=cell,
                scores=scores,
                close=_close(scores, tune, noise),
                near=_near(scores, tune, noise),
                at_row_0=at_row_0.get(cell.index),
                own=own.get(cell.index),
                gain=mean_of(gains) if gains else None,
                gain_interval=_interval(gains),
                lost=_lost(tried, cell.index, scores),
                different=_different(tried, cell.index),
                has_setting_of_row_0=bool(
                    cell.index
                    and same.settings
                    and all(
                        cell.settings.get(seed) == setting
                        for seed, setting in same.settings.items()
                    )
                ),
            )
        )
    return rows


def _at_row_0(results: StudyResults, tried: Sequence[TriedSetting]) -> StudyResults:
    """Returns a study whose rows are all at the settings of row 0."""
    row_0, *others = results.cells
    cells = [row_0]
    for cell in others:
        trials = [
            t
            for t in tried
            if t.row == cell.index
            and t.stage == "row 0"
            and row_0.settings.get(t.seed) == t.setting
        ]
        cells.append(
            replace(
                cell,
                statuses={t.seed: t.status for t in trials},
                values={t.seed: t.value for t in trials if t.value is not None},
                settings={t.seed: t.setting for t in trials},
            )
        )
    # The verdicts of earlier studies are about other settings.
    return replace(results, cells=tuple(cells), before=Before())


def _scores(tried: Sequence[TriedSetting], row: int) -> dict[int, float]:
    """Returns the mean score of each setting that a row tried."""
    by_setting: dict[int, list[float | None]] = {}
    for trial in tried:
        if trial.row == row and trial.stage == "tuning":
            by_setting.setdefault(trial.setting, []).append(trial.score)
    return mean_scores(by_setting)


def _noise(tried: Sequence[TriedSetting]) -> float | None:
    """Returns the standard deviation of a score over seeds at one setting.

    It is pooled over the rows of the table. None if no setting has two seeds.
    """
    groups: dict[tuple[int, int], list[float]] = {}
    for trial in tried:
        if trial.stage == "table" and trial.score is not None:
            groups.setdefault((trial.row, trial.setting), []).append(trial.score)
    several = [values for values in groups.values() if len(values) > 1]
    if not several:
        return None
    squares = math.fsum((len(values) - 1) * sd_of(values) ** 2 for values in several)
    return math.sqrt(squares / sum(len(values) - 1 for values in several))


def _close(
    scores: Mapping[int, float], tune: Tune, noise: float | None
) -> tuple[int, ...] | None:
    """Returns the settings whose score is less than a standard error below the best."""
    if noise is None or not scores:
        return None
    best = best_setting({s: [score] for s, score in scores.items()}, tune.direction)
    error = noise * math.sqrt(2 / tune.seeds)
    return tuple(
        setting
        for setting, score in sorted(scores.items())
        if setting != best and abs(score - scores[best]) < error
    )


def _near(scores: Mapping[int, float], tune: Tune, noise: float | None) -> int | None:
    """Returns how many settings have scores near the best one, which is included."""
    if noise is None or not scores:
        return None
    best = max(scores.values()) if tune.direction == "max" else min(scores.values())
    limit = NEAR * noise / math.sqrt(tune.seeds)
    return sum(abs(score - best) <= limit for score in scores.values())


def _lost(tried: Sequence[TriedSetting], row: int, scores: Mapping[int, float]) -> int:
    """Returns the number of settings that have ended without a score."""
    by_setting: dict[int, list[TriedSetting]] = {}
    for trial in tried:
        if trial.row == row and trial.stage == "tuning":
            by_setting.setdefault(trial.setting, []).append(trial)
    return sum(
        setting not in scores and all(trial.status in LOST for trial in trials)
        for setting, trials in by_setting.items()
    )


def _different(tried: Sequence[TriedSetting], row: int) -> int:
    """Returns the number of different trainings among the settings of a row."""
    own = [trial for trial in tried if trial.row == row and trial.stage == "tuning"]
    first = min((trial.seed for trial in own), default=0)
    return len({trial.trial for trial in own if trial.seed == first})


def _gains(cell: CellResult, at_row_0: CellResult) -> list[float]:
    """Returns what the row's own settings change, by seed; empty if they are the same."""
    seeds = sorted(set(cell.values) & set(at_row_0.values))
    if all(cell.settings.get(s) == at_row_0.settings.get(s) for s in seeds):
        return []
    return [cell.values[seed] - at_row_0.values[seed] for seed in seeds]


def _interval(differences: Sequence[float]) -> Estimate | None:
    """Returns the mean with an interval for this row alone, if there is noise."""
    if len(differences) < 2 or not sd_of(differences):
        return None
    error = sd_of(differences) / math.sqrt(len(differences))
    return Estimate.of(mean_of(differences), error, len(differences) - 1)


def edges_of(row: TunedRow, tune: Tune) -> list[Edge]:
    """Returns the hyperparameters whose best level lies at an edge of what was tried.

    There is no objection if a setting away from the edge is about as good.
    """
    if not row.scores or tune.repeat:
        return []
    best = best_setting({s: [score] for s, score in row.scores.items()}, tune.direction)
    good = {best, *(row.close or ())}
    edges = []
    for name in tune.names:
        listed = [point[name] for point in tune.points]
        numbers = [float(level) for level in listed if is_number(level)]
        if len(numbers) < len(listed):
            continue
        for is_low, edge in ((True, min(numbers)), (False, max(numbers))):
            if all(tune.points[setting][name] == edge for setting in good):
                edges.append(Edge(name=name, level=edge, is_low=is_low))
    return edges


def sensitivity(row: TunedRow, tune: Tune) -> float | None:
    """Returns by how much a setting is worse than the best one, on average."""
    best, scores = row.best_score(tune), row.all_scores(tune)
    if best is None or len(scores) < 2:
        return None
    return mean_of(abs(best - score) for score in scores)


@dataclass(frozen=True)
class ExpectedBest:
    """The best score of some of the settings that a row tried.

    Attributes:
        settings: how many of them.
        mean: its mean over all choices of so many settings.
        low, high: 10 % of the choices are below, and 10 % above.
    """

    settings: int
    mean: float
    low: float
    high: float


def expected_best(scores: Sequence[float], direction: Direction) -> list[ExpectedBest]:
    """Returns the expected best score by number of settings, for independent draws.

    Args:
        scores: one for each setting.
    """
    # From the worst to the best.
    ordered = sorted(scores, reverse=direction == "min")
    number = len(ordered)
    curve = []
    for chosen in range(1, number + 1):
        # The k-th score, from 1, is the best of those choices that take it and
        # chosen - 1 of the k - 1 worse ones.
        shares = [
            math.comb(rank - 1, chosen - 1) / math.comb(number, chosen)
            for rank in range(1, number + 1)
        ]
        ends = sorted(
            (_quantile(ordered, shares, TAIL), _quantile(ordered, shares, 1 - TAIL))
        )
        curve.append(
            ExpectedBest(
                settings=chosen,
                mean=math.fsum(
                    share * score for share, score in zip(shares, ordered, strict=True)
                ),
                low=ends[0],
                high=ends[1],
            )
        )
    return curve


def _quantile(ordered: Sequence[float], shares: Sequence[float], level: float) -> float:
    """Returns the first score at which the shares add up to a level."""
    total = 0.0
    for score, share in zip(ordered, shares, strict=True):
        total += share
        if total >= level - 1e-12:
            return score
    return ordered[-1]
