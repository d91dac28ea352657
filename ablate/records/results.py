"""What is read back from the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ablate.records.base import Settings
from ablate.records.generation import Comparison
from ablate.records.metric import Direction, Metric
from ablate.records.model import Cost
from ablate.records.sections import Across, Looks, Primary, Reported, Tune
from ablate.records.trial import VARIED, Source, Status


@dataclass(frozen=True)
class CellResult:
    """What is known of one cell."""

    index: int
    levels: Settings
    # Factors that the model does not read at these levels.
    unread: frozenset[str]
    role: str
    note: str
    same_as: int | None
    cost: Cost | None
    # Status by seed.
    statuses: Mapping[int, Status]
    # Value of the metric by seed, for completed trials.
    values: Mapping[int, float]
    control_of: int | None = None
    # With nuisance hyperparameters: the number of the setting of each seed.
    settings: Mapping[int, int] = field(default_factory=dict)
    # Trials that were to choose the setting, and that no run tries again.
    abandoned: int = 0
    # For a cell that a search confirmed: the values of the seeds that chose it. They
    # are not among `values`.
    search_values: Mapping[int, float] = field(default_factory=dict)

    @property
    def outcomes(self) -> set[Status]:
        """How its trials ended, those that were to choose its setting included."""
        outcomes = set(self.statuses.values())
        if self.abandoned:
            outcomes.add(Status.ABANDONED)
        return outcomes

    @property
    def is_confirmed(self) -> bool:
        """Whether a search chose the cell and trained it on fresh seeds."""
        return bool(self.search_values)

    def with_seeds(self, seeds: Collection[int]) -> CellResult:
        """Returns the cell with some of its seeds."""
        kept = set(seeds)
        return replace(
            self,
            statuses={
                seed: status for seed, status in self.statuses.items() if seed in kept
            },
            values={seed: value for seed, value in self.values.items() if seed in kept},
        )


@dataclass(frozen=True)
class Before:
    """What was declared before a study.

    Attributes:
        generation: the number of the study among those of its name, from 1.
        rows: its rows; one that is missing is new.
        studies: the earlier studies of its group, the first one first.
        is_whole: whether nothing can be added, as in a file that is judged: all of the
            5 % are for the rows that it has.
    """

    generation: int = 1
    rows: Mapping[int, Comparison] = field(default_factory=dict)
    studies: tuple[StudyResults, ...] = ()
    is_whole: bool = False


@dataclass(frozen=True)
class StudyResults:
    """What is known of a study, cell by cell in the order of its table."""

    name: str
    question: str
    expect: str
    source: str
    # The metric by which cells are compared.
    metric: Metric
    direction: Direction
    factors: tuple[str, ...]
    cells: tuple[CellResult, ...]
    document: str = ""
    # Everything that training measured, for curves.
    metrics: tuple[Metric, ...] = ()
    # What was declared before, as far as it counts for the verdicts.
    before: Before = field(default_factory=Before)
    # The primary comparisons, if they were named before any result.
    primary: tuple[Primary, ...] = ()
    # The numbers of seeds at which verdicts are taken, if seeds are being added.
    looks: Looks | None = None
    # What factors, and levels as `ffn.kernel:none`, are called in tables and figures.
    labels: Mapping[str, str] = field(default_factory=dict)
    # The metric of a network that has learnt nothing, in %; None if it is unknown.
    chance: float | None = None
    # Whether a search may still propose cells.
    searching: bool = False
    # The fresh seeds on which a search confirms its best cells.
    confirmation_seeds: tuple[int, ...] = ()
    # The number of seeds of row 0, if it was declared to have more than the other rows.
    baseline_seeds: int | None = None
    # The nuisance hyperparameters, of which each row has chosen a setting.
    tune: Tune | None = None
    # The size of the study, if rows are compared at several.
    across: Across | None = None
    # Where its results are from, if they were trained elsewhere.
    reported: Reported | None = None
    # What a seed decides.
    vary: tuple[Source, ...] = VARIED

    @property
    def is_paired(self) -> bool:
        """Whether runs of two rows with the same seed belong together."""
        return self.reported is None or self.reported.is_paired

    @property
    def is_judged_across(self) -> bool:
        """Whether its rows have their verdicts along sizes, and none here."""
        return self.across is not None and not self.across.is_predicted

    def without_extra_seeds(self) -> StudyResults:
        """Returns the study without seeds that only row 0 was declared to have."""
        if self.baseline_seeds is None or len(self.cells) < 2:
            return self
        row_0, *rows = self.cells
        shared = set[int]().union(*(row.statuses for row in rows))
        return replace(
            self, cells=(row_0.with_seeds(shared), *rows), baseline_seeds=None
        )

    @property
    def baseline(self) -> CellResult | None:
        """The cell at the baseline levels, which may differ from the reference.

        It is the reference if no other cell is marked.
        """
        for role in ("baseline", "reference"):
            for cell in self.cells:
                if cell.role == role:
                    return cell
        return None


@dataclass(frozen=True)
class Provenance:
    """The code and the machine behind the attempts of one run."""

    command: str
    ablate: str
    commit: str
    # Whether the checkout had uncommitted changes.
    dirty: bool
    python: str
    torch: str
    timm: str
    ray: str
    platform: str
    host: str
    cpu: str
    cores: int
    memory_gb: float
    gpus: str
