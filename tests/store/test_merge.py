"""`ablate import`: studies of another store, merged by the identity of trials; and
trials to files.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from ablate import pipeline, space
from ablate.errors import StoreError, UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Hooks, Options
from ablate.records import Ended, Event
from ablate.results.study import Study
from ablate.store.other_store import import_studies
from ablate.store.reader import Reader
from tests.attack.stores import store, without
from tests.conftest import TINY, Say


def run(
    folder: Path, text: str, name: str = "tiny", stop_after: int | None = None
) -> Options:
    options = Options(runs=folder, cpus=1)
    ended: list[Event] = []
    hooks = Hooks(
        event=lambda happened: (
            ended.append(happened) if isinstance(happened, Ended) else None
        ),
        stop=lambda: stop_after is not None and len(ended) >= stop_after,
    )
    pipeline.run(
        space.load(text, f"{name}.yaml"),
        f"{name}.yaml",
        options,
        hooks,
        SimulatedExecutor(),
    )
    return options


def test_a_study_arrives_whole(tmp_path: Path) -> None:
    here, there = (
        run(tmp_path / "here", TINY, "other"),
        run(tmp_path / "there", TINY.replace("seeds: 2", "seeds: 3")),
    )
    # The study there was declared first, so it keeps its level.
    with sqlite3.connect(here.url) as connection:
        connection.execute("UPDATE studies SET created_at = '2099-01-01 00:00:00'")
    connection.close()
    found = import_studies(there.url, here.url)
    assert (found.studies, found.trials, found.known) == (
        ("tiny",),
        4,
        8,
    ), "two of three seeds were known by their identity"
    for form in ("json", "md"):
        assert Study("tiny", here.url).table(form) == Study("tiny", there.url).table(
            form
        )
    assert Study("tiny", here.url).frame().equals(Study("tiny", there.url).frame())
    with Reader(here.url) as mine, Reader(there.url) as theirs:
        assert (
            len(mine.trials.circumstances("tiny"))
            == len(theirs.trials.circumstances("tiny"))
            == 12
        )
    again = import_studies(there.url, here.url, ["tiny"])
    assert (again.studies, again.trials, again.known) == ((), 0, 12)
    declared = space.load(TINY.replace("seeds: 2", "seeds: 3"), "tiny.yaml")
    assert (
        pipeline.run(declared, "tiny.yaml", here, executor=SimulatedExecutor()).trained
        == 0
    ), "it can go on here"


def test_what_is_unfinished_there_is_planned_here(tmp_path: Path) -> None:
    here, there = (
        run(tmp_path / "here", TINY, "other", stop_after=3),
        run(tmp_path / "there", TINY, stop_after=5),
    )
    found = import_studies(there.url, here.url)
    assert found.known == 3
    assert found.trials == 2
    outcome = pipeline.resume("tiny", here, executor=SimulatedExecutor())
    assert (outcome.known_before, outcome.trained) == (5, 3)
    assert not pipeline.resume("other", here, executor=SimulatedExecutor()).trained


def test_pruned_and_failed_trials_arrive_as_they_are(tmp_path: Path) -> None:
    there = run(tmp_path / "there", TINY.replace("grid", "grid\nscheduler: asha"))
    here = run(tmp_path / "here", TINY.replace("epochs: 3", "epochs: 1"), "other")
    import_studies(there.url, here.url)
    for text in (
        "SELECT status, COUNT(*) FROM study_results WHERE study = 'tiny' GROUP BY 1",
        (
            "SELECT COUNT(*) FROM epochs JOIN trials ON hash = trial_hash WHERE"
            " trials.epochs = 3"
        ),
    ):
        with Reader(here.url) as mine, Reader(there.url) as theirs:
            assert mine.query(text) == theirs.query(text)
    with Reader(there.url) as theirs:
        assert "pruned" in {trial.status for trial in theirs.trials.of("tiny")}, (
            "the test is of no use without"
        )


def test_seeds_that_cells_got_there_only_arrive(tmp_path: Path) -> None:
    until = TINY.replace("seeds: 2", "seeds: {until_decided: 4, start: 2, step: 2}")
    here, there = (
        run(tmp_path / "here", until, stop_after=8),
        run(tmp_path / "there", until),
    )
    import_studies(there.url, here.url)
    assert Study("tiny", here.url).table("json") == Study("tiny", there.url).table(
        "json"
    )


def test_two_declarations_of_one_name_are_refused(tmp_path: Path) -> None:
    here, there = (
        run(tmp_path / "here", TINY),
        run(tmp_path / "there", TINY.replace("seeds: 2", "seeds: 3")),
    )
    before = Study("tiny", here.url).table()
    with pytest.raises(
        StoreError,
        match="both stores have a study 'tiny', with different declarations",
    ):
        import_studies(there.url, here.url)
    with pytest.raises(UnknownName, match="unknown study 'tiney'; did you mean 'tiny'"):
        import_studies(there.url, here.url, ["tiney"])
    with pytest.raises(StoreError, match="no store at"):
        import_studies(str(tmp_path / "nowhere.db"), here.url)
    assert Study("tiny", here.url).table() == before


def test_trials_to_files_and_back(tmp_path: Path, say: Say) -> None:
    options = run(tmp_path / "runs", TINY)
    frame = Study("tiny", options.url).frame()
    readers = {"parquet": pd.read_parquet, "csv": pd.read_csv, "json": pd.read_json}
    for ending, read in readers.items():
        file = tmp_path / f"tiny.{ending}"
        code, _, err = say(
            "export", "tiny", "--to", str(file), "--runs", str(options.runs)
        )
        assert (code, "wrote 8 trials" in err) == (0, True)
        assert read(file)["top1"].tolist() == pytest.approx(frame["top1"].tolist())
    code, _, err = say("export", "tiny", "--to", "x.xlsx", "--runs", str(options.runs))
    assert (code, "trials are written to .parquet, .csv, .json" in err) == (2, True)
    code, _, err = say("export", "tiny", "--runs", str(options.runs))
    assert (code, "name exactly one destination" in err) == (2, True)
    code, _, err = say("import", options.url, "--store", str(tmp_path / "other.db"))
    said = "tiny: 8 trials with a result were imported, 0 were already here"
    assert (code, said in err) == (0, True)
    # The folder of the runs names the same store.
    code, _, err = say("import", str(options.runs), "--store", str(tmp_path / "b.db"))
    assert (code, said in err) == (0, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("import", "nothere.db"), "there is no store at nothere.db to import from"),
        (("import", "http://example.org/x"), "cannot be used"),
        (("import", "postgresql+psycopg://nobody@127.0.0.1:1/x"), "cannot be opened"),
        (("import", "tiny.yaml"), "is not a SQLite database"),
        (("import", "sqlite://"), "is a database in memory"),
        (("import", "good.db", "tiney"), "unknown study 'tiney'; did you mean 'tiny'"),
        (("import", "damaged.db"), "trials.epochs has the value 'x'"),
        (
            ("run", "tiny.yaml", "--executor", "inline", "--checkpoints", "nope://x"),
            "--checkpoints nope://x",
        ),
    ],
)
def test_a_refused_command_leaves_no_store_behind(
    say: Say, words: tuple[str, ...], says: str
) -> None:
    store(Path("good.db"))
    without("UPDATE trials SET epochs = 'x'")(Path("damaged.db"))
    code, _, err = say(*words, "--runs", "new")
    assert code == 2
    assert says in err
    assert not Path("new").exists()


def test_only_the_damaged_store_is_blamed(say: Say) -> None:
    store(Path("good.db"))
    without("DROP TABLE cells")(Path("damaged.db"))
    code, _, err = say("import", "good.db", "--store", "damaged.db")
    assert (code, "cannot be imported" in err) == (2, False)
    assert "the store is damaged: it has no table 'cells'" in err
