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


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore")
def test_databases_of_trackers(databases: Path) -> None:
    is_paired(judge(databases / "mlflow.db", baseline=LAYER))
    # The database states the direction.
    is_paired(judge(databases / "optuna.db", baseline=LAYER))


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
    # Row 1: five of five (1/32), and two rows.
    assert second.p == pytest.approx(2 / 32 if reaches else second.p)
    assert not second.reaches
    # (74 - 70) / (1.65 / sqrt 5) = 5.4 with 4 degrees: 0.003; two rows.
    assert second.p_mean is not None
    assert (second.p_mean < 0.01) is reaches
    code, out, _ = say("judge", str(FILES / "pandas.csv"), "--target", str(target))
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.strip().startswith("1 ")]
    assert ("5 of 5" in line) is reaches


def test_a_smaller_target(say: Say) -> None:
    runs = frame(opt=["a"] * 4, seed=[0, 1, 2, 3], loss=[3.27, 3.275, 3.272, 3.276])
    judged = judge(runs, by=["opt"], needs_baseline=False)
    (test,) = judged.target_tests(3.28, level=0.01)
    # (3.28 - 3.27325) / (0.00275 / 2) = 4.9 with 3 degrees: p = 0.008.
    assert test.p_mean == pytest.approx(0.008, abs=0.001)
    assert (test.reached, test.p, test.reaches) == (4, 1 / 16, False)
    runs = frame(opt=["a"] * 7, seed=[*range(7)], loss=[3.27] * 6 + [3.9])
    (test,) = judge(runs, by=["opt"], needs_baseline=False).target_tests(3.28, 0.1)
    # 8 of the 128 ways have six or seven of seven.
    assert (test.reached, test.p, test.reaches) == (6, 8 / 128, True)


def test_a_run_without_a_result_does_not_reach_a_target() -> None:
    runs = frame(
        opt=["a"] * 6, seed=[*range(6)], loss=[3.27, 3.26, 3.25, 3.24, 3.2, None]
    )
    (test,) = judge(runs, by=["opt"], needs_baseline=False).target_tests(3.28, 0.05)
    assert (test.n, test.reached, test.p_mean) == (6, 5, None)
    assert test.p == 7 / 64


def test_python_has_the_same() -> None:
    judged = ablate.judge(RUNS, baseline={"norm": "a"})
    assert "<table" in judged._repr_html_()
    listed = RUNS.to_dict(orient="list")
    assert ablate.judge(listed, baseline={"norm": "a"}).effects() == judged.effects()


@pytest.mark.proof
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
        kinds=[["x"], ["x"], ["y"], ["y"]],
        when=pd.Timestamp("2026-11-28"),
        flag=[True, True, False, False],
    )
    runs.to_parquet(tmp_path / "a.parquet")
    for each in (runs, tmp_path / "a.parquet"):
        judged = judge(each, baseline={"norm": "a"})
        assert judged.columns.factors == ("norm", "kinds", "flag")
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
    with pytest.raises(AblateError, match="names"):
        judge(FILES / "tensorboard", names=names)


def table(text: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


CURVES = [
    (norm, seed, epoch, 3.0 - 0.5 * epoch - (norm == "rms") - 0.01 * seed)
    for norm in ("layer", "rms")
    for seed in range(3)
    for epoch in range(4)
]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "frame"])
def test_a_curve_without_its_last_value_has_no_result(
    ending: str, tmp_path: Path
) -> None:
    runs = pd.DataFrame(CURVES, columns=["norm", "seed", "epoch", "loss"])
    runs.loc[(runs.norm == "rms") & (runs.seed == 1) & (runs.epoch == 3), "loss"] = (
        np.nan
    )
    file = tmp_path / f"a.{ending}"
    if ending == "csv":
        runs.to_csv(file, index=False)
    elif ending == "parquet":
        runs.to_parquet(file)
    elif ending == "jsonl":
        runs.to_json(file, orient="records", lines=True)
    judged = judge(runs if ending == "frame" else file, baseline=LAYER)
    assert judged.results.cells[1].statuses[1] is Status.FAILED
    assert judged.effects()[0].verdict is Verdict.INCONCLUSIVE


