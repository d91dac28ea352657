"""Runs that were trained elsewhere, kept as a study: shown by every verb, and marked."""

from __future__ import annotations

import hashlib
import json
import shlex
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.errors import AblateError, StoreError
from ablate.records import Status
from ablate.report.effect import Effect
from ablate.report.forest_text import forest_text
from ablate.report.verdicts import Verdict, Withheld
from ablate.results.html_report import write_report
from ablate.results.review import review
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Say
from tests.store.postgres import postgres

FILES = Path(__file__).parent / "files"
LAYER = {"norm": "layer"}
MARK = "trained elsewhere"


def runs_of(rows: int = 3, seeds: int = 5) -> pd.DataFrame:
    """Row 1 is 1.0 better than row 0, and the others are equal to it.

    The seeds of a larger number begin with those of a smaller one.
    """
    base = np.random.default_rng(1).normal(70, 1, 50)
    names = ["layer", "rms", "batch", "group", "none"]
    return pd.DataFrame(
        [
            {
                "norm": names[row],
                "seed": seed,
                "accuracy": base[seed]
                + np.random.default_rng([2, row, seed]).normal(0, 0.2)
                + (row == 1),
            }
            for row in range(rows)
            for seed in range(seeds)
        ]
    )


def keep(frame: pd.DataFrame, folder: Path, name: str = "norms") -> Study:
    return ablate.judge(frame, baseline=LAYER).keep(name, runs=folder)


def by_row(study: Study) -> dict[int, Effect]:
    return {effect.row: effect for effect in study.effects()}


def test_a_kept_study_has_the_results_and_verdicts_of_its_runs(tmp_path: Path) -> None:
    frame = runs_of()
    judged = ablate.judge(frame, baseline=LAYER)
    study = judged.keep("norms", runs=tmp_path)
    results = study.results()
    for cell, before in zip(results.cells, judged.results.cells, strict=True):
        assert cell.levels == before.levels
        assert cell.values == before.values
        assert cell.role == before.role
    assert results.reported is not None
    assert results.is_paired
    assert results.metric.name == results.metric.title == "accuracy"
    effects = by_row(study)
    assert effects[1].verdict is Verdict.HELPS
    assert effects[1].mean == pytest.approx(judged.effects()[0].mean)
    assert effects[2].verdict is Verdict.INCONCLUSIVE
    assert results.before.studies == ()


@pytest.mark.parametrize(
    "words",
    [
        "table results",
        "table results --format latex",
        "table results --format html",
        "effects results",
        "effects results --of factors",
        "effects results --of importance",
        "review results",
        "status",
        "status results",
    ],
)
def test_every_table_says_that_runs_were_trained_elsewhere(
    say: Say, words: str
) -> None:
    runs_of().to_csv("results.csv", index=False)
    code, out, err = say("judge", "results.csv", "--baseline", "norm=layer", "--keep")
    assert code == 0, err
    assert out.count(MARK) >= 2
    assert "ablate report results" in out
    code, out, err = say(*words.split())
    # A review with findings ends with 1.
    assert code == words.startswith("review"), err
    assert MARK in out.lower()


@pytest.mark.proof
def test_reports_and_charts_say_it_too(say: Say) -> None:
    runs_of().to_csv("results.csv", index=False)
    say("judge", "results.csv", "--baseline", "norm=layer", "--keep", "--name", "a/b")
    study = ablate.open_study("a/b")
    write_report(study, Path("report.html"))
    page = Path("report.html").read_text()
    assert page.count(MARK) >= 4
    assert "is not known" in page
    assert "ablate resume" not in page
    assert "ablate reproduce" not in page
    for of in ("effects", "factors", "importance", "parallel"):
        code, _, err = say("plot", "a/b", "--of", of, "--to", f"{of}.svg")
        assert code == 0, err
        assert MARK in Path(f"{of}.svg").read_text().lower()


