"""The protocol that every executor keeps, and that they agree to the last bit."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ablate import space
from ablate.errors import ExecutorError, UnknownName
from ablate.execution import Executor, make
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.execution.trial_run import TrialRun
from ablate.plan import make_plan
from ablate.records import (
    Cost,
    Ended,
    Epoch,
    Event,
    Job,
    Order,
    Progressed,
    Resources,
    Scheduler,
    Started,
    Status,
    Trial,
)
from tests.conftest import TINY


@pytest.fixture(
    scope="module",
    params=[pytest.param("ray", marks=pytest.mark.ray), "local"],
)
def parallel_executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """One Ray, or one nursery, for the module: starting it takes seconds."""
    executor = make(request.param)
    executor.prepare(2, 0)
    yield executor
    executor.close()


@pytest.fixture(params=["simulated", "inline"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return SimulatedExecutor() if request.param == "simulated" else make(request.param)


def trials(text: str) -> tuple[Trial, ...]:
    return make_plan(
        space.load(text, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    ).trials


def order(
    wanted: tuple[Trial, ...],
    folder: Path,
    resources: Resources | None = None,
    scheduler: Scheduler | None = None,
) -> Order:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = tuple(Job(trial, str(folder), resources or Resources()) for trial in wanted)
    epochs = max(trial.recipe.epochs for trial in wanted)
    return Order(
        jobs=jobs,
        metric="top1",
        direction="max",
        resources=resources or Resources(),
        epochs=epochs,
        scheduler=scheduler or Scheduler(),
        cpus=2,
        gpus=0,
    )


def heard(
    executor: Executor, given: Order, stop: Callable[[], bool] = lambda: False
) -> list[Event]:
    events: list[Event] = []
    executor.run(given, events.append, stop)
    return events


METRICS = ("train_loss", "loss", "top1", "top5")


def numbers(events: list[Event]) -> dict[str, list[tuple[float, ...]]]:
    found: dict[str, dict[int, tuple[float, ...]]] = {}
    for event in events:
        if isinstance(event, Progressed):
            for e in event.epochs:
                found.setdefault(event.trial, {})[e.number] = (
                    *(e.metrics[name] for name in METRICS),
                    e.lr or 0.0,
                )
    return {key: [epochs[n] for n in sorted(epochs)] for key, epochs in found.items()}


def test_every_job_starts_progresses_and_ends_once(
    executor: Executor, tiny: str, tmp_path: Path
) -> None:
    wanted = trials(tiny)[:4]
    events = heard(executor, order(wanted, tmp_path))
    for trial in wanted:
        mine = [event for event in events if event.trial == trial.hash]
        assert isinstance(mine[0], Started)
        assert isinstance(mine[-1], Ended)
        assert mine[-1].status == Status.COMPLETED
        assert sum(isinstance(event, Ended) for event in mine) == 1
        told = [
            epoch.number
            for event in mine
            if isinstance(event, Progressed)
            for epoch in event.epochs
        ]
        assert told == [1, 2, 3]


def test_a_failing_job_says_why_and_the_others_go_on(
    executor: Executor, tiny: str, tmp_path: Path
) -> None:
    if executor.name == "simulated":

        def curve(trial: Trial, number: int) -> Epoch:
            if trial.seed == 1:
                raise RuntimeError("no such file")
            return made_up(trial, number)

        executor = SimulatedExecutor(curve)
    wanted = trials(tiny)[3:5]
    missing = replace(
        wanted[1],
        data=replace(
            wanted[1].data, name="npz", path=str(tmp_path / "no such file.npz")
        ),
    )
    given = (wanted[0], missing) if executor.name != "simulated" else wanted
    ended = {
        event.trial: event
        for event in heard(executor, order(given, tmp_path))
        if isinstance(event, Ended)
    }
    assert ended[given[0].hash].status == Status.COMPLETED
    assert ended[given[1].hash].status == Status.FAILED
    assert "no such file" in ended[given[1].hash].error


def test_a_diverging_job_ends_as_diverged(
    executor: Executor, tiny: str, tmp_path: Path
) -> None:
    wanted = trials(tiny.replace("lr: 2e-3", "lr: 1e30, optimizer: sgd"))[:1]
    if executor.name == "simulated":
        executor = SimulatedExecutor(
            lambda trial, number: replace(
                made_up(trial, number), metrics={"loss": math.nan}
            )
        )
    ended = [
        event
        for event in heard(executor, order(wanted, tmp_path))
        if isinstance(event, Ended)
    ]
    assert [event.status for event in ended] == [Status.DIVERGED]
    assert "loss is" in ended[0].error


def test_stopping_leaves_what_runs_to_be_resumed(
    executor: Executor, tiny: str, tmp_path: Path
) -> None:
    stop_and_resume(executor, trials(tiny)[:3], tmp_path)


def stop_and_resume(
    executor: Executor, wanted: tuple[Trial, ...], tmp_path: Path
) -> None:
    events: list[Event] = []

    def stop() -> bool:
        return any(isinstance(event, Progressed) for event in events)

    executor.run(order(wanted, tmp_path), events.append, stop)
    ended = [event for event in events if isinstance(event, Ended)]
    assert ended
    assert all(event.status == Status.RUNNING for event in ended)
    if executor.name == "simulated":
        return
    again = heard(executor, order(wanted, tmp_path))
    assert {
        event.trial
        for event in again
        if isinstance(event, Ended) and event.status == Status.COMPLETED
    } == {t.hash for t in wanted}
    continued = [event.epoch for event in again if isinstance(event, Started)]
    assert max(continued) > 0, "at least one goes on from its checkpoint"
    assert numbers(again) == numbers(
        heard(make("inline"), order(wanted, tmp_path / "straight"))
    )


@pytest.mark.proof
class TestParallel:
    """The same protocol, and what only executors of several trials at once have.

    One run serves several tests: each one starts new workers.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def run(
        cls, parallel_executor: Executor, tmp_path_factory: pytest.TempPathFactory
    ) -> tuple[tuple[Trial, ...], list[Event], list[str]]:
        """Eight trials that complete, one that fails, one that diverges, each on half a
        CPU.
        """
        folder = tmp_path_factory.mktemp("parallel")
        good = trials(TINY.replace("epochs: 3", "epochs: 100"))
        missing = replace(
            good[0],
            data=replace(
                good[0].data,
                name="npz",
                path=str(folder / "no such file.npz"),
                fingerprint="x",
            ),
        )
        diverging = replace(
            good[0], recipe=replace(good[0].recipe, lr=1e30, optimizer="sgd")
        )
        events: list[Event] = []
        addresses: list[str] = []

        def emit(event: Event) -> None:
            events.append(event)
            if not addresses:
                addresses.extend(listening())

        parallel_executor.run(
            order((missing, *good, diverging), folder, Resources(cpus=0.5)),
            emit,
            lambda: False,
        )
        return (missing, *good, diverging), events, addresses

    def test_every_job_starts_progresses_and_ends_once(
        self, run: tuple[tuple[Trial, ...], list[Event], list[str]]
    ) -> None:
        wanted, events, _ = run
        for trial in wanted:
            mine = [event for event in events if event.trial == trial.hash]
            assert isinstance(mine[0], Started)
            assert [type(event) for event in mine].count(Ended) == 1
            assert isinstance(mine[-1], Ended)

    def test_failing_and_diverging_jobs_say_why(
        self, run: tuple[tuple[Trial, ...], list[Event], list[str]]
    ) -> None:
        wanted, events, _ = run
        ended = {event.trial: event for event in events if isinstance(event, Ended)}
        assert ended[wanted[0].hash].status == Status.FAILED
        assert "no such file" in ended[wanted[0].hash].error
        assert ended[wanted[-1].hash].status == Status.DIVERGED
        assert all(
            ended[trial.hash].status == Status.COMPLETED for trial in wanted[1:-1]
        )

    def test_it_and_inline_agree_to_the_last_bit(
        self, run: tuple[tuple[Trial, ...], list[Event], list[str]], tmp_path: Path
    ) -> None:
        wanted, events, _ = run
        here = numbers(heard(make("inline"), order(wanted[1:-1], tmp_path)))
        there = numbers(events)
        assert len(here) == 8
        assert {key: there[key] for key in here} == here

    def test_each_trial_has_its_own_process_and_fractions_share_a_cpu(
        self, run: tuple[tuple[Trial, ...], list[Event], list[str]]
    ) -> None:
        started = [event for event in run[1] if isinstance(event, Started)]
        assert len({event.place.pid for event in started}) == len(run[0])
        at_once, most = 0, 0
        for event in run[1]:
            at_once += isinstance(event, Started) - isinstance(event, Ended)
            most = max(most, at_once)
        assert 2 < most <= 4, "ten trials of half a CPU on two CPUs"

    def test_it_listens_on_the_loopback_only(
        self,
        parallel_executor: Executor,
        run: tuple[tuple[Trial, ...], list[Event], list[str]],
    ) -> None:
        addresses = run[2]
        if parallel_executor.name == "ray":
            assert len(addresses) >= 4, "Ray's own servers are seen"
        else:
            assert not addresses
        assert all(
            ip.removeprefix("::ffff:").startswith("127.") or ip == "::1"
            for ip in addresses
        ), addresses

    def test_asha_stops_the_worse_early_and_replays_what_is_known(
        self, parallel_executor: Executor, tiny: str, tmp_path: Path
    ) -> None:
        wanted = trials(tiny.replace("epochs: 3", "epochs: 8"))[:6]
        rule = Scheduler("asha", grace_epochs=1, reduction=2)
        known = {
            "a" * 20: tuple(
                Epoch(
                    number=n,
                    metrics={
                        "train_loss": 0.1,
                        "loss": 0.1,
                        "top1": 99.0,
                        "top5": 100.0,
                    },
                    lr=0.1,
                    seconds=0.1,
                )
                for n in range(1, 9)
            )
        }
        events = heard(
            parallel_executor,
            replace(order(wanted, tmp_path, scheduler=rule), peers=known),
        )
        ended = {
            event.trial: event.status for event in events if isinstance(event, Ended)
        }
        assert set(ended) == {trial.hash for trial in wanted}
        # Against a known curve of 99 per cent every trial is among the worse half of
        # each rung.
        assert set(ended.values()) == {Status.PRUNED}
        assert all(len(curve) < 8 for curve in numbers(events).values())

    def test_killed_then_stopped_then_resumed(
        self, parallel_executor: Executor, tiny: str, tmp_path: Path
    ) -> None:
        """A worker dies and is replaced; the run is stopped and leaves what runs;
        another run goes on: as if nothing had been.
        """
        wanted = trials(tiny.replace("epochs: 3", "epochs: 400"))[:2]
        killed: list[int] = []
        events: list[Event] = []

        def emit(event: Event) -> None:
            events.append(event)
            if isinstance(event, Started) and not killed:
                killed.append(event.place.pid)
                os.kill(event.place.pid, signal.SIGKILL)

        def stop() -> bool:
            return any(
                isinstance(event, Started) and event.trial == events[0].trial
                for event in events[1:]
            )

        parallel_executor.run(order(wanted, tmp_path), emit, stop)
        starts = [
            event
            for event in events
            if isinstance(event, Started) and event.trial == events[0].trial
        ]
        assert len(starts) == 2
        assert starts[1].place.pid not in killed
        assert {event.status for event in events if isinstance(event, Ended)} <= {
            Status.RUNNING,
            Status.COMPLETED,
        }
        assert Status.RUNNING in {
            event.status for event in events if isinstance(event, Ended)
        }
        again = heard(parallel_executor, order(wanted, tmp_path))
        assert {
            event.trial: event.status for event in again if isinstance(event, Ended)
        } == {t.hash: Status.COMPLETED for t in wanted}
        assert max(event.epoch for event in again if isinstance(event, Started)) > 0, (
            "at least one goes on from its checkpoint"
        )
        assert numbers(again) == numbers(
            heard(make("inline"), order(wanted, tmp_path / "straight"))
        )

    def test_a_warm_worker_that_dies_between_two_trials_loses_none(
        self, parallel_executor: Executor, tiny: str, tmp_path: Path
    ) -> None:
        """The driver hands the next trial to a worker that it believes to be there."""
        wanted = trials(tiny)[:4]
        events: list[Event] = []
        workers: dict[str, int] = {}
        killed: list[int] = []

        def emit(event: Event) -> None:
            events.append(event)
            if isinstance(event, Started):
                workers[event.trial] = event.place.pid
            if isinstance(event, Ended) and event.trial in workers and len(killed) < 2:
                killed.append(workers[event.trial])
                os.kill(workers[event.trial], signal.SIGKILL)

        parallel_executor.run(
            order(wanted, tmp_path, Resources(cpus=2)), emit, lambda: False
        )
        assert len(killed) == 2
        ends = {
            event.trial: event.status for event in events if isinstance(event, Ended)
        }
        assert ends == {trial.hash: Status.COMPLETED for trial in wanted}
        assert sum(isinstance(event, Ended) for event in events) == 4

    def test_two_processes_a_trial_are_one_job(
        self, parallel_executor: Executor, tiny: str, tmp_path: Path
    ) -> None:
        planned, both = trials(tiny)[:2], Resources(2, 0, 2)
        events = heard(parallel_executor, order(planned, tmp_path / "parallel", both))
        kinds = [type(event) for event in events if not isinstance(event, Progressed)]
        assert kinds == [Started, Ended] * 2, "each trial takes both CPUs"
        places = [event.place for event in events if isinstance(event, Started)]
        assert [(place.device, place.threads) for place in places] == [
            ("cpu x2", 1)
        ] * 2
        assert numbers(events) == numbers(
            heard(make("inline"), order(planned, tmp_path / "inline", both))
        )

    def test_what_the_machine_does_not_have_is_refused(
        self, parallel_executor: Executor, tiny: str, tmp_path: Path
    ) -> None:
        with pytest.raises(ExecutorError, match=r"resources.cpus = 9, but .* has 2"):
            heard(parallel_executor, order(trials(tiny), tmp_path, Resources(cpus=9)))
        with pytest.raises(ExecutorError, match=r"resources.gpus = 1, but .* has 0"):
            heard(parallel_executor, order(trials(tiny), tmp_path, Resources(gpus=1)))


