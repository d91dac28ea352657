"""The tables. Every value has a typed column; nothing is pickled.

The types check what they read (`store.checked`).
"""

from __future__ import annotations

from copy import copy
from typing import Any, get_args

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    MetaData,
    Table,
    UniqueConstraint,
    literal,
    select,
    union,
    union_all,
)
from sqlalchemy.sql.selectable import Subquery

from ablate.records import LONGEST_CHAIN, STORED_NAME, Decision, Stage, Standing, Status
from ablate.store import forms
from ablate.store.checked import (
    JSON,
    BigInteger,
    Boolean,
    Checked,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    String,
    Text,
)

# Hashes and IDs name files.
NAME_OF_FILE = r"[A-Za-z0-9_-]+"
# Characters of the path of a file.
LONGEST_PATH = 10_000
CLOCK = "seconds since 1970 by the database's clock"
# How an attempt may end that its trial does not.
_ATTEMPTS = ("running", "lost", "interrupted")
_ROLES = ("reference", "baseline", "variant", "control")
_STATUSES = tuple(Status)
_DECISIONS = tuple(Decision)
_SPACE = JSON(forms.is_space, "a space")
_VERSIONS = JSON(forms.is_versions, "an object of versions")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def column(
    name: str,
    kind: Checked | type[Checked],
    *references: ForeignKey,
    nullable: bool = False,
    **options: Any,
) -> Column[Any]:
    """Returns a column, which has no NULL unless it says so."""
    return Column(name, kind, *references, nullable=nullable, **options)


def number_id() -> Column[Any]:
    return column("id", Integer, primary_key=True)


def study_id() -> Column[Any]:
    """Returns the study of a row, which is deleted with it."""
    return column("study_id", Integer, ForeignKey("studies.id", ondelete="CASCADE"))


def cell_id() -> Column[Any]:
    """Returns the cell of a row, which is deleted with it."""
    cell = ForeignKey("cells.id", ondelete="CASCADE")
    return column("cell_id", Integer, cell, primary_key=True)


def trial_hash(*, primary_key: bool = False) -> Column[Any]:
    return column(
        "trial_hash",
        String(20, form=NAME_OF_FILE),
        ForeignKey("trials.hash"),
        primary_key=primary_key,
    )


stores = Table(
    "stores",
    metadata,
    column(
        "id",
        String(12, form=NAME_OF_FILE),
        primary_key=True,
        comment="drawn when the store was made; checkpoints stand under it",
    ),
    column("created_at", DateTime),
)

sources = Table(
    "sources",
    metadata,
    column(
        "syntax",
        String(20),
        primary_key=True,
        comment="hash of the syntax trees of a part's files",
    ),
    column(
        "identity",
        String(20),
        comment="what its trials carry: the hash of the first text with this syntax",
    ),
    column("files", _VERSIONS, comment="hash of the syntax tree of each file"),
)

studies = Table(
    "studies",
    metadata,
    number_id(),
    column("name", String(200, form=STORED_NAME), unique=True),
    column("question", Text),
    column("expect", Text),
    column("source", Text),
    column("metric", String(20)),
    column("direction", String(3, ("max", "min"))),
    column("document", Text, comment="the YAML text as it was last run"),
    column("space", _SPACE, comment="the resolved space"),
    column("file", Text(LONGEST_PATH)),
    column(
        "results_view", String(200), comment="name of the study's wide results view"
    ),
    column(
        "generation",
        Integer,
        comment="number of the declaration under this name, from 1",
    ),
    column(
        "declaration",
        String(20),
        comment="hash of what is compared",
    ),
    column(
        "group_id",
        Integer,
        nullable=True,
        comment="a study of those that are compared on the same seeds; NULL: this one",
    ),
    column("created_at", DateTime, comment="when it was declared, in UTC"),
    column("updated_at", DateTime),
    column(
        "finished_at", DateTime, nullable=True, comment="when a run left nothing to do"
    ),
)