def test_the_origin_of_the_results_is_stored(say: Say, tmp_path: Path) -> None:
    runs_of().to_csv("results.csv", index=False)
    say(
        *"judge results.csv --baseline norm=layer --margin 0.3 --keep --name norms".split()
    )
    with Reader(f"sqlite:///{tmp_path}/runs/ablate.db") as reader:
        stored = reader.studies.get("norms")
    assert stored.finished
    assert stored.file == str(Path("results.csv").resolve())
    assert stored.space is not None
    assert stored.space.criterion.margin == 0.3
    reported = stored.space.reported
    assert reported is not None
    content = hashlib.sha256(Path("results.csv").read_bytes()).hexdigest()
    assert reported.content == content
    assert content in stored.document
    # The command has all that was understood, and keeps the same study.
    assert "--metric accuracy --direction max --seed seed" in reported.command
    code, _, err = say(*shlex.split(reported.command)[1:])
    assert code == 0, err
    with Reader(f"sqlite:///{tmp_path}/runs/ablate.db") as reader:
        (again,) = reader.studies.all()
    assert again.space == stored.space
    (row,) = sqlite3.connect("runs/ablate.db").execute(
        "SELECT count(*), sum(accuracy IS NOT NULL) FROM results_norms"
    )
    assert row == (15, 15)


@pytest.mark.parametrize(
    "words",
    [
        "resume norms",
        "diagnose norms",
        "logs norms",
        "reproduce HASH",
        "logs HASH",
        "export norms --log tensorboard",
    ],
)
def test_what_trains_is_refused_with_the_command_that_adds_results(
    say: Say, words: str
) -> None:
    study = keep(runs_of(), Path("runs"))
    with Reader(study.store) as reader:
        trial = reader.trials.of("norms")[0].trial
    code, _, err = say(*words.replace("HASH", trial).split())
    assert code == 2
    assert "trained elsewhere" in err
    assert '.keep("norms")' in err or ".keep('norms')" in err


def test_resume_without_a_name_leaves_reported_studies_out(say: Say) -> None:
    keep(runs_of(), Path("runs"))
    code, _, err = say("resume")
    assert code == 2
    assert "no study to train" in err