def listening() -> list[str]:
    """Addresses on which this process and its children listen."""
    found = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            found += [
                c.laddr.ip
                for c in process.net_connections("inet")
                if c.status == psutil.CONN_LISTEN
            ]
        except psutil.NoSuchProcess:
            continue
    return found


def test_inline_refuses_what_it_cannot_do(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="resources.cpus = 64, but only 2"):
        heard(make("inline"), order(trials(tiny), tmp_path, Resources(cpus=64)))
    with pytest.raises(UnknownName, match="did you mean 'inline'"):
        make("inlin")


@pytest.mark.proof
def test_everything_but_ray_works_without_ray(tiny: str, tmp_path: Path) -> None:
    """On a machine where `import ray` fails, a study runs inline."""
    (tmp_path / "ray.py").write_text("raise ImportError('no ray here')\n")
    (tmp_path / "tiny.yaml").write_text(tiny.replace("seeds: 2", "seeds: 1"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "ablate", "run", "tiny.yaml", "--executor", "inline"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "4 trials trained" in done.stderr


def test_the_simulated_clock_is_fast_and_even(tiny: str, tmp_path: Path) -> None:
    wanted = trials(
        tiny.replace("seeds: 2", "seeds: 50").replace("epochs: 3", "epochs: 10")
    )
    executor = SimulatedExecutor()
    start = time.monotonic()
    events = heard(executor, order(wanted, tmp_path))
    assert time.monotonic() - start < 30
    assert sum(isinstance(event, Ended) for event in events) == 200
    assert executor.clock == 200 * 10 / 2, "two slots, one epoch a second"


@pytest.mark.proof
def test_a_trial_leaves_the_garbage_collector_as_it_found_it(tmp_path: Path) -> None:
    trial = trials(TINY)[0]
    for broken in (False, True):
        folder = tmp_path / str(broken)
        if not broken:
            # Without the folder of checkpoints, a trial fails at its start.
            folder.mkdir()
        run = TrialRun(Job(trial, str(folder), Resources()), "inline")
        list(run.start())
        assert gc.get_freeze_count() > 0
        if not broken:
            list(run.step())
        run.close()
        assert (run.status == Status.FAILED) == broken
        assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        run = TrialRun(Job(trial, str(tmp_path), Resources()), "inline")
        list(run.start())
        run.close()
        assert gc.get_freeze_count() > 0, "what the caller froze stays frozen"
    finally:
        gc.unfreeze()


def test_a_network_is_gone_when_its_trial_is_closed(tmp_path: Path) -> None:
    run = TrialRun(Job(trials(TINY)[0], str(tmp_path), Resources()), "inline")
    events = list(run.start())
    assert run.status == Status.RUNNING, events
    list(run.step())
    assert run._training is not None
    network = weakref.ref(run._training._model)
    run.close()
    assert network() is None
