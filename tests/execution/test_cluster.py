"""Ray clusters that run already: joined, left running, and survived where a node dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

import ablate
from ablate import pipeline, space
from ablate.cli.app import app
from ablate.errors import ExecutorError
from ablate.execution import make
from ablate.pipeline import Hooks, Options
from ablate.records import Ended, Event, Progressed, Started
from ablate.results.study import Study
from tests.conftest import TINY
from tests.execution.test_executors import listening

DOCS = Path(ablate.__file__).parent.parent / "docs"
LONG = TINY.replace("seeds: 2", "seeds: 1").replace("epochs: 3", "epochs: 400")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes of one CPU, which ask for a token, on the
    loopback.
    """
    with pytest.MonkeyPatch.context() as patch:
        from ablate.execution.ray_tune.cluster import set_auth_mode

        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
        patch.setenv("ABLATE_CHECKPOINT_SECONDS", "0.2")
        patch.setattr("ablate.execution.ray_tune.USERS_AUTH_MODE", None)
        set_auth_mode("token")
        from ray.cluster_utils import Cluster

        health = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 1000,
            "health_check_failure_threshold": 5,
        }
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "_system_config": health,
            },
        )
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(
        ExecutorError,
        match="cpus and gpus are for this machine; with ray_address h:6379",
    ):
        Options(ray_address="h:6379", cpus=2)
    with pytest.raises(
        ExecutorError,
        match="ray_address auto goes with executor ray, not with inline",
    ):
        Options(ray_address="auto", executor="inline")


def test_a_start_leaves_the_filters_of_warnings_to_the_main_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The main thread counts costs meanwhile, and silences warnings of torch's tracer.
    during: list[object] = []
    monkeypatch.setattr(
        "ablate.execution.ray_tune.cluster.join",
        lambda *_: during.append(list(warnings.filters)),
    )
    executor = make("ray", ray_address="127.0.0.1:1")
    before = list(warnings.filters)
    executor.prepare(cpus=None, gpus=None)
    executor.ready()
    executor.close()
    assert during == [before]


@pytest.mark.ray
def test_an_address_where_nothing_answers_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    wrong = {
        "127.0.0.1:1": "no cluster answers .*refused.*HOST:PORT",
        "nonsense": "no cluster answers .*Invalid address format",
        "ray://127.0.0.1:10001": "run it on a node of the cluster",
    }
    runs = {
        address: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ablate",
                "run",
                "tiny.yaml",
                "--ray-address",
                address,
                "--store",
                f"{number}.db",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, address in enumerate(wrong)
    }
    for address, run in runs.items():
        _, said = run.communicate(timeout=120)
        assert run.returncode == 2, said
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert re.search(wrong[address], errors[0])
        assert "Traceback" not in said


@pytest.mark.ray
@pytest.mark.proof
class TestCluster:
    """One cluster for all: starting it takes seconds."""

    def test_a_node_dies_and_its_trials_go_on_elsewhere(
        self, cluster: Any, tmp_path: Path
    ) -> None:
        events: list[Event] = []
        hosts: list[str] = []

        def hear(event: Event) -> None:
            events.append(event)
            if isinstance(event, Progressed) and len(cluster.worker_nodes) == 2:
                hosts.extend(listening())
                began = next(
                    e
                    for e in events
                    if isinstance(e, Started) and e.trial == event.trial
                )
                # Of the actor that has started the nursery of this worker.
                settings = psutil.Process(began.place.pid).environ()
                raylet = int(settings["RAY_RAYLET_PID"])
                node = next(
                    n
                    for n in cluster.worker_nodes
                    if n.all_processes["raylet"][0].process.pid == raylet
                )
                cluster.remove_node(node, allow_graceful=False)

        there = Options(tmp_path / "there", ray_address=cluster.address)
        outcome = pipeline.run(
            space.load(LONG, "tiny.yaml"), "tiny.yaml", there, Hooks(event=hear)
        )
        assert len(cluster.worker_nodes) == 1, "a node died"
        assert (outcome.trained, outcome.failed, outcome.unfinished) == (4, 0, 0)
        ends = Counter(
            (event.trial, event.status) for event in events if isinstance(event, Ended)
        )
        assert len(ends) == 4
        assert set(ends.values()) == {1}
        starts = [event for event in events if isinstance(event, Started)]
        assert len(starts) > 4, "what the node trained was started again"
        assert max(event.epoch for event in starts) > 0, (
            "and went on from its checkpoint"
        )
        assert len(hosts) > 4
        assert all(
            ip.removeprefix("::ffff:").startswith("127.") or ip == "::1" for ip in hosts
        ), hosts

        here = Options(tmp_path / "here", executor="inline")
        pipeline.run(space.load(LONG, "tiny.yaml"), "tiny.yaml", here)
        assert Study("tiny", there.url).table("csv") == Study("tiny", here.url).table(
            "csv"
        )

    def test_it_is_joined_again_and_left_running(
        self, cluster: Any, tmp_path: Path
    ) -> None:
        """The cluster that another run has left; checkpoints at a URL."""
        (tmp_path / "tiny.yaml").write_text(TINY.replace("seeds: 2", "seeds: 1"))
        options = Options(
            tmp_path,
            ray_address=cluster.address,
            checkpoints=f"file://{tmp_path}/shared",
        )
        outcome = pipeline.run(space.read(tmp_path / "tiny.yaml"), "tiny.yaml", options)
        assert outcome.trained == 4
        assert len(list(tmp_path.glob("shared/*/*/last.pt"))) == 4
        assert cluster.head_node.any_processes_alive()
        assert cluster.remaining_processes_alive()

    def test_a_wrong_token_is_reported(
        self, cluster: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "fedcba9876543210" * 4)
        executor = make("ray", cluster.address)
        executor.prepare(None, None)
        with pytest.raises(
            ExecutorError,
            match=(
                r"does not take this token; set"
                r" RAY_AUTH_MODE=token.*RAY_AUTH_TOKEN_PATH"
            ),
        ):
            executor.ready()
        executor.close()


def test_the_documents_parse_and_name_options_that_exist() -> None:
    for file in ("ray-cluster.yaml", "kuberay.yaml"):
        assert isinstance(yaml.safe_load((DOCS / "clusters" / file).read_text()), dict)
    subprocess.run(["bash", "-n", DOCS / "clusters" / "slurm.sh"], check=True)
    texts = [
        (DOCS / "clusters.md").read_text(),
        *(file.read_text() for file in (DOCS / "clusters").iterdir()),
    ]
    assert len(texts) == 4
    known = {
        verb: CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).output
        for verb in ("run", "resume", "diagnose")
    }
    named = 0
    for text in texts:
        for verb, rest in re.findall(
            r"ablate (run|resume|diagnose)\b((?:[^\n`]|\\\n)*)", text
        ):
            for option in re.findall(r"(?<![\w-])--[a-z-]+", rest):
                named += 1
                assert re.search(rf"{option}\b", known[verb]), (
                    f"ablate {verb} has no {option}"
                )
    assert named > 8
