"""Runs that were trained elsewhere: read from files of real tools, and judged.

The scores of `make_files.py`: row 0 has 70 to 74, the other row 1.8 to 2.1 more. By hand:
the mean difference is 2.0. Paired, its standard deviation is 0.122, so t = 36.5 with 4
degrees of freedom (p < 0.001). Unpaired, the standard deviations are 1.58 and 1.65, so t =
1.957, and with 4 degrees of freedom p = 0.122.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.errors import AblateError
from ablate.records import Status
from ablate.report.verdicts import Verdict, Withheld
from ablate.results.elsewhere import Judged, judge
from tests.conftest import Say

FILES = Path(__file__).parent / "files"
LAYER = {"norm": "layer"}


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trackers")
    # MLflow keeps its experiment for the rest of a process.
    maker = str(Path(__file__).parent / "make_files.py")
    subprocess.run(
        [sys.executable, maker, str(folder), "mlflow", "optuna"],
        check=True,
        capture_output=True,
    )
    return folder


def is_paired(judged: Judged) -> None:
    (effect,) = judged.effects()
    assert effect.verdict is Verdict.HELPS
    assert effect.estimate is not None
    assert effect.mean == pytest.approx(2.0)
    assert effect.estimate.error == pytest.approx(0.1225 / 5**0.5, rel=0.01)
    assert effect.estimate.p < 0.001
    assert effect.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("pandas.csv", {}),
        ("pandas.parquet", {}),
        ("pandas.jsonl", {}),
        ("curves.csv", {}),
        ("wandb.csv", {}),
        ("lightning", {}),
        ("lines", {}),
        ("timm", {"metric": "eval_top1"}),
        ("tensorboard", {"names": "{norm}-{seed}"}),
    ],
)
def test_files_of_real_tools(file: str, options: dict[str, str]) -> None:
    judged = judge(FILES / file, baseline=LAYER, **options)
    assert judged.columns.factors == ("norm",)
    assert judged.columns.seed == "seed"
    is_paired(judged)


@pytest.mark.filterwarnings("ignore")
def test_databases_of_trackers(databases: Path) -> None:
    is_paired(judge(databases / "mlflow.db", baseline=LAYER))
    is_paired(judge(databases / "optuna.db", baseline=LAYER, direction="max"))


def test_runs_without_seeds_are_unpaired() -> None:
    judged = judge(FILES / "unpaired.csv", baseline=LAYER)
    (effect,) = judged.effects()
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert effect.estimate is not None
    assert effect.mean == pytest.approx(2.0)
    assert effect.estimate.freedom == 4
    (row,) = judged.effects_table().data
    assert (row["n"], row["n_reference"]) == (5, 5)
    assert effect.estimate.value / effect.estimate.error == pytest.approx(
        1.957, abs=0.01
    )
    assert effect.estimate.p == pytest.approx(0.122, abs=0.002)
    # Twice as many runs: 2 / (1.62 x sqrt(2 / 8)) = 2.47, beyond 2.36 (7 degrees).
    assert effect.further == 3
    assert "unpaired" in " ".join(judged.effects_table().notes)


def test_names_of_folders_say_name_and_seed() -> None:
    judged = judge(FILES / "tensorboard", baseline={"name": "layer"})
    assert judged.columns.metric == "val/acc"
    is_paired(judged)


@pytest.mark.parametrize("baseline", ["norm=layer", "norm = layer"])
def test_the_command_says_what_it_takes_columns_for(say: Say, baseline: str) -> None:
    code, out, _ = say("judge", str(FILES / "pandas.csv"), "--baseline", baseline)
    assert code == 0
    assert (
        "10 runs: metric accuracy (larger is better), seeds seed, factors norm, baseline"
        " norm = layer." in out
    )
    assert "1: norm = rms" in out
    assert "---o---" in out
    assert "trained elsewhere" in out


def test_the_command_prints_data(say: Say) -> None:
    where = (str(FILES / "pandas.csv"), "--baseline", "norm=layer")
    code, out, _ = say("judge", *where, "--format", "json")
    assert code == 0
    (row,) = json.loads(out)
    assert row["verdict"] == "helps"
    assert row["difference"] == pytest.approx(2.0)


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(columns)


RUNS = frame(norm=["a", "a", "b", "b"], seed=[0, 1, 0, 1], acc=[1.0, 2.0, 3.0, 5.0])


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (RUNS, {}, "baseline with one of: norm=a; norm=b"),
        (RUNS, {"baseline": {"norm": "c"}}, "norm=c is no setting; write baseline"),
        (
            RUNS,
            {"baseline": {"nrom": "a"}},
            "unknown column 'nrom'; did you mean 'norm'",
        ),
        (RUNS, {"metric": "accu"}, "unknown column 'accu'"),
        (RUNS, {"metric": "norm"}, "the metric norm has a value that is no number: a"),
        (RUNS, {"by": ["seed"], "seed": "norm"}, "which setting is the baseline"),
        (RUNS.assign(loss=[1.0, 2.0, 3.0, 4.0]), {}, "may be the metric: acc, loss"),
        (
            RUNS.assign(seed2=0).rename(columns={"acc": "x"}),
            {},
            "no column looks like a metric",
        ),
        (RUNS.rename(columns={"acc": "x"}), {"metric": "x"}, "write direction max"),
        (RUNS[["seed", "acc"]], {}, "no column tells settings apart"),
        (RUNS[RUNS.norm == "a"], {"by": ["norm"]}, "all runs have the same setting"),
        (RUNS[:0], {}, "no line with a run"),
        (
            RUNS.assign(random_seed=[1, 2, 3, 4]),
            {},
            "several columns of seeds: seed, random_seed",
        ),
        (
            RUNS.assign(seed=[0, 0, 0, 1]),
            {"baseline": {"norm": "a"}},
            "two runs have norm = a and seed 0: line 0, and line 1",
        ),
        (
            RUNS.assign(seed=[0, None, 0, 1]),
            {"baseline": {"norm": "a"}},
            "line 1 has no seed",
        ),
        (pd.concat([RUNS, RUNS], axis=1), {}, "two columns norm"),
        (3, {}, "a frame with a line per run; found int"),
    ],
)
def test_what_is_ambiguous_is_an_error(
    runs: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AblateError) as raised:
        judge(runs, **options)
    assert message in str(raised.value)


def test_an_unusual_run_is_named() -> None:
    runs = frame(
        norm=["a"] * 3 + ["b"] * 3,
        seed=[0, 1, 2] * 2,
        acc=[1.0, 2.0, 3.0, 2.0, np.inf, 4.5],
    )
    judged = judge(runs, baseline={"norm": "a"})
    (effect,) = judged.effects()
    assert effect.withheld is Withheld.DIVERGED
    notes = " ".join(judged.effects_table().notes)
    assert "1 run without a result" in notes
    assert "line 4 (not finite)" in notes
    missing = judge(
        runs.assign(acc=[1.0, 2.0, 3.0, 2.0, None, 4.5]), baseline={"norm": "a"}
    )
    assert missing.effects()[0].withheld is Withheld.FAILED
    assert missing.results.cells[1].statuses[1] is Status.FAILED
    few = judge(runs[:5].assign(acc=[1.0, 2.0, 3.0, 2.0, 3.0]), baseline={"norm": "a"})
    assert "Not all rows have 3 runs: row 1 has 2." in few.effects_table().notes


def test_a_crashed_run_of_a_tracker_has_no_result(tmp_path: Path) -> None:
    text = (FILES / "wandb.csv").read_text().replace('"finished"', '"crashed"', 1)
    (tmp_path / "wandb.csv").write_text(text)
    judged = judge(tmp_path / "wandb.csv", baseline=LAYER)
    assert judged.effects()[0].withheld is Withheld.FAILED
    assert "wandb.csv, line 2 (failed)" in " ".join(judged.notes)


def test_a_run_that_ended_early_is_named(tmp_path: Path) -> None:
    lines = (FILES / "curves.csv").read_text().splitlines()
    left = [line for line in lines if not line.startswith("rms,3,3,")]
    assert len(left) == len(lines) - 1
    (tmp_path / "curves.csv").write_text("\n".join(left) + "\n")
    judged = judge(tmp_path / "curves.csv", baseline=LAYER)
    assert "1 run ended before 3" in " ".join(judged.notes)
    assert judged.results.cells[1].values[3] == pytest.approx(65.1)


def test_settings_with_levels_of_their_own_are_rows() -> None:
    runs = frame(
        lr=[0.1, 0.1, 0.01, 0.01, 0.1, 0.1],
        norm=["a", "a", "a", "a", "b", "b"],
        seed=[0, 1] * 3,
        acc=[1.0, 2.0, 3.0, 4.0, 5.0, 6.5],
        name=["r1", "r2", "r3", "r4", "r5", "r6"],
    )
    judged = judge(runs, baseline={"lr": 0.1, "norm": "a"})
    assert judged.columns.factors == ("lr", "norm")
    assert judged.columns.settings == ((0.1, "a"), (0.01, "a"), (0.1, "b"))


def test_levels_of_the_baseline_are_typed_as_people_do(
    tmp_path: Path, say: Say
) -> None:
    lines = ["flag,lr,fold,acc"]
    lines += [
        f"{flag},{lr},{fold},{fold + (flag == 'True') + fold * lr}"
        for flag in ("False", "True")
        for lr in (0.1, 0.25)
        for fold in range(3)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    where = (str(tmp_path / "a.csv"), "--baseline", "flag=False,lr=0.10")
    code, out, _ = say("judge", *where)
    assert code == 0
    assert "seeds fold, factors flag, lr, baseline flag = false, lr = 0.1" in out


def test_a_usual_word_is_the_baseline() -> None:
    runs = RUNS.assign(norm=["baseline", "baseline", "b", "b"])
    assert judge(runs).columns.baseline == ("baseline",)


@pytest.mark.parametrize(("target", "reaches"), [(70.0, True), (74.0, False)])
def test_a_target(say: Say, target: float, reaches: bool) -> None:
    judged = judge(FILES / "pandas.csv", needs_baseline=False)
    first, second = judged.target_tests(target)
    assert (first.n, second.n) == (5, 5)
    # Row 1: (74 - 70) / (1.65 / sqrt 5) = 5.4 with 4 degrees; two rows.
    assert second.reaches is reaches
    code, out, _ = say("judge", str(FILES / "pandas.csv"), "--target", str(target))
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.strip().startswith("1 ")]
    assert (f"above {target:g}" in line) is reaches


def test_a_smaller_target(say: Say) -> None:
    runs = frame(opt=["a"] * 4, seed=[0, 1, 2, 3], loss=[3.27, 3.275, 3.272, 3.276])
    judged = judge(runs, by=["opt"], needs_baseline=False)
    (test,) = judged.target_tests(3.28, level=0.01)
    # (3.28 - 3.27325) / (0.00275 / 2) = 4.9 with 3 degrees: p = 0.008.
    assert test.p == pytest.approx(0.008, abs=0.001)
    assert test.reaches


def test_python_has_the_same() -> None:
    judged = ablate.judge(RUNS, baseline={"norm": "a"})
    assert "<table" in judged._repr_html_()
    listed = RUNS.to_dict(orient="list")
    assert ablate.judge(listed, baseline={"norm": "a"}).effects() == judged.effects()


@pytest.mark.slow
def test_two_million_lines_take_seconds(tmp_path: Path, say: Say) -> None:
    generator = np.random.default_rng(0)
    epochs = np.arange(10_000)
    big = pd.DataFrame(
        {
            "norm": np.repeat(["a", "b", "c", "d"], 500_000),
            "seed": np.tile(np.repeat(np.arange(50), len(epochs)), 4),
            "epoch": np.tile(epochs, 200),
            "acc": generator.normal(70, 1, 2_000_000).round(4),
        }
    )
    big.to_csv(tmp_path / "big.csv", index=False)
    start = time.perf_counter()
    judged = judge(tmp_path / "big.csv", baseline={"norm": "a"})
    assert time.perf_counter() - start < 30
    assert [len(cell.values) for cell in judged.results.cells] == [50] * 4


def test_the_best_epoch_is_no_step() -> None:
    runs = RUNS.assign(epoch=[7, 9, 8, 6])
    judged = judge(runs, baseline={"norm": "a"})
    assert judged.runs == 4
    assert [cell.values for cell in judged.results.cells] == [
        {0: 1.0, 1: 2.0},
        {0: 3.0, 1: 5.0},
    ]


def test_curves_that_cannot_be_told_apart_are_refused() -> None:
    runs = frame(
        norm=["a", "a", "a", "a", "b", "b", "b", "b"],
        epoch=[1, 2] * 4,
        acc=[1.0, 2.0, 1.5, 2.5, 3.0, 4.0, 3.5, 4.5],
    )
    with pytest.raises(AblateError, match="line 2 has the settings and the epoch of"):
        judge(runs, baseline={"norm": "a"})


def test_columns_of_any_type(tmp_path: Path) -> None:
    runs = RUNS.assign(
        norm=RUNS.norm.astype("category"),
        tags=[["x"], ["x"], ["y"], ["y"]],
        when=pd.Timestamp("2026-11-28"),
        flag=[True, True, False, False],
    )
    runs.to_parquet(tmp_path / "a.parquet")
    for each in (runs, tmp_path / "a.parquet"):
        judged = judge(each, baseline={"norm": "a"})
        assert judged.columns.factors == ("norm", "tags", "flag")
    cut = tmp_path / "runs" / "a-0"
    cut.mkdir(parents=True)
    (cut / "events.out.tfevents.1").write_bytes(
        b"\x05" + b"\0" * 11 + b"junk of events"
    )
    with pytest.raises(AblateError, match="cannot be read|no run with a metric"):
        judge(tmp_path / "runs")


HOSTILE: dict[str, bytes] = {
    "empty.csv": b"",
    "header.csv": b"norm,seed,acc\n",
    "twice.csv": b"acc,acc\n1,2\n",
    "utf16.csv": "norm,seed,acc\na,0,1\n".encode("utf-16"),
    "zeros.csv": b"\0" * 1000,
    "cut.parquet": b"PAR1",
    "deep.json": b"[" * 100_000,
    "list.json": b"[1, 2]",
    "cut.jsonl": b'{"a": 1}\n{"a":',
    "noise.db": b"SQLite format 3\0" + b"x" * 4096,
    "other.db": b"",
    "page.html": b"<html>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_file_is_one_message(name: str, tmp_path: Path, say: Say) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name])
    code, _, error = say("judge", str(tmp_path / name))
    assert code == 2
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert len(error) < 2_000


def test_formulas_are_text_and_marked_in_csv(tmp_path: Path, say: Say) -> None:
    text = (FILES / "pandas.csv").read_text().replace("rms", "=HYPERLINK(1)")
    (tmp_path / "a.csv").write_text(text)
    where = (str(tmp_path / "a.csv"), "--baseline", "norm=layer")
    code, out, _ = say("judge", *where, "--format", "csv")
    assert code == 0
    assert "'norm" in out or "norm = =HYPERLINK" in out


def test_a_database_is_not_written(databases: Path) -> None:
    before = (databases / "optuna.db").read_bytes()
    judge(databases / "optuna.db", baseline=LAYER, direction="max")
    assert (databases / "optuna.db").read_bytes() == before
    with sqlite3.connect(databases / "other.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(AblateError, match="neither MLflow nor Optuna"):
        judge(databases / "other.db")


def test_an_event_file_that_was_cut_is_read_to_there(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(FILES / "tensorboard", tmp_path / "runs")
    (file,) = (tmp_path / "runs" / "rms-0").glob("*tfevents*")
    file.write_bytes(file.read_bytes()[:-10])
    judged = judge(tmp_path / "runs", names="{norm}-{seed}", baseline=LAYER)
    assert len(judged.results.cells[1].values) == 5


@pytest.mark.parametrize("names", ["norm", "{a}{a}", "{norm}-{seed}-x"])
def test_another_form_of_names_is_refused(names: str) -> None:
    with pytest.raises(AblateError, match="--names"):
        judge(FILES / "tensorboard", names=names)
