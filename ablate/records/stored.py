"""What a store tells of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ablate.records.trial import Status


@dataclass(frozen=True)
class TrialRow:
    """A trial of a study, as `ablate status STUDY` lists it."""

    row: int
    # What a trial beside the table is for (`records.plan.Stage`); empty: the table.
    stage: str
    # The number of its setting of the nuisance hyperparameters; None: there are none.
    setting: int | None
    seed: int
    status: Status
    epochs_done: int
    epochs: int
    # The final values of the metrics by which a study may compare its cells.
    metrics: Mapping[str, float | None]
    # Seconds of training and testing; None: not completed.
    seconds: float | None
    attempts: int
    # Its hash.
    trial: str
    # The last line of the last error; empty: none.
    error: str
    # What was taken from its initial weights.
    weights: str


@dataclass(frozen=True)
class TriedSetting:
    """A trial of a row at one of the settings that it tries."""

    row: int
    # What it is for: the table, or a stage (`records.plan.Stage`).
    stage: str
    setting: int
    seed: int
    status: Status
    # The metric that chooses, on the held-out images; None: not completed.
    score: float | None
    # The metric of the study; None: not completed.
    value: float | None
    # Its hash.
    trial: str


@dataclass(frozen=True)
class StoredTrial:
    """A trial with what it trains, as a row of its study."""

    study: str
    row: int
    seed: int
    hash: str
    status: Status
    epochs_done: int
    epochs: int
    seconds: float | None
    backbone: str
    image_size: int
    settings: Mapping[str, Any]
    recipe: Mapping[str, Any]
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial."""

    # From 1.
    number: int
    # running, lost, interrupted, or the trial's status at its end.
    status: str
    executor: str
    host: str
    pid: int
    device: str
    threads: int
    # Epochs that its checkpoint had already.
    first_epoch: int
    started_at: datetime
    ended_at: datetime | None
    error: str
    weights: str


@dataclass(frozen=True)
class Circumstances:
    """What a completed trial ran on, at its last completed attempt."""

    row: int
    seed: int
    trial: str
    device: str
    threads: int
    host: str
    command: str
    ablate: str
    commit: str
    dirty: bool
    python: str
    torch: str
    timm: str
    ray: str
    platform: str
    cpu: str
    gpus: str
    started_at: datetime


@dataclass(frozen=True)
class DeviceCosts:
    """What a study's training cost on one kind of device.

    Epochs that a trial took over from a shorter one count for the shorter one only.
    """

    device: str
    trials: int
    epochs: int
    seconds: float
    # The number of epochs with known joules.
    metered: int
    joules: float | None


@dataclass(frozen=True)
class LayerValue:
    """A diagnostic of one layer of a trial."""

    row: int
    seed: int
    layer: int
    # The number, if the diagnostic is one; otherwise a vector or the rows of a matrix.
    value: float | Sequence[Any]


@dataclass(frozen=True)
class TrainedIdentity:
    """What a trial that ended was trained from."""

    backbone: str
    settings: Mapping[str, Any]
    # The identities of the user's parts, by part.
    code: Mapping[str, str]
    recipe: Mapping[str, Any]
    data: Mapping[str, Any]
    classes: int
    head: str
    start: str
    teacher: str
    vary: Sequence[str]
    seed: int
    # A result, or failed.
    status: Status
