"""Runs jobs on Ray: its actors hold the resources of trials.

Only this package imports Ray, and `tune_schedulers.py`, which imports Tune's schedulers.

What it guarantees: Ray keeps no state of a run. Each run begins with the jobs that are
still to do, and a trial that starts again resumes from its own checkpoint file. The SQL
store alone decides what is done.

How: the driver has the loop of a run, `slots` its places for trials on Ray, and `relay`
what runs in an actor: it passes requests to a worker that a nursery has forked
(`ablate/execution/nursery.py`). The nursery imports torch while Ray starts. A local Ray
starts in a thread that lives as long as Ray. `Guard` (a thread) ends the driver if a part
of Ray dies.

What would break it: importing Ray before the variables below are set, as Ray reads some
of them at import; ending the thread that started Ray; or importing torch or Ray at the
head of this module. The module is light, so that Ray can start while the costs of
the plan are counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ablate.errors import ExecutorError
from ablate.execution.counting import WorkerCount, count_here
from ablate.execution.executor import Emit, Executor, Stop
from ablate.execution.nursery import Nursery
from ablate.execution.signals import STOPS
from ablate.execution.warden import Warden
from ablate.machine.environment import seconds
from ablate.records import Architecture, Cost, Data, Order, Resources
from ablate.text import advice, escape

if TYPE_CHECKING:
    from ablate.execution.ray_tune.guard import Guard
    from ablate.execution.ray_tune.slots import RaySlots

# The authentication mode that the user has set, for clusters. A local Ray always uses a
# token.
USERS_AUTH_MODE = os.environ.get("RAY_AUTH_MODE")

# How long a local Ray may take to start. Ray's own limit of 30 s is too short on a busy
# machine.
START_SECONDS = seconds("ABLATE_RAY_START_SECONDS", 600)
SAY_SECONDS = 5.0
# Messages of Ray about processes that are slow rather than broken.
SLOW = re.compile(
    r"timed out|[Tt]imeout|[Uu]nable to connect to GCS|[Ff]ailed to connect to GCS"
)

# How messages of Ray begin that ablate reports itself. A local Ray has one node.
OURS = ("A worker died", "Raylet is terminated", "The node with node id")

# These are set before Ray is imported, because Ray reads some of them at import.
os.environ.update(
    {
        "RAY_USAGE_STATS_ENABLED": "0",
        # If off, every port of a local Ray listens on the loopback interface only. A
        # cluster that is joined keeps its own addresses.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Do not start idle workers, one per core, that may never be used.
        "RAY_prestart_worker_first_driver": "0",
        # Ray's handler would replace ours for SIGTERM while Ray starts, print a stack
        # of addresses and abort.
        "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
        # A worker without a share of a GPU must see no GPU.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    }
)


class RayExecutor(Executor):
    """Runs on a local Ray, or on an existing cluster.

    A local Ray listens on the loopback interface only and ends with the process. A
    cluster at an address keeps running.
    """

    name = "ray"

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._warden: Warden | None = None
        self._nursery: Nursery | None = None
        self._count: WorkerCount | None = None
        self._slots: RaySlots | None = None
        self._guard: Guard | None = None
        self._token = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._done = threading.Event()
        self._failure: BaseException | None = None

    def prepare(
        self,
        cpus: int | None,
        gpus: int | None,
        resources: Resources | None = None,
        data: Data | None = None,
    ) -> None:
        # First of all: it imports torch, which takes longer than anything else.
        if not self._address:
            self._warden = Warden(advice.command("resume"))
            folder = self._warden.folder.parent / "nursery"
            self._nursery = Nursery(folder, self._warden.mark)
            if resources is not None:
                try:
                    self._nursery.hold()
                    self._count = WorkerCount(self._nursery)
                except BaseException:
                    # `close` does nothing yet, as there is no thread.
                    self._warden.close()
                    raise

        # The kernel kills Ray's processes when the thread that started them ends (a
        # parent-death signal belongs to a thread, not to a process). This thread
        # therefore waits until `close`.
        def live() -> None:
            # A signal to all processes of a job, as SLURM and `timeout` send it, is for
            # the driver alone: Ray's agents would end before workers have saved. Ray's
            # processes inherit this mask. `close` ends them by SIGKILL if they wait for
            # a signal.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            try:
                self._start(cpus, gpus)
                if resources is not None and not self._closing.is_set():
                    self._gather(resources, data).start_early()
            except BaseException as error:
                self._failure = error
            self._ready.set()
            self._done.wait()

        self._thread = threading.Thread(target=live, name="ray", daemon=True)
        self._thread.start()

    def _start(self, cpus: int | None, gpus: int | None) -> None:
        # Do not change the filters of warnings here: they belong to the whole process,
        # and the main thread counts costs meanwhile.
        from ablate.execution.ray_tune import cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        if self._address:
            cluster.join(self._address, USERS_AUTH_MODE)
        else:
            self._start_local(cpus, gpus)

    def _start_local(self, cpus: int | None, gpus: int | None) -> None:
        from ablate.execution.ray_tune import cluster
        from ablate.execution.ray_tune.guard import Guard, end_autoscaler
        from ablate.execution.ray_tune.processes import died

        assert self._warden is not None
        # Ray would write its own token to a file that every user can read. The
        # environment of a process is readable by its own user only.
        self._token = not (
            {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
        )
        if self._token:
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        cluster.set_auth_mode("token")
        import ray

        # Ray prints its own errors through this function, with pages of logs.
        ray._private.worker.print_to_stdstream = _first_sentence
        deadline = time.monotonic() + START_SECONDS
        while True:
            # The guard watches from before the start, because a part may die while Ray
            # starts.
            self._guard = Guard(died, self._warden.said)
            try:
                with self._warden.marking():
                    ray.init(
                        address="local",
                        num_cpus=cpus,
                        num_gpus=gpus,
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                        _node_ip_address="127.0.0.1",
                        _temp_dir=str(self._warden.folder),
                    )
                break
            except Exception as error:
                self._guard.close()
                self._guard = None
                _shut_down()
                if (
                    self._closing.is_set()
                    or not SLOW.search(str(error))
                    or time.monotonic() > deadline
                ):
                    raise
                print(
                    escape.line(
                        "Ray's processes are slow to start on this busy machine; trying"
                        " again ..."
                    ),
                    file=sys.stderr,
                    flush=True,
                )
        end_autoscaler()
        self._guard.started()

    def _wait(self) -> None:
        """Waits until Ray has started or failed, and prints a line if it takes long."""
        began = time.monotonic()
        while not self._ready.wait(SAY_SECONDS):
            print(
                escape.line(
                    f"waiting for Ray to start ({time.monotonic() - began:.0f} s) ..."
                ),
                file=sys.stderr,
                flush=True,
            )

    def ready(self) -> None:
        self._wait()
        if isinstance(self._failure, ExecutorError):
            raise self._failure
        if self._failure is not None:
            raise ExecutorError(
                f"Ray did not start: {self._failure}"
            ) from self._failure
        if threading.current_thread() is threading.main_thread():
            # Ray installed its own C++ handlers over these; they print a stack of
            # addresses. Setting ours again removes them.
            for number in STOPS:
                handler = signal.getsignal(number)
                if callable(handler):
                    signal.signal(number, handler)

    def _gather(self, resources: Resources, data: Data | None) -> RaySlots:
        from ablate.execution.ray_tune.slots import RaySlots

        folder = str(self._nursery.folder) if self._nursery is not None else ""
        self._slots = RaySlots(
            resources, local=not self._address, folder=folder, data=data
        )
        return self._slots

    def count(self, architecture: Architecture) -> Cost:
        # The nursery imports torch anyway, so this process need not.
        return (self._count or count_here)(architecture)

    def run(self, order: Order, emit: Emit, stop: Stop) -> None:
        if self._thread is None:
            self.prepare(order.cpus, order.gpus)
        self.ready()
        _check_resources(order.resources, self._address)
        from ablate.execution.driver import train
        from ablate.execution.ray_tune.cluster import check_nodes

        # Ray prints its warnings to stdout, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            if self._address:
                check_nodes()
            if self._nursery is not None and not self._nursery.is_held:
                self._nursery.hold()
            slots = self._slots or self._gather(order.resources, None)
            self._slots = None
            train(order, emit, stop, slots, local=not self._address)

    def close(self) -> None:
        if self._thread is not None:
            self._closing.set()
            self._ready.wait()
            if self._guard is not None:
                self._guard.close()
                self._guard = None
            if self._count is not None:
                self._count.close()
                self._count = None
            self._slots = None
            if self._failure is None:
                _shut_down()
            # After Ray, because an actor that starts just then would start another.
            if self._nursery is not None:
                self._nursery.close()
                self._nursery = None
            self._done.set()
            self._thread.join()
            self._thread = None
            if self._token:
                os.environ.pop("RAY_AUTH_TOKEN", None)
            if self._warden is not None:
                self._warden.close()
                self._warden = None


def _shut_down() -> None:
    """Leaves Ray, and kills its processes if it is a local one.

    They block the signals that would ask them to end, and Ray would wait for each.
    """
    import ray

    node = getattr(ray._private.worker, "_global_node", None)
    if node is not None:
        kill_all = node.kill_all_processes
        node.kill_all_processes = lambda **options: kill_all(
            **{**options, "allow_graceful": False}
        )
    ray.shutdown()


def _first_sentence(data: dict[str, Any], *_: object, **__: object) -> None:
    """Prints the first sentence of Ray's own error messages.

    It leaves out the pages of logs that follow, and messages that ablate reports
    itself.
    """
    for line in data.get("lines", ()):
        if not line.startswith(OURS):
            print(
                escape.line(f"Ray: {line.splitlines()[0].split('. ')[0]}"),
                file=sys.stderr,
                flush=True,
            )


def _check_resources(resources: Resources, address: str) -> None:
    """Raises ExecutorError if this machine can never run a trial.

    Tune would wait forever.

    On a cluster it only prints a warning: an autoscaler may add a node that can.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, key, number in (
        ("cpus", "CPU", resources.cpus),
        ("gpus", "GPU", resources.gpus),
    ):
        most = max((node.get(key, 0) for node in nodes), default=0)
        if number <= most:
            continue
        if not address:
            raise ExecutorError(
                f"resources.{name} = {number:g}, but Ray has {most:g}; lower it in the"
                f" space or raise --{name}"
            )
        print(
            f"resources.{name} = {number:g}, but no node of {address} has more than"
            f" {most:g}; waiting for one that has",
            file=sys.stderr,
        )
