"""Several processes that train one trial: one leads, the others follow epoch by epoch.

What it guarantees: the number of processes changes nothing but rounding, and what is
drawn for single images (such as dropout). Only the leader reads and writes checkpoints
and reports results. No process listens on anything but the loopback interface, and
followers end with the leader, however it ends.

How: every process builds the same network and draws the same data order. Each takes an
equal share of every batch (`data.batches.Share`), and torch's DistributedDataParallel
averages the gradient over all of them. The mean of the means of equal shares is the
mean of the batch. Batch norm takes its statistics over all shares. A pipe per follower
carries the task, the checkpoint and the word "epoch"; if it closes, the follower exits.

What would break it: unequal shares (the average would weigh images differently), a draw
that all processes must share but that depends on the rank (the data order, or numpy's
state, from which Mixup draws its ratio), or a collective call that only some processes
make, as the others would wait until TIMEOUT.
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

from ablate.data.share import Share
from ablate.errors import ExecutorError
from ablate.own import registry
from ablate.own.user_modules import Source
from ablate.records import Trial
from ablate.training.batchnorm import synchronise
from ablate.training.checkpoint import State

# How long a process waits for the others within a step before the trial fails.
TIMEOUT = timedelta(minutes=10)
# How long the leader waits to learn why a process has ended.
LAST_WORDS_SECONDS = 5.0
# A warning of torch about convolutions with one channel per group, which a user cannot
# fix.
UNMENDABLE = "Grad strides do not match bucket view strides"
START = (
    # The leader decides when to stop. Signals that a terminal sends to the whole group
    # must not end the followers.
    "import sys; from ablate.execution.signals import leave_to_driver;"
    " leave_to_driver(); from ablate.training.follower import follow;"
    " follow(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Task:
    """What a follower receives: its trial, its share, and the leader's port."""

    trial: Trial
    share: Share
    device: str
    threads: int
    port: int
    timeout: timedelta
    # The files of the user's parts.
    sources: tuple[Source, ...] = ()


class Alone:
    """The only process of a trial: nothing is shared, and nothing changes a number."""

    share = Share()

    def state(self, state: State | None) -> State | None:
        """Returns the checkpoint that the leader has read, in every process."""
        return state

    def join(self) -> None:
        """Waits until all processes are ready."""

    def synchronise(self, model: nn.Module) -> nn.Module:
        """Returns the network with batch norms that all processes share."""
        return model

    def wrap(self, step: nn.Module) -> nn.Module:
        """Returns a module whose backward pass averages the gradient over processes."""
        return step

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A context in which all processes train an epoch together."""
        yield

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Seeds a follower's draws within an epoch by seed, epoch and rank.

        The leader keeps its random states, which are in the checkpoint.
        """

    def same_buffers(self, model: nn.Module) -> None:
        """Gives every process the leader's buffers."""

    def total(self, sums: Tensor, count: int) -> tuple[Tensor, int]:
        """Returns sums over all processes; float64, any shape."""
        return sums, count

    def close(self) -> None:
        """Ends the other processes."""


class _Group(Alone):
    """What leader and followers have in common."""

    def __init__(self, share: Share, device: str) -> None:
        self.share, self._device = share, torch.device(device)

    def _meet(self, store: Store, timeout: timedelta) -> None:
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        # Gloo listens on the address of the host's name, unless this variable says
        # otherwise.
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
        # With `find_unused_parameters`, DDP keeps its buckets. Otherwise it sorts them
        # again after its first step, and with three or more processes a resumed
        # training would add gradients in another order, with other last bits. DDP warns
        # if it finds no unused parameter, so there is one.
        step.register_parameter(
            "unused", nn.Parameter(torch.zeros(1, device=self._device))
        )
        return nn.parallel.DistributedDataParallel(step, find_unused_parameters=True)

    def same_buffers(self, model: nn.Module) -> None:
        # Buffers such as running statistics are not averaged by DDP. All processes must
        # evaluate the same network.
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)

    def total(self, sums: Tensor, count: int) -> tuple[Tensor, int]:
        # Sums and count in one message; float64 holds every count exactly.
        both = torch.cat([sums.reshape(-1), sums.new_tensor([count])])
        dist.all_reduce(both)
        return both[:-1].reshape(sums.shape), int(both[-1])

    def _leave(self, abort: bool) -> None:
        if dist.is_initialized():
            if abort and self._device.type == "cuda":
                # NCCL can end a group cleanly only if all processes do; here some are
                # gone.
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()


class Leader(_Group):
    """The first process of a trial, which starts the others.

    Raises:
        ExecutorError: from every method, if another process has failed; the message
            includes its error.
    """

    def __init__(self, trial: Trial, processes: int, device: str, threads: int) -> None:
        super().__init__(Share(0, processes), device)
        # torch's store would listen on every interface, but it accepts a socket that
        # listens on the loopback interface only.
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
        # Whether all processes are between two epochs, so that they can end cleanly.
        self._even = False
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        for rank in range(1, processes):
            here, theirs = Pipe()
            command = [sys.executable, "-c", START, str(theirs.fileno())]
            process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            theirs.close()
            self._others.append((process, here))
            rank_device = device if device == "cpu" else f"{device}:{rank}"
            self._tell(
                here,
                Task(
                    trial=trial,
                    share=Share(rank, processes),
                    device=rank_device,
                    threads=threads,
                    port=port,
                    timeout=TIMEOUT,
                    sources=registry.sources(),
                ),
            )

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
            # If another process dies, this one sees a closed connection; its error is
            # the better reason.
            if words := self._last_words():
                raise ExecutorError(words) from error
            raise

    def close(self) -> None:
        for process, pipe in self._others:
            if self._even:
                with contextlib.suppress(OSError):
                    pipe.send("end")
            else:
                # A follower has nothing to save, and may be waiting for a step that
                # never comes.
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
        """Returns what processes that ended reported; empty if all are alive."""
        words = []
        for rank, (process, pipe) in enumerate(self._others, 1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(LAST_WORDS_SECONDS)
                description = ""
                with contextlib.suppress(EOFError, OSError):
                    while pipe.poll():
                        description = pipe.recv() or description
                if code < 0:
                    ended = f"was killed by {signal.Signals(-code).name}"
                else:
                    ended = f"ended with code {code}"
                words.append(
                    f"process {rank} of {self.share.of} {ended}"
                    + (f":\n{description}" if description else "")
                )
        return "\n".join(words)


class Follower(_Group):
    """Any other process of a trial."""

    def __init__(
        self, task: Task, pipe: Connection, commands: queue.SimpleQueue[Any]
    ) -> None:
        super().__init__(task.share, task.device)
        self._task = task
        self._pipe = pipe
        self._commands = commands

    def state(self, state: State | None) -> State | None:
        read: State | None = torch.load(
            io.BytesIO(self._commands.get()), map_location="cpu", weights_only=True
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
        # Numpy's state stays the same in all processes, because mixing draws from it;
        # the data order has a generator of its own. torch's and Python's states differ
        # by rank, so that dropout does not repeat the same mask in every share. They
        # are seeded in each epoch, because a follower's states are in no checkpoint.
        drawn = hashlib.blake2b(
            f"{seed} {epoch} {self.share.rank}".encode(), digest_size=4
        ).digest()
        torch.manual_seed(int.from_bytes(drawn, "big"))
        random.seed(int.from_bytes(drawn, "big"))