def test_the_same_results_are_the_same_study(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    shuffled = runs_of().sample(frac=1, random_state=1)
    study = keep(shuffled, tmp_path)
    assert study.results().before.generation == 1
    with Reader(study.store) as reader:
        assert len(reader.studies.all()) == 1


def test_more_seeds_are_another_look(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    study = keep(runs_of(seeds=8), tmp_path)
    results = study.results()
    assert results.before.generation == 2
    assert [one.name for one in results.before.studies] == ["norms@1"]
    assert 8 in {len(effect.seeds) for effect in study.effects()} <= {5, 8}


def test_a_new_row_leaves_the_verdicts_of_the_others(tmp_path: Path) -> None:
    before = by_row(keep(runs_of(), tmp_path))
    effects = by_row(keep(runs_of(rows=4), tmp_path))
    for row in (1, 2):
        assert effects[row].shown_by == "norms@1"
        assert effects[row].judged == before[row].judged
    assert effects[3].shown_by == ""


def test_a_replaced_result_takes_the_verdict_of_its_row(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    frame = runs_of()
    frame.loc[frame.index[7], "accuracy"] += 1.0
    study = keep(frame, tmp_path)
    effects = by_row(study)
    assert effects[1].withheld is Withheld.PARTIAL
    assert effects[2].shown_by == "norms@1"
    reported = study.results().reported
    assert reported is not None
    assert "norm = rms, seed 2" in reported.notes[0]
    assert MARK in reported.notes[-1]


def test_results_that_are_left_out_take_the_verdicts(tmp_path: Path) -> None:
    keep(runs_of(seeds=8), tmp_path)
    effects = by_row(keep(runs_of(seeds=6), tmp_path))
    assert {effect.withheld for effect in effects.values()} == {Withheld.PARTIAL}


def test_studies_of_other_names_compare_other_things(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    other = runs_of()
    other["accuracy"] -= 20
    study = keep(other, tmp_path, "others")
    assert study.results().before.studies == ()
    with Reader(study.store) as reader:
        assert reader.studies.relatives("others") == []


def test_unpaired_runs_stay_unpaired(tmp_path: Path) -> None:
    judged = ablate.judge(FILES / "unpaired.csv", baseline=LAYER)
    study = judged.keep("apart", runs=tmp_path)
    results = study.results()
    assert not results.is_paired
    (effect,) = study.effects()
    (before,) = judged.effects()
    assert effect.estimate is not None
    assert before.estimate is not None
    assert effect.estimate.p == before.estimate.p
    assert "unpaired" in study.table("latex")
    assert "Welch" in study.table("latex")
    with pytest.raises(AblateError, match="same seeds in all rows"):
        study.effects_table("factors")


def test_bold_rows_of_unpaired_runs_are_not_paired_by_chance() -> None:
    """Rows 1 and 2 differ by 0.1 of a standard deviation of 1: neither is better.

    Their differences in the order of the file have a standard deviation of 0.01.
    """
    noise = np.random.default_rng(3).normal(0, 1, 6)
    frame = pd.DataFrame(
        [
            {
                "norm": norm,
                "accuracy": 70 + shift + noise[run] + 0.01 * run * (shift > 5),
            }
            for norm, shift in (("layer", 0.0), ("rms", 8.0), ("batch", 8.1))
            for run in range(6)
        ]
    )
    judged = ablate.judge(frame, baseline=LAYER)
    table = judged.results_table()
    bold = {row for row, name in table.bold if name == "accuracy"}
    assert bold == {1, 2}


def test_a_failed_run_is_kept_and_takes_the_verdict(tmp_path: Path) -> None:
    frame = runs_of()
    frame.loc[frame.index[7], "accuracy"] = np.nan
    frame.loc[frame.index[11], "accuracy"] = np.inf
    study = keep(frame, tmp_path)
    cells = study.results().cells
    assert cells[1].statuses[2] is Status.FAILED
    assert cells[2].statuses[1] is Status.DIVERGED
    effects = by_row(study)
    assert effects[1].withheld is Withheld.FAILED
    assert effects[2].withheld is Withheld.DIVERGED
    (finding,) = [
        finding
        for finding in review("norms", study.store)
        if finding.name == "runs without a result"
    ]
    assert "row 1: 1 of 5, row 2: 1 of 5" in finding.text


def test_a_study_that_was_trained_here_is_not_replaced(
    say: Say, tmp_path: Path
) -> None:
    code, _, err = say("run", "tiny.yaml", "--executor", "inline")
    assert code == 0, err
    Path("tiny.csv").write_text(runs_of().to_csv(index=False))
    judge = ("judge", "tiny.csv", "--baseline", "norm=layer", "--keep")
    code, _, err = say(*judge)
    assert code == 2
    assert "trained here" in err
    assert "--name tiny-reported" in err
    say(*judge, "--name", "other")
    space = Path("tiny.yaml").read_text().replace("question:", "name: other\nquestion:")
    Path("other.yaml").write_text(space)
    code, _, err = say("run", "other.yaml", "--executor", "inline")
    assert code == 2
    assert "trained elsewhere" in err
    assert "name:" in err


def test_files_of_one_name_in_two_folders_are_two(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("judge", "results.csv", "--baseline", "norm=layer", "--keep")
    for folder in ("a", "b"):
        Path(folder).mkdir()
        runs_of().to_csv(f"{folder}/results.csv", index=False)
    monkeypatch.chdir("a")
    assert say(*words, "--store", "../all.db")[0] == 0
    monkeypatch.chdir("../b")
    code, _, err = say(*words, "--store", "../all.db")
    assert code == 2
    assert "a/results.csv" in err


def test_two_files_of_one_name_are_not_one_study(say: Say) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        runs_of().to_csv(f"{folder}/results.csv", index=False)
    words = ("--baseline", "norm=layer", "--keep")
    assert say("judge", "a/results.csv", *words)[0] == 0
    code, _, err = say("judge", "b/results.csv", *words)
    assert code == 2
    assert "a/results.csv" in err
    assert "--name" in err
    assert say("judge", "b/results.csv", *words, "--name", "second")[0] == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--name x", "--name has no effect without --keep"),
        ("--store x.db", "--store has no effect without --keep"),
        ("--runs x", "--runs has no effect without --keep"),
        ("--keep --name a@1", "cannot name a study"),
        ("--keep --name -x", "cannot name a study"),
    ],
)
def test_options_are_refused(say: Say, words: str, error: str) -> None:
    runs_of().to_csv("results.csv", index=False)
    code, _, err = say(
        "judge", "results.csv", "--baseline", "norm=layer", *words.split()
    )
    assert code == 2
    assert error in err
    assert not Path("runs").exists()


def test_the_variable_of_the_store_is_for_all_commands(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_STORE", "mine.db")
    runs_of().to_csv("results.csv", index=False)
    words = ("judge", "results.csv", "--baseline", "norm=layer")
    assert say(*words)[0] == 0
    assert not Path("mine.db").exists()
    assert say(*words, "--keep")[0] == 0
    assert Path("mine.db").exists()


def test_a_target_is_no_study(say: Say) -> None:
    runs_of().to_csv("results.csv", index=False)
    code, _, err = say("judge", "results.csv", "--target", "70", "--keep")
    assert code == 2
    assert "leave --keep out" in err
    judged = ablate.judge(runs_of(), needs_baseline=False)
    with pytest.raises(AblateError, match="needs_baseline=True"):
        judged.keep("norms")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda frame: frame.replace("rms", "r" * 300), "300 characters"),
        (lambda frame: frame.rename(columns={"norm": "n" * 100}), "100 characters"),
    ],
)
def test_names_that_a_store_cannot_have(
    change: Callable[[pd.DataFrame], pd.DataFrame], error: str, tmp_path: Path
) -> None:
    frame = change(runs_of())
    with pytest.raises(AblateError, match=error):
        ablate.judge(frame, baseline={frame.columns[0]: "layer"}).keep(
            "norms", runs=tmp_path
        )
    assert not (tmp_path / "ablate.db").exists()


def test_a_frame_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(AblateError, match="name"):
        keep(runs_of(), tmp_path, "")


@pytest.mark.parametrize("metric", ["seed", "Status", "norm", "val/acc", "9", "%"])
def test_a_metric_of_any_name_gets_a_column(metric: str, tmp_path: Path) -> None:
    frame = runs_of().rename(columns={"accuracy": metric, "seed": "run_seed"})
    if metric == "norm":
        frame.columns = pd.Index(["a", "run_seed", "A"])
    name = str(frame.columns[2])
    study = ablate.judge(
        frame,
        metric=name,
        direction="max",
        seed="run_seed",
        by=[str(frame.columns[0])],
        baseline={str(frame.columns[0]): "layer"},
    ).keep("norms", runs=tmp_path)
    assert study.results().metric.title == name
    columns, rows = study.wide()
    assert len(set(map(str.lower, columns))) == len(columns)
    assert len(rows) == 15


def test_levels_of_every_type_survive(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        [
            {"a": a, "b": b, "seed": seed, "accuracy": 70.0 + seed + (b or 0)}
            for a, b in ((True, 0.1), (False, 0.25), (True, None))
            for seed in range(3)
        ]
    )
    judged = ablate.judge(frame, by=["a", "b"], baseline={"a": True, "b": 0.1})
    study = judged.keep("types", runs=tmp_path)
    levels = [dict(cell.levels) for cell in study.results().cells]
    assert levels == [dict(cell.levels) for cell in judged.results.cells]


def test_seeds_of_any_kind_are_kept(tmp_path: Path) -> None:
    frame = runs_of()
    frame["seed"] = [f"s{seed}" for seed in frame["seed"]]
    assert keep(frame, tmp_path, "words").results().cells[1].statuses.keys() == {
        0,
        1,
        2,
        3,
        4,
    }
    frame = runs_of()
    frame["seed"] = [10.0**18 + 1000 * seed for seed in frame["seed"]]
    study = keep(frame, tmp_path, "large")
    assert study.results().is_paired
    assert by_row(study)[1].verdict is Verdict.HELPS


def test_other_formats_are_complete(say: Say) -> None:
    runs_of().to_csv("results.csv", index=False)
    words = ("judge", "results.csv", "--baseline", "norm=layer", "--keep")
    code, out, err = say(*words, "--format", "json")
    assert code == 0, err
    assert [row["verdict"] for row in json.loads(out)] == ["helps", "inconclusive"]
    code, out, _ = say("effects", "results", "--format", "json")
    assert [row["verdict"] for row in json.loads(out)] == ["helps", "inconclusive"]
    code, _, err = say("export", "results", "--to", "trials.csv")
    assert code == 0, err
    assert pd.read_csv("trials.csv")["accuracy"].notna().sum() == 15
    code, _, err = say("export", "results", "--optuna", "sqlite:///o.db")
    assert code == 0, err
    code, out, _ = say("gate", "results", "--row", "1")
    assert code == 0
    assert "helps" in out
    code, out, _ = say("status", "--error-budget")
    assert "row 1" in out


def test_a_store_that_is_busy_or_damaged_loses_nothing(tmp_path: Path) -> None:
    study = keep(runs_of(), tmp_path)
    before = (tmp_path / "ablate.db").read_bytes()
    judged = ablate.judge(runs_of(seeds=6), baseline=LAYER)
    from ablate.store.writer import Writer

    with Writer(study.store), pytest.raises(StoreError):
        judged.keep("norms", runs=tmp_path)
    assert (tmp_path / "ablate.db").read_bytes() == before


def test_a_renamed_study_goes_on(say: Say) -> None:
    keep(runs_of(), Path("runs"), "first")
    assert say("study", "rename", "first", "second")[0] == 0
    results = keep(runs_of(seeds=8), Path("runs"), "second").results()
    assert results.before.generation == 2
    assert [one.name for one in results.before.studies] == ["second@1"]


def test_a_reported_study_is_imported(say: Say) -> None:
    study = keep(runs_of(), Path("theirs"))
    code, _, err = say("import", "theirs/ablate.db")
    assert code == 0, err
    imported = ablate.open_study("norms")
    assert imported.results().reported == study.results().reported
    assert imported.table("csv") == study.table("csv")


@pytest.mark.proof
def test_a_server_keeps_the_same(tmp_path: Path) -> None:
    on_file = keep(runs_of(), tmp_path)
    judged = ablate.judge(runs_of(), baseline=LAYER)
    with postgres() as url:
        on_server = judged.keep("norms", store=url)
        assert on_server.table("csv") == on_file.table("csv")
        judged = ablate.judge(runs_of(seeds=8), baseline=LAYER)
        more = judged.keep("norms", store=url)
        assert more.results().before.generation == 2
        assert len(more.wide()[1]) == 24


def with_results(frame: pd.DataFrame, norm: str, number: int) -> pd.DataFrame:
    """Returns runs in which the first results of a row are much better."""
    changed = frame.copy()
    rows = changed.index[changed["norm"] == norm][:number]
    changed.loc[rows, "accuracy"] += 3.0
    return changed


@pytest.mark.parametrize("number", [1, 3, 4, 5])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_replaced_results_never_get_a_verdict(
    tmp_path: Path, norm: str, number: int
) -> None:
    """A part of a row or all of it; and a third generation brings no verdict back."""
    keep(runs_of(), tmp_path)
    effects = by_row(keep(with_results(runs_of(), norm, number), tmp_path))
    assert effects[2].withheld is Withheld.PARTIAL
    more = with_results(runs_of(seeds=8), norm, number)
    study = keep(more, tmp_path)
    assert by_row(study)[2].withheld is Withheld.PARTIAL
    # The note stays, although the generation before has the same results.
    reported = study.results().reported
    assert reported is not None
    assert f"norm = {norm}, seed 0" in reported.notes[0]


def test_results_left_out_and_replaced_never_get_a_verdict(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    keep(runs_of(seeds=2), tmp_path)
    effects = by_row(keep(with_results(runs_of(), "batch", 5), tmp_path))
    assert effects[2].withheld is Withheld.PARTIAL


def test_a_run_that_failed_may_get_a_result(tmp_path: Path) -> None:
    frame = runs_of()
    whole = frame.copy()
    frame.loc[frame.index[7], "accuracy"] = np.nan
    keep(frame, tmp_path)
    study = keep(whole, tmp_path)
    assert by_row(study)[1].withheld is None
    reported = study.results().reported
    assert reported is not None
    assert not any("differ" in note for note in reported.notes)


def test_another_metric_of_the_same_file_loses_nothing(tmp_path: Path) -> None:
    frame = runs_of()
    # Some results are equal in both.
    frame["f1"] = frame["accuracy"].where(frame["seed"] < 2, frame["accuracy"] - 5)
    for metric in ("accuracy", "f1"):
        judged = ablate.judge(frame, metric=metric, by=["norm"], baseline=LAYER)
        study = judged.keep("norms", runs=tmp_path)
        results = study.results()
        for cell, before in zip(results.cells, judged.results.cells, strict=True):
            assert cell.values == before.values
    # Which metric shows an effect was known.
    assert len(results.before.studies) == 1
    assert by_row(study)[1].withheld is Withheld.KNOWN
    assert results.reported is not None
    assert not any("differ" in note for note in results.reported.notes)


def seeded(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Returns runs without seeds, or with seeds that are no whole numbers."""
    if kind == "none":
        return frame.drop(columns="seed")
    if kind == "text":
        return frame.assign(seed=[f"s{seed}" for seed in frame["seed"]])
    return frame.assign(seed=frame["seed"] + 0.5)


@pytest.mark.parametrize("kind", ["none", "text", "fraction"])
def test_the_order_of_lines_says_nothing(tmp_path: Path, kind: str) -> None:
    frame = seeded(runs_of(), kind)
    keep(frame, tmp_path)
    study = keep(frame.iloc[::-1], tmp_path)
    with Reader(study.store) as reader:
        assert len(reader.studies.all()) == 1
    more = seeded(runs_of(seeds=7), kind)
    effects = by_row(keep(more.sample(frac=1, random_state=2), tmp_path))
    assert {effect.withheld for effect in effects.values()} == {None}
    assert 7 in {len(effect.seeds) for effect in effects.values()} <= {5, 7}


def test_a_note_names_a_seed_as_the_file_does(tmp_path: Path) -> None:
    frame = runs_of()
    frame["seed"] = [f"s{seed}" for seed in frame["seed"]]
    keep(frame, tmp_path)
    reported = keep(with_results(frame, "rms", 1), tmp_path).results().reported
    assert reported is not None
    assert "norm = rms, seed s0" in reported.notes[0]


def test_the_only_seed_of_a_file_is_its_seed(tmp_path: Path) -> None:
    frame = runs_of()
    frame["seed"] += 42
    keep(frame[frame["seed"] == 42], tmp_path)
    study = keep(frame, tmp_path)
    assert by_row(study)[1].verdict is Verdict.HELPS
    assert study.results().cells[0].statuses.keys() == {42, 43, 44, 45, 46}


def test_a_new_text_among_numbers_changes_no_row(tmp_path: Path) -> None:
    depths = {"layer": 1, "rms": 2, "batch": 4}
    frame = runs_of()
    frame["norm"] = frame["norm"].map(depths)
    judged = ablate.judge(frame, by=["norm"], baseline={"norm": 1})
    judged.keep("depths", runs=tmp_path)
    more = pd.concat([frame, runs_of(4).query("norm == 'group'")])
    more["norm"] = more["norm"].replace("group", "auto").astype(str)
    judged = ablate.judge(more, by=["norm"], baseline={"norm": "1"})
    study = judged.keep("depths", runs=tmp_path)
    effects = by_row(study)
    assert effects[1].shown_by == "depths@1"


def test_renamed_columns_stay_in_the_group_of_their_name(tmp_path: Path) -> None:
    keep(runs_of(), tmp_path)
    judged = ablate.judge(
        runs_of().rename(columns={"norm": "Norm"}), baseline={"Norm": "layer"}
    )
    results = judged.keep("norms", runs=tmp_path).results()
    assert [one.name for one in results.before.studies] == ["norms@1"]


def test_a_verdict_by_pairs_stays_among_unpaired_ones(tmp_path: Path) -> None:
    keep(runs_of(2), tmp_path)
    apart = runs_of(3).query("norm == 'batch'")
    apart["seed"] += 20
    study = keep(pd.concat([runs_of(2), apart]), tmp_path)
    assert not study.results().is_paired
    effects = by_row(study)
    assert effects[1].shown_by == "norms@1"
    assert effects[2].apart == 5


def test_an_interval_without_end_is_not_drawn() -> None:
    """Hundreds of rows with two seeds have such intervals."""
    first, second = ablate.judge(runs_of(), baseline=LAYER).effects()
    assert first.estimate is not None
    endless = replace(first.estimate, low=-np.inf, high=np.inf)
    lines = forest_text([replace(first, estimate=endless), second])
    assert [line[:2] for line in lines[:-1]] == ["2:"]
    assert forest_text([replace(first, estimate=endless)]) == []


def test_advice_finds_the_store_and_the_name(say: Say) -> None:
    runs_of().to_csv("results.csv", index=False)
    place = ("--runs", "mine")
    say("judge", "results.csv", "--baseline", "norm=layer", "--keep", *place)
    code, _, err = say("resume", "results", *place)
    assert code == 2
    assert "--keep --name results --runs mine" in err
    _, _, err = say("study", "rename", "results", "other", *place)
    assert "--name other" in err
    assert "name:" not in err
    _, out, _ = say("review", "other", *place, "--format", "json")
    assert "--keep --name other --runs mine" in out


def test_a_frame_is_kept_again_with_its_margin(tmp_path: Path) -> None:
    judged = ablate.judge(runs_of(), baseline=LAYER, margin=0.5)
    judged.keep("norms", runs=tmp_path)
    (finding, *_) = review("norms", f"sqlite:///{tmp_path}/ablate.db")
    assert "margin=0.5" in finding.command
    assert finding.command.endswith(".keep('norms')")


@pytest.mark.parametrize("name", ["chain/ours/1", "compare/a..b"])
def test_names_of_chains_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AblateError, match="another name"):
        keep(runs_of(), tmp_path, name)


def test_many_levels_need_no_forest(tmp_path: Path) -> None:
    """fANOVA would take hours; a row with one run leaves no exact shares."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        [{"k": f"l{row}", "j": row % 3, "accuracy": draw.normal()} for row in range(40)]
    )
    judged = ablate.judge(
        frame, metric="accuracy", by=["k", "j"], baseline={"k": "l0", "j": 0}
    )
    table = judged.keep("many", runs=tmp_path).effects_table("importance")
    assert {row["factor"] for row in table.data} == {"k", "j"}
    assert all(row["fanova"] is None for row in table.data)
    assert all(row["ped_anova"] is not None for row in table.data)


@pytest.mark.parametrize(
    "words",
    [
        "pandas.parquet",
        "curves.csv",
        "wandb.csv",
        "lightning",
        "lines",
        "timm --metric eval_top1",
        "tensorboard --names {norm}-{seed}",
    ],
)
def test_every_form_is_kept_and_its_command_keeps_it_again(
    say: Say, words: str
) -> None:
    file, *options = words.split()
    code, _, err = say(
        *("judge", str(FILES / file), *options),
        *("--baseline", "norm=layer", "--keep", "--name", "runs"),
    )
    assert code == 0, err
    study = ablate.open_study("runs")
    (effect,) = study.effects()
    assert effect.verdict is Verdict.HELPS
    assert effect.mean == pytest.approx(2.0)
    before = study.declared()
    assert before.reported is not None
    code, _, err = say(*shlex.split(before.reported.again("runs"))[1:])
    assert code == 0, err
    assert study.declared() == before
    assert study.results().before.generation == 1
