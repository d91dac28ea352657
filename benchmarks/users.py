"""Simulated users, who do what gives them a verdict: part of `make trust`.

Each works on studies without any effect, or with effects as large as the margin, and
declares a study again and again. The declarations go through the functions that the
store uses (`ablate.store.history`), and the results through those of the tables. A user
is fooled if any table ever shows `helps`, `hurts` or, where effects exist, `no
difference`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from made_up import MARGIN, NOISES, SAID, Noise, Proof, Vector, drawn, made, names

from ablate.records import Status, StudyResults
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.verdicts import Verdict
from ablate.store.declarations import Declaration
from ablate.store.history import history_of, with_cells

# The most seeds that a user trains.
MOST = 40
# The most further seeds that a user adds at once.
MOST_MORE = 12
START = datetime(2026, 1, 1)


@dataclass
class Desk:
    """A study on a user's desk: its values, and what was declared so far.

    Attributes:
        values: of all trials that might be trained, one row a cell and one column a
            seed. Two metrics are two such tables.
        rows: the cells that are declared now, row 0 first.
        seeds: the seeds that are declared now.
        ended: when each trial ended, by cell and seed.
        failed: trials that fail when they are trained for the first time.
        tried: trials that have failed and were not tried again.
        had: the trials that were ever declared, by cell and seed.
        known: when trials were declared for the first time that had ended by then.
        cells: how many rows a search proposes; None: the study has a design.
        fooled: whether any look gave a wrong verdict.
    """

    metrics: list[Vector]
    margin: float = MARGIN
    wrong: tuple[Verdict, ...] = SAID
    rows: list[int] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    metric: int = 0
    primary: list[int] = field(default_factory=list)
    final: bool = False
    declared: list[Declaration] = field(default_factory=list)
    ended: dict[tuple[int, int], datetime] = field(default_factory=dict)
    moment: datetime = START
    failed: set[tuple[int, int]] = field(default_factory=set)
    tried: set[tuple[int, int]] = field(default_factory=set)
    had: set[tuple[int, int]] = field(default_factory=set)
    known: dict[tuple[int, int], datetime] = field(default_factory=dict)
    cells: int | None = None
    fooled: bool = False

    def __post_init__(self) -> None:
        self.rows = self.rows or list(range(len(self.metrics[0])))

    def declare(self, seeds: list[int] | int, **changes: Any) -> None:
        """Declares the study with these seeds, as `ablate run` stores it."""
        before_rows, before_seeds = self.rows, self.seeds
        was_searching = self.is_searching
        self.seeds = list(range(seeds)) if isinstance(seeds, int) else seeds
        for name, value in changes.items():
            setattr(self, name, value)
        self.moment += timedelta(hours=1)
        done = {
            cell: {seed for seed in before_seeds if (cell, seed) in self.ended}
            for cell in before_rows
        }
        reference = done[before_rows[0]] if before_seeds else set()
        left = len(before_rows) * len(before_seeds) - sum(map(len, done.values()))
        declaration = Declaration(
            declared_at=self.moment,
            space={
                "metric": str(self.metric),
                "direction": "max",
                "margin": self.margin,
                "seeds": self.seeds,
                "looks": None,
                "baseline": {"cell": self.rows[0]},
                "design": {"name": "rows"},
                "rows": self.rows if self.cells is None else [],
                "strategy": self.cells and {"cells": self.cells},
                "primary": self.primary,
                "final": self.final,
            },
            completed=sum(map(len, done.values())),
            compared=sum(len(done[cell] & reference) > 1 for cell in before_rows[1:]),
            unfinished=max(left, int(was_searching)),
            trained=sorted(set().union(*done.values())),
        )
        if not self.declared or self.declared[-1].space != declaration.space:
            if self.declared:
                added = (self._trials() - self.had) & set(self.ended)
                self.known |= dict.fromkeys(added, self.moment)
            self.declared.append(declaration)
            self.had |= self._trials()

    def _trials(self) -> set[tuple[int, int]]:
        return {(cell, seed) for cell in self.rows for seed in self.seeds}

    @property
    def is_searching(self) -> bool:
        """Whether a search has not proposed all of its rows."""
        return self.cells is not None and len(self.rows) <= self.cells

    def propose(self, row: int) -> None:
        """Adds a row of the search and trains it."""
        self.rows = [*self.rows, row]
        self.had |= self._trials()
        self.train()

    def train_elsewhere(self, rows: list[int], seeds: int) -> None:
        """Trains rows as a part of another study."""
        for trial in itertools.product(rows, range(seeds)):
            self.moment += timedelta(minutes=1)
            self.ended.setdefault(trial, self.moment)

    def train(self, most: int | None = None) -> None:
        """Trains what is declared, seed by seed, or the first trials of it."""
        left = [
            (cell, seed)
            for seed in self.seeds
            for cell in self.rows
            if (cell, seed) not in self.ended
        ]
        for trial in left[:most]:
            self.moment += timedelta(minutes=1)
            if trial in self.failed:
                self.failed.remove(trial)
                self.tried.add(trial)
                continue
            self.ended[trial] = self.moment
            self.tried.discard(trial)

    def results(self) -> StudyResults:
        """The results as the store returns them."""
        history = history_of(self.declared)
        values = self.metrics[self.metric]
        cells = []
        whole = made(values, names(len(values)))
        for number, cell in enumerate(self.rows):
            ended = {seed: self.ended.get((cell, seed)) for seed in self.seeds}
            done = [seed for seed, moment in ended.items() if moment is not None]
            phases = {
                seed: history.phase_of(self.known.get((cell, seed), moment))
                for seed, moment in ended.items()
            }
            cells.append(
                replace(
                    whole.cells[cell],
                    index=number,
                    role="variant" if number else "reference",
                    statuses={seed: self._status(cell, seed) for seed in self.seeds},
                    values={seed: float(values[cell, seed]) for seed in done},
                    phase_of=phases,
                    known=frozenset(
                        seed
                        for seed, phase in phases.items()
                        if phase < 0 or (cell, seed) in self.known
                    ),
                )
            )
        return replace(
            whole,
            cells=tuple(cells),
            history=with_cells(history, cells),
            searching=self.is_searching,
        )

    def _status(self, cell: int, seed: int) -> Status:
        if (cell, seed) in self.ended:
            return Status.COMPLETED
        if (cell, seed) in self.tried:
            return Status.FAILED
        return Status.PLANNED

    def look(self, *, predict: bool = False) -> list[Effect]:
        """Takes the verdicts, and notes whether one is wrong."""
        found = effects(self.results(), self.margin, predict=predict)
        self.fooled |= any(effect.verdict in self.wrong for effect in found)
        return found

    def run(self, seeds: list[int] | int, **changes: Any) -> list[Effect]:
        """Declares, trains and looks."""
        self.declare(seeds, **changes)
        self.train()
        return self.look()


def follows_advice(desk: Desk) -> None:
    """Adds the seeds that `ablate effects` recommends until there is a verdict."""
    seeds = 3
    while seeds <= MOST and not desk.fooled:
        desk.declare(seeds)
        desk.train()
        wanted = [effect.further for effect in desk.look(predict=True)]
        more = [number for number in wanted if number is not None]
        if not more:
            return
        seeds += min(MOST_MORE, *more, MOST)


def adds_one_seed(desk: Desk) -> None:
    """Adds one seed at a time, from 3 to 12."""
    for seeds in range(3, 13):
        desk.run(seeds)


def stops_when_it_looks_well(desk: Desk) -> None:
    """Looks after every seed, and declares as many as there are if a row looks well."""
    desk.declare(12)
    cells = len(desk.rows)
    for seeds in range(1, 13):
        desk.train(cells)
        desk.look()
        if seeds > 1 and _looks_well(desk):
            desk.declare(seeds)
            desk.look()
            desk.declare(12)


def _looks_well(desk: Desk) -> bool:
    """Whether a t test of one row, unadjusted, gives p below about 5 %."""
    results = desk.results()
    reference = results.cells[0].values
    for cell in results.cells[1:]:
        differences = [value - reference[seed] for seed, value in cell.values.items()]
        error = np.std(differences, ddof=1) / len(differences) ** 0.5
        if abs(np.mean(differences)) > 2.5 * error:
            return True
    return False


def selects_seeds(desk: Desk) -> None:
    """Trains 12 seeds, then declares the five that are best for some row."""
    desk.run(12)
    results = desk.results()
    reference = results.cells[0].values
    for cell in results.cells[1:]:
        gains = {seed: value - reference[seed] for seed, value in cell.values.items()}
        for sign in (1, -1):
            best = sorted(gains, key=lambda seed: sign * gains[seed])[:5]
            desk.declare(sorted(best))
            desk.look()


def drops_rows(desk: Desk) -> None:
    """Keeps the row that differs most, alone, and then adds seeds to it."""
    found = desk.run(3)
    best = max(found, key=lambda effect: abs(effect.mean or 0))
    rows = [desk.rows[0], desk.rows[best.row]]
    for seeds in (3, 6, 9, 12):
        desk.run(seeds, rows=rows)


def names_it_primary(desk: Desk) -> None:
    """Names the row that differs most as primary, and then adds seeds."""
    found = desk.run(3)
    best = max(found, key=lambda effect: abs(effect.mean or 0))
    for seeds in (3, 6, 9, 12):
        desk.run(seeds, primary=[best.row])


def swaps_the_baseline(desk: Desk) -> None:
    """Makes each row the baseline in turn."""
    desk.run(5)
    every = list(desk.rows)
    for first in every[1:]:
        desk.declare(5, rows=[first, *[row for row in every if row != first]])
        desk.look()


def swaps_the_metric(desk: Desk) -> None:
    """Compares by one metric after the other."""
    desk.run(5)
    for metric in range(len(desk.metrics)):
        desk.declare(5, metric=metric)
        desk.look()


def renames_the_study(desk: Desk) -> None:
    """Declares the results again under other names: without a row, with fewer seeds."""
    desk.run(6)
    every = list(desk.rows)
    for left_out in every[1:]:
        for seeds in (6, 5, 4):
            desk.declared = []
            desk.had.clear()
            desk.known.clear()
            desk.declare(seeds, rows=[row for row in every if row != left_out])
            desk.look()


def widens_the_margin(desk: Desk) -> None:
    """Widens the margin until there is no difference."""
    desk.run(5)
    for factor in (2, 4, 8):
        desk.declare(5, margin=factor * MARGIN)
        # As `Study.read`: the least margin since rows could be compared.
        found = desk.results().history.margin(desk.margin)
        effects_found = effects(desk.results(), found, predict=False)
        desk.fooled |= any(one.verdict in desk.wrong for one in effects_found)


def does_everything(desk: Desk) -> None:
    """Adds seeds, drops rows, swaps the metric, makes a row primary, selects seeds."""
    found = desk.run(3)
    best = max(found, key=lambda effect: abs(effect.mean or 0)).row
    every = list(desk.rows)
    desk.run(5)
    desk.run(5, rows=[every[0], every[best]])
    desk.run(8, rows=every)
    desk.run(8, metric=len(desk.metrics) - 1)
    desk.run(8, metric=0, primary=[best])
    desk.run([1, 2, 3, 4, 5])
    desk.run(12, rows=[every[0], every[best]])


def begins_with_a_pilot(desk: Desk) -> None:
    """Trains one seed, and then more of the row that differs most."""
    every = list(desk.rows)
    desk.run(1)
    gains = abs(desk.metrics[0][1:, 0] - desk.metrics[0][0, 0])
    best = 1 + int(np.argmax(gains))
    for seeds in (3, 5):
        desk.run(seeds, rows=[every[0], every[best]])


def adds_to_final_seeds(desk: Desk) -> None:
    """Declares three seeds as final, and then adds more nevertheless."""
    found = desk.run(3, final=True)
    best = max(found, key=lambda effect: abs(effect.mean or 0))
    for seeds in (5, 8, 12):
        desk.run(seeds)
        desk.run(seeds, final=False)
    desk.run(12, rows=[desk.rows[0], desk.rows[best.row]])


def calls_seeds_final_after_a_pilot(desk: Desk) -> None:
    """Trains one seed, and then the row that differs most with final seeds."""
    every = list(desk.rows)
    desk.run(1)
    gains = abs(desk.metrics[0][1:, 0] - desk.metrics[0][0, 0])
    desk.run(3, rows=[every[0], 1 + int(np.argmax(gains))], final=True)


def calls_seeds_final_after_a_look(desk: Desk) -> None:
    """Adds seeds, and declares each number of them as final."""
    for seeds in (3, 5, 8):
        desk.run(seeds, final=False)
        desk.run(seeds, final=True)


def takes_rows_of_another_study(desk: Desk) -> None:
    """Adds the row that is best in another study, one time after the other."""
    every = list(desk.rows)
    desk.run(3, rows=every[:2])
    desk.train_elsewhere(every, 5)
    rows = sorted(every[2:], key=lambda row: abs(_mean_gain(desk, row)))
    for best in reversed(rows):
        desk.run(3, rows=[*every[:2], best])
        desk.run(5, rows=[*every[:2], best])


def compares_known_rows_with_a_new_row_0(desk: Desk) -> None:
    """Trains the rows first, and then the best of them with row 0."""
    every = list(desk.rows)
    desk.train_elsewhere(every[1:], 5)
    best = max(every[1:], key=lambda row: _mean(desk, row))
    worst = min(every[1:], key=lambda row: _mean(desk, row))
    for row in (best, worst):
        desk.run(5, rows=[every[0], row])


def _mean(desk: Desk, row: int) -> float:
    return float(np.mean(desk.metrics[0][row, :5]))


def _mean_gain(desk: Desk, row: int) -> float:
    return _mean(desk, row) - _mean(desk, 0)


def retries_failed_trials(desk: Desk) -> None:
    """Looks while some trials have failed, and again after they are tried again."""
    # The last seed of every other row, and now and then one of row 0.
    cells = len(desk.rows)
    chance = np.random.default_rng(int(abs(desk.metrics[0][0, 0]) * 1e6))
    desk.failed = {(cell, 2) for cell in range(1, cells) if chance.random() < 0.3}
    if chance.random() < 0.1:
        desk.failed.add((0, 2))
    desk.run(3)
    desk.train()
    desk.look()


def stops_a_search_when_it_looks_well(desk: Desk) -> None:
    """Lets a search propose rows, and declares fewer when one of them looks well."""
    every = list(desk.rows)
    desk.declare(3, rows=every[:1], cells=len(every) - 1)
    desk.train()
    for number, row in enumerate(every[1:], 1):
        desk.propose(row)
        desk.look()
        if _looks_well(desk):
            desk.declare(3, cells=number)
            desk.look()
            desk.declare(3, cells=len(every) - 1)


USERS: dict[str, Callable[[Desk], None]] = {
    "adds the recommended seeds until a verdict": follows_advice,
    "adds one seed at a time, 3 to 12": adds_one_seed,
    "takes verdicts after every seed, stops when they are good": stops_when_it_looks_well,
    "selects 5 of 12 seeds": selects_seeds,
    "keeps the best row only, then adds seeds": drops_rows,
    "makes the best row primary, then adds seeds": names_it_primary,
    "swaps the baseline": swaps_the_baseline,
    "swaps the metric": swaps_the_metric,
    "declares results again under other names": renames_the_study,
    "trains one seed of each row, then more seeds of the best row": begins_with_a_pilot,
    "declares 3 seeds as final, then adds seeds": adds_to_final_seeds,
    "trains one seed of each row, then the best row with final seeds": (
        calls_seeds_final_after_a_pilot
    ),
    "adds seeds, and calls them final each time": calls_seeds_final_after_a_look,
    "adds the best row of another study": takes_rows_of_another_study,
    "compares the best of known rows with a new row 0": (
        compares_known_rows_with_a_new_row_0
    ),
    "looks before and after failed trials are tried again": retries_failed_trials,
    "stops a search when its results are good": stops_a_search_when_it_looks_well,
    "adds seeds, drops rows, swaps the metric, makes a row primary, selects seeds": does_everything,
}


# Users with the noise under which they are fooled most often.
UNEQUAL_USERS = (
    ("adds one seed at a time, 3 to 12", "one row with 25 times the variance"),
    ("adds one seed at a time, 3 to 12", "lognormal noise"),
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
# Users who choose one of several rows.
NEEDS_ROWS = (
    drops_rows,
    names_it_primary,
    begins_with_a_pilot,
    calls_seeds_final_after_a_pilot,
    takes_rows_of_another_study,
    compares_known_rows_with_a_new_row_0,
    does_everything,
)


def fooled(count: int, user: Callable[[Desk], None], rows: int, noise: Noise) -> float:
    """The share of studies without effects in which a user gets a verdict."""
    generator = np.random.default_rng(rows)
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
    """The share of studies with effects of the margin in which a user gets `no
    difference`.
    """
    generator = np.random.default_rng(41)
    wrong = 0
    for _ in range(count):
        values = drawn(generator, [0.0] + [MARGIN] * rows, 5)
        desk = Desk([values], wrong=(Verdict.SAME,))
        widens_the_margin(desk)
        wrong += desk.fooled
    return wrong / count


def user_proofs(count: int) -> Iterator[Proof]:
    """The promises to users who follow their results; `count` repetitions each."""
    promise = "users of studies without effects who get a verdict *helps* or *hurts*: at most 5 %"
    for name, user in USERS.items():
        for rows in (1, 4):
            if rows == 1 and user in NEEDS_ROWS:
                continue
            # Estimating how many seeds are needed takes most of the time.
            times = max(30, count // 5) if user is follows_advice else count
            yield Proof(
                promise=promise,
                setting=f"{name}; {rows + 1} cells",
                measured=fooled(times, user, rows, NOISES["equal noise"]),
                low=0,
                high=0.05,
                count=times,
            )
    for name, noise in UNEQUAL_USERS:
        yield Proof(
            promise=promise,
            setting=f"{name}; 5 cells, {noise}",
            measured=fooled(count, USERS[name], 4, NOISES[noise]),
            low=0,
            high=0.05,
            count=count,
        )
    yield Proof(
        promise="users who get a verdict *no difference* in a study with effects as large"
        " as the margin: at most 5 %",
        setting="widens the margin; 5 cells",
        measured=fooled_by_margins(count, 4),
        low=0,
        high=0.05,
        count=count,
    )
