"""Several processes that train one trial: this one leads, the others follow it epoch by
epoch and end with it.

Every process builds the same network and draws the same data order; each takes its
share of every batch, and torch's DistributedDataParallel makes the gradient the mean
over all of them. Batch norm takes its statistics over all shares. So the number of
processes changes nothing but rounding, and what is drawn for single images. Only the
leader reads and writes checkpoints and tells results. Nothing listens beyond the
loopback.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import Store, TCPStore

from ablate.data.batches import Share
from ablate.errors import ExecutorError
from ablate.records import Trial
from ablate.training.batchnorm import synchronise
from ablate.training.checkpoint import State

# How long a process waits for the others within a step before the trial fails.
TIMEOUT = timedelta(minutes=10)
# How long the leader waits to learn why a process is gone.
LAST_WORDS_SECONDS = 5.0
# A warning of torch's on convolutions with one channel a group: nothing that a user
# could mend.
UNMENDABLE = "Grad strides do not match bucket view strides"
START = (
    # The leader decides when to stop: what a terminal sends to all is not for the
    # others.
    "import signal, sys; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT,"
    " signal.SIGTERM)]; from ablate.training.parallel import follow;"
    " follow(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Task:
    """What a following process is told: its trial, its share, and where the leader's
    store listens on the loopback.
    """

    trial: Trial
    share: Share
    device: str
    threads: int
    port: int
    timeout: timedelta


class Alone:
    """The one process of a trial: nothing is shared, and nothing changes a number."""

    share = Share()

    def state(self, state: State | None) -> State | None:
        """The checkpoint that the leader has read, in every process."""
        return state

    def join(self) -> None:
        """Waits until all processes are there."""

    def synchronise(self, model: nn.Module) -> nn.Module:
        """The network with the batch norms that all processes share."""
        return model

    def wrap(self, step: nn.Module) -> nn.Module:
        """The module whose backward pass leaves the mean gradient of all processes."""
        return step

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An epoch that all processes train together."""
        yield

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Makes what is drawn within an epoch this process's own, and a function of
        seed and epoch alone.
        """

    def same_buffers(self, model: nn.Module) -> None:
        """Gives every process the leader's buffers."""

    def total(self, sums: Tensor, count: int) -> tuple[Tensor, int]:
        """Sums over all processes; float64, any shape."""
        return sums, count

    def close(self) -> None:
        """Ends the other processes."""


class _Group(Alone):
    """What leader and followers do alike."""

    def __init__(self, share: Share, device: str) -> None:
        self.share, self._device = share, torch.device(device)

    def _meet(self, store: Store, timeout: timedelta) -> None:
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        # Gloo listens where the host's name leads, unless told otherwise.
        if sys.platform == "linux":
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo0"
        try:
            backend = "nccl" if self._device.type == "cuda" else "gloo"
            dist.init_process_group(
                backend,
                store=store,
                rank=self.share.rank,
                world_size=self.share.of,
                timeout=timeout,
            )
        finally:
            os.environ.pop("GLOO_SOCKET_IFNAME")
            if before is not None:
                os.environ["GLOO_SOCKET_IFNAME"] = before

    def synchronise(self, model: nn.Module) -> nn.Module:
        return synchronise(model, self._device)

    def wrap(self, step: nn.Module) -> nn.Module:
        # Told to look for unused parameters, DDP keeps its buckets as they are; else it
        # sorts them anew after its first step, and of three processes or more a resumed
        # one would add in another order. One unused parameter keeps it from warning.
        step.register_parameter(
            "unused", nn.Parameter(torch.zeros(1, device=self._device))
        )
        return nn.parallel.DistributedDataParallel(step, find_unused_parameters=True)

    def same_buffers(self, model: nn.Module) -> None:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)

    def total(self, sums: Tensor, count: int) -> tuple[Tensor, int]:
        both = torch.cat([sums.reshape(-1), sums.new_tensor([count])])
        dist.all_reduce(both)
        return both[:-1].reshape(sums.shape), int(both[-1])

    def _leave(self, abort: bool) -> None:
        if dist.is_initialized():
            if abort and self._device.type == "cuda":
                # NCCL's group ends well only if all end it.
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()


