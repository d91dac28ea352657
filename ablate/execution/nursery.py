"""A client's view of the nursery: the process of a machine that forks workers.

What it guarantees: there is one nursery for each folder, whichever clients start it, and
it ends when no client holds it.

How: the nursery listens on a socket in a private folder (`nursery_process`). The client
that starts it makes the socket, so that others can connect while the nursery is still
importing torch. A lock file in the folder admits one client that starts it. The nursery
is no child of its client, because Ray kills the children of an actor that it ends.

What would break it: importing anything heavy at the head of this module, as every actor
of Ray imports it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from ablate.errors import ExecutorError

# What a client wants, as the first byte of its connection: that the nursery stays, a
# worker, or that data are loaded before the next fork.
HOLD, FORK, LOAD = b"h", b"f", b"l"
# Variables by which a process sees GPUs. A worker takes them from its client.
DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
BACKLOG = 256
# How the name of a shared folder begins.
PREFIX = "ablate-nursery-"
# A folder may have no lock yet for so long after a client has made it.
NEW_SECONDS = 60.0
# How often a client tries to connect to a nursery that ends just then.
TRIES = 5
# The longest path of a socket, in bytes.
LONGEST_SOCKET = 107
# A trial sets its own number of threads. The nursery has only one. (jemalloc comes with
# pyarrow, which scikit-learn imports.)
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# The program of a nursery: the number of its socket, then the paths of its client. The
# process that the client waits for ends at once, so that the nursery is an orphan.
START = (
    "import os, sys; os.fork() and os._exit(0); sys.path[:] = sys.argv[2:];"
    " from ablate.execution.nursery_process import serve; serve(int(sys.argv[1]))"
)


def shared_folder(token: str) -> Path:
    """Returns the folder of a nursery on a machine of a cluster.

    Args:
        token: a random text that the clients of one run on one node share.
    """
    name = f"{PREFIX}{token}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder / "socket")) > LONGEST_SOCKET:
        return Path("/tmp", name)
    return folder


def remove_dead_folders() -> None:
    """Removes shared folders that killed nurseries of this user have left."""
    for parent in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(parent).glob(f"{PREFIX}*"):
            # Another user's, or one that another process removes just now.
            with contextlib.suppress(OSError):
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    status = folder.lstat()
    is_new = time.time() - status.st_mtime < NEW_SECONDS
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or is_new:
        return
    with open(folder / "lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not Nursery(folder).is_there():
            shutil.rmtree(folder, ignore_errors=True)


class Nursery:
    """The nursery of a folder, which is started when it is needed.

    Args:
        folder: a folder that only this user can enter. It is created if it is missing.
        environment: variables of the nursery besides those of this process.
    """

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._environment = {**(environment or {}), **ONE_THREAD}
        self._path = str(folder / "socket")
        self._held: Connection | None = None

    @property
    def is_held(self) -> bool:
        """Whether this client keeps the nursery."""
        return self._held is not None

    @property
    def process_id(self) -> int:
        """The process of the nursery; 0 if there is none yet."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return 0

    def hold(self) -> None:
        """Starts the nursery, and keeps it until this client releases it or ends."""
        self._held = self._connect(HOLD)

    def release(self) -> None:
        """Lets the nursery end when no other client holds it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def load(self, data: bytes) -> None:
        """Loads a data set before the next worker is forked, for all later ones.

        Args:
            data: a pickled `Data`. If it cannot be loaded, each worker reports that.
        """
        # If the nursery ends just then, each worker loads the data itself.
        with self._connect(LOAD) as connection, contextlib.suppress(ConnectionError):
            connection.send_bytes(data)

    def worker(self, devices: dict[str, str | None] | None = None) -> Connection:
        """Returns the connection to a new worker.

        It returns at once. The worker reads messages as soon as it is forked, and says
        nothing before it is asked.

        Args:
            devices: the DEVICE_VARIABLES of the worker; by default those of this
                process.
        """
        connection = self._connect(FORK)
        seen = {name: os.environ.get(name) for name in DEVICE_VARIABLES}
        seen.update(devices or {})
        # If no worker could be forked, the connection has ended: it is a lost worker.
        with contextlib.suppress(ConnectionError):
            connection.send_bytes(json.dumps(seen).encode())
        return connection

    def close(self) -> None:
        """Kills the nursery, with which its workers die, and removes its folder."""
        self.release()
        process = self.process_id
        with contextlib.suppress(OSError):
            # The number may belong to another process by now.
            if b"nursery_process" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _connect(self, word: bytes) -> Connection:
        """Connects to the nursery, and starts one if there is none.

        Raises ExecutorError if none can be started.
        """
        reason = f"no process listens on the socket in {self.folder}"
        for _ in range(TRIES):
            self._make_folder()
            with contextlib.suppress(FileNotFoundError, ConnectionError):
                return self._connected(word)
            try:
                self._start()
            except FileNotFoundError:
                continue
            except subprocess.CalledProcessError:
                reason = (
                    "a process that forks workers cannot be started; this user may have"
                    " too many processes (`ulimit -u`), or memory is short"
                )
        raise ExecutorError(reason)

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
            if self.is_there():
                return
            Path(self._path).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(self._path)
                listener.listen(BACKLOG)
                number = listener.fileno()
                subprocess.run(
                    [sys.executable, "-c", START, str(number), *sys.path],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **self._environment},
                    # Ctrl-C in a terminal is for the driver alone.
                    process_group=0,
                    check=True,
                )

    def is_there(self) -> bool:
        """Whether a process listens in the folder."""
        try:
            self._connected(b"").close()
        except (FileNotFoundError, ConnectionError):
            return False
        return True
