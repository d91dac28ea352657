"""The tables. Every value has a typed column; nothing is pickled.

The types check what they read (`store.checked`).
"""

from __future__ import annotations

from copy import copy

from sqlalchemy import Column, ForeignKey, Index, MetaData, Table, UniqueConstraint

from ablate.records import Standing, Status
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

# Characters of the path of a file.
LONGEST_PATH = 10_000
# How an attempt may end that its trial does not.
_ATTEMPTS = ("running", "lost", "interrupted")
_ROLES = ("reference", "baseline", "variant", "control")
_STATUSES = tuple(Status)
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

stores = Table(
    "stores",
    metadata,
    Column(
        "id",
        String(12),
        primary_key=True,
        comment="drawn when the store was made; checkpoints stand under it",
    ),
    Column("created_at", DateTime, nullable=False),
)

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("question", Text, nullable=False),
    Column("expect", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("metric", String(20), nullable=False),
    Column("direction", String(3, ("max", "min")), nullable=False),
    Column(
        "document", Text, nullable=False, comment="the YAML text as it was last run"
    ),
    Column(
        "space",
        _SPACE,
        nullable=True,
        comment="the resolved space; NULL where the study was last run by an older"
        " version",
    ),
    Column("file", Text(LONGEST_PATH), nullable=False),
    Column(
        "results_view",
        String(200),
        nullable=False,
        comment="name of the study's wide results view",
    ),
    Column(
        "generation",
        Integer,
        nullable=False,
        server_default="1",
        comment="number of the declaration under this name, from 1",
    ),
    Column(
        "declaration",
        String(20),
        nullable=False,
        server_default="",
        comment="hash of what is compared; empty in a study of an older version",
    ),
    Column(
        "lineage",
        Integer,
        nullable=True,
        comment="first study of those with the same comparisons; NULL: this one",
    ),
    Column(
        "level",
        Float,
        nullable=False,
        server_default="0.04",
        comment="probability of a false verdict that the study may use",
    ),
    Column(
        "left_out",
        Integer,
        nullable=False,
        server_default="0",
        comment="comparisons of earlier studies that count in its p values",
    ),
    Column(
        "created_at", DateTime, nullable=False, comment="when it was declared, in UTC"
    ),
    Column("updated_at", DateTime, nullable=False),
    Column(
        "finished_at", DateTime, nullable=True, comment="when a run left nothing to do"
    ),
)

drivers = Table(
    "drivers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column(
        "study_id",
        Integer,
        ForeignKey("studies.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column(
        "digest",
        String(20),
        nullable=False,
        comment="hash of the YAML text that it runs",
    ),
    Column(
        "leased_until",
        Float,
        nullable=False,
        comment="seconds since 1970 by the database's clock",
    ),
)

architectures = Table(
    "architectures",
    metadata,
    Column("hash", String(20), primary_key=True),
    Column("backbone", String(100), nullable=False),
    Column("image_size", Integer, nullable=False),
    Column("channels", Integer, nullable=False),
    Column("classes", Integer, nullable=False),
    Column(
        "settings",
        JSON(forms.is_settings, "an object of levels"),
        nullable=False,
        comment="canonical: what differs from the backbone",
    ),
    Column(
        "code",
        _VERSIONS,
        nullable=True,
        comment="content or revision of the user's parts that build it",
    ),
    Column(
        "head",
        String(50),
        nullable=False,
        server_default="",
        comment="what turns the backbone into a network of its task; empty: a classifier",
    ),
    Column(
        "image_width",
        Integer,
        nullable=False,
        server_default="0",
        comment="of the input where it is not square; 0: image_size",
    ),
    Column("params", BigInteger, nullable=False),
    Column(
        "flops",
        BigInteger,
        nullable=False,
        comment="executed multiply-adds of one image",
    ),
    Column(
        "flops_paper",
        BigInteger,
        nullable=False,
        comment="multiply-adds of one image by the papers' convention",
    ),
    Column("activations", BigInteger, nullable=False),
    Column("elementwise", BigInteger, nullable=False),
    Column(
        "cost_revision",
        Integer,
        nullable=False,
        comment="revision of the counting rules",
    ),
)

