"""One process per machine that imports torch and timm once, and forks a worker for
each trial.

What it guarantees: a worker starts in milliseconds, and nothing of one trial can reach
the next, because each worker is a fork of a process that has trained nothing. A
worker ends with its client, however the client ends, and with its nursery.

How: a client connects to a socket in a private folder. The nursery forks a process that
serves the client through this connection (`worker.py`). It keeps the connection open
itself: if the client hangs up, it kills the worker, even one that hangs. If the nursery
dies, the kernel kills its workers; the next client that needs a worker starts a new
nursery. The client that starts a nursery makes its socket, so that clients can connect
while the nursery is still importing.

What would break it: a thread in the nursery (a fork copies only one thread, and a lock
that another one holds stays locked), CUDA in the nursery (a fork cannot use it), or a
worker that keeps the connections of other workers open.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import pickle
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from ablate.data import catalogue
from ablate.errors import ExecutorError
from ablate.records import Data

# What a client wants, as the first byte of its connection: that the nursery stays, a
# worker, that data are loaded before the next fork, or that the nursery ends.
HOLD, FORK, LOAD, QUIT = b"h", b"f", b"l", b"q"
# Variables by which a process sees GPUs. A worker takes them from its client.
DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
# A nursery without clients ends after so long, in milliseconds. The first client may
# take longer.
LINGER_MS = 1_000
FIRST_MS = 60_000
BACKLOG = 256
# How long the nursery waits for the rest of what a client says.
CLIENT_SECONDS = 10.0
# A trial sets its own number of threads. The nursery has only one. (jemalloc comes with
# pyarrow, which scikit-learn imports.)
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
# The program of a nursery: the number of its socket, then the paths of its client.
START = (
    "import sys; socket = int(sys.argv[1]); sys.path[:] = sys.argv[2:];"
    " from ablate.execution.nursery import serve; serve(socket)"
)


def shared_folder(token: str) -> Path:
    """Returns the folder of a nursery on a machine of a cluster.

    Args:
        token: a random text that the clients of one run on one node share.
    """
    return Path(tempfile.gettempdir(), f"ablate-nursery-{token}")


class Nursery:
    """A client's view of the nursery in a folder, which it starts when it is needed.

    Args:
        folder: a folder that only this user can enter. It is created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = str(folder / "socket")
        self._process: subprocess.Popen[bytes] | None = None
        self._held: Connection | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process keeps the nursery."""
        return self._held is not None

    def hold(self) -> None:
        """Starts the nursery, and keeps it until this process closes it or ends."""
        self._held = self._connect(HOLD)

    def release(self) -> None:
        """Lets the nursery end when no other client holds it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    @property
    def process_id(self) -> int:
        """The process that this client has started last; 0 for none."""
        return self._process.pid if self._process is not None else 0

    def load(self, data: bytes) -> None:
        """Loads a data set before the next worker is forked, for all later ones.

        Args:
            data: a pickled `Data`. If it cannot be loaded, each worker reports that.
        """
        with self._connect(LOAD) as connection:
            connection.send_bytes(data)

    def worker(self) -> Connection:
        """Returns the connection to a new worker.

        It returns at once. The worker reads messages as soon as it is forked.
        """
        connection = self._connect(FORK)
        seen = {name: os.environ.get(name) for name in DEVICE_VARIABLES}
        connection.send_bytes(json.dumps(seen).encode())
        return connection

    def close(self) -> None:
        """Ends the nursery and its workers, and waits for the end."""
        self.release()
        with contextlib.suppress(OSError, EOFError), self._connected(QUIT) as last:
            # Nothing is sent: the connection closes when the nursery has ended.
            last.recv_bytes()
        self._end_process()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _connect(self, word: bytes) -> Connection:
        """Connects to the nursery, and starts one if there is none.

        Raises ExecutorError if none can be started.
        """
        self._make_folder()
        for _ in range(2):
            try:
                return self._connected(word)
            except (FileNotFoundError, ConnectionError):
                self._start()
        return self._connected(word)

    def _connected(self, word: bytes) -> Connection:
        with contextlib.ExitStack() as opened:
            client = opened.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(self._path)
            client.sendall(word)
            return Connection(client.detach())

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        status = self.folder.lstat()
        others = stat.S_IMODE(status.st_mode) & 0o077
        if status.st_uid != os.getuid() or others or not stat.S_ISDIR(status.st_mode):
            raise ExecutorError(
                f"{self.folder} can be entered by other users; remove it and try again"
            )

    def _start(self) -> None:
        """Starts a nursery unless another client has done so meanwhile."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._is_there():
                return
            self._end_process()
            Path(self._path).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(self._path)
                listener.listen(BACKLOG)
                number = listener.fileno()
                self._process = subprocess.Popen(
                    [sys.executable, "-c", START, str(number), *sys.path],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **ONE_THREAD},
                )

    def _is_there(self) -> bool:
        try:
            self._connected(b"").close()
        except (FileNotFoundError, ConnectionError):
            return False
        return True


def serve(number: int) -> None:
    """Runs a nursery until it has no clients.

    Args:
        number: the file descriptor of its listening socket.
    """
    for one in SIGNALS:
        # The driver decides what a signal means. A handler, because programs that a
        # worker starts would inherit an ignored signal, but not a handler.
        signal.signal(one, _leave_to_driver)
    listener = socket.socket(fileno=number)
    _set_name("ablate-nursery")
    # A worker that imports the same modules reports what is wrong with them.
    with contextlib.suppress(Exception):
        _import()
    # Imported modules stay: workers need not visit them, which would copy their
    # memory.
    gc.collect()
    gc.freeze()
    _Server(listener).run()


def _leave_to_driver(*_: object) -> None:
    pass


def _import() -> None:
    """Imports what every trial needs and what takes long."""
    import timm  # noqa: F401
    import torch
    import torch._dynamo
    import torch.utils.data

    import ablate.cost
    import ablate.execution.trial_run
    import ablate.execution.worker
    import ablate.families  # noqa: F401

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
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        # By file descriptor: connections without a worker, those of workers, and by
        # its pidfd the worker.
        self._clients: dict[int, socket.socket] = {}
        self._connections: dict[int, tuple[socket.socket, int]] = {}
        self._workers: dict[int, tuple[int, int]] = {}
        self._quit = False

    def run(self) -> None:
        """Serves until no client is left, or until one wants the end."""
        wait = FIRST_MS
        while not self._quit:
            ready = self._poll.poll(wait if self._is_alone() else None)
            if not ready and self._is_alone():
                break
            for file, _ in ready:
                self._handle(file)
            wait = LINGER_MS
        shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)
        # Without the end of an interpreter with torch in it, which takes a second. The
        # kernel kills the workers.
        os._exit(0)

    def _is_alone(self) -> bool:
        return not (self._clients or self._connections)

    def _handle(self, file: int) -> None:
        if file == self._listener.fileno():
            client, _ = self._listener.accept()
            self._clients[client.fileno()] = client
            self._poll.register(client, select.POLLIN)
        elif file in self._clients:
            self._serve(self._clients[file])
        elif file in self._connections:
            # The client has hung up.
            _, worker = self._connections[file]
            self._poll.unregister(file)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker, signal.SIGKILL)
        elif file in self._workers:
            self._reap(file)

    def _serve(self, client: socket.socket) -> None:
        """Does what a client wants. No word means that it has hung up."""
        word = b""
        with contextlib.suppress(ConnectionError):
            word = client.recv(1)
        if word == HOLD:
            return
        if word == QUIT:
            # The connection closes with this process.
            self._quit = True
            return
        self._forget(client)
        if word == FORK:
            self._fork(client)
            return
        if word == LOAD:
            _load(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        self._poll.unregister(client)
        del self._clients[client.fileno()]

    def _fork(self, client: socket.socket) -> None:
        nursery = os.getpid()
        pid = os.fork()
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
                _set_name("ablate-worker")
                self._close_others()
                from ablate.execution import worker

                worker.serve(Connection(client.detach()))
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
        for one in sockets:
            one.close()
        for worker in self._workers:
            os.close(worker)

    def _reap(self, worker: int) -> None:
        """Closes the connection of a worker that has ended, so that its client knows."""
        pid, file = self._workers.pop(worker)
        os.waitpid(pid, 0)
        self._poll.unregister(worker)
        os.close(worker)
        connection, _ = self._connections.pop(file)
        with contextlib.suppress(KeyError):
            self._poll.unregister(file)
        connection.close()


def _load(client: socket.socket) -> None:
    """Loads the data set that a client names, which later forks share."""
    # A worker that cannot load it reports why.
    with contextlib.suppress(Exception), Connection(client.detach()) as connection:
        if not connection.poll(CLIENT_SECONDS):
            return
        wanted: Data = pickle.loads(connection.recv_bytes())
        known = catalogue.SETS.get(wanted.name)
        # Files are read batch by batch, and data of a user by the user's code, which
        # does not run here.
        if known is not None and known.kind == "memory":
            from ablate.data import arrays

            arrays.load(wanted)
