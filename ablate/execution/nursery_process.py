"""The nursery: a process that imports torch and timm once, and forks a worker for each
trial.

What it guarantees: a worker starts in milliseconds, and nothing of one trial can reach
the next, because each worker is a fork of a process that has trained nothing. A worker
ends with its client, however the client ends, and with its nursery.

How: the nursery forks a process that serves a client through its connection
(`worker.py`). It keeps the connection open itself: if the client hangs up, it kills the
worker, even one that hangs, and the processes that the worker has started. If the
nursery dies, the kernel kills its workers; the next client that needs a worker starts a
new nursery.

What would break it: a thread in the nursery (a fork copies only one thread, and a lock
that another one holds stays locked), CUDA in the nursery (a fork cannot use it), or a
worker that keeps the connections of other workers open.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import pickle
import resource
import select
import shutil
import signal
import socket
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from ablate.data import sets
from ablate.execution.nursery import FORK, HOLD, LOAD, remove_dead_folders
from ablate.execution.signals import STOPS, leave_to_driver
from ablate.machine.timm_imports import refuse_wandb
from ablate.own import registry
from ablate.records import Data

# A nursery without clients ends after so long, in milliseconds. The first client may
# take longer.
LINGER_MS = 1_000
FIRST_MS = 60_000
# How long the nursery waits for the rest of what a client says.
CLIENT_SECONDS = 10.0
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
# If memory runs out, the kernel kills a worker rather than any other process of a run.
WORKER_OOM_SCORE = "1000"


def serve(number: int) -> None:
    """Runs a nursery until it has no clients.

    Args:
        number: the file descriptor of its listening socket.
    """
    remove_dead_folders()
    leave_to_driver()
    # An actor of Ray may have started this process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    listener = socket.socket(fileno=number)
    server = _Server(listener)
    _set_name("ablate-nursery")
    # A worker that imports the same modules reports what is wrong with them.
    with contextlib.suppress(Exception):
        _import()
    # Imported modules stay: workers need not visit them, which would copy their
    # memory.
    gc.collect()
    gc.freeze()
    server.run()


def _import() -> None:
    """Imports what every trial needs and what takes long; forks find it loaded."""
    refuse_wandb()
    import timm  # noqa: F401  (for forks)
    import torch
    import torch._dynamo
    import torch.utils.data
    import torch.utils.serialization.config

    import ablate.cost
    import ablate.execution.trial_run
    import ablate.execution.worker
    import ablate.families
    import ablate.learning.classification
    import ablate.learning.detection
    import ablate.learning.segmentation  # noqa: F401  (for forks)

    torch.set_num_threads(1)


def _set_name(name: str) -> None:
    """Sets the name that `ps` and `top` show."""
    _libc().prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class _Server:
    """The loop of a nursery: it serves clients in one thread, one after another."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._folder = Path(listener.getsockname()).parent
        self._socket = os.stat(listener.getsockname()).st_ino
        (self._folder / "pid").write_text(str(os.getpid()))
        # Each worker takes several files, and there may be hundreds of workers.
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files[1], self._files[1]))
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        # By file descriptor: connections without a worker, those of workers, and by its
        # pidfd the worker.
        self._clients: dict[int, socket.socket] = {}
        self._connections: dict[int, tuple[socket.socket, int]] = {}
        self._workers: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        """Serves until no client is left."""
        wait = FIRST_MS
        while True:
            ready = self._poll.poll(wait if self._is_alone() else None)
            if not ready and self._is_alone():
                break
            for file, _ in ready:
                self._handle(file)
            wait = LINGER_MS
        self._remove_folder()
        # Without the end of an interpreter with torch in it, which takes a second.
        os._exit(0)

    def _remove_folder(self) -> None:
        """Removes the folder, unless another nursery uses it now."""
        with (
            contextlib.suppress(FileNotFoundError),
            open(self._folder / "lock", "r+") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.stat(self._listener.getsockname()).st_ino == self._socket:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _is_alone(self) -> bool:
        return not (self._clients or self._connections)

    def _handle(self, file: int) -> None:
        if file == self._listener.fileno():
            # Without a free file descriptor, the client waits for one.
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                self._clients[client.fileno()] = client
                self._poll.register(client, select.POLLIN)
        elif file in self._clients:
            self._serve(self._clients[file])
        elif file in self._connections:
            # The client has hung up.
            _, worker = self._connections[file]
            self._poll.unregister(file)
            _kill(worker)
        elif file in self._workers:
            self._reap(file)

    def _serve(self, client: socket.socket) -> None:
        """Does what a client wants. No word means that it has hung up."""
        word = b""
        with contextlib.suppress(ConnectionError):
            word = client.recv(1)
        if word == HOLD:
            return
        self._poll.unregister(client)
        del self._clients[client.fileno()]
        if word == FORK:
            self._fork(client)
            return
        if word == LOAD:
            _load(client)
        client.close()

    def _fork(self, client: socket.socket) -> None:
        nursery = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            # No memory, or too many processes: the client hears that its worker is
            # lost.
            client.close()
            return
        if not pid:
            self._become_worker(client, nursery)
        worker = os.pidfd_open(pid)
        self._connections[client.fileno()] = (client, worker)
        self._workers[worker] = (pid, client.fileno())
        # Only the end of the connection: its messages are for the worker.
        self._poll.register(client, select.POLLRDHUP)
        self._poll.register(worker, select.POLLIN)

    def _become_worker(self, client: socket.socket, nursery: int) -> None:
        """Serves a client in a fork of the nursery, and never returns."""
        code = 1
        try:
            _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == nursery:
                # A group of its own, which ends with it.
                os.setpgid(0, 0)
                leave_to_driver()
                _set_name("ablate-worker")
                self._close_others()
                resource.setrlimit(resource.RLIMIT_NOFILE, self._files)
                with contextlib.suppress(OSError):
                    Path("/proc/self/oom_score_adj").write_text(WORKER_OOM_SCORE)
                os.environ[registry.PARTS_FOLDER] = str(self._folder)
                from ablate.execution import worker

                worker.serve(Connection(client.detach()), lends=True)
                code = 0
        finally:
            os._exit(code)

    def _close_others(self) -> None:
        """Closes what a fork has inherited.

        A client would not see the end of its worker while a fork of the nursery holds
        the connection.
        """
        sockets: Iterable[socket.socket] = (
            self._listener,
            *self._clients.values(),
            *(connection for connection, _ in self._connections.values()),
        )
        for end in sockets:
            end.close()
        for worker in self._workers:
            os.close(worker)

    def _reap(self, worker: int) -> None:
        """Ends what a dead worker has left: its connection, and its processes."""
        pid, file = self._workers.pop(worker)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._poll.unregister(worker)
        os.close(worker)
        connection, _ = self._connections.pop(file)
        with contextlib.suppress(KeyError):
            self._poll.unregister(file)
        # Closing is not enough: a process of the worker may hold the connection too.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def _kill(worker: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(worker, signal.SIGKILL)


def _load(client: socket.socket) -> None:
    """Loads the data set that a client names, which later forks share."""
    # A worker that cannot load it reports why.
    with contextlib.suppress(Exception), Connection(client.detach()) as connection:
        if not connection.poll(CLIENT_SECONDS):
            return
        data: Data = pickle.loads(connection.recv_bytes())
        data_set = sets.SETS.get(data.name)
        # Files are read batch by batch, and data of a user by the user's code, which
        # does not run here.
        if data_set is not None and data_set.kind == "memory":
            from ablate.data import arrays

            arrays.load(data)
