"""One study that is being disturbed: its folder, its driver, and what its store and
checkpoints say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch

from tests.faults import phases
from tests.faults.disk import Disk
from tests.faults.phases import PhaseFolder
from tests.faults.stores import Kind, Store

EPOCHS, TRIALS, DIVERGING = 40, 12, 3
SPACE = f"""
question: Does it survive?
backbone: {{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}}
factors:
  layout: [serial, parallel]
  recipe.lr: [2e-3, 1e-3, 1e30]
design: one-at-a-time
seeds: 3
data: {{name: npz, path: digits.npz}}
recipe: {{epochs: {EPOCHS}, batch_size: 20, optimizer: sgd, schedule: constant, warmup_epochs: 0}}
"""
BUSY_SECONDS = 5
HANG_SECONDS = 8
# How long a run waits for a worker where none is to hang.
PATIENCE_SECONDS = 60
# After so long the next driver may take over the trials of a killed one, on PostgreSQL.
LEASE_SECONDS = 5
INJECTED = Path(__file__).parent / "inject"
WITH_RESULT = ("completed", "diverged")


@dataclass
class Ran:
    """What is to be checked of one run of the driver: what may come of it.

    `after` is the last provenance before it.
    """

    faults: list[str] = field(default_factory=list)
    codes: set[int] = field(default_factory=lambda: {0})
    says: list[str] = field(default_factory=list)
    after: int = 0


@dataclass
class Scene:
    """One study, run again and again until it is finished.

    `landed` is the place in which the last SIGKILL landed.
    """

    folder: Path
    rng: random.Random
    disk: Disk
    runs: Path
    store: Store
    phases: PhaseFolder
    executor: str = "ray"
    patience: float = PATIENCE_SECONDS
    landed: str = ""
    driver: subprocess.Popen[bytes] | None = None
    ran: Ran = field(default_factory=Ran)
    hit: set[str] = field(default_factory=set)
    floors: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    epochs_lost: int = 0
    outlived: int = 0
    _due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    @classmethod
    def make(
        cls, folder: Path, rng: random.Random, store: Store, executor: str = "ray"
    ) -> Scene:
        """A new study in an empty folder and an empty store."""
        (folder / "space.yaml").write_text(SPACE)
        write_data(folder / "digits.npz")
        (folder / "clock").write_text("0")
        disk = Disk(folder / "disk")
        return cls(
            folder=folder,
            rng=rng,
            disk=disk,
            runs=disk.folder / "runs",
            store=store,
            phases=PhaseFolder(folder / "phases"),
            executor=executor,
        )

    @property
    def url(self) -> str:
        """Database URL or file of the store."""
        return self.store.url(self.runs)

    def command(self, *words: str) -> list[str]:
        runs = str(self.runs.relative_to(self.folder))
        store = ["--store", self.url] if self.store.kind == Kind.POSTGRESQL else []
        trains = words[0] in ("run", "resume")
        return [
            sys.executable,
            "-m",
            "ablate",
            *words,
            "--runs",
            runs,
            *store,
            "--cpus",
            "2",
            *(("--executor", self.executor) if trains else ()),
        ]

    def environment(self) -> dict[str, str]:
        path = [
            str(INJECTED),
            os.environ.get("PYTHONPATH", ""),
            str(Path(__file__).parents[2]),
        ]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "ABLATE_TEST_CLOCK": str(self.folder / "clock"),
            **phases.environment(self.phases),
            # A checkpoint after a few epochs: faults come within seconds.
            "ABLATE_CHECKPOINT_SECONDS": "0.4",
            "ABLATE_BUSY_SECONDS": str(BUSY_SECONDS),
            "ABLATE_HANG_SECONDS": str(self.patience),
            "ABLATE_LEASE_SECONDS": str(LEASE_SECONDS),
        }

    @property
    def words(self) -> tuple[str, ...]:
        """The next command: `resume` once the store knows the study."""
        known = self.rows("SELECT 1 FROM studies")
        return ("resume", "space") if known else ("run", "space.yaml")

    def start(self, patience: float = PATIENCE_SECONDS) -> None:
        """Starts the driver in a session of its own, so that a Ctrl-C reaches what a
        terminal's would.
        """
        self.patience = patience
        self.ran = Ran(
            after=int(
                str(
                    (
                        self.rows("SELECT COALESCE(MAX(id), 0) FROM provenance")
                        or [(0,)]
                    )[0][0]
                )
            )
        )
        with (self.folder / "log.txt").open("wb") as log:
            self.driver = subprocess.Popen(
                self.command(*self.words),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.driver is not None
        return self.driver.pid

    @property
    def alive(self) -> bool:
        return self.driver is not None and self.driver.poll() is None

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        """Something to be done in a while, at the latest when the run has ended."""
        self._due.append((time.monotonic() + seconds, undo))

    def tick(self, *, ended: bool = False) -> None:
        """Does what is due."""
        now = time.monotonic()
        due = [undo for moment, undo in self._due if ended or moment <= now]
        self._due = (
            []
            if ended
            else [(moment, undo) for moment, undo in self._due if moment > now]
        )
        for undo in due:
            undo()

    def session(self) -> list[psutil.Process]:
        """The driver and every process that came of it, also after its death."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                if (
                    os.getsid(process.pid) == self.pid
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def workers(self) -> list[tuple[psutil.Process, str]]:
        """The processes in which trials run now, each with its trial: it holds the lock
        of that trial's folder.
        """
        found = []
        for process in self.session():
            with contextlib.suppress(psutil.Error, OSError):
                for entry in Path(f"/proc/{process.pid}/fd").iterdir():
                    file = os.readlink(entry)
                    if file.endswith("/lock") and "/checkpoints/" in file:
                        found.append((process, Path(file).parent.name))
        return sorted(found, key=lambda pair: pair[1])

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What the store says; nothing while it is not there or not to be read."""
        return self.store.rows(self.runs, statement, values)

    def attempts(self, trial: str) -> int:
        return int(
            str(
                self.rows("SELECT COUNT(*) FROM attempts WHERE trial_hash = ?", trial)[
                    0
                ][0]
                if self.words[0] == "resume"
                else 0
            )
        )

    def checkpoints(self) -> dict[str, Path]:
        """By trial: the file of its checkpoint."""
        return {
            file.parent.name: file
            for file in sorted(self.runs.glob("checkpoints/*/*/last.pt"))
        }

    def unfinished(self) -> set[str]:
        return {
            str(key)
            for (key,) in self.rows(
                "SELECT hash FROM trials WHERE status NOT IN ('completed', 'diverged')"
            )
        }

    def note_floor(self, trial: str, worker: int = 0) -> None:
        """From now on no attempt of this trial may begin before the checkpoint that it
        has now.

        No process may be writing it.

        What a worker that is being killed told before may be heard after: its own
        attempt does not count.
        """
        file = self.checkpoints().get(trial)
        epochs, before = (
            epochs_in(file) if file else 0,
            self.floors.get(trial, (0, 0, 0))[1],
        )
        if epochs < before:
            self.epochs_lost += before - epochs
            self.problems.append(
                f"the checkpoint of {trial} had {before} epochs, and has {epochs}"
            )
        self.floors[trial] = (self.attempts(trial), epochs, worker)

    def check_floors(self) -> None:
        """No epoch is lost beyond the last checkpoint: every later attempt began there,
        or after.
        """
        # One that failed while it was made, as for want of data, never came to its
        # checkpoint: the next one will. Where the store could not be written to, it may
        # not have been told that it failed.
        silent = any("database" in name for name in self.ran.faults)
        never = (
            "('failed', 'lost', 'interrupted')"
            if silent
            else "('failed', 'interrupted')"
        )
        for trial, number, first, pid in self.rows(
            "SELECT trial_hash, number, first_epoch, pid FROM attempts WHERE NOT"
            f" (status IN {never} AND first_epoch = 0)"
        ):
            after, floor, worker = self.floors.get(str(trial), (0, 0, 0))
            lost = floor - int(str(first))
            if int(str(number)) > after and lost > 0 and pid != worker:
                self.epochs_lost += lost
                told = self.rows(
                    "SELECT number, provenance_id, pid, status, first_epoch, error FROM"
                    " attempts WHERE trial_hash = ?",
                    trial,
                )
                self.problems.append(
                    f"attempt {number} of {trial} began after epoch {first}, its"
                    f" checkpoint had {floor} when there were {after} attempts (worker"
                    f" {worker}); {self.ran.faults}; attempts"
                    f" {told}\n{self.log[-1500:]}"
                )

    def settle(self) -> None:
        """Waits until no process of the run is left, as the next command finds it; what
        stays is counted and ended.
        """
        deadline = time.monotonic() + 30
        while (left := self.session()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.outlived += len(left)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def locked(self, trial: str) -> bool:
        """Whether some process still trains this trial."""
        for lock in self.runs.glob(f"checkpoints/*/{trial}/lock"):
            with lock.open() as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
        return False


def epochs_in(file: Path) -> int:
    """Epochs that a checkpoint holds; 0 for one that is not whole."""
    try:
        # torch reads a flipped bit without a word; ablate does not.
        with zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:
                return 0
        return len(torch.load(file, map_location="cpu", weights_only=True)["epochs"])
    except Exception:
        return 0


def write_data(file: Path) -> None:
    """A part of the digits as a file, so that it can go missing."""
    from ablate.data.arrays import _digits

    images, labels, test_images, test_labels = _digits()
    np.savez(
        file,
        x_train=images[:300, 0].numpy(),
        y_train=labels[:300].numpy(),
        x_test=test_images[:100, 0].numpy(),
        y_test=test_labels[:100].numpy(),
    )


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Holds a process still, so that what it left on the disk can be looked at.

    What it has told may still be on its way.
    """
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    yield