def test_a_run_that_logged_nothing_is_a_run(tmp_path: Path) -> None:
    for norm in ("layer", "rms"):
        for seed in range(3):
            value = (
                "" if (norm, seed) == ("rms", 2) else f"0,{seed + (norm == 'rms')}\n"
            )
            table(
                "epoch,acc\n" + value,
                tmp_path / "runs" / f"norm={norm}" / f"seed{seed}" / "metrics.csv",
            )
    judged = judge(tmp_path / "runs", baseline=LAYER)
    assert judged.runs == 6
    assert judged.results.cells[1].statuses[2] is Status.FAILED
    assert judged.effects()[0].verdict is Verdict.INCONCLUSIVE
    tests = judged.target_tests(0.5)
    assert tests[1].p_mean is None


@pytest.mark.parametrize("word", ["preempted", "error", "canceled", "RUNNING", "what?"])
def test_a_run_that_is_not_complete_has_no_result(word: str) -> None:
    runs = RUNS.assign(State=["finished", "finished", word, "finished"])
    judged = judge(runs, baseline={"norm": "a"})
    assert judged.results.cells[1].statuses == {0: Status.FAILED, 1: Status.COMPLETED}


def test_files_beside_each_other_are_runs(tmp_path: Path) -> None:
    for norm in ("layer", "rms"):
        for seed in range(3):
            lines = f'{{"step": 1, "acc": {seed + (norm == "rms")}}}\n'
            table(lines, tmp_path / "a" / f"norm={norm}" / f"log-{seed}.jsonl")
            table(lines, tmp_path / "b" / f"{norm}-{seed}.jsonl")
            table(f"epoch,acc\n1,{seed}\n", tmp_path / "c" / f"{norm}-{seed}.csv")
    assert judge(tmp_path / "a", baseline=LAYER).runs == 6
    for folder in ("b", "c"):
        judged = judge(tmp_path / folder, baseline={"name": "layer"})
        assert [sorted(cell.values) for cell in judged.results.cells] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("seeds", [[0, "x", 1], [2, 1.5, 1], ["a", "b", "c"]])
def test_seeds_of_any_kind_stay_apart(seeds: list[Any]) -> None:
    runs = frame(norm=["a"] * 3 + ["b"] * 3, seed=seeds * 2, acc=[1.0, 2, 3, 2, 3, 5])
    judged = judge(runs, baseline={"norm": "a"})
    assert [len(cell.values) for cell in judged.results.cells] == [3, 3]
    assert judged.results.is_paired


def test_numbers_in_names_of_models_are_no_seeds(tmp_path: Path) -> None:
    for name in ("resnet", "seresnet"):
        for depth in (18, 34, 50):
            table(
                "epoch,acc\n1,5\n",
                tmp_path / "runs" / f"{name}-{depth}" / "metrics.csv",
            )
    with pytest.raises(AblateError, match="baseline with one of: name=resnet-18"):
        judge(tmp_path / "runs")


def test_settings_of_files_and_names_belong_together(tmp_path: Path) -> None:
    for norm in ("layer", "rms"):
        folder = tmp_path / "runs" / f"norm={norm}"
        table(
            f"norm: {norm}\nwidths: [1, {len(norm)}]\nlr: null\n",
            folder / "config.yaml",
        )
        for seed in range(2):
            table(f"epoch,acc\n1,{seed}\n", folder / f"seed{seed}" / "metrics.csv")
    judged = judge(tmp_path / "runs", baseline=LAYER)
    assert judged.columns.seed == "seed"
    assert judged.columns.factors == ("norm", "widths")