drivers = Table(
    "drivers",
    metadata,
    column("id", String(32), primary_key=True),
    study_id(),
    column("digest", String(20), comment="hash of the YAML text that it runs"),
    column("leased_until", Float, comment=CLOCK),
)

architectures = Table(
    "architectures",
    metadata,
    column("hash", String(20), primary_key=True),
    column("backbone", String(100)),
    column("image_size", Integer),
    column("channels", Integer),
    column("classes", Integer),
    column(
        "settings",
        JSON(forms.is_settings, "an object of levels"),
        comment="canonical: what differs from the backbone",
    ),
    column(
        "code",
        _VERSIONS,
        nullable=True,
        comment="content or revision of the user's parts that build it",
    ),
    column(
        "head",
        String(50),
        comment="what turns the backbone into a network of its task; empty: a classifier",
    ),
    column(
        "image_width",
        Integer,
        comment="of the input where it is not square; 0: image_size",
    ),
    column("params", BigInteger),
    column("flops", BigInteger, comment="executed multiply-adds of one image"),
    column(
        "flops_paper",
        BigInteger,
        comment="multiply-adds of one image by the papers' convention",
    ),
    column("activations", BigInteger),
    column("elementwise", BigInteger),
    column("cost_revision", Integer, comment="revision of the counting rules"),
)

cells = Table(
    "cells",
    metadata,
    number_id(),
    study_id(),
    column("number", Integer, comment="row of the study's table, from 0"),
    column(
        "role", String(10, _ROLES), comment="reference, baseline, variant or control"
    ),
    column(
        "architecture_hash", String(20), ForeignKey("architectures.hash"), nullable=True
    ),
    column(
        "same_as",
        Integer,
        nullable=True,
        comment="number of the cell that this one repeats",
    ),
    column("note", Text, comment="why it repeats another cell or cannot be built"),
    column(
        "control_of",
        Integer,
        nullable=True,
        comment="number of the variant whose cost this control has",
    ),
    column("digest", String(20), comment="hash of all that was planned"),
    column(
        "standing",
        String(16, tuple(Standing)),
        comment="what the study may say of the row: tested, or a reason why not",
    ),
    column(
        "key",
        String(20),
        comment="what identifies its trials beside their seeds; empty: it has none",
    ),
    column(
        "repeats",
        Integer,
        comment="number of groups that test the same comparison on other seeds",
    ),
    UniqueConstraint("study_id", "number"),
)

levels = Table(
    "levels",
    metadata,
    cell_id(),
    column("factor", String(100), primary_key=True),
    column("position", Integer, comment="place of the factor in the study"),
    column("level", JSON(forms.is_level, "a level")),
    column(
        "read",
        Boolean,
        comment="whether the model reads the factor at this cell's levels",
    ),
    column("text", String(200)),
    column("number", Float, nullable=True, comment="where the level is a number"),
)

trials = Table(
    "trials",
    metadata,
    column("hash", String(20, form=NAME_OF_FILE), primary_key=True),
    column("architecture_hash", String(20), ForeignKey("architectures.hash")),
    column(
        "recipe",
        JSON(forms.is_recipe, "a recipe"),
        comment="canonical: what differs from the default recipe",
    ),
    column("data", JSON(forms.is_object, "an object")),
    column(
        "code",
        _VERSIONS,
        nullable=True,
        comment="content or revision of the user's parts that train it",
    ),
    column(
        "start",
        String(200),
        nullable=True,
        comment="weights that training starts from; NULL if they are random",
    ),
    column(
        "teacher",
        String(300),
        nullable=True,
        comment="the network that the trial learns from, and its weights",
    ),
    column(
        "vary",
        JSON(forms.is_sources, "a list of sources", none_as_null=True),
        nullable=True,
        comment="what the seed decides; NULL if it is the initial weights and the order",
    ),
    column("seed", BigInteger),
    column("epochs", Integer, comment="epochs asked for"),
    column("status", String(10, _STATUSES)),
    column("epochs_done", Integer),
    column("seconds", Float, nullable=True, comment="training and testing, all epochs"),
    column(
        "selected_epoch",
        Integer,
        nullable=True,
        comment="epoch whose weights were tested, once completed",
    ),
    column("ended_at", DateTime, nullable=True),
    column("owner", String(32), nullable=True, comment="driver that has it leased"),
    column(
        "fence",
        Integer,
        server_default="0",
        comment="leases so far; only the last one may write",
    ),
    column("leased_until", Float, nullable=True, comment=CLOCK),
    Index("ix_trials_architecture_hash", "architecture_hash"),
)