cells = Table(
    "cells",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "study_id",
        Integer,
        ForeignKey("studies.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column(
        "number", Integer, nullable=False, comment="row of the study's table, from 0"
    ),
    Column(
        "role",
        String(10, _ROLES),
        nullable=False,
        comment="reference, baseline, variant or control",
    ),
    Column(
        "architecture_hash", String(20), ForeignKey("architectures.hash"), nullable=True
    ),
    Column(
        "same_as",
        Integer,
        nullable=True,
        comment="number of the cell that this one repeats",
    ),
    Column(
        "note",
        Text,
        nullable=False,
        comment="why it repeats another cell or cannot be built",
    ),
    Column(
        "control_of",
        Integer,
        nullable=True,
        comment="number of the variant whose cost this control has",
    ),
    Column(
        "digest",
        String(20),
        nullable=False,
        server_default="",
        comment="hash of all that was planned",
    ),
    Column(
        "standing",
        String(16, tuple(Standing)),
        nullable=False,
        server_default="tested",
        comment="what the study may say of the row: tested, shown or a reason why not",
    ),
    Column(
        "earlier",
        JSON(forms.is_earlier, "a list of studies and rows"),
        nullable=False,
        server_default="[]",
        comment="earlier studies that compare the same, each with its row",
    ),
    UniqueConstraint("study_id", "number"),
)

