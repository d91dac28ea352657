"""Records in which phase of a trial each process is, and holds a process in a phase to
be hit.

`ABLATE_TEST_PHASES` names a folder. Each process that trains or stores writes its
phases to a file `PID.phases` there. The file is memory-mapped: what a process wrote
before a SIGKILL stays readable. The harness asks for a hold through the file `hold`.

The module wraps functions of ablate when Python imports them (`WRAPPED`). The product
has no hooks of its own. A name that is not there raises `Missing`, and leaves a file
`missing` for the harness.

Only the standard library is imported here: the module runs in every Python process of a
run.
"""

import functools
import importlib.abc
import importlib.machinery
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "ABLATE_TEST_PHASES"
# A hold ends by itself after so long: shorter than the patience with a worker that
# hangs.
HOLD_SECONDS = 6.0

OUTSIDE = 0
# A worker builds the network of a trial that has nothing on the disk.
BUILDING = 1
# A worker builds the network of a trial that may have a checkpoint.
CONTINUING = 2
BUILT = 3
EPOCH = 4
# A worker is between two epochs.
BETWEEN = 5
CHECKPOINT = 6
# A worker has the result of a trial.
RESULT = 7
# A driver stores a result.
STORING = 8
# A driver has the database commit a result, or has done so.
COMMITTING = 9
# Where a process can be held.
POINTS = (
    "trial: before building",
    "trial: built",
    "epoch: after an update",
    "checkpoint: at its begin",
    "checkpoint: before the file is opened",
    "checkpoint: before the file replaces the last one",
    "checkpoint: after it was written",
    "result: before the worker reports it",
    "result: before the driver stores it",
    "result: before the driver commits it",
)

HEADER = struct.Struct("<Q")
ENTRY = struct.Struct("<qHHI48s")
ENTRIES = 512
SIZE = HEADER.size + ENTRIES * ENTRY.size
ORDER = struct.Struct("<QHH")

# By module: the functions that begin or end a phase.
WRAPPED = {
    "ablate.training.loop": ("Training.__init__", "Training.epoch"),
    "ablate.training.checkpoint": ("CheckpointFolder.save",),
    "ablate.execution.trial_run": ("TrialRun.start", "TrialRun.step"),
    "ablate.store.writer": ("Writer.write",),
}
RESULTS = ("completed", "diverged")

Function = Callable[..., Any]


class Missing(Exception):
    """A function that begins or ends a phase is not where the harness expects it."""


@dataclass(frozen=True)
class Entry:
    """One change of phase. `epochs` is how many the trial has finished."""

    at: int
    phase: int
    epochs: int
    trial: str


def read_entries(file: Path) -> list[Entry]:
    """The last changes of phase of a process, oldest first; it may be dead, or still
    write.
    """
    content = file.read_bytes()
    (count,) = HEADER.unpack_from(content)
    found = []
    for number in range(max(0, count - ENTRIES), count):
        at, phase, _, epochs, trial = ENTRY.unpack_from(
            content, HEADER.size + number % ENTRIES * ENTRY.size
        )
        found.append(
            Entry(at=at, phase=phase, epochs=epochs, trial=trial.rstrip(b"\0").decode())
        )
    return found


class Record:
    """The phases of this process."""

    def __init__(self, file: Path) -> None:
        with file.open("w+b") as stream:
            stream.truncate(SIZE)
            self._map = mmap.mmap(stream.fileno(), SIZE)
        self._count = 0

    def note(self, phase: int, trial: str, epochs: int) -> None:
        """Adds a change of phase.

        A kill in the middle leaves the entries before it as they are.
        """
        where = HEADER.size + self._count % ENTRIES * ENTRY.size
        ENTRY.pack_into(
            self._map, where, time.monotonic_ns(), phase, 0, epochs, trial.encode()[:48]
        )
        self._count += 1
        HEADER.pack_into(self._map, 0, self._count)


