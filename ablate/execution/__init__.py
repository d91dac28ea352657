"""How trials run: on Ray, on this machine without Ray, inline, or simulated.

An executor takes an order of jobs and reports what happens, event by event. It stores
and decides nothing.
"""

from __future__ import annotations

from ablate.errors import ExecutorError, UnknownName, unknown
from ablate.execution.executor import EXECUTORS, Emit, Executor, Stop
from ablate.execution.logs import SERVICES, Logs, check_installed
from ablate.text.advice import option

__all__ = [
    "EXECUTORS",
    "SERVICES",
    "Emit",
    "Executor",
    "Logs",
    "Stop",
    "check_installed",
    "make",
]


def make(name: str, ray_address: str = "") -> Executor:
    """Returns the executor of that name.

    The Ray executor joins the cluster at `ray_address` if it is given. The simulated
    executor has no name here: a caller that wants its made-up numbers must construct it
    explicitly.

    Raises:
        UnknownName: there is no such executor.
        ExecutorError: `ray_address` is one of Ray's client.
    """
    if name == "inline":
        from ablate.execution.inline import InlineExecutor

        return InlineExecutor()
    if name == "local":
        from ablate.execution.local import LocalExecutor

        return LocalExecutor()
    if name == "ray":
        if "://" in ray_address:
            raise ExecutorError(
                f"{option('ray_address')} {ray_address}: ablate cannot control a cluster"
                " from outside, through Ray's client; run it on a node of the cluster,"
                " with --ray-address auto (as a job: ray job submit -- ablate run FILE"
                " --ray-address auto)"
            )
        from ablate.execution.ray_tune import RayExecutor

        return RayExecutor(ray_address)
    raise UnknownName(unknown("executor", name, EXECUTORS))