levels = Table(
    "levels",
    metadata,
    Column(
        "cell_id", Integer, ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("factor", String(100), primary_key=True),
    Column(
        "position", Integer, nullable=False, comment="place of the factor in the study"
    ),
    Column("level", JSON(forms.is_level, "a level"), nullable=False),
    Column(
        "read",
        Boolean,
        nullable=False,
        comment="whether the model reads the factor at this cell's levels",
    ),
    Column("text", String(200), nullable=False),
    Column("number", Float, nullable=True, comment="where the level is a number"),
)

trials = Table(
    "trials",
    metadata,
    Column("hash", String(20), primary_key=True),
    Column(
        "architecture_hash",
        String(20),
        ForeignKey("architectures.hash"),
        nullable=False,
    ),
    Column(
        "recipe",
        JSON(forms.is_recipe, "a recipe"),
        nullable=False,
        comment="canonical: what differs from the default recipe",
    ),
    Column("data", JSON(forms.is_object, "an object"), nullable=False),
    Column(
        "code",
        _VERSIONS,
        nullable=True,
        comment="content or revision of the user's parts that train it",
    ),
    Column(
        "start",
        String(200),
        nullable=True,
        comment="weights that training starts from; NULL if they are random",
    ),
    Column(
        "teacher",
        String(300),
        nullable=True,
        comment="the network that the trial learns from, and its weights",
    ),
    Column(
        "vary",
        JSON(forms.is_sources, "a list of sources", none_as_null=True),
        nullable=True,
        comment="what the seed decides; NULL if it is the initial weights and the order",
    ),
    Column("seed", BigInteger, nullable=False),
    Column("epochs", Integer, nullable=False, comment="epochs asked for"),
    Column("status", String(10, _STATUSES), nullable=False),
    Column("epochs_done", Integer, nullable=False),
    Column("seconds", Float, nullable=True, comment="training and testing, all epochs"),
    Column(
        "selected_epoch",
        Integer,
        nullable=True,
        comment="epoch whose weights were tested, once completed",
    ),
    Column("ended_at", DateTime, nullable=True),
    Column("owner", String(32), nullable=True, comment="driver that has it leased"),
    Column(
        "fence",
        Integer,
        nullable=False,
        server_default="0",
        comment="leases so far; only the last one may write",
    ),
    Column(
        "leased_until",
        Float,
        nullable=True,
        comment="seconds since 1970 by the database's clock",
    ),
    Index("ix_trials_architecture_hash", "architecture_hash"),
)

cell_trials = Table(
    "cell_trials",
    metadata,
    Column(
        "cell_id", Integer, ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("seed", BigInteger, primary_key=True),
    Column("trial_hash", String(20), ForeignKey("trials.hash"), nullable=False),
    Index("ix_cell_trials_trial_hash", "trial_hash"),
)

provenance = Table(
    "provenance",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", Integer, ForeignKey("studies.id"), nullable=False),
    Column("started_at", DateTime, nullable=False),
    Column("document", Text, nullable=False, comment="the YAML text of this run"),
    Column("command", Text, nullable=False),
    Column("ablate", String(40), nullable=False),
    Column("commit", String(40), nullable=False),
    Column("dirty", Boolean, nullable=False),
    Column("python", String(40), nullable=False),
    Column("torch", String(40), nullable=False),
    Column("timm", String(40), nullable=False),
    Column("ray", String(40), nullable=False),
    Column("platform", String(200), nullable=False),
    Column("host", String(200), nullable=False),
    Column("cpu", String(200), nullable=False),
    Column("cores", Integer, nullable=False),
    Column("memory_gb", Float, nullable=False),
    Column("gpus", Text, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trial_hash", String(20), ForeignKey("trials.hash"), nullable=False),
    Column("provenance_id", Integer, ForeignKey("provenance.id"), nullable=False),
    Column("number", Integer, nullable=False, comment="from 1"),
    Column(
        "status",
        String(12, (*_ATTEMPTS, *_STATUSES)),
        nullable=False,
        comment="running, lost, interrupted, or the trial's status at its end",
    ),
    Column("executor", String(20), nullable=False),
    Column("host", String(200), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("device", String(20), nullable=False),
    Column("threads", Integer, nullable=False),
    Column(
        "first_epoch",
        Integer,
        nullable=False,
        comment="epochs that its checkpoint had already",
    ),
    Column("started_at", DateTime, nullable=False),
    Column("ended_at", DateTime, nullable=True),
    Column("error", Text, nullable=False),
    Column(
        "weights",
        Text,
        nullable=False,
        server_default="",
        comment="what was taken from the start's weights",
    ),
    UniqueConstraint("trial_hash", "number"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("trial_hash", String(20), ForeignKey("trials.hash"), primary_key=True),
    Column("number", Integer, primary_key=True, comment="from 1"),
    Column("lr", Float, nullable=True),
    Column("seconds", Float, nullable=False),
    Column(
        "joules",
        Float,
        nullable=True,
        comment="drawn by the device that trained, where it counts them",
    ),
)

epoch_metrics = Table(
    "epoch_metrics",
    metadata,
    Column("trial_hash", String(20), ForeignKey("trials.hash"), primary_key=True),
    Column("epoch", Integer, primary_key=True, comment="from 1"),
    Column("name", String(20), primary_key=True),
    Column("value", Float(finite=False), nullable=False),
)

# Only completed trials have rows here.
trial_metrics = Table(
    "trial_metrics",
    metadata,
    Column("trial_hash", String(20), ForeignKey("trials.hash"), primary_key=True),
    Column("name", String(20), primary_key=True),
    Column(
        "value", Float(finite=False), nullable=False, comment="after the selected epoch"
    ),
)

# Completed trials of image classification.
correct_images = Table(
    "correct_images",
    metadata,
    Column("trial_hash", String(20), ForeignKey("trials.hash"), primary_key=True),
    Column("images", Integer, nullable=False, comment="test images"),
    Column(
        "bits",
        LargeBinary,
        nullable=False,
        comment="one bit per test image in the order of the data, the first one"
        " highest; 1: top-1 is correct",
    ),
)

diagnostics = Table(
    "diagnostics",
    metadata,
    Column("trial_hash", String(20), ForeignKey("trials.hash"), primary_key=True),
    Column(
        "epoch", Integer, primary_key=True, comment="epochs trained when it was taken"
    ),
    Column("name", String(60), primary_key=True),
    Column(
        "layer",
        Integer,
        primary_key=True,
        comment=(
            "block of the backbone, from 0; -1: it was looked for, and nothing has it"
        ),
    ),
    Column(
        "value",
        Float(finite=False),
        nullable=True,
        comment="mean over images, where it is one number",
    ),
    Column(
        "numbers",
        JSON(forms.is_numbers, "a vector or a matrix"),
        nullable=True,
        comment="a vector, or the rows of a matrix",
    ),
)

# Columns of equal type may share one object so far.
for _table in metadata.tables.values():
    for _column in _table.columns:
        _type = copy(_column.type)
        assert isinstance(_type, Checked)
        _type.place = f"{_table.name}.{_column.name}"
        _column.type = _type