class Holds:
    """The order of the harness to hold one process at one point."""

    def __init__(self, file: Path) -> None:
        self._folder = file.parent
        self._holding = False
        with file.open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), ORDER.size)

    def pass_point(self, point: int) -> None:
        """Holds the process here if that is asked for and no other process is held."""
        token, wanted, passes = ORDER.unpack_from(self._map)
        # Opening a file while holding raises an audit event, which is a point of its
        # own.
        if not token or wanted != point or self._holding:
            return
        if passes:
            # Two workers may count down the same number: which update it is does not
            # matter.
            ORDER.pack_into(self._map, 0, token, wanted, passes - 1)
            return
        self._holding = True
        try:
            self._hold(token)
        except FileExistsError:
            # Another process is held.
            return
        finally:
            self._holding = False

    def _hold(self, token: int) -> None:
        taken = os.open(
            self._folder / f"held-{token}", os.O_CREAT | os.O_EXCL | os.O_WRONLY
        )
        os.write(taken, str(os.getpid()).encode())
        os.close(taken)
        deadline = time.monotonic() + HOLD_SECONDS
        while time.monotonic() < deadline and ORDER.unpack_from(self._map)[0] == token:
            time.sleep(0.005)


class Phases:
    """What this process does now.

    All methods are called in the thread that trains or stores.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._record: Record | None = None
        self._holds: Holds | None = None
        self._phase, self._trial, self._epochs = OUTSIDE, "", 0
        self._thread = 0
        self._can_open = False

    def open(self) -> None:
        """Makes the file of this process: early, while files may still be made and
        grow.
        """
        if self._record is None:
            self._record = Record(self._folder / f"{os.getpid()}.phases")
            self._holds = Holds(self._folder / "hold")

    def enter(
        self, phase: int, trial: str | None = None, epochs: int | None = None
    ) -> None:
        """Goes on to a phase, of the same trial unless another one is named."""
        if self._record is None and self._can_open:
            self.open()
        if self._record is None:
            return
        self._thread = threading.get_ident()
        self._phase = phase
        self._trial = self._trial if trial is None else trial
        self._epochs = self._epochs if epochs is None else epochs
        self._record.note(self._phase, self._trial, self._epochs)

    def within(self, phase: int) -> bool:
        """Whether this very thread is in the phase."""
        return self._phase == phase and self._thread == threading.get_ident()

    def point(self, number: int) -> None:
        """A point at which the harness may want to hold the process."""
        if self._holds is not None:
            self._holds.pass_point(number)

    def begin_anew(self) -> None:
        """A forked child is another process. It opens its own file when it trains."""
        self._can_open = self._record is not None
        self._record, self._holds, self._phase = None, None, OUTSIDE


def _wrap_training(module: ModuleType, phases: Phases) -> None:
    training = module.Training

    def make(original: Function) -> Function:
        def wrapper(
            self: Any, trial: Any, folder: Any, *rest: Any, **named: Any
        ) -> None:
            phases.enter(
                BUILDING if _holds_nothing(folder) else CONTINUING, trial.hash, 0
            )
            if phases.within(BUILDING):
                phases.point(0)
            original(self, trial, folder, *rest, **named)
            phases.enter(BUILT, trial.hash, len(self.epochs))
            if not self.epochs:
                phases.point(1)

        return wrapper

    def epoch(original: Function) -> Function:
        def wrapper(self: Any, *rest: Any, **named: Any) -> Any:
            phases.enter(EPOCH)
            try:
                return original(self, *rest, **named)
            finally:
                phases.enter(BETWEEN, epochs=len(self.epochs))

        return wrapper

    _replace(training, "__init__", make)
    _replace(training, "epoch", epoch)

    from torch.optim.optimizer import register_optimizer_step_post_hook

    def updated(*_: Any) -> None:
        if phases.within(EPOCH):
            phases.point(2)

    register_optimizer_step_post_hook(updated)


def _holds_nothing(folder: Any) -> bool:
    """Whether a trial's folder has no file with anything in it.

    A lock is empty. What is at a URL is not looked at.
    """
    if folder is None or "://" in str(folder):
        return False
    return not any(
        file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()
    )


def _wrap_checkpoint(module: ModuleType, phases: Phases) -> None:
    def save(original: Function) -> Function:
        def wrapper(*given: Any, **named: Any) -> Any:
            phases.enter(CHECKPOINT)
            try:
                phases.point(3)
                result = original(*given, **named)
                phases.point(6)
                return result
            finally:
                phases.enter(BETWEEN)

        return wrapper

    _replace(module.CheckpointFolder, "save", save)

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        # However a checkpoint is written: it opens a file, and moves it over the last
        # one.
        if event not in ("open", "os.rename") or not phases.within(CHECKPOINT):
            return
        if event == "os.rename":
            phases.point(5)
        elif isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            phases.point(4)

    sys.addaudithook(audited)


def _wrap_work(module: ModuleType, phases: Phases) -> None:
    def events(original: Function) -> Function:
        def wrapper(self: Any, *rest: Any, **named: Any) -> Iterator[Any]:
            for event in original(self, *rest, **named):
                if _is_result(event):
                    phases.enter(RESULT, event.trial)
                    phases.point(7)
                yield event

        return wrapper

    _replace(module.TrialRun, "start", events)
    _replace(module.TrialRun, "step", events)


def _is_result(event: Any) -> bool:
    """Whether an event of ablate says that a trial has its result."""
    return str(getattr(event, "status", "")) in RESULTS


def _wrap_writer(module: ModuleType, phases: Phases) -> None:
    def write(original: Function) -> Function:
        def wrapper(self: Any, happened: Any, *rest: Any, **named: Any) -> Any:
            if not _is_result(happened):
                return original(self, happened, *rest, **named)
            phases.enter(STORING, happened.trial)
            try:
                phases.point(8)
                return original(self, happened, *rest, **named)
            finally:
                phases.enter(OUTSIDE)

        return wrapper

    _replace(module.Writer, "write", write)

    from sqlalchemy import Engine, event

    def committing(_: Any) -> None:
        # SQLAlchemy calls this before the database is asked to commit.
        if phases.within(STORING):
            phases.point(9)
            phases.enter(COMMITTING)

    event.listen(Engine, "commit", committing)


WRAPPERS: dict[str, Callable[[ModuleType, Phases], None]] = {
    "ablate.training.loop": _wrap_training,
    "ablate.training.checkpoint": _wrap_checkpoint,
    "ablate.execution.trial_run": _wrap_work,
    "ablate.store.writer": _wrap_writer,
}


def check_names(module: ModuleType) -> None:
    """Raises Missing where a function that a wrapper needs is not there."""
    for name in WRAPPED[module.__name__]:
        kind, _, function = name.partition(".")
        if not callable(vars(getattr(module, kind, object)).get(function)):
            where = f"{module.__name__}.{name}"
            raise Missing(f"{where} is not there; name the new function in {__file__}")


def _replace(kind: type, name: str, wrapped: Callable[[Function], Function]) -> None:
    original = vars(kind)[name]
    setattr(kind, name, functools.wraps(original)(wrapped(original)))


class Finder(importlib.abc.MetaPathFinder):
    """Wraps the functions of a module right after Python has run the module."""

    def __init__(self, phases: Phases, folder: Path) -> None:
        self._phases, self._folder = phases, folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in WRAPPERS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((found for found in specs if found is not None), None)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            try:
                check_names(module)
            except Missing as error:
                (self._folder / "missing").write_text(str(error))
                raise
            WRAPPERS[name](module, self._phases)
            self._phases.open()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Wraps what is imported from now on, where the variable names a folder."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return
    phases = Phases(Path(folder))
    os.register_at_fork(after_in_child=phases.begin_anew)
    sys.meta_path.insert(0, Finder(phases, Path(folder)))
