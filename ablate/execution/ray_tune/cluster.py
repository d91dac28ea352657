"""Joins a Ray cluster that is already running, and leaves it unchanged.

What it guarantees: a run starts only if every node that can train has the same versions
of ablate, torch and timm as this machine, and the cluster keeps running when the run
ends.

How: it checks that the address answers before Ray tries, which would take minutes. It
finds out whether the cluster uses tokens by trying, and it runs a small task on every
node to compare versions.

What would break it: a variable that workers read but that is missing in
WORKER_SETTINGS, as the environment of another node is not that of the driver.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Any

from ablate.errors import ExecutorError
from ablate.machine import provenance
from ablate.text.advice import option

CONNECT_SECONDS = 5.0
# Variables that a worker reads. On another node, its environment is not the driver's.
WORKER_SETTINGS = ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",)


def join(address: str, users_mode: str | None) -> None:
    """Connects this process to a cluster.

    `users_mode` is the RAY_AUTH_MODE that the user has set.

    Raises:
        ExecutorError: nothing answers at the address, the cluster expects another
            token, or this machine is not one of its nodes.
    """
    # A wrong address or token does not become right later: Ray should fail at the first
    # try.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")
    resolved = _reachable(address)
    # A driver that uses tokens on a cluster without them cannot start an actor. A
    # driver without a token on a cluster with them is rejected at once. So if the user
    # has not set a mode, try without a token first and follow the answer.
    set_auth_mode(users_mode or "disabled")
    try:
        _init(resolved)
    except Exception as error:
        if not _unauthenticated(error):
            raise ExecutorError(f"--ray-address {address}: {_reason(error)}") from error
        if users_mode is None:
            set_auth_mode("token")
            try:
                return _init(resolved)
            except Exception as again:
                error = again
        raise ExecutorError(
            f"{option('ray_address')} {address}: the cluster does not take this token; set"
            " RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN, in a"
            " file named by RAY_AUTH_TOKEN_PATH, or in ~/.ray/auth_token"
        ) from error
    return None


def set_auth_mode(mode: str) -> None:
    """Sets how this process and its children authenticate, even after Ray's import."""
    os.environ["RAY_AUTH_MODE"] = mode
    if "ray" in sys.modules:
        # Ray caches the mode and the token when it is imported; it has no public
        # function to read them again.
        from ray import _raylet

        core: Any = _raylet
        core.Config.initialize("")
        core.AuthenticationTokenLoader.instance().reset_cache()


def check_nodes() -> None:
    """Raises ExecutorError if a node lacks ablate or has other versions.

    Results of such a node would not be comparable within a study.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    driver_versions = versions()
    nodes = {
        node["NodeID"]: node["NodeManagerHostname"]
        for node in ray.nodes()
        if node["Alive"]
        and (node["Resources"].get("CPU") or node["Resources"].get("GPU"))
    }
    # Nodes without CPUs and GPUs run no trial. All nodes are asked before the first
    # answer is read, so that they start at the same time.
    look = ray.remote(num_cpus=0, max_retries=0)(versions)
    asked = {
        key: (
            look.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False)
            ).remote()
        )
        for key in nodes
    }
    for key, answer in asked.items():
        try:
            versions_there: dict[str, str] = ray.get(answer, timeout=60)
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue  # A node that has gone meanwhile trains nothing.
        except Exception as error:
            raise ExecutorError(
                f"node {nodes[key]} cannot run trials: {_reason(error)}; install the"
                " same packages there as on this machine"
            ) from error
        for package, version in driver_versions.items():
            if versions_there[package] != version:
                raise ExecutorError(
                    f"node {nodes[key]} has {package} {versions_there[package] or '(none)'},"
                    f" this machine {version or '(none)'}; install the same versions on"
                    " all nodes"
                )


def versions() -> dict[str, str]:
    """Returns the versions that results depend on."""
    here = provenance.collect()
    return {
        "ablate": here.ablate,
        "ablate's commit": here.commit,
        "torch": here.torch,
        "timm": here.timm,
    }


def _init(address: str) -> None:
    import ray

    settings = {
        key: value
        for key, value in os.environ.items()
        if key in WORKER_SETTINGS or key.startswith("ABLATE_")
    }
    ray.init(
        address=address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        # This also covers a program that `ray job submit` started with its own
        # settings.
        runtime_env={"env_vars": settings},
    )


def _reachable(address: str) -> str:
    """Returns HOST:PORT of an address.

    Raises ExecutorError if nothing listens there: Ray itself would retry for minutes.
    """
    from ray._private.services import canonicalize_bootstrap_address

    try:
        # Ray's own `auto` would also join any other Ray on this machine, such as that
        # of another `ablate run`.
        resolved: Any = canonicalize_bootstrap_address(
            None if address == "auto" else address
        )
        if resolved is None:
            raise ValueError(
                "RAY_ADDRESS is not set, and ray start was not called on this machine"
            )
        host, _, port = resolved.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ExecutorError(
            f"{option('ray_address')} {address}: no cluster answers"
            f" ({_reason(error)}); write auto, or the HOST:PORT that `ray start --head`"
            " printed; without the option, Ray starts on this machine"
        ) from error
    return str(resolved)


def _unauthenticated(error: BaseException | None) -> bool:
    while error is not None:
        if (
            "Unauthenticated" in str(error)
            or "InvalidAuthToken" in str(error)
            or type(error).__name__ == "AuthenticationError"
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: BaseException) -> str:
    """Returns the last line of the first cause, where Ray says what happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return lines[-1]
    return type(error).__name__