cell_trials = Table(
    "cell_trials",
    metadata,
    cell_id(),
    column("seed", BigInteger, primary_key=True),
    trial_hash(),
    column(
        "setting",
        Integer,
        nullable=True,
        comment="number of the setting of the nuisance hyperparameters; NULL: none",
    ),
    column(
        "chose",
        Boolean,
        comment="whether a search chose the row by this seed, and judges it by fresh ones",
    ),
    Index("ix_cell_trials_trial_hash", "trial_hash"),
)

# With nuisance hyperparameters. A trial of the table may be here, too.
tuning_trials = Table(
    "tuning_trials",
    metadata,
    cell_id(),
    column(
        "stage",
        String(6, get_args(Stage)),
        primary_key=True,
        comment="tuning: it chooses the row's setting; row 0: it has that of row 0",
    ),
    column(
        "setting", Integer, primary_key=True, comment="number of the setting, from 0"
    ),
    column("seed", BigInteger, primary_key=True),
    trial_hash(),
    Index("ix_tuning_trials_trial_hash", "trial_hash"),
)

# All trials of cells: those of the tables, and those beside them.
all_cell_trials = union(
    select(cell_trials.c.cell_id, cell_trials.c.trial_hash),
    select(tuning_trials.c.cell_id, tuning_trials.c.trial_hash),
).subquery("all_cell_trials")


def every_trial(*, beside: bool = True) -> Subquery:
    """Returns the trials of tables, with an empty stage, and those beside them.

    Args:
        beside: whether those beside the tables are returned, too.
    """
    of_tables = select(
        cell_trials.c.cell_id,
        literal("").label("stage"),
        cell_trials.c.setting,
        cell_trials.c.seed,
        cell_trials.c.trial_hash,
    )
    if not beside:
        return of_tables.subquery()
    names = ("cell_id", "stage", "setting", "seed", "trial_hash")
    others = select(*(tuning_trials.c[name] for name in names))
    return union_all(of_tables, others).subquery()


provenance = Table(
    "provenance",
    metadata,
    number_id(),
    column("study_id", Integer, ForeignKey("studies.id")),
    column("started_at", DateTime),
    column("document", Text, comment="the YAML text of this run"),
    column("command", Text),
    column("ablate", String(40)),
    column("commit", String(40)),
    column("dirty", Boolean),
    column("python", String(40)),
    column("torch", String(40)),
    column("timm", String(40)),
    column("ray", String(40)),
    column("platform", String(200)),
    column("host", String(200)),
    column("cpu", String(200)),
    column("cores", Integer),
    column("memory_gb", Float),
    column("gpus", Text),
)

attempts = Table(
    "attempts",
    metadata,
    number_id(),
    trial_hash(),
    column("provenance_id", Integer, ForeignKey("provenance.id")),
    column("number", Integer, comment="from 1"),
    column(
        "status",
        String(12, (*_ATTEMPTS, *_STATUSES)),
        comment="running, lost, interrupted, or the trial's status at its end",
    ),
    column("executor", String(20)),
    column("host", String(200)),
    column("pid", Integer),
    column("device", String(20)),
    column("threads", Integer),
    column("first_epoch", Integer, comment="epochs that its checkpoint had already"),
    column("started_at", DateTime),
    column("ended_at", DateTime, nullable=True),
    column("error", Text),
    column(
        "weights",
        Text,
        server_default="",
        comment="what was taken from the start's weights",
    ),
    UniqueConstraint("trial_hash", "number"),
)

