"""A chain: proposals that are compared with a baseline, one after another.

A proposal that is kept becomes the baseline of those behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ablate.records.base import Level
from ablate.records.metric import Direction
from ablate.statistics.evidence import Decision

LONGEST_CHAIN = 100
# Where the studies of chains are, which lists of studies leave out.
CHAINS = "chain/"


@dataclass(frozen=True)
class Declared:
    """What holds for a whole chain, and was declared with its first baseline.

    Attributes:
        metric: by which proposals are compared.
        level: bounds the mean share of kept proposals that are not better.
        most: the number of seeds after which a proposal is discarded.
        trainer: the command that trains commits; empty: none does.
        declaration: the meaning of the file that declares the trainer.
        space: what holds for all proposals of a chain on a space, as JSON.
        settings: levels of other factors, and fields of the recipe; of a space, the
            levels of the first baseline.
        epochs: None: as the command has them.
    """

    metric: str
    direction: Direction
    level: float
    most: int
    trainer: str = ""
    declaration: str = ""
    space: str = ""
    settings: Mapping[str, Level] = field(default_factory=dict)
    epochs: int | None = None


@dataclass(frozen=True)
class Proposal:
    """A proposal as the store has it. Number 0 is the first baseline.

    Attributes:
        identity: equal for proposals that train the same.
        source: the commit, or all levels as JSON; empty if results are reported.
        decision: MORE_SEEDS while it is open.
        against: the number of the proposal that is its baseline.
        results: its own, by seed, in the order in which they were looked at. None: it
            diverged.
        trials: how many trials were trained for it, those of the baseline included.
        seconds: of their training.
    """

    chain: str
    number: int
    name: str
    identity: str
    source: str = ""
    decision: Decision = Decision.MORE_SEEDS
    reason: str = ""
    against: int = 0
    evidence: float = 1.0
    needed: float = 0.0
    results: Mapping[int, float | None] = field(default_factory=dict)
    trials: int = 0
    seconds: float = 0.0
