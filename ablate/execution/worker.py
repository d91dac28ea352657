"""What a fork of the nursery does: it trains one job after another for one client.

A message is a pickled request, and each is answered with a pickled `Answer`, in order.
Both ends are processes of one run, connected through a private folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from ablate.errors import Infeasible
from ablate.machine import main_thread
from ablate.own import registry
from ablate.records import Architecture, Cost, Event, Job, Status

if TYPE_CHECKING:
    from ablate.execution.trial_run import TrialRun

# How many lines of a traceback an answer carries.
FRAMES = -8


@dataclass(frozen=True)
class Begin:
    """Build the network of a job, or load its checkpoint.

    Attributes:
        executor: the executor that the store names beside the trial.
        last: the worker ends after this job.
    """

    job: Job
    executor: str
    last: bool


@dataclass(frozen=True)
class Step:
    """Train epochs until so many seconds have passed, but at least one.

    Does nothing if the job has ended.
    """

    seconds: float


@dataclass(frozen=True)
class Leave:
    """Save a checkpoint and end the job: interrupted, or pruned."""

    status: Status


@dataclass(frozen=True)
class Count:
    """Count the cost of an architecture."""

    architecture: Architecture


Request = Begin | Step | Leave | Count


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        events: what happened to the job, in order.
        error: the traceback of an error that is not one of the trial.
        cost: the counted cost.
        infeasible: why the architecture cannot be built.
    """

    events: tuple[Event, ...] = ()
    error: str = ""
    cost: Cost | None = None
    infeasible: str = ""


def serve(connection: Connection, *, lends: bool = False) -> None:
    """Answers requests until the client hangs up.

    Args:
        lends: whether this is the main thread of a worker. A user's function then gets
            this thread, because only the main thread may set handlers of signals, and
            another thread answers. It ends the process.
    """
    worker = Worker()
    # Broken pipe: the client has gone.
    with contextlib.suppress(EOFError, ConnectionError):
        see_devices(json.loads(connection.recv_bytes()))
        while True:
            request = pickle.loads(connection.recv_bytes())
            if lends and _is_own(request):
                _answer_elsewhere(worker, connection, request)
            if not worker.reply(connection, request):
                break


def _is_own(request: Request) -> bool:
    """Whether a job is trained by a user's function or command."""
    return isinstance(request, Begin) and bool(request.job.trial.architecture.trainer)


def _answer_elsewhere(
    worker: Worker, connection: Connection, request: Request
) -> NoReturn:
    """Answers this request and all others in another thread, and lends this one."""

    def answer() -> None:
        code = 1
        try:
            with contextlib.suppress(EOFError, ConnectionError):
                current = request
                while worker.reply(connection, current):
                    current = pickle.loads(connection.recv_bytes())
            code = 0
        finally:
            # The main thread may still run the user's function.
            os._exit(code)

    threading.Thread(target=answer, name="requests", daemon=True).start()
    main_thread.lend()


def see_devices(variables: dict[str, str | None]) -> None:
    """Sees the GPUs that the client sees, and no others."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Worker:
    """Trains one job at a time."""

    def __init__(self) -> None:
        self._run: TrialRun | None = None
        self._left = False
        self._last = False

    def release(self) -> bool:
        """Releases a job that has ended. Returns whether it was the last one."""
        if self._run is None:
            return False
        if self._run.status == Status.RUNNING and not self._left:
            return False
        self._run.close()
        self._run = None
        return self._last

    def reply(self, connection: Connection, request: Request) -> bool:
        """Sends the answer to a request. Returns whether there may be another one."""
        answer = self.answer(request)
        # Before the answer: the client may hang up as soon as it knows the end of the
        # job, and a worker without a client is killed.
        is_last = self.release() or bool(answer.error)
        if is_last:
            registry.remove_written()
        connection.send_bytes(pickle.dumps(answer))
        return not is_last

    def answer(self, request: Request) -> Answer:
        try:
            if isinstance(request, Count):
                return _count(request.architecture)
            return Answer(tuple(self._train(request)))
        except BaseException:
            # Also `sys.exit` in a user's code: the driver must hear why, and decides.
            return Answer(error=traceback.format_exc(limit=FRAMES))

    def _train(self, request: Begin | Step | Leave) -> Iterable[Event]:
        if isinstance(request, Begin):
            self._last = request.last
            return self._begin(request.job, request.executor)
        if self._run is None:
            return ()
        if isinstance(request, Step):
            return self._step(self._run, request.seconds)
        return self._leave(self._run, request.status)

    def _begin(self, job: Job, executor: str) -> Iterable[Event]:
        from ablate.execution.trial_run import TrialRun

        # For programs that the trial starts.
        os.environ["OMP_NUM_THREADS"] = str(job.resources.threads)
        self._left = False
        self._run = TrialRun(job, executor, in_worker=True)
        return self._run.start()

    def _step(self, run: TrialRun, seconds: float) -> Iterable[Event]:
        began = time.monotonic()
        while run.status == Status.RUNNING:
            yield from run.step()
            if time.monotonic() - began >= seconds:
                return

    def _leave(self, run: TrialRun, status: Status) -> Iterable[Event]:
        self._left = True
        yield run.prune() if status == Status.PRUNED else run.interrupt()


def _count(architecture: Architecture) -> Answer:
    from ablate.cost import count

    try:
        return Answer(cost=count(architecture))
    except Infeasible as error:
        return Answer(infeasible=str(error))
