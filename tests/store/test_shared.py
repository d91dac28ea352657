"""Several drivers on one PostgreSQL store: leases, heartbeat, fencing, and a study that
two finish while they are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from ablate import pipeline, space
from ablate.errors import StoreError
from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.machine import provenance
from ablate.pipeline import Hooks, Options
from ablate.plan import make_plan
from ablate.records import Cost, Ended, Event, Place, Plan, Progressed, Started, Status
from ablate.results.study import Study
from ablate.store import writer as writer_module
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.conftest import TINY
from tests.store.postgres import postgres

RESULTS = (Status.COMPLETED, Status.DIVERGED)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """An empty database of the server."""
    name = f"t{random.getrandbits(48):x}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.rpartition("/")[0] + f"/{name}"
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def plan() -> Plan:
    return make_plan(
        space.load(TINY, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )


def opened(url: str, plan: Plan) -> Writer:
    writer = Writer(url)
    writer.begin(
        writer.register(plan, "tiny.yaml", 1), plan.space.document, provenance.collect()
    )
    return writer


PLACE = Place("inline", "host", 1, "cpu", 1)


@pytest.mark.proof
def test_a_trial_is_leased_to_one_driver(url: str, plan: Plan) -> None:
    key = plan.trials[0].hash
    with opened(url, plan) as one, opened(url, plan) as other:
        assert one.claim(key, RESULTS) == "granted"
        assert one.claim(key, RESULTS) == "granted", "its own lease is no obstacle"
        assert other.claim(key, RESULTS) == "taken"
        assert one.write(Started(key, PLACE, 0))
        assert one.write(Progressed(key, (made_up(plan.trials[0], 1),)))
        assert one.write(Ended(key, Status.COMPLETED))
        assert other.claim(key, RESULTS) == "known"


def test_a_closed_driver_gives_its_leases_back(url: str, plan: Plan) -> None:
    key = plan.trials[0].hash
    with opened(url, plan) as other:
        with opened(url, plan) as one:
            assert one.claim(key, RESULTS) == "granted"
        assert other.claim(key, RESULTS) == "granted"


@pytest.mark.proof
def test_a_silent_driver_loses_its_trial_and_may_not_write_about_it(
    url: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LEASE_SECONDS", 0.5)
    key = plan.trials[0].hash
    with opened(url, plan) as silent:
        assert silent.claim(key, RESULTS) == "granted"
        assert silent.write(Started(key, PLACE, 0))
        assert silent._heart is not None
        silent._heart.stop()
        time.sleep(0.6)
        with opened(url, plan) as other:
            assert other.claim(key, RESULTS) == "granted"
            assert other.write(Started(key, PLACE, 0))
            assert not silent.write(Progressed(key, (made_up(plan.trials[0], 1),)))
            assert not silent.write(Ended(key, Status.FAILED, "late"))
            assert other.write(Progressed(key, (made_up(plan.trials[0], 1),)))
            assert other.write(Ended(key, Status.COMPLETED))
            assert not silent.write(Ended(key, Status.FAILED, "later"))
    with Reader(url) as reader:
        assert reader.trials.known([key])[key].status == Status.COMPLETED
        assert [attempt.status for attempt in reader.trials.attempts(key)] == [
            "lost",
            "completed",
        ]


@pytest.mark.proof
def test_a_heart_keeps_leases_alive(
    url: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LEASE_SECONDS", 0.8)
    key = plan.trials[0].hash
    with opened(url, plan) as one, opened(url, plan) as other:
        assert one.claim(key, RESULTS) == "granted"
        time.sleep(2.0)
        assert other.claim(key, RESULTS) == "taken"


@pytest.mark.proof
def test_two_drivers_in_one_process_share_a_study(url: str, tmp_path: Path) -> None:
    declared = space.load(TINY.replace("seeds: 2", "seeds: 5"), "tiny.yaml")
    options = Options(runs=tmp_path, store=url, cpus=2)
    told: list[list[Event]] = [[], []]

    def drive(events: list[Event]) -> None:
        def event(happened: Event) -> None:
            events.append(happened)
            time.sleep(0.003)

        assert not pipeline.run(
            declared, "tiny.yaml", options, Hooks(event=event), SimulatedExecutor()
        ).interrupted

    drivers = [threading.Thread(target=drive, args=(events,)) for events in told]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    completed = [
        Counter(e.trial for e in events if isinstance(e, Ended)) for events in told
    ]
    assert not set(completed[0]) & set(completed[1]), "no trial was trained twice"
    assert len(completed[0]) + len(completed[1]) == 20
    alone = Options(runs=tmp_path / "alone", cpus=2)
    pipeline.run(declared, "tiny.yaml", alone, executor=SimulatedExecutor())
    assert Study("tiny", url).table() == Study("tiny", alone.url).table()


@pytest.mark.proof
def test_two_drivers_share_a_search(url: str, tmp_path: Path) -> None:
    text_ = TINY.replace(
        "design: grid", "strategy: {name: tpe, cells: 7, parallel: 2}"
    ).replace(
        "layout: [serial, parallel]",
        "layout: [serial, parallel]\n  recipe.lr: [1e-3, 2e-3, 4e-3]",
    )
    declared = space.load(text_, "tiny.yaml")
    drivers = [
        threading.Thread(
            target=pipeline.run,
            args=(
                declared,
                "tiny.yaml",
                Options(runs=tmp_path, store=url, cpus=1),
                None,
                SimulatedExecutor(),
            ),
        )
        for _ in range(2)
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    alone = Options(runs=tmp_path / "alone", cpus=2)
    pipeline.run(declared, "tiny.yaml", alone, executor=SimulatedExecutor())
    assert Study("tiny", url).table() == Study("tiny", alone.url).table()


def test_another_declaration_of_a_running_study_is_refused(
    url: str, plan: Plan, tmp_path: Path
) -> None:
    changed = space.load(TINY.replace("seeds: 2", "seeds: 3"), "tiny.yaml")
    options = Options(runs=tmp_path, store=url)
    with opened(url, plan):
        with pytest.raises(StoreError, match="another driver is training study 'tiny'"):
            pipeline.run(changed, "tiny.yaml", options, executor=SimulatedExecutor())
        other = space.load(TINY, "other.yaml")
        with opened(
            url,
            make_plan(
                other,
                lambda architecture: Cost(
                    params=1, flops=1, flops_paper=1, activations=1, elementwise=1
                ),
            ),
        ) as writer:
            assert writer.claim(plan.trials[0].hash, RESULTS) == "granted", (
                "the same trial in a study of another name"
            )
    assert not pipeline.run(
        changed, "tiny.yaml", options, executor=SimulatedExecutor()
    ).interrupted, "the other one has ended"


FORTY = """
question: Do two drivers train each trial once?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  recipe.lr: [1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 1e-3, 2e-3, 3e-3, 5e-3, 7e-3]
  recipe.weight_decay: [0.0, 0.01, 0.05, 0.1]