class Leader(_Group):
    """The first process of a trial, which starts the others.

    Raises:
        ExecutorError: from every method, where another process has failed; with its
            words.
    """

    def __init__(self, trial: Trial, processes: int, device: str, threads: int) -> None:
        super().__init__(Share(0, processes), device)
        # torch's store would listen on every interface; it takes a socket that does
        # not.
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        self._store: Any = TCPStore(
            "127.0.0.1",
            port,
            processes,
            True,
            TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=server.detach(),
        )
        self._others: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._even = False
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        for rank in range(1, processes):
            mine, theirs = Pipe()
            command = [sys.executable, "-c", START, str(theirs.fileno())]
            process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            theirs.close()
            self._others.append((process, mine))
            place = device if device == "cpu" else f"{device}:{rank}"
            self._tell(
                mine,
                Task(
                    trial=trial,
                    share=Share(rank, processes),
                    device=place,
                    threads=threads,
                    port=port,
                    timeout=TIMEOUT,
                ),
            )

    @property
    def pids(self) -> list[int]:
        """The other processes."""
        return [process.pid for process, _ in self._others]

    def state(self, state: State | None) -> State | None:
        packed = io.BytesIO()
        torch.save(state, packed)
        for _, pipe in self._others:
            self._tell(pipe, packed.getvalue())
        return state

    def join(self) -> None:
        for _, pipe in self._others:
            try:
                ready = pipe.recv() is None
            except (EOFError, ConnectionError):
                ready = False
            if not ready:
                raise ExecutorError(
                    self._last_words() or "another process of the trial did not start"
                )
        self._meet(self._store, TIMEOUT)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        self._even = False
        for _, pipe in self._others:
            self._tell(pipe, "epoch")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=UNMENDABLE)
                yield
            self._even = True
        except RuntimeError as error:
            # Where another process dies, this one finds a closed connection.
            if words := self._last_words():
                raise ExecutorError(words) from error
            raise

    def close(self) -> None:
        for process, pipe in self._others:
            if self._even:
                with contextlib.suppress(OSError):
                    pipe.send("end")
            else:
                # It has nothing to save, and may be waiting for a step that never
                # comes.
                process.kill()
        self._leave(abort=not self._even)
        for process, pipe in self._others:
            pipe.close()
            try:
                process.wait(LAST_WORDS_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._others = []
        self._store = None

    def _tell(self, pipe: Connection, message: object) -> None:
        try:
            pipe.send(message)
        except OSError as error:
            raise ExecutorError(
                self._last_words() or "another process of the trial is gone"
            ) from error

    def _last_words(self) -> str:
        """What those say that have ended; empty where all live."""
        words = []
        for rank, (process, pipe) in enumerate(self._others, 1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(LAST_WORDS_SECONDS)
                said = ""
                with contextlib.suppress(EOFError, OSError):
                    while pipe.poll():
                        said = pipe.recv() or said
                if code < 0:
                    ended = f"was killed by {signal.Signals(-code).name}"
                else:
                    ended = f"ended with code {code}"
                words.append(
                    f"process {rank} of {self.share.of} {ended}"
                    + (f":\n{said}" if said else "")
                )
        return "\n".join(words)


class Follower(_Group):
    """Any other process of a trial."""

    def __init__(
        self, task: Task, pipe: Connection, told: queue.SimpleQueue[Any]
    ) -> None:
        super().__init__(task.share, task.device)
        self._task = task
        self._pipe = pipe
        self._told = told

    def state(self, state: State | None) -> State | None:
        read: State | None = torch.load(
            io.BytesIO(self._told.get()), map_location="cpu", weights_only=True
        )
        return read

    def join(self) -> None:
        self._pipe.send(None)
        self._meet(
            TCPStore(
                "127.0.0.1", self._task.port, self.share.of, False, self._task.timeout
            ),
            self._task.timeout,
        )

    def close(self) -> None:
        self._leave(abort=False)

    def begin_epoch(self, seed: int, epoch: int) -> None:
        # Numpy's state, from which mixing draws, stays the same in all processes; the
        # data order has a generator of its own.
        drawn = hashlib.blake2b(
            f"{seed} {epoch} {self.share.rank}".encode(), digest_size=4
        ).digest()
        torch.manual_seed(int.from_bytes(drawn, "big"))
        random.seed(int.from_bytes(drawn, "big"))


def follow(descriptor: int) -> None:
    """The life of a following process: a trial, epoch by epoch as the leader says, over
    a pipe that ends with the leader.
    """
    from ablate.training.loop import Diverged, Training

    pipe = Connection(descriptor)
    told = queue.SimpleQueue[Any]()

    def listen() -> None:
        # A thread of its own: a step that waits for a dead leader may wait for long.
        try:
            while True:
                told.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    warnings.filterwarnings("ignore", message=UNMENDABLE)
    try:
        task: Task = told.get()
        if task.device != "cpu":
            torch.cuda.set_device(task.device)
        group = Follower(task, pipe, told)
        training = Training(
            task.trial, None, device=task.device, threads=task.threads, group=group
        )
        while told.get() == "epoch":
            with contextlib.suppress(Diverged):
                training.epoch()
        training.close()
    except BaseException:
        pipe.send(traceback.format_exc(limit=-8))
        sys.exit(1)
