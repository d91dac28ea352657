"""Where a run keeps its results, and how it trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablate import execution
from ablate.budget import UNLIMITED, Budget
from ablate.errors import ExecutorError, UnknownName, unknown
from ablate.text.advice import option


@dataclass(frozen=True)
class Options:
    """Where results are kept and how trials run.

    Attributes:
        runs: folder of the checkpoints, and of the store unless `store` names another.
        store: database URL or SQLite file.
        executor: ray, local or inline.
        cpus, gpus: how much of this machine a run may use; by default all of it.
        ray_address: a running Ray cluster to join (HOST:PORT, or auto); by default Ray
            starts on this machine.
        checkpoints: a folder, or a URL of fsspec, that all nodes share; by default
            `runs`/checkpoints.
        log: services that receive each epoch while trials run: tensorboard, mlflow,
            wandb.
        budget: the most that all runs of the study may use together.
        rows, seeds: train trials of these rows, and with these seeds, only; by default
            of all.

    Raises:
        ExecutorError: options exclude each other, or a package is not installed.
        UnknownName: a service is unknown.
    """

    runs: Path = Path("runs")
    store: str = ""
    executor: str = "ray"
    cpus: int | None = None
    gpus: int | None = None
    ray_address: str = ""
    checkpoints: str = ""
    log: tuple[str, ...] = ()
    budget: Budget = UNLIMITED
    rows: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in self.log:
            if name not in execution.SERVICES:
                raise UnknownName(unknown("service", name, tuple(execution.SERVICES)))
            execution.check_installed(name)
        if not self.ray_address:
            return
        if self.executor != "ray":
            raise ExecutorError(
                f"{option('ray_address')} {self.ray_address} goes with"
                f" {option('executor')} ray, not with {self.executor}"
            )
        if self.cpus is not None or self.gpus is not None:
            raise ExecutorError(
                f"{option('cpus')} and {option('gpus')} are for this machine; with"
                f" {option('ray_address')} {self.ray_address} each node declares its"
                " own (ray start --num-cpus, --num-gpus), and the key resources of the"
                " space declares what a trial needs"
            )

    @property
    def url(self) -> str:
        """URL or SQLite file of the store."""
        return self.store or str(self.runs / "ablate.db")

    def checkpoints_of(self, store_id: str) -> str:
        """Where the checkpoints of a store's trials are.

        A URL, or a folder that is the same from every working directory.
        """
        return f"{self.checkpoints_root}/{store_id}"

    def logs_of(self, store_id: str) -> Path:
        """The folder of what a store's trials print, one file per trial."""
        return (self.runs / "logs" / store_id).resolve()

    @property
    def commits(self) -> Path:
        """The folder of the files of commits, one folder for each."""
        return (self.runs / "commits").resolve()

    @property
    def checkpoints_root(self) -> str:
        """Where the checkpoints of all stores are: a URL, or an absolute folder."""
        root = self.checkpoints or str(self.runs / "checkpoints")
        if "://" in root:
            return root.rstrip("/")
        return str(Path(root).resolve())