def test_a_settings_file_cannot_run_code_or_grow(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} {{" + ", ".join(f"{k}: *{p}" for k in "123456") + "}\n"
        for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    code = (
        "betas: !!python/tuple [0.9, 0.99]\nf: !!python/object/apply:os.system [exit]\n"
    )
    for number, text in enumerate((bomb, code + "norm: a\n")):
        folder = tmp_path / f"runs{number}" / "x"
        table("epoch,acc\n1,2\n", folder / "metrics.csv")
        table(text, folder / "hparams.yaml")
        start = time.perf_counter()
        with pytest.raises(AblateError):
            judge(folder.parent)
        assert time.perf_counter() - start < 5


def test_a_name_of_a_metric_may_be_a_setting() -> None:
    runs = frame(
        norm=["a"] * 4 + ["b"] * 4,
        precision=[16, 16, 32, 32] * 2,
        acc=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5],
        aux=[0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18],
    )
    judged = judge(runs, metric="acc", baseline={"norm": "a", "precision": 16})
    assert judged.columns.factors == ("norm", "precision")
    assert any(note.startswith("Not used: aux.") for note in judged.notes)


@pytest.mark.parametrize("direction", ["maximize", "larger", "Max"])
def test_another_direction_is_refused(direction: str) -> None:
    with pytest.raises(AblateError, match="direction is max or min"):
        judge(RUNS, direction=direction, baseline={"norm": "a"})


def test_a_negative_score_has_no_direction() -> None:
    runs = RUNS.rename(columns={"acc": "neg_mean_squared_error"})
    with pytest.raises(AblateError, match="write direction max"):
        judge(runs, metric="neg_mean_squared_error")


def test_several_columns_pair_runs_together() -> None:
    runs = frame(
        norm=["a"] * 4 + ["b"] * 4,
        seed=[0, 0, 1, 1] * 2,
        fold=[0, 1] * 4,
        acc=[1.0, 2, 3, 4, 2, 3.5, 4, 5],
    )
    with pytest.raises(AblateError, match="or seed seed,fold if all of them"):
        judge(runs, baseline={"norm": "a"})
    judged = judge(runs, seed="seed,fold", baseline={"norm": "a"})
    assert judged.columns.factors == ("norm",)
    assert len(judged.effects()[0].seeds) == 4
    assert judged.results.is_paired


def test_other_seeds_are_named() -> None:
    runs = frame(
        norm=["a"] * 3 + ["b"] * 3 + ["c"] * 3,
        seed=[0, 1, 2, 0, 1, 9, 0, 1, 2],
        acc=[1.0, 2, 3, 2, 3, 5, 4, 4.5, 6],
    )
    judged = judge(runs, baseline={"norm": "a"})
    assert not judged.results.is_paired
    assert any(
        "row 1 and row 0 have other values of seed" in note for note in judged.notes
    )


def test_a_best_epoch_without_seeds_is_no_step() -> None:
    runs = frame(
        lr=[0.1, 0.1, 0.1, 0.01, 0.01, 0.01],
        epoch=[5, 7, 8, 5, 9, 6],
        acc=[1.0, 2.0, 3.0, 2.5, 3.5, 4.5],
    )
    assert judge(runs, baseline={"lr": 0.1}).runs == 6


@pytest.mark.parametrize(
    "values",
    [
        [1e200, 2e200, 3e200, 5e200],
        [1e-200, 2e-200, 3e-200, 5e-200],
        [1e308, -1e308, 1.0, 2.0],
        [1e-12, 2e-12, 3e-12, 5e-12],
        [0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2],
        ["1", "2", "3", "1" + "0" * 400],
        ["71.2%", "72%", "73%", "75%"],
        ["1.5", "None", "NA", "2.5"],
    ],
)
def test_numbers_of_any_size(values: list[Any], tmp_path: Path, say: Say) -> None:
    RUNS.assign(acc=values).to_csv(tmp_path / "a.csv", index=False)
    for more in (("--baseline", "norm=a"), ("--target", "1")):
        code, _, error = say("judge", str(tmp_path / "a.csv"), *more)
        assert code == 0, error
    (effect,) = judge(RUNS.assign(acc=values), baseline={"norm": "a"}).effects()
    assert str(effect.verdict)


def test_equal_values_reach_no_target() -> None:
    runs = frame(seed=[0, 1], loss=[0.3, 0.1 + 0.2])
    (test,) = judge(runs, needs_baseline=False).target_tests(0.35)
    assert (test.p_mean, test.reaches) == (None, False)