epochs = Table(
    "epochs",
    metadata,
    trial_hash(primary_key=True),
    column("number", Integer, primary_key=True, comment="from 1"),
    column("lr", Float, nullable=True),
    column("seconds", Float),
    column(
        "joules",
        Float,
        nullable=True,
        comment="drawn by the device that trained, where it counts them",
    ),
)

epoch_metrics = Table(
    "epoch_metrics",
    metadata,
    trial_hash(primary_key=True),
    column("epoch", Integer, primary_key=True, comment="from 1"),
    column("name", String(20), primary_key=True),
    column("value", Float(finite=False)),
)

# Only completed trials have rows here.
trial_metrics = Table(
    "trial_metrics",
    metadata,
    trial_hash(primary_key=True),
    column("name", String(20), primary_key=True),
    column("value", Float(finite=False), comment="after the selected epoch"),
)

# Completed trials of image classification.
correct_images = Table(
    "correct_images",
    metadata,
    trial_hash(primary_key=True),
    column("images", Integer, comment="test images"),
    column(
        "bits",
        LargeBinary,
        comment="one bit per test image in the order of the data, the first one"
        " highest; 1: top-1 is correct",
    ),
)

diagnostics = Table(
    "diagnostics",
    metadata,
    trial_hash(primary_key=True),
    column(
        "epoch", Integer, primary_key=True, comment="epochs trained when it was taken"
    ),
    column("name", String(60), primary_key=True),
    column(
        "layer",
        Integer,
        primary_key=True,
        comment=(
            "block of the backbone, from 0; -1: it was looked for, and nothing has it"
        ),
    ),
    column(
        "value",
        Float(finite=False),
        nullable=True,
        comment="mean over images, where it is one number",
    ),
    column(
        "numbers",
        JSON(forms.is_numbers, "a vector or a matrix", none_as_null=True),
        nullable=True,
        comment="a vector, or the rows of a matrix",
    ),
)

# Every proposal of every chain, in their order; number 0 is the first baseline.
proposals = Table(
    "proposals",
    metadata,
    column("chain", String(LONGEST_CHAIN, form=r"[\w.-]+"), primary_key=True),
    column("number", Integer, primary_key=True, autoincrement=False),
    column("name", Text, comment="as it was typed"),
    column("identity", Text, comment="equal for proposals that train the same"),
    column(
        "source",
        Text,
        comment="the commit, or all levels as JSON; empty: its results were reported",
    ),
    column("decision", String(12, _DECISIONS), comment="`more seeds` while it is open"),
    column("reason", Text, comment="why it was discarded, if it was"),
    column("against", Integer, comment="number of the baseline"),
    column("evidence", Float, comment="e-value after its last seed"),
    column("needed", Float, comment="it is kept when the evidence reaches this"),
    column(
        "results",
        JSON(forms.is_results, "results by seed"),
        comment="by seed, in the order of the looks; null: it diverged",
    ),
    column("trials", Integer, comment="trials that were trained for it"),
    column("seconds", Float, comment="of training of these trials"),
    column(
        "declared",
        JSON(forms.is_declared, "what holds for a chain"),
        comment="of number 0: what holds for the whole chain",
    ),
    column("begun_at", DateTime),
    column("ended_at", DateTime, nullable=True),
)

# Columns of equal type may share one object so far.
for _table in metadata.tables.values():
    for _column in _table.columns:
        _type = copy(_column.type)
        assert isinstance(_type, Checked)
        _type.place = f"{_table.name}.{_column.name}"
        _column.type = _type