seeds: 1
data: {name: digits, train_images: 400, test_images: 100}
recipe: {epochs: 12, batch_size: 20, warmup_epochs: 0}
"""


@pytest.mark.proof
def test_two_drivers_finish_forty_cells_while_they_are_killed(
    url: str, tmp_path: Path
) -> None:
    """Two processes on one PostgreSQL; one of them, chosen by chance, is killed at a
    random moment, again and again.
    """
    (tmp_path / "space.yaml").write_text(FORTY)
    environment = {
        **os.environ,
        "ABLATE_LEASE_SECONDS": "2",
        "ABLATE_CHECKPOINT_SECONDS": "0.2",
        "OMP_NUM_THREADS": "1",
    }
    words = [
        sys.executable,
        "-m",
        "ablate",
        "run",
        "space.yaml",
        "--store",
        url,
        "--executor",
        "inline",
    ]
    kills, draw = int(os.environ.get("ABLATE_TEST_KILLS", "3")), random.Random(0)

    def start() -> subprocess.Popen[bytes]:
        log = (tmp_path / "log.txt").open("ab")
        with log:
            return subprocess.Popen(
                words,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    engine = create_engine(url, poolclass=NullPool)

    def attempts() -> int:
        with engine.connect() as connection:
            has = connection.execute(text("SELECT to_regclass('attempts')")).scalar()
            return (
                int(
                    connection.execute(
                        text("SELECT COUNT(*) FROM attempts")
                    ).scalar_one()
                )
                if has
                else 0
            )

    drivers, killed, deadline = [start(), start()], 0, time.monotonic() + 300
    while any(driver.poll() is None for driver in drivers):
        assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()
        if killed < kills:
            # A moment by chance, but one at which trials are under way.
            before = attempts()
            time.sleep(draw.uniform(0, 1.5))
            if attempts() > before:
                chosen = draw.randrange(2)
                drivers[chosen].kill()
                drivers[chosen].wait()
                drivers[chosen] = start()
                killed += 1
        time.sleep(0.05)
    assert [driver.returncode for driver in drivers] == [0, 0], (
        tmp_path / "log.txt"
    ).read_text()
    assert killed == kills
    with engine.connect() as connection:
        states = connection.execute(
            text("SELECT status, COUNT(*) FROM trials GROUP BY status")
        ).all()
        results = connection.execute(
            text(
                "SELECT COUNT(*) FROM attempts WHERE status = 'completed' GROUP BY"
                " trial_hash"
            )
        ).scalars()
        assert [tuple(row) for row in states] == [("completed", 40)]
        assert list(results) == [1] * 40
        hosts = connection.execute(
            text("SELECT COUNT(DISTINCT pid) FROM attempts WHERE status = 'completed'")
        ).scalar_one()
        assert hosts >= 2, "both drivers trained"
    undisturbed = Options(runs=tmp_path / "undisturbed", executor="inline", cpus=1)
    pipeline.run(space.load(FORTY, "space.yaml"), "space.yaml", undisturbed)
    assert Study("space", url).table() == Study("space", undisturbed.url).table()


TUNED = """
question: Which kernel, each at its own learning rate?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {ffn.kernel: [none, 3, 5]}
tune: {recipe.lr: {low: 1e-4, high: 1e-2, scale: log}, settings: 5}
seeds: 3
data: {name: digits, train_images: 200, test_images: 50, validation: 0.2}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""


@pytest.mark.proof
def test_two_drivers_choose_the_same_settings(url: str, tmp_path: Path) -> None:
    declared = space.load(TUNED, "tuned.yaml")
    errors: list[BaseException] = []

    def drive(number: int) -> None:
        options = Options(runs=tmp_path / f"driver{number}", store=url, cpus=1)
        try:
            pipeline.run(declared, "tuned.yaml", options, None, SimulatedExecutor())
        except BaseException as error:
            errors.append(error)

    drivers = [threading.Thread(target=drive, args=(number,)) for number in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert errors == []
    alone = Options(runs=tmp_path / "alone", cpus=1)
    pipeline.run(declared, "tuned.yaml", alone, None, SimulatedExecutor())
    together, other = Study("tuned", url), Study("tuned", alone.url)
    assert together.table("json") == other.table("json")
    assert together.effects_table("tuning") == other.effects_table("tuning")
    with Reader(url) as reader:
        assert reader.studies.get("tuned").finished
        assert reader.studies.get("tuned").by_status == {
            Status.COMPLETED: sum(
                1
                for _ in {
                    trial.trial for trial in reader.trials.of("tuned", beside=True)
                }
            )
        }
