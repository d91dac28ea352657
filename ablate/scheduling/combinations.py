"""The combinations of levels that a search can propose."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

from ablate.plan.cells import unread_reason
from ablate.records import Level, Settings, Space, is_number
from ablate.scheduling.strategies import SearchFactor

# Up to MOST_LISTED combinations are enumerated, to know when none is left. Of a larger
# space, MOST_DRAWN combinations are drawn at random.
MOST_LISTED = 20_000
MOST_DRAWN = 2_000


class Combinations:
    """The combinations of levels, and which of them are proposed.

    Two combinations that differ only in factors that the model does not read are one.

    Attributes:
        factors: those that decide whether others are read come first.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._proposed: set[tuple[Level, ...]] = set()
        self.factors = [
            SearchFactor(
                name, tuple(space.factors.levels[name]), partial(_is_read, space, name)
            )
            for name in reading_order(space)
        ]

    def add(self, levels: Settings) -> None:
        """Notes that a combination is proposed."""
        self._proposed.add(tuple(levels.values()))

    @property
    def is_exhausted(self) -> bool:
        """Whether all combinations are proposed; False if there are too many to list."""
        return bool(self._all) and len(self._proposed) >= len(self._all)

    def still_allowed(self, chosen: Sequence[Settings]) -> list[Settings]:
        """Returns the baseline and the earlier proposals that the space allows."""
        baseline = self._space.factors.baseline
        kept: list[Settings] = [baseline]
        for number, levels in enumerate(chosen):
            combination = {name: levels.get(name, baseline[name]) for name in baseline}
            is_allowed = all(
                combination[name] in self._space.factors.levels[name]
                for name in combination
            )
            # The first cell of a search is the baseline.
            if is_allowed and (number or combination != baseline):
                kept.append(self._plainly(list(combination.values())))
        return kept

    def draw(self, number: int) -> Settings | None:
        """Draws a new combination uniformly; None if there is none.

        Args:
            number: of the proposal. The draw depends on it and on the seed alone.
        """
        generator = random.Random(f"{self._seed}/{number}")
        factors = self._space.factors.levels
        if self._all:
            left = [levels for levels in self._all if levels not in self._proposed]
            return dict(zip(factors, generator.choice(left), strict=True))
        for _ in range(MOST_DRAWN):
            drawn = [generator.choice(levels) for levels in factors.values()]
            levels = self._plainly(drawn)
            if tuple(levels.values()) not in self._proposed:
                return levels
        return None

    @cached_property
    def _all(self) -> list[tuple[Level, ...]]:
        """All combinations of levels; empty if there are too many to list."""
        level_lists = self._space.factors.levels.values()
        if math.prod(map(len, level_lists)) > MOST_LISTED:
            return []
        every = (self._plainly(levels) for levels in itertools.product(*level_lists))
        return list(dict.fromkeys(tuple(levels.values()) for levels in every))

    def _plainly(self, drawn: Sequence[Level]) -> Settings:
        """Returns the drawn levels, with unread factors at their baseline level.

        Two draws that differ only in unread factors thus become the same combination.
        """
        combination = dict(zip(self._space.factors.levels, drawn, strict=True))
        levels = dict(self._space.factors.baseline)
        for factor in self.factors:
            if factor.is_read(levels):
                levels[factor.name] = combination[factor.name]
        return levels


def with_earlier_levels(space: Space, chosen: Sequence[Settings]) -> Space:
    """Returns the space with the levels of earlier proposals that lie in its ranges.

    The levels of a range move if its ends do. Cells that are known stay in the search.
    """
    levels = dict(space.factors.levels)
    for name in space.factors.ranges:
        numbers = set(filter(is_number, levels[name]))
        low, high = min(numbers), max(numbers)
        earlier = (proposed.get(name) for proposed in chosen)
        numbers |= {x for x in earlier if is_number(x) and low <= x <= high}
        levels[name] = tuple(sorted(numbers))
    return replace(space, factors=replace(space.factors, levels=levels))


def _is_read(space: Space, name: str, levels: Settings) -> bool:
    return not unread_reason(space, name, levels)


def reading_order(space: Space) -> list[str]:
    """Orders factors so that those deciding whether others are read come first.

    For example, `shortcuts.count` comes before `shortcuts.b`.
    """
    names = list(space.factors.levels)
    # Whether a factor is read is a function of all levels. Checking the neighbourhood
    # of the baseline finds the dependencies without enumerating the space.
    probes = _around(space, names)
    before: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        if any(unread_reason(space, name, levels) for levels in probes):
            before[name] = _deciding(space, name, probes)
    order: list[str] = []
    while len(order) < len(names):
        left = [name for name in names if name not in order]
        ready = [name for name in left if before[name] <= set(order)]
        # In a cycle of dependencies, the order in the file decides.
        order.append((ready or left)[0])
    return order


def _deciding(space: Space, name: str, probes: Sequence[Settings]) -> set[str]:
    """Returns the factors whose level decides whether `name` is read."""
    deciding = set()
    for other in space.factors.levels:
        if other != name and any(
            _decides(space, other, name, levels) for levels in probes
        ):
            deciding.add(other)
    return deciding


def _decides(space: Space, other: str, name: str, levels: Settings) -> bool:
    """Whether the level of `other` decides, at these levels, if `name` is read."""
    answers = {
        _is_read(space, name, {**levels, other: level})
        for level in _probed(space, other)
    }
    return len(answers) > 1


def _around(space: Space, names: Sequence[str]) -> list[Settings]:
    """Returns the baseline and its variants with one or two factors at other levels."""
    probes: list[Settings] = [space.factors.baseline]
    for first, other in itertools.combinations_with_replacement(names, 2):
        for here, there in itertools.product(
            _probed(space, first), _probed(space, other)
        ):
            probes.append({**space.factors.baseline, first: here, other: there})
    return probes[:MOST_DRAWN]


def _probed(space: Space, name: str) -> Sequence[Level]:
    """Returns the levels of a factor; of a range, its first, second and last one.

    If a number decides whether another factor is read, it does so by being 0, which is
    an end of the range.
    """
    levels = space.factors.levels[name]
    if name in space.factors.ranges:
        return (*levels[:2], levels[-1])
    return levels
