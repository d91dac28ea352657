"""Seeds and rows that are added, many studies at once: part of `make trust`.

The real ledger judges a study in milliseconds. Here the same tests judge arrays of
studies, so that shares are known to a few tenths of a percentage point. Powers are for
one row that differs by so many standard deviations of a training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from made_up import Proof, Vector

from ablate.statistics import spending
from ablate.statistics.noise import NOISES, Look, Noise, null_of, scores_of
from ablate.statistics.power import complete_look, power_of

PROMISE = "groups without effects that have a verdict *helps* or *hurts*: at most 5 %"
# With 25 times the variance, more is allowed.
PROMISED, BEYOND = 9.0, 25.0


@dataclass(frozen=True)
class Draws:
    """Made-up results of groups.

    Attributes:
        values: shape (groups, rows + 1, seeds), row 0 first.
        means: the true mean of each row, shape (groups, rows + 1).
    """

    values: Vector
    means: Vector

    def pick(self, order: Vector) -> Vector:
        """Returns rows of each group in an order, shape (groups, rows)."""
        return self.values[np.arange(len(self.values))[:, None], order]


def noise_name(noise: Noise) -> str:
    if noise.spread:
        return "a variance of its own in every row"
    if noise.baseline > 1:
        return f"row 0 with {noise.baseline:g} times the variance"
    if noise.row > 1:
        return f"one row with {noise.row:g} times the variance"
    return "equal noise"


def drawn(
    count: int, means: Sequence[float], seeds: int, noise: Noise, noisy: int = 1
) -> Draws:
    """Returns made-up results; `noisy` is the row that may be noisy."""
    generator = np.random.default_rng([count, len(means), seeds, noisy])
    shape = (count, len(means), seeds)
    scale = np.exp(noise.spread / 2 * generator.standard_normal((*shape[:2], 1)))
    scale[:, 0] *= noise.baseline**0.5
    scale[:, noisy] *= noise.row**0.5
    true = np.tile(np.array(means), (count, 1))
    values = true[..., None] + scale * generator.standard_normal(shape)
    return Draws(values=values, means=true)


def looks_of(rows: int, seeds: Sequence[int], baseline: int = 0) -> list[Look]:
    return [complete_look(rows, n, max(*seeds, baseline), baseline) for n in seeds]


def in_looks(values: Vector, looks: Sequence[Look]) -> Vector:
    """Returns whether each row of a first study is ever found, shape (groups, rows)."""
    found = np.zeros((len(values), values.shape[1] - 1), dtype=bool)
    for number, look in enumerate(looks):
        limit = null_of(looks[: number + 1], spending.FIRST).quantile(look.level)
        found |= np.abs(scores_of(values, look).score) >= limit
    return found


def added_seeds(count: int, rows: int, seeds: Sequence[int], noise: Noise) -> float:
    """The share of groups with a false verdict at any look."""
    draws = drawn(count, [0.0] * (rows + 1), max(seeds), noise)
    return float(in_looks(draws.values, looks_of(rows, seeds)).any(axis=1).mean())


def chosen_seeds(count: int, rows: int, noise: Noise) -> float:
    """The same for a user who chooses the second number of seeds by the first look.

    For each range of the largest score, the choice is the one that fools most often.
    """
    draws = drawn(count, [0.0] * (rows + 1), 12, noise)
    choices = [(3, n, 12) for n in (4, 5, 6, 7, 8, 9, 10)] + [(3, 12)]
    first = complete_look(rows, 3, 12)
    score = np.abs(scores_of(draws.values, first).score).max(axis=1)
    part = np.digitize(score, np.quantile(score, [0.5, 0.7, 0.8, 0.9, 0.95, 0.98]))
    wrong = np.array(
        [in_looks(draws.values, looks_of(rows, each)).any(axis=1) for each in choices]
    )
    most = sum(int(wrong[:, part == each].sum(axis=1).max()) for each in range(7))
    return most / count


def _row_after(values: Vector, shares: Vector, caps: Vector, seeds: int) -> Vector:
    """Returns the scores of a row that comes later, 0 where they are not found.

    Args:
        values: row 0, then the row, then the rows that tell of the noise.
        shares, caps: of each group.
    """
    others = values.shape[1] - 2
    look = complete_look(1, seeds, seeds, others=others)
    scores: Vector = scores_of(values, look).score[:, 0]
    limits = np.empty(len(values))
    for share, cap in {*zip(shares.tolist(), caps.tolist(), strict=True)}:
        limit = null_of([look], share, cap).quantile(look.level)
        limits[(shares == share) & (caps == cap)] = limit
    return np.where(np.abs(scores) >= limits, scores, 0.0)


def added_rows(
    count: int, first: int, later: int, seeds: int, noise: Noise, noisy: int
) -> float:
    """The share of groups with a false verdict, if rows are added one at a time."""
    draws = drawn(count, [0.0] * (first + later + 1), seeds, noise, noisy)
    looks = looks_of(first, [seeds])
    found = in_looks(draws.values[:, : first + 1], looks)
    wrong = found.any(axis=1)
    # No row differs, so a place is only given on after a false verdict.
    for place in range(1, later + 1):
        row = first + place
        order = [0, row, *range(1, row)]
        share = np.full(count, spending.later(place))
        cap = np.full(count, spending.LATER_CAP)
        wrong |= _row_after(draws.values[:, order], share, cap, seeds) != 0
    return float(wrong.mean())


def proposals(
    count: int, steps: int, seeds: int, noise: Noise, noisy: int, sure: float
) -> float:
    """The share of groups with a false verdict, if the best row so far is row 0.

    A study of one row without a difference comes first. Each later row is compared with
    the row that is best by its mean.

    Args:
        sure: by how much every other proposal is better than its baseline.
    """
    draws = drawn(count, [0.0] * (steps + 2), seeds, noise, noisy)
    wrong = in_looks(draws.values[:, :2], looks_of(1, [seeds]))[:, 0]
    every = np.arange(count)
    best = draws.values[:, :2].mean(axis=2).argmax(axis=1)
    place = np.ones(count)
    for step in range(steps):
        row = 2 + step
        gain = sure if step % 2 else 0.0
        draws.means[:, row] = draws.means[every, best] + gain
        draws.values[:, row] += draws.means[:, row, None]
        known = np.tile(np.arange(row), (count, 1))
        rest = known[known != best[:, None]].reshape(count, row - 1)
        new = np.full((count, 1), row)
        values = draws.pick(np.concatenate([best[:, None], new, rest], axis=1))
        share = np.where(place == 1, 1.0, 1 / np.maximum(place * (place - 1), 1))
        cap = np.minimum(share, spending.PROPOSAL_CAP)
        helps = _row_after(values, share, cap, seeds) > 0
        wrong |= helps & (gain == 0)
        place = np.where(helps, place, place + 1)
        means = draws.values[every, best].mean(axis=1)
        best = np.where(draws.values[:, row].mean(axis=1) > means, row, best)
    return float(wrong.mean())


def proofs(count: int) -> Iterator[Proof]:
    """The promise under each noise, for seeds and rows that are added."""
    for noise in NOISES:
        name = noise_name(noise)
        largest = max(noise.row, noise.baseline)
        high = 0.07 if largest >= BEYOND else 0.05
        rows = {1, 4} if noise.row > 1 else {1}
        measured = {
            "3 rows, 3, 5 and 8 seeds": added_seeds(count, 3, (3, 5, 8), noise),
            "7 rows, 3, 6, 9 and 12 seeds": added_seeds(count, 7, (3, 6, 9, 12), noise),
            "1 row, the next seeds chosen by what was seen": chosen_seeds(
                count, 1, noise
            ),
            "7 rows, the next seeds chosen by what was seen": chosen_seeds(
                count, 7, noise
            ),
        }
        for noisy in sorted(rows):
            which = "a later row" if noisy == 4 else "a row of the first study"
            more = f" ({which})" if noise.row > 1 else ""
            for seeds in (5, 10):
                setting = f"3 rows, 6 added later, {seeds} seeds{more}"
                measured[setting] = added_rows(count, 3, 6, seeds, noise, noisy)
        for setting, share in measured.items():
            yield Proof(
                promise=PROMISE,
                setting=f"{setting}, {name}",
                measured=share,
                low=0,
                high=high,
                count=count,
            )
        if largest < BEYOND:
            for seeds, sure in ((5, 0.0), (8, 0.0), (8, 4.0)):
                more = ", every other one 4 sd better" if sure else ""
                yield Proof(
                    promise=PROMISE,
                    setting=(
                        f"1 row, then 6 compared with the best so far{more}, {seeds}"
                        f" seeds, {name}"
                    ),
                    measured=proposals(count, 6, seeds, noise, 2, sure),
                    low=0,
                    high=0.05,
                    count=count,
                )


# What honest users do: rows of the first study, seeds at each look, and of row 0.
USERS = (
    ("7 rows, 3 seeds", 7, (3,), 0),
    ("7 rows, 3 seeds, 6 of row 0", 7, (3,), 6),
    ("7 rows, 5 seeds", 7, (5,), 0),
    ("7 rows, 3, then 5, then 8 seeds", 7, (3, 5, 8), 0),
    ("3 rows, 3 seeds", 3, (3,), 0),
    ("3 rows, 5 seeds", 3, (5,), 0),
    ("3 rows, 3, then 5, then 8 seeds", 3, (3, 5, 8), 0),
    ("1 row, 3 seeds", 1, (3,), 0),
    ("1 row, 5 seeds", 1, (5,), 0),
)


def lines() -> list[str]:
    """The table of powers."""
    table = ["| workflow | 2 sd | 3 sd |", "| --- | ---: | ---: |"]
    for name, rows, seeds, baseline in USERS:
        shares = [power_of(size, rows, seeds, baseline=baseline) for size in (2, 3)]
        table.append(f"| {name} | {' | '.join(map(_percent, shares))} |")
    for place in (1, 2, 4):
        for seeds in (5, 8):
            share = spending.later(place)
            shares = [
                power_of(
                    size,
                    1,
                    (seeds,),
                    others=6 + place,
                    share=share,
                    cap=spending.LATER_CAP,
                )
                for size in (2, 3)
            ]
            name = f"later row {place}, {seeds} seeds, none of the others found"
            table.append(f"| {name} | {' | '.join(map(_percent, shares))} |")
    for seeds in (5, 8):
        shares = [
            power_of(size, 1, (seeds,), others=2, share=1.0, cap=spending.PROPOSAL_CAP)
            for size in (2, 3)
        ]
        name = f"the next change after one that helps, {seeds} seeds"
        table.append(f"| {name} | {' | '.join(map(_percent, shares))} |")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
