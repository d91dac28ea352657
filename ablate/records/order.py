"""What an executor is asked to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ablate.own.commits import Checkout
from ablate.own.user_modules import Source
from ablate.records.events import Epoch
from ablate.records.sections import Diagnostics, Keep, Resources, Scheduler
from ablate.records.trial import Trial

EarlyStop = Literal["allowed", "compared", "apart"]


@dataclass(frozen=True)
class Job:
    """A trial as an executor gets it."""

    trial: Trial
    # Folder or URL of the checkpoints of all trials.
    checkpoints: str
    resources: Resources
    # Epochs that the store has already. Schedulers compare them; the training itself
    # resumes from its checkpoint.
    history: tuple[Epoch, ...] = ()
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    # Hashes of trials that differ only in having fewer epochs, the longest first. The
    # job may go on from where one of them ended.
    beginnings: tuple[str, ...] = ()
    # What stays of the checkpoint when the trial is completed.
    keep: Keep = "last"
    # The files of the user's parts, which a worker loads too.
    sources: tuple[Source, ...] = ()
    # Whether a scheduler may stop it early. Row 0 of a design is `compared`, but never
    # stopped, because every verdict needs it. A confirmation is `apart`: it is not
    # compared with the others either.
    early_stop: EarlyStop = "allowed"
    # A scheduler compares the trials of one group with each other.
    group: str = ""
    # The file that keeps what the trial prints; empty: it is not kept.
    log: str = ""
    # Where the files of its commit are; None: it does not train in a commit.
    checkout: Checkout | None = None


@dataclass(frozen=True)
class Order:
    """What an executor is to do."""

    # Gives one job after another as they are asked for: None if there is none now but
    # may be one later. It ends when there will be no more.
    jobs: Iterable[Job | None]
    metric: str
    direction: Literal["max", "min"]
    # What each job occupies.
    resources: Resources
    # The most epochs of any job.
    epochs: int
    # The rule by which jobs are stopped early.
    scheduler: Scheduler = field(default_factory=Scheduler)
    # What the order may use of this machine; None: all of it.
    cpus: int | None = None
    gpus: int | None = None
    # Curves by trial, of trials that are not among the jobs. A scheduler compares with
    # them too.
    peers: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)
    # The group of each of them, where it is not the empty one.
    groups: Mapping[str, str] = field(default_factory=dict)
