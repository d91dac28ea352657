"""Simulated users, who do what gives them a verdict: part of `make trust`.

Each works in a store without any effect, or with effects as large as the margin, and
declares studies again and again. What a study may test follows from what
the store uses (`ablate.store.declarations`), and the verdicts from that of the tables. A user is
fooled if any study ever shows `helps`, `hurts` or, where effects exist, `no
difference`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from made_up import MARGIN, NOISES, SAID, Noise, Proof, Vector, drawn, made, names

from ablate.records import Before, Status, StudyResults
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict
from ablate.store.declarations import FEWEST_SEEDS, Earlier, Known, Row

# The most seeds that a user trains.
MOST = 40
# The most further seeds that a user adds at once.
MOST_MORE = 12


@dataclass
class Made:
    """A study of a store.

    Attributes:
        key: its number in the store, in the order of declarations.
        rows: its cells, row 0 first.
        declared: the same as the store has them.
        group: that of the studies with trials of its row 0.
        baseline: the number of seeds of row 0, if it is not that of the others.
        before: what was known of its rows.
        judged: whether its verdicts were taken with all of its trials.
    """

    key: int
    name: str
    rows: list[int]
    seeds: list[int]
    metric: int
    primary: tuple[int, ...]
    declared: list[Row]
    group: int
    before: Before
    baseline: int | None = None
    judged: bool = False

    def seeds_of(self, number: int) -> list[int]:
        """The seeds of a row."""
        if number or self.baseline is None:
            return self.seeds
        return list(range(self.baseline))

    @property
    def trials(self) -> list[tuple[int, int]]:
        """Its trials by cell and seed, the first seed of each row first."""
        every = [
            (seed, number, cell)
            for number, cell in enumerate(self.rows)
            for seed in self.seeds_of(number)
        ]
        return [(cell, seed) for seed, _, cell in sorted(every)]


@dataclass
class Desk:
    """A store on a user's desk: its studies, and the values of all trials.

    Attributes:
        metrics: of all trials that might be trained, one row a cell and one column a
            seed. Two metrics are two such tables.
        truth: the true mean of each cell; empty: all are equal.
        wrong: the verdicts that are wrong where cells are equal.
        studies: the first one first. The last one of a name is its newest generation.
        ended: the trials that have ended, by cell and seed.
        failed: trials that fail when they are trained for the first time.
        tried: trials that have failed and were not tried again.
        fooled: whether any look gave a wrong verdict.
    """

    metrics: list[Vector]
    truth: list[float] = field(default_factory=list)
    wrong: tuple[Verdict, ...] = SAID
    studies: list[Made] = field(default_factory=list)
    ended: set[tuple[int, int]] = field(default_factory=set)
    failed: set[tuple[int, int]] = field(default_factory=set)
    tried: set[tuple[int, int]] = field(default_factory=set)
    fooled: bool = False

    @property
    def cells(self) -> list[int]:
        return list(range(len(self.metrics[0])))

    def declare(
        self,
        rows: Sequence[int],
        seeds: Sequence[int] | int,
        name: str = "mine",
        *,
        metric: int = 0,
        primary: Sequence[int] = (),
        baseline: int | None = None,
    ) -> Made:
        """Declares a study as `ablate run` does."""
        listed = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
        seeds_of_row_0 = listed if baseline is None else range(baseline)
        declared = [
            _row(number, cell, listed if number else seeds_of_row_0)
            for number, cell in enumerate(rows)
        ]
        before = next((one for one in reversed(self.studies) if one.name == name), None)
        number = 1
        if before is not None:
            mine = (declared, metric, tuple(primary))
            if (before.declared, before.metric, before.primary) == mine:
                return before
            number = before.before.generation
            if self._is_kept(before):
                number += 1
            else:
                self.studies.remove(before)
        trained: dict[str, dict[int, str]] = {}
        for cell, seed in self.ended:
            trained.setdefault(_key(cell), {})[seed] = _hash(cell, seed)
        known = Known(
            rows=declared,
            metric=str(metric),
            data={},
            trained=trained,
            choosing=frozenset(),
            reported={},
            earlier=[
                Earlier(
                    study=study.key,
                    group=study.group,
                    metric=str(study.metric),
                    data={},
                    rows=study.declared,
                    same_name=False,
                )
                for study in reversed(self.studies)
            ],
        )
        key = 1 + max((one.key for one in self.studies), default=0)
        group = min((*known.groups, key))
        for study in self.studies:
            if study.group in known.groups:
                study.group = group
        made_ = Made(
            key=key,
            name=name,
            rows=list(rows),
            seeds=listed,
            metric=metric,
            primary=tuple(primary),
            declared=declared,
            group=group,
            before=Before(generation=number, rows=known.comparisons()),
            baseline=baseline,
        )
        self.studies.append(made_)
        return made_

    def _is_kept(self, study: Made) -> bool:
        return any(
            sum((cell, seed) in self.ended for seed in study.seeds) >= FEWEST_SEEDS
            for cell in study.rows
        )

    def train(self, study: Made, most: int | None = None) -> None:
        """Trains a study, seed by seed, or the first trials of it."""
        left = [trial for trial in study.trials if trial not in self.ended]
        for trial in left[:most]:
            if trial in self.failed:
                self.failed.remove(trial)
                self.tried.add(trial)
                continue
            self.ended.add(trial)
            self.tried.discard(trial)

    def results(self, study: Made, *, alone: bool = False) -> StudyResults:
        """The results as the store returns them.

        Args:
            alone: without the earlier studies of the group.
        """
        earlier = [
            self.results(other, alone=True)
            for other in self.studies
            if not alone and other.group == study.group and other.key < study.key
        ]
        values = self.metrics[study.metric]
        whole = made(values, names(len(values)))
        cells = [
            replace(
                whole.cells[cell],
                index=number,
                role="variant" if number else "reference",
                statuses={
                    seed: self._status(cell, seed) for seed in study.seeds_of(number)
                },
                values={
                    seed: float(values[cell, seed])
                    for seed in study.seeds_of(number)
                    if (cell, seed) in self.ended
                },
            )
            for number, cell in enumerate(study.rows)
        ]
        return replace(
            whole,
            name=f"{study.name} {study.key}",
            metric=replace(whole.metric, name=f"metric {study.metric}"),
            cells=tuple(cells),
            before=replace(study.before, studies=tuple(earlier)),
            primary=study.primary,
            baseline_seeds=study.baseline,
        )

    def _status(self, cell: int, seed: int) -> Status:
        if (cell, seed) in self.ended:
            return Status.COMPLETED
        if (cell, seed) in self.tried:
            return Status.FAILED
        return Status.PLANNED

    def look(self, study: Made) -> list[Effect]:
        """Takes the verdicts of all studies, and notes whether one is wrong.

        Returns those of one study.
        """
        shown: list[Effect] = []
        for one in self.studies:
            if one.judged and one is not study:
                continue
            results = self.results(one)
            found = effects(results, MARGIN)
            self.fooled |= any(self._is_wrong(one, effect) for effect in found)
            one.judged = all(trial in self.ended for trial in one.trials)
            if one is study:
                shown = found
        return shown

    def _is_wrong(self, study: Made, effect: Effect) -> bool:
        if not self.truth:
            return effect.verdict in self.wrong
        gain = self.truth[study.rows[effect.row]] - self.truth[study.rows[0]]
        if effect.verdict is Verdict.SAME:
            return abs(gain) >= MARGIN
        if effect.verdict is Verdict.HELPS:
            return gain <= 0
        return effect.verdict is Verdict.HURTS and gain >= 0

    def run(
        self,
        rows: Sequence[int],
        seeds: Sequence[int] | int,
        name: str = "mine",
        **more: Any,
    ) -> list[Effect]:
        """Declares, trains and looks."""
        study = self.declare(rows, seeds, name, **more)
        self.train(study)
        return self.look(study)

    def mean(self, cell: int, seeds: int) -> float:
        """The mean of a cell over its first seeds, as a table shows it."""
        return float(self.metrics[0][cell, :seeds].mean())


def _key(cell: int) -> str:
    return f"cell {cell}"


def _hash(cell: int, seed: int) -> str:
    return f"{cell} {seed}"


def _row(number: int, cell: int, seeds: Sequence[int]) -> Row:
    trials = {seed: _hash(cell, seed) for seed in seeds}
    return Row(number=number, key=_key(cell), trials=trials)


def best_of(found: Sequence[Effect]) -> int:
    """The row that differs most."""
    return max(found, key=lambda effect: abs(effect.mean or 0)).row


def follows_advice(desk: Desk) -> None:
    """Adds the seeds that `ablate effects` recommends until there is a verdict."""
    seeds = 3
    while seeds <= MOST and not desk.fooled:
        study = desk.declare(desk.cells, seeds)
        desk.train(study)
        needed = [effect.further for effect in desk.look(study)]
        more = [number for number in needed if number is not None]
        if not more:
            return
        seeds += min(MOST_MORE, *more, MOST)


def follows_every_sentence(desk: Desk) -> None:
    """Extends, declares all seeds, repeats on new seeds, and adds rows as it is told."""
    half = desk.cells[: len(desk.cells) // 2 + 1]
    desk.run(half, 3)
    desk.run(desk.cells, 3)
    desk.run(half, [1, 2])
    desk.run(half, 6)
    desk.run([desk.cells[0], *desk.cells[len(half) :]], [6, 7, 8], "rows")
    desk.run(desk.cells, [9, 10, 11], "again")


def adds_one_seed(desk: Desk) -> None:
    """Adds one seed at a time, from 3 to 12."""
    for seeds in range(3, 13):
        desk.run(desk.cells, seeds)


def adds_seeds_of_row_0(desk: Desk) -> None:
    """Adds seeds of row 0, then of all rows, then of row 0 again."""
    for baseline in (5, 6, 8):
        desk.run(desk.cells, 4, baseline=baseline)
    desk.run(desk.cells, 6, baseline=8)
    for baseline in (9, 10, 12):
        desk.run(desk.cells, 6, baseline=baseline)


def stops_when_it_looks_well(desk: Desk) -> None:
    """Looks after every seed, and declares as many as there are if a row looks well."""
    study = desk.declare(desk.cells, 12)
    for seeds in range(1, 13):
        desk.train(study, len(desk.cells))
        desk.look(study)
        if seeds > 1 and _looks_well(desk, seeds):
            desk.look(desk.declare(desk.cells, seeds))
            study = desk.declare(desk.cells, 12)


def _looks_well(desk: Desk, seeds: int, limit: float = 2.5) -> bool:
    """Whether the mean of a row, unadjusted, is so many standard errors from row 0."""
    values = desk.metrics[0][:, :seeds]
    differences = values[1:] - values[0]
    errors = differences.std(axis=1, ddof=1) / seeds**0.5
    return bool(np.any(np.abs(differences.mean(axis=1)) > limit * errors))


def selects_seeds(desk: Desk) -> None:
    """Trains 12 seeds, then declares the five that are best for some row."""
    desk.run(desk.cells, 12)
    values = desk.metrics[0][:, :12]
    for gains in values[1:] - values[0]:
        for sign in (1, -1):
            best = sorted(int(seed) for seed in np.argsort(sign * gains)[:5])
            desk.run(desk.cells, best)
            desk.run(desk.cells, best, "selected")


def drops_rows(desk: Desk) -> None:
    """Keeps the row that differs most, alone, and then adds seeds to it."""
    best = best_of(desk.run(desk.cells, 3))
    for seeds in (3, 6, 9, 12):
        desk.run([0, best], seeds)


def doubles_the_seeds_of_one_row(desk: Desk) -> None:
    """Gives the row that differs most twice the seeds, under another name."""
    best = best_of(desk.run(desk.cells, 5))
    desk.run([0, best], 10, "doubled")
    desk.run([0, best], 20, "doubled again")


def drops_a_row_and_makes_it_row_0(desk: Desk) -> None:
    """Compares new rows with the worst and the best row of a study, which it drops."""
    half = len(desk.cells) // 2 + 1
    found = desk.run(desk.cells[:half], 5)
    by_mean = sorted(found, key=lambda effect: effect.mean or 0)
    for chosen in (by_mean[0].row, by_mean[-1].row):
        kept = [cell for cell in desk.cells[:half] if cell != chosen]
        desk.run(kept, 5)
        desk.run([chosen, *desk.cells[half:]], 5, f"from {chosen}")


def names_it_primary(desk: Desk) -> None:
    """Names the row that differs most as primary, and then adds seeds."""
    best = best_of(desk.run(desk.cells, 3))
    for seeds in (3, 6, 9, 12):
        desk.run(desk.cells, seeds, primary=[best])


def swaps_the_baseline(desk: Desk) -> None:
    """Makes each row the baseline in turn, and adds seeds."""
    desk.run(desk.cells, 5)
    for first in desk.cells[1:]:
        others = [cell for cell in desk.cells if cell != first]
        desk.run([first, *others], 5)
        desk.run([first, *others], 6)


def swaps_the_metric(desk: Desk) -> None:
    """Compares by one metric after the other."""
    for metric in (*range(len(desk.metrics)), *range(len(desk.metrics))):
        desk.run(desk.cells, 5, metric=metric)


def renames_the_study(desk: Desk) -> None:
    """Declares the results again under other names: without a row, with fewer seeds."""
    desk.run(desk.cells, 6)
    for out in desk.cells[1:]:
        for seeds in (6, 5, 4):
            kept = [cell for cell in desk.cells if cell != out]
            if len(kept) > 1:
                desk.run(kept, seeds, f"without {out}, {seeds}")


def repeats_under_new_names(desk: Desk) -> None:
    """Repeats the study with new seeds under five names."""
    for attempt in range(5):
        desk.run(desk.cells, range(5 * attempt, 5 * attempt + 5), f"attempt {attempt}")


def goes_back(desk: Desk) -> None:
    """Runs the first file again and again between others."""
    best = best_of(desk.run(desk.cells, 3))
    for seeds in (6, 9, 12):
        desk.run([0, best], seeds)
        desk.run(desk.cells, 3)


def cuts_a_long_study_short(desk: Desk) -> None:
    """Declares 40 seeds, looks after each, and declares fewer if a row looks well."""
    study = desk.declare(desk.cells, MOST)
    for seeds in range(2, MOST):
        if _looks_well(desk, seeds, limit=3.5):
            desk.train(study, seeds * len(desk.cells))
            desk.look(desk.declare(desk.cells, seeds))
            return
    desk.train(study)
    desk.look(study)


def moves_on_from_row_to_row(desk: Desk) -> None:
    """Adds a row, makes it row 0 beside a new one, adds seeds, and goes on from it."""
    desk.run([0, 1], 3, "first")
    row_0, row = 0, 1
    for added in range(2, len(desk.cells) - 1, 2):
        desk.run([row_0, row, added], 3, f"adds {added}")
        row_0, row = added, added + 1
        for seeds in (3, 5, 8):
            desk.run([row_0, row], seeds, f"from {added} {seeds}")


def adds_rows_when_row_0_looks_bad(desk: Desk) -> None:
    """Adds rows in the middle of a run if row 0 is below the others."""
    few = desk.cells[: len(desk.cells) // 2 + 1]
    study = desk.declare(few, 5)
    desk.train(study, 3 * len(few))
    means = [desk.mean(cell, 3) for cell in few]
    rows = desk.cells if means[0] < np.mean(means[1:]) else few
    desk.run(rows, 5)


def corrects_a_variant(desk: Desk) -> None:
    """Corrects the code of a variant until it has a verdict: each is a new row."""
    for cell in desk.cells[1:]:
        desk.run([0, cell], 5)


def corrects_a_variant_under_new_names(desk: Desk) -> None:
    """Does the same under another name each time."""
    for cell in desk.cells[1:]:
        desk.run([0, cell], 5, f"version {cell}")


def does_everything(desk: Desk) -> None:
    """Adds seeds, drops rows, swaps the metric, makes a row primary, selects seeds."""
    every = desk.cells
    best = best_of(desk.run(every, 3))
    desk.run(every, 5)
    desk.run([0, best], 5)
    desk.run(every, 8)
    desk.run(every, 8, metric=len(desk.metrics) - 1)
    desk.run(every, 8, primary=[best])
    desk.run(every, [1, 2, 3, 4, 5])
    desk.run([0, best], 12)


def begins_with_a_pilot(desk: Desk) -> None:
    """Trains one seed, and then more of the row that differs most."""
    desk.run(desk.cells, 1)
    gains = abs(desk.metrics[0][1:, 0] - desk.metrics[0][0, 0])
    best = 1 + int(np.argmax(gains))
    for seeds in (3, 5):
        desk.run([0, best], seeds)


def begins_with_a_smoke_test(desk: Desk) -> None:
    """Runs three seeds of a short training, whose cells are others, and then five."""
    half = len(desk.cells) // 2
    desk.run(desk.cells[:half], 3)
    desk.fooled = False
    desk.run(desk.cells[half:], 5)


def declares_one_study_per_row(desk: Desk) -> None:
    """Declares a study of one row for each row, before any result."""
    made_ = [desk.declare([0, cell], 5, f"row {cell}") for cell in desk.cells[1:]]
    for study in made_:
        desk.train(study)
        desk.look(study)


def repeats_on_fresh_seeds(desk: Desk) -> None:
    """Repeats the study ten times, each time on fresh seeds."""
    for attempt in range(10):
        desk.run(desk.cells, range(5 * attempt, 5 * attempt + 5))


def takes_the_worst_row_as_row_0(desk: Desk) -> None:
    """Compares new rows with the worst row of a study, and then with the best one."""
    half = desk.cells[: len(desk.cells) - 2]
    desk.run(half, 5)
    for choose in (min, max):
        first = choose(half, key=lambda cell: desk.mean(cell, 5))
        desk.run([first, *desk.cells[len(half) :]], 5, f"from {first}")


def goes_on_from_the_best_row(desk: Desk) -> None:
    """Adds one row at a time to the best row so far, as row 0."""
    best = 0
    for cell in desk.cells[1:]:
        desk.run([best, cell], 5, f"step {cell}")
        best = max(range(cell + 1), key=lambda row: desk.mean(row, 5))


def takes_rows_of_another_study(desk: Desk) -> None:
    """Adds the row that is best in another study, one time after the other."""
    every = desk.cells
    desk.run(every[:2], 3)
    desk.run(every, 5, "other")
    rows = sorted(every[2:], key=lambda row: abs(desk.mean(row, 5) - desk.mean(0, 5)))
    for best in reversed(rows):
        desk.run([*every[:2], best], 3)
        desk.run([*every[:2], best], 5)


def compares_known_rows_with_a_new_row_0(desk: Desk) -> None:
    """Trains the rows first, and then the best of them with row 0."""
    every = desk.cells
    desk.run(every[1:], 5, "other")
    desk.fooled = False
    for choose in (max, min):
        row = choose(every[1:], key=lambda cell: desk.mean(cell, 5))
        desk.run([0, row], 5)


def tunes_the_baseline(count: int, studies: int) -> Callable[[Desk], None]:
    """Returns a user who takes the best of equal baselines as row 0, on the same seeds.

    Each baseline has a study of its own. Only the studies that follow count: their row 0
    is the luckiest one. They share the other rows.
    """

    def user(desk: Desk) -> None:
        baselines = desk.cells[:count]
        for cell in baselines:
            desk.train(desk.declare([cell], 5, f"recipe {cell}"))
        best = max(baselines, key=lambda cell: desk.mean(cell, 5))
        rows = desk.cells[count:]
        for study in range(studies):
            desk.run([best, *rows[study::studies]], 5, f"study {study}")

    return user


def tunes_the_baseline_of_declared_studies(count: int) -> Callable[[Desk], None]:
    """Returns a user who declares a study for each baseline before any result.

    Only the study of the baseline that is best is trained to its end.
    """

    def user(desk: Desk) -> None:
        rows = desk.cells[count:]
        made = [
            desk.declare([cell, *rows], 5, f"recipe {cell}")
            for cell in desk.cells[:count]
        ]
        best = max(range(count), key=lambda cell: desk.mean(cell, 5))
        desk.train(made[best])
        desk.look(made[best])

    return user


def tunes_the_baseline_in_one_study(desk: Desk) -> None:
    """Takes the best row of a study with many as row 0 of the next one."""
    half = len(desk.cells) // 2
    found = desk.run(desk.cells[:half], 5, "recipes")
    best = max(found, key=lambda effect: effect.mean or 0).row
    desk.run([best, *desk.cells[half:]], 5)


def retries_failed_trials(desk: Desk) -> None:
    """Looks while some trials have failed, and again after they are tried again."""
    # The last seed of every other row, and now and then one of row 0.
    chance = np.random.default_rng(int(abs(desk.metrics[0][0, 0]) * 1e6))
    desk.failed = {(cell, 2) for cell in desk.cells[1:] if chance.random() < 0.3}
    if chance.random() < 0.1:
        desk.failed.add((0, 2))
    desk.run(desk.cells, 3)
    desk.run(desk.cells, 3)


USERS: dict[str, Callable[[Desk], None]] = {
    "adds the recommended seeds until a verdict": follows_advice,
    "does what the sentences of plan and effects say": follows_every_sentence,
    "adds one seed at a time, 3 to 12": adds_one_seed,
    "adds seeds of row 0, of all rows, and of row 0 again": adds_seeds_of_row_0,
    "takes verdicts after every seed, stops when they are good": stops_when_it_looks_well,
    "selects 5 of 12 seeds": selects_seeds,
    "keeps the best row only, then adds seeds": drops_rows,
    "doubles the seeds of the best row under new names": doubles_the_seeds_of_one_row,
    "drops the worst and the best row, and makes each row 0 elsewhere": (
        drops_a_row_and_makes_it_row_0
    ),
    "makes the best row primary, then adds seeds": names_it_primary,
    "swaps the baseline, and adds a seed each time": swaps_the_baseline,
    "swaps the metric": swaps_the_metric,
    "declares results again under other names": renames_the_study,
    "repeats the study with new seeds under five names": repeats_under_new_names,
    "goes back to the first file between others": goes_back,
    "declares 40 seeds, and fewer when a row looks well": cuts_a_long_study_short,
    "makes each row row 0 of the next studies": moves_on_from_row_to_row,
    "adds rows in a run if row 0 looks bad": adds_rows_when_row_0_looks_bad,
    "corrects the code of a variant until it has a verdict": corrects_a_variant,
    "does so under another name each time": corrects_a_variant_under_new_names,
    "trains one seed of each row, then more seeds of the best row": begins_with_a_pilot,
    "runs a short smoke test with three seeds first": begins_with_a_smoke_test,
    "declares one study for each row before any result": declares_one_study_per_row,
    "repeats the study ten times on fresh seeds": repeats_on_fresh_seeds,
    "takes the worst row, then the best one, as row 0": takes_the_worst_row_as_row_0,
    "adds rows to the best row so far": goes_on_from_the_best_row,
    "adds the best row of another study": takes_rows_of_another_study,
    "compares the best of known rows with a new row 0": (
        compares_known_rows_with_a_new_row_0
    ),
    "takes the best row of a study as row 0 of the next one": (
        tunes_the_baseline_in_one_study
    ),
    "looks before and after failed trials are tried again": retries_failed_trials,
    "adds seeds, drops rows, swaps the metric, makes a row primary, selects seeds": (
        does_everything
    ),
}
# Users with the noise under which they are fooled most often.
UNEQUAL_USERS = (
    ("adds one seed at a time, 3 to 12", "one row with 25 times the variance"),
    ("adds one seed at a time, 3 to 12", "lognormal noise"),
    (
        "adds seeds of row 0, of all rows, and of row 0 again",
        "row 0 with 25 times the variance",
    ),
    (
        "looks before and after failed trials are tried again",
        "one row with 25 times the variance",
    ),
    (
        "looks before and after failed trials are tried again",
        "row 0 with 25 times the variance",
    ),
    ("adds the best row of another study", "row 0 with 25 times the variance"),
    (
        "trains one seed of each row, then more seeds of the best row",
        "row 0 with 25 times the variance",
    ),
)
# Users who can do nothing with a single row.
ALSO_ONE_ROW = (
    follows_advice,
    adds_one_seed,
    adds_seeds_of_row_0,
    stops_when_it_looks_well,
    cuts_a_long_study_short,
    selects_seeds,
    swaps_the_baseline,
    swaps_the_metric,
    repeats_under_new_names,
    repeats_on_fresh_seeds,
    retries_failed_trials,
)
# Equal baselines that a user tries, and the rows and the number of the studies that
# follow.
BASELINES = tuple(itertools.product((5, 10, 20), ((1, 1), (7, 1), (7, 7))))


def fooled(
    count: int, user: Callable[[Desk], None], rows: int, noise: Noise, seed: int = 0
) -> float:
    """The share of studies without effects in which a user gets a verdict."""
    generator = np.random.default_rng((rows, seed))
    wrong = 0
    for _ in range(count):
        metrics = [
            drawn(generator, [0.0] * (rows + 1), MOST + MOST_MORE, noise)
            for _ in range(2)
        ]
        desk = Desk(metrics)
        user(desk)
        wrong += desk.fooled
    return wrong / count


def fooled_by_margins(count: int, rows: int) -> float:
    """The share of studies with effects of several sizes in which a user gets `no
    difference` with some margin that is no larger than the effect.
    """
    generator = np.random.default_rng(41)
    means = [0.0, *(MARGIN * (row + 1) for row in range(rows))]
    wrong = 0
    for _ in range(count):
        desk = Desk([drawn(generator, means, 5)])
        study = desk.declare(desk.cells, 5)
        desk.train(study)
        results = desk.results(study)
        wrong += any(
            effect.verdict is Verdict.SAME and means[effect.row] >= margin
            for margin in means[1:]
            for effect in effects(results, margin)
        )
    return wrong / count


def user_proofs(count: int) -> Iterator[Proof]:
    """The promises to users who follow their results; `count` repetitions each."""
    promise = "users of studies without effects who get a verdict *helps* or *hurts*: at most 5 %"

    def proof(setting: str, measured: float, times: int) -> Proof:
        return Proof(
            promise=promise,
            setting=setting,
            measured=measured,
            low=0,
            high=0.05,
            count=times,
        )

    equal = NOISES["equal noise"]
    for name, user in USERS.items():
        for rows in (1, 7):
            if rows == 1 and user not in ALSO_ONE_ROW:
                continue
            # Estimating how many seeds are needed takes most of the time.
            times = max(30, count // 20) if user is follows_advice else count
            yield proof(
                f"{name}; {rows + 1} cells", fooled(times, user, rows, equal), times
            )
    for name, noise in UNEQUAL_USERS:
        measured = fooled(count, USERS[name], 4, NOISES[noise])
        yield proof(f"{name}; 5 cells, {noise}", measured, count)
    for baselines, (rows, studies) in BASELINES:
        user = tunes_the_baseline(baselines, studies)
        each = "a study" if studies == 1 else f"{studies} studies"
        yield proof(
            f"takes the best of {baselines} equal baselines as row 0 of {each};"
            f" {rows // studies + 1} cells",
            fooled(count, user, baselines + rows - 1, equal),
            count,
        )
    yield Proof(
        promise="users who get a verdict *no difference* although the effect is as large"
        " as the margin: at most 5 %",
        setting="tries five margins; 6 cells",
        measured=fooled_by_margins(count, 5),
        low=0,
        high=0.05,
        count=count,
    )