def test_a_target_needs_no_setting(tmp_path: Path, say: Say) -> None:
    file = table("seed,val_loss\n0,3.27\n1,3.275\n2,3.271\n", tmp_path / "a.csv")
    code, out, _ = say("judge", str(file), "--target", "3.28")
    assert code == 0
    assert "below 3.28" in out
    assert "3 runs: metric val_loss (smaller is better), seeds seed." in out
    for wrong in (
        ("--target", "nan"),
        ("--target", "1", "--baseline", "a=b"),
        ("--target", "1", "--margin", "1"),
        ("--level", "0.01"),
    ):
        assert say("judge", str(file), *wrong)[0] == 2


@pytest.mark.parametrize("level", [0.00123456789, 1234567.0, 0.1, "a,b", "x y", "="])
def test_the_baseline_that_is_offered_is_accepted(
    level: Any, tmp_path: Path, say: Say
) -> None:
    RUNS.assign(norm=[level, level, "b", "b"]).to_csv(tmp_path / "a.csv", index=False)
    code, _, error = say("judge", str(tmp_path / "a.csv"))
    assert code == 2
    offered = error.split("one of: ")[1].split(";")[0].strip()
    assert say("judge", str(tmp_path / "a.csv"), "--baseline", offered)[0] == 0
    judge(RUNS.assign(norm=[level, level, "b", "b"]), baseline={"norm": level})


def test_two_levels_of_a_baseline_are_refused(say: Say) -> None:
    where = (
        str(FILES / "pandas.csv"),
        "--baseline",
        "norm=layer",
        "--baseline",
        "norm=rms",
    )
    code, _, error = say("judge", *where)
    assert (code, "norm has two levels" in error) == (2, True)


def test_escape_codes_do_not_reach_the_terminal(tmp_path: Path, say: Say) -> None:
    text = (FILES / "pandas.csv").read_text().replace("rms", "r\x1b[31mms")
    code, out, _ = say(
        "judge", str(table(text, tmp_path / "a.csv")), "--baseline", "norm=layer"
    )
    assert code == 0
    assert "\x1b" not in out


def test_the_index_of_a_frame_counts() -> None:
    indexed = RUNS.set_index(["norm", "seed"])
    assert judge(indexed, baseline={"norm": "a"}).columns.seed == "seed"
    nullable = RUNS.convert_dtypes().assign(
        acc=pd.array([1.0, 2.0, 3.0, None], "Float64")
    )
    judged = judge(nullable, baseline={"norm": "a"})
    assert judged.results.cells[1].statuses[1] is Status.FAILED


def broken_tracker(path: Path, kind: str) -> Path:
    with sqlite3.connect(path) as store:
        if kind == "mlflow":
            store.executescript(
                "CREATE TABLE experiments (experiment_id, name);"
                "CREATE TABLE runs (run_uuid, name, status, experiment_id, lifecycle_stage,"
                " start_time);"
                "CREATE TABLE params (run_uuid, key, value);"
                "CREATE TABLE latest_metrics (run_uuid, key, value, step, is_nan);"
                "INSERT INTO runs VALUES ('a', 'x', 'FINISHED', 1, 'active', 0);"
                "INSERT INTO latest_metrics VALUES ('a', 'acc', NULL, NULL, 0);"
            )
        else:
            store.executescript(
                "CREATE TABLE studies (study_id, study_name);"
                "CREATE TABLE trials (trial_id, number, state, study_id);"
                "CREATE TABLE trial_params (param_id, trial_id, param_name, param_value,"
                " distribution_json);"
                "CREATE TABLE trial_values (trial_id, objective, value, value_type);"
                "INSERT INTO studies VALUES (1, 's');"
                "INSERT INTO trials VALUES (1, 0, 'COMPLETE', 1);"
                "INSERT INTO trial_params VALUES (1, 1, 'p', 7, '[]');"
            )
    return path


@pytest.mark.parametrize("kind", ["mlflow", "optuna"])
def test_a_broken_tracker_is_one_message(kind: str, tmp_path: Path, say: Say) -> None:
    code, _, error = say("judge", str(broken_tracker(tmp_path / "a#b?.db", kind)))
    assert code == 2
    assert "Traceback" not in error
    assert "neither MLflow nor Optuna" not in error
