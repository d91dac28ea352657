"""The store: one writer, readers that cannot write, results that stand."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, create_engine, text

from ablate import pipeline, space
from ablate.errors import StoreError, UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.machine import provenance
from ablate.pipeline import Hooks, Options
from ablate.plan import make_plan
from ablate.records import (
    Architecture,
    Cost,
    Ended,
    Epoch,
    Event,
    Place,
    Plan,
    Progressed,
    Started,
    Status,
)
from ablate.results.study import Study
from ablate.store import database
from ablate.store.database import LostConnection, exists, open_writer
from ablate.store.reader import MISSING, Reader
from ablate.store.writer import Writer
from tests.conftest import Say
from tests.store.postgres import postgres

PLACE = Place("simulated", "here", 1, "cpu", 1)


def fake_cost(architecture: Architecture) -> Cost:
    return Cost(params=1000, flops=100, flops_paper=90, activations=10, elementwise=5)


@pytest.fixture
def plan(tiny: str) -> Plan:
    return make_plan(space.load(tiny, "tiny.yaml"), fake_cost)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "ablate.db")


def epoch(number: int, top1: float = 50.0) -> Epoch:
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 90.0},
        lr=0.1,
        seconds=0.5,
    )


def begun(url: str, plan: Plan) -> Writer:
    writer = Writer(url)
    study = writer.register(plan, "tiny.yaml", 1)
    writer.begin(study, plan.space.document, provenance.collect())
    return writer


def finish(writer: Writer, trial: str, top1: float = 50.0) -> None:
    for event in (
        Started(trial, PLACE, 0),
        Progressed(trial, (epoch(1), epoch(2, top1))),
        Ended(trial, Status.COMPLETED),
    ):
        writer.write(event)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with Reader(url) as reader:
        return [tuple(row) for row in reader.query(statement)[1]]


def test_a_new_store_is_of_the_newest_revision(url: str) -> None:
    Writer(url).close()
    with create_engine(f"sqlite:///{url}").connect() as connection:
        assert (
            connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            == database.HEAD
        )
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert (
            connection.execute(
                text(
                    "SELECT COUNT(*) FROM pragma_table_info('trials') WHERE type ="
                    " 'BLOB'"
                )
            ).scalar()
            == 0
        )


def test_a_second_writer_is_refused_and_reported_by_whom(url: str) -> None:
    with (
        Writer(url),
        pytest.raises(StoreError, match=r"process \d+ is writing to .*ablate.db"),
    ):
        Writer(url)
    Writer(url).close()


def test_readers_read_while_the_writer_writes(url: str, plan: Plan) -> None:
    with begun(url, plan) as writer:
        finish(writer, plan.trials[0].hash)
        assert rows(url, "SELECT COUNT(*) FROM trials WHERE status = 'completed'") == [
            (1,)
        ]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM trials",
        "UPDATE trials SET status = 'completed'",
        "INSERT INTO studies (name) VALUES ('x')",
        "DROP TABLE trials",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "ATTACH DATABASE '/tmp/ablate-test-other.db' AS other",
        "VACUUM",
        "VACUUM INTO '/tmp/ablate-test-copy.db'",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM trials",
        "WITH t AS (SELECT 1) DELETE FROM trials",
        "SELECT writefile('/tmp/ablate-test-file', 'x')",
        "",
        "nonsense",
    ],
)
def test_a_query_cannot_write(statement: str, url: str, plan: Plan) -> None:
    with begun(url, plan) as writer:
        finish(writer, plan.trials[0].hash)
    before = Path(url).read_bytes()
    with Reader(url) as reader, pytest.raises(StoreError):
        reader.query(statement)
    assert Path(url).read_bytes() == before
    assert not Path("/tmp/ablate-test-copy.db").exists()
    assert not Path("/tmp/ablate-test-file").exists()


def test_missing_foreign_and_newer_stores(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at .*`ablate run FILE` makes one"):
        Reader(str(tmp_path / "none.db"))
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    with pytest.raises(StoreError, match="is no ablate store"):
        Reader(str(other))
    broken = tmp_path / "broken.db"
    broken.write_bytes(
        b"this is no database at all, but long enough to look like one" * 50
    )
    with pytest.raises(StoreError, match="is not a SQLite database"):
        Reader(str(broken))
    with pytest.raises(StoreError, match="is not a SQLite database"):
        Writer(str(broken))
    newer = tmp_path / "newer.db"
    Writer(str(newer)).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 's9999'")
    connection.close()
    with pytest.raises(StoreError, match="revision s9999, .* use the newer version"):
        Reader(str(newer))
    with pytest.raises(StoreError, match="does not know; use the newer version"):
        Writer(str(newer))
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('bd07f7e963c5')")
        connection.execute("CREATE TABLE experiments (id INTEGER)")
    connection.close()
    for opened in (Reader, Writer):
        with pytest.raises(StoreError, match="is a database of another program"):
            opened(str(other))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "nonsense://x",
        "://",
        "mysql+nothing://localhost/x",
    ],
)
def test_stores_that_cannot_be(url: str) -> None:
    with pytest.raises(StoreError):
        Writer(url)


def test_a_result_stands_whatever_late_events_say(url: str, plan: Plan) -> None:
    key = plan.trials[0].hash
    with begun(url, plan) as writer:
        finish(writer, key, 77.0)
        writer.write(Started(key, PLACE, 0))
        writer.write(Ended(key, Status.FAILED, "late"))
    assert rows(
        url, f"SELECT status, top1 FROM trial_results WHERE trial = '{key}'"
    ) == [("completed", 77.0)]


def test_an_epoch_reported_twice_is_one_epoch(url: str, plan: Plan) -> None:
    key = plan.trials[0].hash
    with begun(url, plan) as writer:
        writer.write(Started(key, PLACE, 0))
        for _ in range(3):
            writer.write(Progressed(key, (epoch(1), epoch(2))))
    assert rows(url, "SELECT COUNT(*) FROM epochs") == [(2,)]


def test_epochs_reported_again_after_two_lost_workers_are_the_same_epochs(
    url: str, plan: Plan
) -> None:
    """The second worker begins at an older checkpoint and is lost sooner than the first
    one; the third tells both's epochs.
    """
    key = plan.trials[0].hash
    with Writer(url) as writer:
        writer.begin(
            writer.register(plan, "tiny.yaml", 1), "document", provenance.collect()
        )
        for first, last in ((0, 5), (2, 3), (2, 7)):
            writer.write(Started(key, PLACE, first))
            for number in range(first + 1, last + 1):
                writer.write(Progressed(key, (epoch(number),)))
        writer.write(Ended(key, Status.COMPLETED))
    assert rows(url, "SELECT number FROM epochs ORDER BY number") == [
        (number,) for number in range(1, 8)
    ]


def test_what_a_killed_run_left_open_is_lost_and_planned_again(
    url: str, plan: Plan
) -> None:
    key = plan.trials[0].hash
    writer = begun(url, plan)
    writer.write(Started(key, PLACE, 0))
    writer.close()
    begun(url, plan).close()
    assert rows(url, "SELECT status FROM attempts") == [("lost",)]
    assert rows(url, f"SELECT status FROM trials WHERE hash = '{key}'") == [
        ("planned",)
    ]


def test_provenance_stands_with_every_attempt(url: str, plan: Plan) -> None:
    with begun(url, plan) as writer:
        finish(writer, plan.trials[0].hash)
    statement = (
        "SELECT p.document, p.python, p.torch, p.cores FROM attempts a JOIN provenance"
        " p ON p.id = a.provenance_id"
    )
    [(document, python, torch, cores)] = rows(url, statement)
    assert document == plan.space.document
    assert python
    assert torch
    assert int(str(cores)) > 0


def test_a_new_plan_takes_the_place_of_the_old_one_and_loses_no_trial(
    url: str, plan: Plan, tiny: str
) -> None:
    with begun(url, plan) as writer:
        finish(writer, plan.trials[0].hash)
    fewer = make_plan(
        space.load(tiny.replace("seeds: 2", "seeds: 1"), "tiny.yaml"), fake_cost
    )
    with begun(url, fewer):
        pass
    assert rows(url, "SELECT COUNT(*) FROM trials") == [(8,)]
    assert rows(url, "SELECT COUNT(*) FROM cell_trials") == [(4,)]
    assert rows(url, "SELECT COUNT(*) FROM levels") == [(8,)]


def test_stale_costs_are_renewed(url: str, plan: Plan) -> None:
    begun(url, plan).close()
    with Reader(url) as reader:
        assert len(reader.costs.counted(1)) == 4
        assert reader.costs.counted(2) == {}
    doubled = replace(
        plan,
        cells=tuple(
            replace(
                cell,
                cost=Cost(
                    params=2, flops=2, flops_paper=2, activations=2, elementwise=2
                ),
            )
            for cell in plan.cells
        ),
    )
    with Writer(url) as writer:
        writer.register(doubled, "tiny.yaml", 2)
    with Reader(url) as reader:
        assert (
            list(reader.costs.counted(2).values())
            == [Cost(params=2, flops=2, flops_paper=2, activations=2, elementwise=2)]
            * 4
        )
        assert reader.costs.counted(1) == {}


def test_the_wide_view_has_a_column_for_each_factor_metric_and_cost(
    url: str, plan: Plan
) -> None:
    with begun(url, plan) as writer:
        for trial in plan.trials:
            finish(writer, trial.hash)
    with Reader(url) as reader:
        columns, found = reader.query("SELECT * FROM results_tiny ORDER BY cell, seed")
    assert {
        "cell",
        "seed",
        "shortcuts.count",
        "layout",
        "top1",
        "params",
        "flops",
        "status",
    } <= set(columns)
    assert len(found) == 8
    first = dict(zip(columns, found[2], strict=True))
    assert (first["shortcuts.count"], first["layout"]) == (0, "parallel")


def test_studies_of_like_names_have_views_of_their_own(url: str, plan: Plan) -> None:
    with Writer(url) as writer:
        for name in ("a/b", "a-b", "A_B"):
            writer.register(
                replace(plan, space=replace(plan.space, name=name)), "f.yaml", 1
            )
    with Reader(url) as reader:
        views = [study.results_view for study in reader.studies.all()]
        assert len(set(views)) == 3
        for view in views:
            assert len(reader.query(f'SELECT * FROM "{view}"')[1]) == 8


def test_unknown_studies_name_the_nearest(url: str, plan: Plan) -> None:
    begun(url, plan).close()
    with Reader(url) as reader, pytest.raises(UnknownName, match="did you mean 'tiny'"):
        reader.studies.get("tinny")


def test_the_python_frame_is_the_wide_view(
    run_text: Callable[..., object], tiny: str, options: Options
) -> None:
    run_text(tiny)
    frame = Study("tiny", options.url).frame()
    assert frame.shape[0] == 8
    assert frame["top1"].notna().all()
    assert sorted(frame["seed"].unique()) == [0, 1]


events = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            [
                "start",
                "epoch",
                "completed",
                "failed",
                "diverged",
                "pruned",
                "running",
                "killed",
            ]
        ),
    ),
    max_size=25,
)


@pytest.mark.proof
@given(events)
@settings(deadline=None, max_examples=60)
def test_any_order_of_events_keeps_one_result_a_trial(
    tmp_path_factory: pytest.TempPathFactory, happened: list[tuple[int, str]]
) -> None:
    """However events come, doubled, late or cut off: a result that was stored stands,
    and epochs are never doubled.
    """
    from tests.conftest import TINY

    url = str(tmp_path_factory.mktemp("store") / "a.db")
    plan = make_plan(space.load(TINY, "tiny.yaml"), fake_cost)
    results: dict[str, str] = {}
    done: dict[str, int] = {}
    writer = begun(url, plan)
    for which, what in happened:
        key = plan.trials[which].hash
        if what == "killed":
            writer.close()
            writer = begun(url, plan)
            continue
        event: Event
        if what == "start":
            event = Started(key, PLACE, done.get(key, 0))
        elif what == "epoch":
            done[key] = done.get(key, 0) + 1
            event = Progressed(key, (epoch(done[key]),))
        else:
            if what == "completed" and not done.get(key):
                continue
            event = Ended(key, Status(what))
            if what in ("completed", "diverged"):
                results.setdefault(key, what)
        writer.write(event)
    writer.close()
    stored = dict(rows(url, "SELECT hash, status FROM trials"))
    assert {key: stored[key] for key in results} == results
    assert dict(
        rows(url, "SELECT trial_hash, COUNT(*) FROM epochs GROUP BY trial_hash")
    ) == {k: n for k, n in done.items() if n}
    assert (
        rows(
            url,
            "SELECT COUNT(*) FROM attempts WHERE ended_at IS NULL GROUP BY trial_hash"
            " HAVING COUNT(*) > 1",
        )
        == []
    )


def test_a_damaged_store_is_reported(url: str, plan: Plan) -> None:
    begun(url, plan).close()
    with sqlite3.connect(url) as connection:
        connection.execute("DROP TABLE cell_trials")
    connection.close()
    with pytest.raises(
        StoreError, match="the store is damaged: it has no table 'cell_trials'"
    ):
        Reader(url)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        (
            "SELECT top1x FROM trial_results",
            "no such column: top1x; did you mean 'top1'?",
        ),
        (
            "SELECT t.zzz FROM Cell_trials t",
            "no such column: t.zzz; cell_trials has cell_id, seed, trial_hash",
        ),
        ("SELECT * FROM trial", "no such table: trial; did you mean 'trials'?"),
        (
            "SELECT * FROM zzz",
            "no such table: zzz; there are architectures, attempts, cell_trials, ",
        ),
        ("SELECT zzz", "no such column: zzz$"),
        (
            "SELECT c.trial FROM cell_trials c JOIN study_results s ON s.seed = c.seed",
            "no such column: c.trial; did you mean 'trial_hash'?",
        ),
    ],
)
def test_a_query_for_a_name_that_is_not_there(
    url: str, plan: Plan, statement: str, hint: str
) -> None:
    begun(url, plan).close()
    with (
        Reader(url) as reader,
        pytest.raises(StoreError, match=hint.replace("?", "[?]")),
    ):
        reader.query(statement)


def test_postgresql_tells_of_names_in_its_own_words() -> None:
    for said in (
        'column "zzz" does not exist',
        "column t.zzz does not exist",
        'relation "zzz" does not exist',
    ):
        found = MISSING.search(said)
        assert found is not None
        assert found["name"] == "zzz"
    assert not MISSING.search('column "zzz" is ambiguous')


def test_two_files_may_not_share_a_name_unsaid(
    url: str, plan: Plan, tmp_path: Path
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.yaml").write_text(plan.space.document)
    with Writer(url) as writer:
        writer.register(plan, str(tmp_path / "a" / "tiny.yaml"), 1)
        with pytest.raises(
            StoreError, match="declares a study 'tiny' too; write `name:`"
        ):
            writer.register(plan, str(tmp_path / "b" / "tiny.yaml"), 1)
        (tmp_path / "a" / "tiny.yaml").rename(tmp_path / "moved.yaml")
        writer.register(plan, str(tmp_path / "b" / "tiny.yaml"), 1)


def test_a_name_of_another_file_is_refused_before_anything_is_shown(
    tiny: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, document in (
        ("a", tiny),
        ("b", tiny.replace("epochs: 3", "epochs: 4")),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tiny.yaml").write_text(document)
    declared = space.load(tiny, "a/tiny.yaml")
    options = Options(runs=Path("runs"), executor="inline")
    pipeline.run(declared, "a/tiny.yaml", options, executor=SimulatedExecutor())
    for verb in ("plan", "run"):
        code, out, error = say(verb, "b/tiny.yaml")
        assert code == 2
        assert "declares a study 'tiny' too" in error
        assert "generation" not in out + error


def test_a_trial_may_change_the_working_directory(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def leave(event: Event) -> None:
        os.chdir("/")

    declared = space.load(tiny, "tiny.yaml")
    options = Options(runs=Path("runs"), executor="inline")
    outcome = pipeline.run(
        declared, "tiny.yaml", options, Hooks(event=leave), SimulatedExecutor()
    )
    assert outcome.trained == 8


def test_stores_that_are_made_at_once(tmp_path: Path) -> None:
    """Each of several commands may be the first."""

    def make(url: str) -> None:
        begin.wait()
        open_writer(url).dispose()

    for number in range(5):
        begin = threading.Barrier(6)
        url = str(tmp_path / f"{number}.db")
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(make, [url] * 6))
        assert exists(url)


@pytest.mark.parametrize("size", [0, 4096])
def test_a_store_that_is_cut_in_a_run_ends_it(
    tiny: str, options: Options, size: int
) -> None:
    seen: list[Event] = []

    def cut(event: Event) -> None:
        seen.append(event)
        if len(seen) == 4:
            os.truncate(options.url, size)

    declared = space.load(tiny, "tiny.yaml")
    with pytest.raises(StoreError) as ended:
        pipeline.run(
            declared, "tiny.yaml", options, Hooks(event=cut), SimulatedExecutor()
        )
    assert "was truncated while it was in use; use a backup copy" in str(ended.value)
    assert "intact" not in str(ended.value)
    # It is noticed at the next event, or at the next but one.
    assert len(seen) <= 6


def test_a_trial_runs_only_as_long_as_a_driver_holds_it(url: str, plan: Plan) -> None:
    """A driver that was killed leaves trials without a worker."""

    def running() -> set[int]:
        with Reader(url) as reader:
            listed = [trial.status for trial in reader.trials.of("tiny")]
            studies = (reader.studies.get("tiny"), *reader.studies.all())
        counts = {study.by_status.get(Status.RUNNING, 0) for study in studies}
        assert {sum(study.by_status.values()) for study in studies} == {
            len(plan.trials)
        }
        return {*counts, listed.count(Status.RUNNING)}

    with Writer(url) as writer:
        writer.register(plan, "tiny.yaml", 1)
        with closing(sqlite3.connect(url)) as connection, connection:
            connection.execute("UPDATE trials SET status = 'running' WHERE rowid = 1")
        assert running() == {1}
    assert running() == {0}


@pytest.mark.proof
def test_a_trial_on_a_server_runs_only_as_long_as_its_lease(plan: Plan) -> None:
    with postgres() as url:
        with Writer(url) as writer:
            writer.register(plan, "tiny.yaml", 1)
        engine = create_engine(url)
        for lease, running in ((1e6, 1), (-1, 0)):
            with engine.begin() as connection:
                connection.execute(
                    text(
                        "UPDATE trials SET status = 'running', leased_until ="
                        f" extract(epoch FROM clock_timestamp()) + {lease} WHERE hash ="
                        " (SELECT min(hash) FROM trials)"
                    )
                )
            with Reader(url) as reader:
                assert (
                    reader.studies.get("tiny").by_status.get(Status.RUNNING, 0)
                    == running
                )
                assert (
                    reader.studies.all()[0].by_status.get(Status.RUNNING, 0) == running
                )
                listed = [trial.status for trial in reader.trials.of("tiny")]
            assert listed.count(Status.RUNNING) == running
        engine.dispose()


def test_a_commit_whose_answer_is_lost_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch, url: str, plan: Plan
) -> None:
    """A server that restarts can commit and not answer."""
    transactions = 0

    @contextmanager
    def unanswered(engine: Engine) -> Iterator[Connection]:
        nonlocal transactions
        with database.write_transaction(engine) as connection:
            yield connection
        transactions += 1
        if transactions % 2:
            raise LostConnection("the server has ended the connection")

    trial = plan.trials[0].hash
    with Writer(url) as writer:
        study = writer.register(plan, "tiny.yaml", 1)
        writer.begin(study, "", provenance.collect())
        monkeypatch.setattr("ablate.store.writer.write_transaction", unanswered)
        writer.write(Started(trial, PLACE, 0))
        for number in (1, 2, 3):
            assert writer.write(Progressed(trial, (epoch(number, number / 10),)))
        assert writer.write(Ended(trial, Status.COMPLETED))
    assert rows(url, "SELECT number FROM epochs ORDER BY number") == [(1,), (2,), (3,)]
    assert rows(url, "SELECT value FROM trial_metrics WHERE name = 'top1'") == [(0.3,)]
    # The start was stored twice.
    assert rows(url, "SELECT number, status FROM attempts ORDER BY number") == [
        (1, "lost"),
        (2, "completed"),
    ]


def test_a_store_keeps_its_id(url: str, tmp_path: Path) -> None:
    with Writer(url) as writer:
        first = writer.store_id
    with Writer(url) as writer:
        assert writer.store_id == first
    with Writer(str(tmp_path / "other.db")) as other:
        assert other.store_id != first


def test_a_store_where_none_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        Writer(str(tmp_path / "file" / "ablate.db"))
    with pytest.raises(StoreError) as error:
        Writer("postgresql+nothing://me:secret@localhost/x")
    assert "secret" not in str(error.value)


def test_a_store_that_another_program_holds_is_said_in_one_message(
    url: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.store.database.BUSY_SECONDS", 0.1)
    key = plan.trials[0].hash
    with begun(url, plan) as writer:
        other = sqlite3.connect(url, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            StoreError,
            match=(
                r"cannot be written to: database is locked; end the other program .* Go"
                r" on with: ablate resume"
            ),
        ):
            writer.write(Progressed(key, (epoch(1),)))
        other.close()
        # A waiting driver can go on.
        writer.write(Progressed(key, (epoch(1),)))
    assert rows(url, "SELECT number FROM epochs") == [(1,)]


def test_a_full_store_is_said_in_one_message_and_stays_whole(
    url: str, plan: Plan
) -> None:
    key = plan.trials[0].hash
    with begun(url, plan) as writer:
        writer.write(Progressed(key, (epoch(1),)))
        with writer._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(
            StoreError, match=r"database or disk is full; free some room"
        ):
            writer.write(
                Progressed(key, tuple(epoch(number) for number in range(2, 5000)))
            )
    assert rows(url, "SELECT number FROM epochs") == [(1,)]


def test_a_second_store_compiles_nothing_again(tmp_path: Path) -> None:
    kinds = (database._OF_WRITERS, database._OF_READERS)

    def compiled() -> list[int]:
        url = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.db")
        Writer(url).close()
        with Reader(url) as reader:
            assert reader.studies.all() == []
        return [len(kind["compiled_cache"]) for kind in kinds]

    first = compiled()
    assert min(first) > 0
    assert compiled() == first
