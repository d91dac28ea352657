"""Joining a Ray cluster: addresses, tokens and versions, without a cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import ray
from ray.exceptions import NodeDiedError, RayTaskError, TaskUnschedulableError

from ablate import pipeline, space
from ablate.errors import ExecutorError
from ablate.execution import make
from ablate.execution.ray_tune import cluster
from ablate.execution.ray_tune.cluster import _reason, check_nodes, join, versions
from ablate.pipeline import Options

ADDRESS = "10.0.0.1:6379"


class Ray:
    """A cluster that expects a token, or none.

    Attributes:
        expects: the mode of authentication in which it answers.
        tried: the modes in which it was asked.
        addresses: where it was asked.
    """

    def __init__(self, expects: str, error: str = "Unauthenticated") -> None:
        self.expects = expects
        self.error = error
        self.tried: list[str] = []
        self.addresses: list[str] = []

    def init(self, address: str) -> None:
        self.tried.append(os.environ["RAY_AUTH_MODE"])
        self.addresses.append(address)
        if self.tried[-1] != self.expects:
            raise RuntimeError("failed") from ValueError(f"RPC: {self.error}")


@pytest.fixture
def set_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is set in the environment only; Ray itself stays as it is."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(
        cluster, "set_auth_mode", lambda mode: os.environ.update(RAY_AUTH_MODE=mode)
    )


def joined(monkeypatch: pytest.MonkeyPatch, there: Ray) -> Ray:
    monkeypatch.setattr(cluster, "_init", there.init)
    monkeypatch.setattr(cluster, "_reachable", lambda address: address)
    join(ADDRESS, None)
    return there


@pytest.mark.usefixtures("set_mode")
def test_a_cluster_without_tokens_is_joined_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = joined(monkeypatch, Ray("disabled"))
    assert there.tried == ["disabled"]
    assert there.addresses == [ADDRESS]


@pytest.mark.usefixtures("set_mode")
def test_a_cluster_with_tokens_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = joined(monkeypatch, Ray("token"))
    assert there.tried == ["disabled", "token"]


@pytest.mark.usefixtures("set_mode")
@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_the_users_mode_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    there = Ray("none of both")
    monkeypatch.setattr(cluster, "_init", there.init)
    monkeypatch.setattr(cluster, "_reachable", lambda address: address)
    with pytest.raises(ExecutorError, match="does not take this token"):
        join(ADDRESS, mode)
    assert there.tried == [mode]


@pytest.mark.usefixtures("set_mode")
def test_a_wrong_token_says_where_the_right_one_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ExecutorError, match=r"RAY_AUTH_TOKEN_PATH, or in ~/.ray"):
        joined(monkeypatch, Ray("none of both", "InvalidAuthToken"))


@pytest.mark.usefixtures("set_mode")
def test_another_error_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Ray("token", error="no such\n  version mismatch\n")
    with pytest.raises(ExecutorError, match=f"{ADDRESS}: version mismatch$"):
        joined(monkeypatch, there)
    assert there.tried == ["disabled"]


def test_an_address_of_rays_client_is_refused_before_anything_is_stored(
    options: Options, tiny: str
) -> None:
    with pytest.raises(ExecutorError, match="ray job submit"):
        make("ray", ray_address="ray://head:10001")
    there = replace(options, executor="ray", cpus=None, ray_address="ray://head:10001")
    with pytest.raises(ExecutorError, match="ray job submit"):
        pipeline.run(space.load(tiny, "tiny.yaml"), "tiny.yaml", there)
    assert not list(options.runs.glob("*.db"))


@pytest.mark.usefixtures("set_mode")
def test_auto_needs_a_cluster_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "ray._private.services.canonicalize_bootstrap_address", lambda _: None
    )
    with pytest.raises(ExecutorError, match="ray start was not called on this machine"):
        join("auto", None)


class Task:
    """A remote function that returns at once where it is scheduled."""

    def __init__(self, function: Any) -> None:
        self.node = ""

    def options(self, scheduling_strategy: Any) -> Task:
        made = Task(None)
        made.node = scheduling_strategy.node_id
        return made

    def remote(self) -> str:
        return self.node


MINE = versions()


def node(key: str, *, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {
        # Ray's identities are hexadecimal numbers of this length.
        "NodeID": 56 * key,
        "NodeManagerHostname": f"host-{key}",
        "Alive": alive,
        "Resources": resources,
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each node answers: its versions, or an error."""
    by_node: dict[str, Any] = {}

    def get(key: str, timeout: float) -> Any:
        answer = by_node[key[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "remote", lambda **_: Task)
    monkeypatch.setattr(ray, "get", get)
    nodes = [
        node("e", memory=1.0),
        node("a", CPU=4),
        node("b", GPU=1),
        node("f", alive=False, CPU=4),
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    return by_node


def test_nodes_that_train_are_asked_and_no_others(answers: dict[str, Any]) -> None:
    # e has no CPUs, and f has left: neither has an answer here.
    answers.update(a=MINE, b=MINE)
    check_nodes()


@pytest.mark.parametrize("package", list(MINE))
def test_another_version_is_refused_by_its_name(
    answers: dict[str, Any], package: str
) -> None:
    answers.update(a=MINE, b={**MINE, package: "0.1"})
    with pytest.raises(ExecutorError, match=f"node host-b has {package} 0.1,") as error:
        check_nodes()
    assert f"this machine {MINE[package] or '(none)'}" in str(error.value)


def test_a_package_that_is_missing_is_none(answers: dict[str, Any]) -> None:
    answers.update(a={**MINE, "timm": ""}, b=MINE)
    with pytest.raises(ExecutorError, match=r"node host-a has timm \(none\)"):
        check_nodes()


def test_a_node_without_ablate_is_refused(answers: dict[str, Any]) -> None:
    cause = ModuleNotFoundError("No module named 'ablate'")
    answers.update(a=RayTaskError("versions", "Traceback", cause), b=MINE)
    with pytest.raises(ExecutorError, match="node host-a cannot run trials"):
        check_nodes()


@pytest.mark.parametrize(
    "error", [NodeDiedError("it died"), TaskUnschedulableError("it has gone")]
)
def test_a_node_that_leaves_meanwhile_trains_nothing(
    answers: dict[str, Any], error: Exception
) -> None:
    answers.update(a=error, b=MINE)
    check_nodes()


def test_the_reason_is_the_last_line_of_the_first_cause() -> None:
    try:
        try:
            raise ValueError("first line\n  what happened  \n\n")
        except ValueError as cause:
            raise RuntimeError("the wrapper") from cause
    except RuntimeError as error:
        assert _reason(error) == "what happened"
    assert _reason(KeyError()) == "KeyError"
