"""What verbs answer to programs: JSON with a version and a published schema.

The rows are those that `--format json` prints. `ablate schema --of effects` prints the
schema of an answer, and tests hold the verbs against it. A change that breaks a reader
raises `version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from ablate import tasks
from ablate.records import Across
from ablate.report.across_table import across_columns
from ablate.report.effect_columns import effect_columns, term_columns
from ablate.report.summary import RoleWord
from ablate.report.table import Column
from ablate.report.units import unit_for
from ablate.results.review.findings_table import FINDING_COLUMNS


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OpenRow(BaseModel):
    """A row that also has a field for each factor, metric or objective."""

    model_config = ConfigDict(extra="allow")


class PlannedRow(_OpenRow):
    """A cell of a plan, with its levels by factor and its cost by name."""

    row: int
    role: RoleWord
    outcome: str = Field(description="train, known, same as another row, infeasible")
    to_train: int = Field(description="trials without a result")
    known: int = Field(description="trials with a result")
    note: str


class ResultRow(_OpenRow):
    """A row of the table: levels, `METRIC_mean` and `METRIC_sd`, and cost by name."""

    row: int
    role: RoleWord
    n: int = Field(description="completed seeds")
    delta: float | None = Field(description="mean difference from row 0")
    delta_low: float | None = Field(description="interval of the difference")
    delta_high: float | None = Field(description="interval of the difference")
    p: float | None
    p_adjusted: float | None = Field(description="for all rows and looks")
    note: str


def row_of(name: str, about: str, columns: Sequence[Column[Any]]) -> type[BaseModel]:
    """Returns the model of a row with the keys of some columns."""
    fields: dict[str, Any] = {}
    for column in columns:
        if column.key:
            default = 0 if column.optional else ...
            description = column.about or None
            field = Field(default, description=description)
            fields[column.key] = (column.kind, field)
    model: type[BaseModel] = create_model(name, __base__=_Row, __doc__=about, **fields)
    return model


if TYPE_CHECKING:
    EffectRow: TypeAlias = BaseModel
    TermRow: TypeAlias = BaseModel
    FindingRow: TypeAlias = BaseModel
    SizesRow: TypeAlias = BaseModel
else:
    # The metric and the unit matter for texts only.
    METRIC = tasks.find("classification").metrics[0]
    # With a prediction, so that its columns are declared.
    LADDER = Across("", "", (), 0, "compute", predict=0, predicted_at="before")
    EffectRow = row_of(
        "EffectRow",
        "A row against row 0, or a variant against its control.",
        effect_columns(METRIC, unit_for([])),
    )
    TermRow = row_of(
        "TermRow",
        "A main effect, an interaction, or the contribution of a factor.",
        term_columns(METRIC, {}),
    )
    SizesRow = row_of(
        "SizesRow",
        "The effect of a row at each size, and how it changes with size.",
        across_columns(LADDER, METRIC),
    )
    FindingRow = row_of("FindingRow", "An objection of a referee.", FINDING_COLUMNS)


class StudyRow(_OpenRow):
    """The progress of a study, in trials."""

    study: str
    trials: int
    planned: int
    running: int
    completed: int
    pruned: int
    diverged: int
    failed: int
    question: str


class TrialRow(_OpenRow):
    """A trial of a study, with its final metrics by name."""

    row: int
    seed: int
    status: Literal[
        "planned", "running", "completed", "pruned", "diverged", "failed", "abandoned"
    ]
    epochs_done: int
    epochs: int
    attempts: int
    trial: str = Field(description="hash")
    error: str


class FrontRow(_OpenRow):
    """A cell that no other cell dominates, or might not: levels and objectives."""

    row: int
    n: int
    front: bool
    probability: float | None = Field(description="of being on the front")


Row = TypeVar("Row", bound=BaseModel)


class Answer(BaseModel, Generic[Row]):
    """The rows of a table, and the notes below it."""

    version: Literal[1] = 1
    rows: list[Row]
    notes: list[str] = Field(default=[], description="what the rows assume")


class Plan(Answer[PlannedRow]):
    """What a space would train."""

    trials: int
    to_train: int
    seconds: float | None = Field(description="expected, all trials; None: unknown")
    more: int | None = Field(description="cells a search will propose; None: unlimited")
    power: list[str] = Field(description="differences that these seeds can find")


class Used(BaseModel):
    """A limit of the budget, and what all runs in the store have used of it."""

    limit: float | None = Field(description="None: no limit")
    used: float


class Budget(BaseModel):
    """The budget of the server. It holds over restarts."""

    trials: Used
    hours: Used = Field(description="of training and testing, trials added up")


class StudyLevel(BaseModel):
    """A finished study in the error budget of the store."""

    study: str
    p: float = Field(description="smallest adjusted p value of the study")
    level: float = Field(description="that its verdicts need to stand")
    own: list[str] = Field(description="rows that help or hurt by the study alone")
    stands: list[str] = Field(description="rows that stand beside all other studies")


class ErrorBudget(BaseModel):
    """Which verdicts stand in a store with many studies (LORD++, 5 %)."""

    next_level: float = Field(description="the level of the next study")
    studies: list[StudyLevel] = Field(description="in the order of their last results")


class Status(Answer[StudyRow]):
    """All studies of the store."""

    running: str = Field(description="the study that trains now; empty: none")
    budget: Budget
    errors: ErrorBudget


State = Literal["running", "finished", "budget used up", "interrupted", "failed"]


class Run(BaseModel):
    """What a call of `run` or `wait` found."""

    version: Literal[1] = 1
    study: str
    state: State
    message: str = Field(description="the last lines that the run printed")
    budget: Budget


class Proposed(BaseModel):
    """What is known of a proposal to a chain; `ablate chain propose` prints the same."""

    version: Literal[1] = 1
    chain: str
    proposal: str
    number: int = Field(description="0 for the first baseline")
    decision: Literal["baseline", "keep", "discard", "more seeds"]
    reason: str = Field(description="why it was discarded, if it was")
    difference: float | None = Field(description="mean over common seeds")
    evidence: float
    needed: float = Field(description="kept when the evidence reaches this")
    seeds: int
    trials: int = Field(description="trained for this proposal")
    baseline: str = Field(description="the present one")
    kept: int
    chain_trials: int
    chain_hours: float
    next: str = Field(description="what to do next")


class Query(BaseModel):
    """The rows of a SELECT."""

    version: Literal[1] = 1
    rows: list[dict[str, Any]]


ANSWERS: dict[str, Any] = {
    "plan": Plan,
    "status": Status,
    "trials": Answer[TrialRow],
    "table": Answer[ResultRow],
    "effects": Answer[EffectRow],
    "factors": Answer[TermRow],
    "sizes": Answer[SizesRow],
    "review": Answer[FindingRow],
    "pareto": Answer[FrontRow],
    "chain": Proposed,
    "query": Query,
    "run": Run,
}
# What a name of a space is made of.
NAME = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
Name = Annotated[
    str,
    Field(
        pattern=f"^{NAME}$",
        description="letters, digits, - and _",
    ),
]
