"""Files in the forms of other tools, each with six runs: read right, or refused."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

from ablate.errors import AblateError
from ablate.readers import FileReader, Report
from ablate.readers.files import rows_of
from ablate.records.own_parts import Reports
from ablate.results.elsewhere import judge

NORMS = ("layer", "rms")
SEEDS = (0, 1, 2)


def score(norm: str, seed: int, step: int = 0) -> float:
    return 70 + (norm == "rms") + seed + 0.1 * seed * (norm == "rms") + step / 1000


def runs() -> Iterator[tuple[str, int]]:
    return ((norm, seed) for norm in NORMS for seed in SEEDS)


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def events(folder: Path, tag: str, values: list[float], form: str = "f") -> None:
    """Writes scalars as TensorFlow 2 does: as tensors with their bytes."""
    number = {"f": 1, "d": 2, "i": 3, "q": 9, "e": 19}[form]
    content = b""
    for step, value in enumerate(values):
        packed = struct.pack(f"<{form}", value if form in "fde" else int(value))
        tensor = TensorProto(
            dtype=number, tensor_shape=TensorShapeProto(), tensor_content=packed
        )
        event = Event(
            step=step, summary=Summary(value=[Summary.Value(tag=tag, tensor=tensor)])
        ).SerializeToString()
        content += struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.out.tfevents.1700000000.host.1.0.v2").write_bytes(content)


def tensorflow(folder: Path) -> None:
    for norm, seed in runs():
        values = [score(norm, seed, step) for step in range(4)]
        events(folder / f"norm={norm}" / f"seed{seed}", "epoch_accuracy", values)


def keras(folder: Path) -> None:
    """Keras writes training and validation into two folders of a run."""
    for norm, seed in runs():
        run = folder / f"norm={norm}" / f"seed{seed}"
        for part, plus in (("train", 9.0), ("validation", 0.0)):
            values = [score(norm, seed, step) + plus for step in range(4)]
            events(run / part, "epoch_accuracy", values, "d")


def hparams(folder: Path) -> None:
    """`add_hparams` writes a folder with the time as its name below that of the run."""
    for norm, seed in runs():
        run = folder / f"norm={norm}" / f"seed{seed}"
        with (
            SummaryWriter(str(run)) as writer,
            SummaryWriter(str(run / f"17328600{seed}.12")) as below,
        ):
            writer.add_scalar("val/accuracy", score(norm, seed), 1)
            below.add_scalar("hparam/x", 72.0, 0)


def transformers(folder: Path) -> None:
    for norm, seed in runs():
        run = folder / f"norm={norm}" / f"seed{seed}"
        history = [
            {"epoch": epoch / 2, "step": 10 * epoch, "loss": 1 / (epoch + 1)}
            for epoch in range(6)
        ]
        history.append({"epoch": 3.0, "step": 60, "eval_accuracy": score(norm, seed)})
        state = {"best_metric": None, "epoch": 3.0, "log_history": history}
        for place in (run, run / "checkpoint-30"):
            put(place / "trainer_state.json", json.dumps(state, indent=2))
        put(run / "config.json", json.dumps({"hidden_size": 8}, indent=2))


def all_results(folder: Path) -> None:
    for norm, seed in runs():
        result = {"epoch": 3.0, "eval_accuracy": score(norm, seed)}
        run = folder / f"norm={norm}" / f"seed{seed}"
        put(run / "all_results.json", json.dumps(result, indent=4))
        put(run / "train_results.json", json.dumps({"train_loss": 0.1}, indent=4))


def deit(folder: Path) -> None:
    """DeiT, MAE and ConvNeXt write JSON lines into log.txt."""
    for norm, seed in runs():
        lines = [
            json.dumps({"train_lr": 0.1, "test_acc1": score(norm, seed, e), "epoch": e})
            for e in range(3)
        ]
        put(
            folder / f"norm={norm}" / f"seed{seed}" / "log.txt", "\n".join(lines) + "\n"
        )


def lightning(folder: Path) -> None:
    for norm, seed in runs():
        run = folder / norm / f"version_{seed}"
        put(
            run / "config.yaml",
            f"seed_everything: {seed}\ntrainer:\n  max_epochs: 2\nmodel:\n  norm: {norm}\n",
        )
        put(run / "hparams.yaml", f"norm: {norm}\n")
        put(
            run / "metrics.csv",
            f"epoch,step,train_loss_step,val_acc\n0,49,0.5,\n1,99,,{score(norm, seed)}\n",
        )


def padded(folder: Path) -> None:
    for norm, seed in runs():
        run = folder / f"{norm}{seed}"
        put(run / "args.yaml", f"norm: {norm}\nseed: {seed}\n")
        rows = [f"{e:23},{score(norm, seed, e):23}" for e in range(3)]
        head = "                  Epoch,       metrics/mAP50(B)"
        put(run / "results.csv", "\n".join([head, *rows]) + "\n")


FOLDERS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "tensorflow": (tensorflow, {}),
    "keras": (keras, {"metric": "validation/epoch_accuracy"}),
    "hparams": (hparams, {"metric": "val/accuracy"}),
    "transformers": (transformers, {"metric": "eval_accuracy"}),
    "all_results": (all_results, {"metric": "eval_accuracy"}),
    "deit": (deit, {"metric": "test_acc1"}),
    "lightning": (lightning, {"metric": "val_acc"}),
    "padded": (padded, {"metric": "metrics/mAP50(B)", "direction": "max"}),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_of_runs(name: str, tmp_path: Path) -> None:
    make, options = FOLDERS[name]
    make(tmp_path / "out")
    judged = judge(tmp_path / "out", baseline={"norm": "layer"}, **options)
    assert judged.columns.factors == ("norm",)
    assert judged.results.is_paired
    (effect,) = judged.effects()
    assert effect.seeds == SEEDS
    # Tensors of TensorFlow have seven digits.
    assert effect.mean == pytest.approx(1.1, abs=1e-4)


@pytest.mark.parametrize("form", "fdiqe")
def test_numbers_of_tensors(form: str, tmp_path: Path) -> None:
    events(tmp_path, "x", [3.0, 4.0], form)
    (file,) = tmp_path.iterdir()
    assert [row["x"] for row in rows_of(file)] == [3.0, 4.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trainer_state.json", None),
        ("log.txt", '{"epoch": 1, "acc": 5}\n{"epoch": 2, "acc": 6}\n'),
        ("out.json", '[\n  {"epoch": 1, "acc": 5},\n  {"epoch": 2, "acc": 6}\n]\n'),
        ("padded.csv", "  Epoch ,  acc \n  1 , 5 \n 2, 6\n"),
        ("semicolons.csv", "epoch;acc\n1;5\n2;6\n"),
        ("tabs.tsv", "epoch\tacc\n1\t5\n2\t6\n"),
    ],
)
def test_commands_read_the_same_forms(
    name: str, text: str | None, tmp_path: Path
) -> None:
    """`reads=` and `judge` have one reader."""
    if text is None:
        history = [{"epoch": 1.0, "acc": 5}, {"epoch": 1.5, "loss": 1}]
        text = json.dumps(
            {"log_history": [*history, {"epoch": 2.0, "acc": 6}]}, indent=1
        )
    put(tmp_path / name, text)
    reader = FileReader(Reports(), ["acc"], str(tmp_path / name))
    assert reader.new(ended=True) == [Report(1, {"acc": 5.0}), Report(2, {"acc": 6.0})]


WIDE = {
    "decimal commas": "norm,seed,accuracy\nlayer,0,70,13\nrms,0,70,76\n",
    "a list": "norm,betas,seed,acc,date\nlayer,[0.9, 0.95],0,70.13,2026-11-01\n",
    "one of many": "norm,seed,acc\n" + "a,1,2\n" * 50 + "b,2,3,4\n",
    "semicolons": "norm;seed;acc\na;1;2\na;2;3;4\n",
}


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE)
def test_a_line_with_more_cells_than_the_header_is_named(
    text: str, tmp_path: Path
) -> None:
    put(tmp_path / "a.csv", text)
    with pytest.raises(AblateError, match=r"line \d+ has \d cells, and the header has"):
        judge(tmp_path / "a.csv", metric="acc")
    reader = FileReader(Reports(), ["acc"], str(tmp_path / "a.csv"))
    with pytest.raises(AblateError, match=r"line \d+ has \d cells"):
        reader.new(ended=True)


def test_empty_cells_at_the_end_of_lines_are_none(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "norm,seed,acc\na,0,1,,\na,1,2\nb,0,2,\nb,1,4\n")
    assert judge(tmp_path / "a.csv", baseline={"norm": "a"}).runs == 4


def curves(
    every: Callable[[str, int], list[int]],
    columns: Callable[[str, int], dict[str, Any]],
) -> pd.DataFrame:
    """Returns a long table: the steps at which runs log, and their settings."""
    generator = random.Random(2)
    return pd.DataFrame(
        [
            {
                **columns(norm, seed),
                "_step": step,
                "val_acc": score(norm, seed) + generator.gauss(0, 0.05) + step / 1e5,
                "lr": 0.1 if step < 1000 else 0.01,
            }
            for norm, seed in runs()
            for step in every(norm, seed)
        ]
    )


def by_norm(norm: str, seed: int) -> list[int]:
    every = 500 if norm == "layer" else 250
    return [every * k for k in range(1, 21)]


def uneven(norm: str, seed: int) -> list[int]:
    return sorted(random.Random(f"{norm}{seed}").sample(range(1, 3000), 20))


LONG = {
    "a name of the run": (
        by_norm,
        lambda n, s: {"run": f"{n}-{s}", "norm": n, "seed": s},
    ),
    "seeds": (by_norm, lambda n, s: {"norm": n, "seed": s}),
    "uneven steps with seeds": (uneven, lambda n, s: {"norm": n, "seed": s}),
    "a numeric setting that decides how often": (
        by_norm,
        lambda n, s: {"norm": n, "seed": s, "batch": 32 if n == "layer" else 64},
    ),
    "only a numeric setting": (
        lambda n, s: [(50 if n == "layer" else 70) * k for k in range(1, 21)],
        lambda n, s: {"norm": 1 if n == "layer" else 2, "seed": s},
    ),
    "seeds in other letters": (by_norm, lambda n, s: {"norm": n, "Seed ": s}),
    "a name of the row and seeds": (
        by_norm,
        lambda n, s: {"name": n, "norm": n, "seed": s},
    ),
    "a name of the row, a text and seeds": (
        by_norm,
        lambda n, s: {"name": "all", "norm": n, "seed": s, "data": "a"},
    ),
    "an identifier and a name": (
        by_norm,
        lambda n, s: {"run_id": f"x{n}{s}", "name": n, "norm": n, "seed": s},
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_curves_are_never_runs(name: str) -> None:
    every, columns = LONG[name]
    frame = curves(every, columns)
    level = 1 if frame.norm.dtype == "int64" else "layer"
    judged = judge(frame, metric="val_acc", by=["norm"], baseline={"norm": level})
    assert judged.runs == 6
    (effect,) = judged.effects()
    assert effect.mean == pytest.approx(1.1, abs=0.2)
    target = judge(frame, metric="val_acc", by=["norm"], needs_baseline=False)
    assert [test.n for test in target.target_tests(70.0)] == [3, 3]


UNCLEAR = {
    "two steps": pd.DataFrame(
        {
            "norm": ["a"] * 4 + ["b"] * 4,
            "epoch": [1, 2] * 4,
            "acc": [1.0, 2, 1.5, 2.5, 3, 4, 3.5, 4.5],
        }
    ),
    "an equal step in a row": pd.DataFrame(
        {
            "norm": ["a"] * 6 + ["b"] * 6,
            "epoch": [1, 2, 3] * 4,
            "acc": [1.0, 2, 3, 1.5, 2.5, 3.5, 3, 4, 5, 3.5, 4.5, 5.5],
        }
    ),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_may_be_curves_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(AblateError, match="add a column, such as run or seed"):
        judge(UNCLEAR[name], baseline={"norm": "a"})


ITEMS = {
    "doc_id": {"doc_id": range(40), "norm": True, "seed": True},
    "item without seeds": {"item": range(40), "norm": True, "seed": False},
    "id with seeds": {"id": range(40), "norm": True, "seed": True},
    "id without seeds": {"id": range(40), "norm": True, "seed": False},
    "Question ID": {
        "question_id": [f"q{k}" for k in range(40)],
        "norm": True,
        "seed": True,
    },
    "one run": {"doc_id": range(40), "norm": False, "seed": False},
}


def items(name: str) -> pd.DataFrame:
    form = ITEMS[name]
    column = next(iter(form))
    generator = random.Random(0)
    return pd.DataFrame(
        [
            {
                column: item,
                **({"norm": norm} if form["norm"] else {}),
                **({"seed": seed} if form["seed"] else {}),
                "acc": float(generator.random() < 0.7),
            }
            for norm in (NORMS if form["norm"] else ("a",))
            for seed in (SEEDS if form["seed"] else (0,))
            for item in form[column]
        ]
    )


@pytest.mark.parametrize("name", ITEMS)
def test_items_are_never_runs(name: str, tmp_path: Path) -> None:
    table = items(name)
    with pytest.raises(AblateError, match="has a line for each item of a test set"):
        judge(table, metric="acc")
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    with pytest.raises(AblateError, match="has a line for each item of a test set"):
        judge(tmp_path / "a.jsonl", metric="acc")


def test_samples_of_an_evaluation_are_no_results(tmp_path: Path) -> None:
    for norm, seed in runs():
        run = tmp_path / "out" / f"norm={norm}" / f"seed{seed}"
        lines = [json.dumps({"doc_id": k, "acc": k % 2}) for k in range(9)]
        put(run / "samples_arc_2026.jsonl", "\n".join(lines))
    with pytest.raises(AblateError, match="has a line for each item of a test set"):
        judge(tmp_path / "out")
    for norm, seed in runs():
        run = tmp_path / "out" / f"norm={norm}" / f"seed{seed}"
        results = {"results": {"arc": {"acc,none": score(norm, seed)}}}
        put(run / "results_2026.json", json.dumps(results, indent=1))
    judged = judge(tmp_path / "out", baseline={"norm": "layer"})
    assert judged.columns.metric == "results.arc.acc,none"
    assert judged.runs == 6


def test_an_id_may_number_runs() -> None:
    table = pd.DataFrame({"norm": ["a"] * 3 + ["b"] * 3, "id": range(6)})
    table["acc"] = [1.0, 2, 3, 2, 3.5, 4]
    assert judge(table, baseline={"norm": "a"}).runs == 6
    table["id"] = [0, 1, 2] * 2
    assert judge(table, baseline={"norm": "a"}, seed="id").results.is_paired


def chart(*, grouped: bool = False) -> str:
    names = [f"{norm}-seed{seed}" for norm, seed in runs()]
    ends = ("", "__MIN", "__MAX")
    lines = [
        ",".join(['"Step"'] + [f'"{n} - val_acc{e}"' for n in names for e in ends])
    ]
    for step in range(4):
        cells = [str(step)]
        for norm, seed in runs():
            value = score(norm, seed, step)
            cells += [str(value), str(value - grouped), str(value)]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def test_a_chart_of_weights_and_biases(tmp_path: Path) -> None:
    put(tmp_path / "chart.csv", chart())
    judged = judge(tmp_path / "chart.csv", baseline={"name": "layer"})
    assert judged.columns.metric == "val_acc"
    assert judged.results.is_paired
    assert judged.effects()[0].mean == pytest.approx(1.1)
    put(tmp_path / "chart.csv", chart(grouped=True))
    with pytest.raises(AblateError, match="is a mean over several runs"):
        judge(tmp_path / "chart.csv")


def test_what_another_tool_converts_is_said_with_its_command(tmp_path: Path) -> None:
    put(tmp_path / "mlruns" / "0" / "abc" / "meta.yaml", "a: 1\n")
    with pytest.raises(AblateError, match="mlflow experiments csv -x ID -o runs.csv"):
        judge(tmp_path / "mlruns")
    put(tmp_path / "study.jsonl", '{"op_code": 0, "worker_id": "x"}\n')
    with pytest.raises(AblateError, match="optuna.copy_study"):
        judge(tmp_path / "study.jsonl")
    put(tmp_path / "study.log", '{"op_code": 0, "worker_id": "x"}\n')
    with pytest.raises(AblateError, match="optuna.copy_study"):
        judge(tmp_path / "study.log")


def test_runs_that_are_listed_twice_are_refused() -> None:
    table = pd.DataFrame(
        {"norm": ["a"] * 3 + ["b"] * 3, "acc": [70.1, 70.6, 71.0, 71.9, 72.4, 73.1]}
    )
    assert judge(table, baseline={"norm": "a"}).runs == 6
    with pytest.raises(AblateError, match="each run is listed 2 times"):
        judge(pd.concat([table, table]), baseline={"norm": "a"})
    one = judge(pd.concat([table, table[:1]]), baseline={"norm": "a"})
    assert any("are exactly equal" in note for note in one.notes)


def test_a_script_that_ignores_its_seed_is_named() -> None:
    table = pd.DataFrame(
        {
            "norm": ["a"] * 3 + ["b"] * 3,
            "seed": [0, 1, 2] * 2,
            "acc": [70.1, 70.1, 70.1, 71.9, 72.4, 73.1],
        }
    )
    judged = judge(table, baseline={"norm": "a"})
    assert any("seems to ignore its seed" in note for note in judged.notes)
    table["acc"] = [70.1, 70.2, 70.3, 71.9, 72.4, 73.1]
    judged = judge(table, baseline={"norm": "a"})
    assert not any("ignore" in note for note in judged.notes)


def test_a_question_offers_the_option_that_answers_it() -> None:
    table = pd.DataFrame(
        {
            "norm": ["a", "a", "b", "b"] * 2,
            "GPU": ["x", "y"] * 4,
            "acc": [1.0, 2, 3, 4, 5, 6, 7, 8.5],
        }
    )
    with pytest.raises(AblateError, match="or name the columns that count: by norm"):
        judge(table)
