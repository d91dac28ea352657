"""Scripts as they are: what they print and write is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.pipeline import Options
from ablate.readers import FileReader, LineReader, Report
from ablate.records.own_parts import Reports
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.own.conftest import Run, Use
from tests.own.test_command import errors
from tests.own.test_trainer import stopping_after


def lines_read(text: str, *patterns: str, **numbering: int) -> list[Report]:
    reader = LineReader(Reports(patterns, **numbering), ["loss", "acc"])
    reports = [reader.report(line) for line in text.splitlines()]
    return [report for report in reports if report is not None]


def test_a_line_has_all_metrics() -> None:
    text = "hello\nepoch 1: loss 0.5, acc 90.5%\nepoch 2: loss 4e-1, acc 1,091\n"
    pattern = r"epoch (?P<epoch>\d+): loss (?P<loss>\S+), acc (?P<acc>\S+)"
    assert lines_read(text, pattern) == [
        Report(1, {"loss": 0.5, "acc": 90.5}),
        Report(2, {"loss": 0.4, "acc": 1091.0}),
    ]


def test_metrics_in_several_lines() -> None:
    """As PyTorch's tutorials and nanoGPT print them."""
    text = (
        "Epoch 0\nstep 1: 3.0\nTrain Loss: 2.5\nTest Acc: 10\nEpoch 1\n"
        "Train Loss: 2.0\nTrain Loss: 1.5\nTest Acc: nan\n"
    )
    patterns = (
        r"Epoch (?P<epoch>\d+)",
        r"Train Loss: (?P<loss>\S+)",
        r"Test Acc: (?P<acc>\S+)",
    )
    first, second = lines_read(text, *patterns, first=0)
    assert first == Report(1, {"loss": 2.5, "acc": 10.0})
    assert second.epoch == 2
    assert second.metrics["loss"] == 1.5, "the last number before the report"
    assert second.metrics["acc"] != second.metrics["acc"]


def test_steps_are_epochs() -> None:
    text = "\n".join(f"step {n}: loss 1 acc 2" for n in (0, 250, 500))
    pattern = r"step (?P<epoch>\d+): loss (?P<loss>\S+) acc (?P<acc>\S+)"
    reports = lines_read(text, pattern, first=0, every=250)
    assert [report.epoch for report in reports] == [1, 2, 3]
    with pytest.raises(AblateError, match="250 as the number of an epoch; it should"):
        lines_read(text, pattern, first=0, every=300)


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(AblateError, match="found 'high,' for loss, which is no number"):
        lines_read("loss high, acc 3", r"loss (?P<loss>\S+) acc (?P<acc>\S+)")


FILES = {
    "summary.csv": "epoch,train_loss,loss,acc\n0,9,0.5,90\n1,8,0.4,91\n2,7,0.",
    "metrics.jsonl": (
        '{"epoch": 0, "loss": 0.5, "acc": 90, "name": "x"}\n[1]\nnot json\n'
        '{"epoch": 1, "loss": 0.4, "acc": 91}\n{"epoch": 2, "lo'
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_rows_of_a_file(name: str, tmp_path: Path) -> None:
    reader = FileReader(Reports(first=0), ["loss", "acc"], str(tmp_path / "*" / name))
    assert reader.new() == []
    assert "there is no file" in reader.problem()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(FILES[name])
    reports = [Report(1, {"loss": 0.5, "acc": 90}), Report(2, {"loss": 0.4, "acc": 91})]
    assert reader.new() == reports[:1], "the second epoch may go on"
    assert reader.new() == []
    later = FileReader(
        Reports(first=0), ["loss", "acc"], str(tmp_path / "*" / name), known=1
    )
    assert later.new(ended=True)[:1] == reports[1:]
    other = FileReader(Reports(first=0), ["top1"], str(tmp_path / "*" / name))
    assert other.new() == []
    assert "has no column top1; it has epoch" in other.problem()


def rows_read(tmp_path: Path, text: str, *, ended: bool = True) -> list[Report]:
    (tmp_path / "log.csv").write_text(text)
    reader = FileReader(Reports(), ["acc"], str(tmp_path / "log.csv"))
    return reader.new(ended=ended)


def test_numbers_do_not_depend_on_when_a_file_is_read(tmp_path: Path) -> None:
    rows = ["epoch,acc", "1,0.1", "1,0.9", "2,0.2", "2,0.8"]
    expected = [Report(1, {"acc": 0.9}), Report(2, {"acc": 0.8})]
    assert rows_read(tmp_path, "\n".join(rows)) == expected
    path = tmp_path / "log.csv"
    path.write_text("")
    reader = FileReader(Reports(), ["acc"], str(path))
    reports = []
    for number in range(1, len(rows) + 1):
        path.write_text("\n".join(rows[:number]) + "\n")
        reports += reader.new()
    assert reports + reader.new(ended=True) == expected


def test_a_row_without_an_epoch_is_of_no_epoch(tmp_path: Path) -> None:
    text = "epoch,acc\n1,0.5\n2,0.6\n,0.9\n"
    assert [r.metrics["acc"] for r in rows_read(tmp_path, text)] == [0.5, 0.6]
    # Without any number, each row is an epoch.
    text = "acc\n0.5\n0.6\n"
    assert [r.epoch for r in rows_read(tmp_path, text)] == [1, 2]


def test_the_last_row_counts_when_the_script_has_ended(tmp_path: Path) -> None:
    text = "epoch,acc\n1,0.5\n2,0.6"
    assert [r.epoch for r in rows_read(tmp_path, text, ended=False)] == []
    assert [r.epoch for r in rows_read(tmp_path, text)] == [1, 2]


def test_commas_and_large_numbers(tmp_path: Path) -> None:
    assert rows_read(tmp_path, 'epoch,acc\n1,"1,234.5"\n')[0].metrics == {"acc": 1234.5}
    assert rows_read(tmp_path, 'epoch,acc\n1,"0,5"\n') == [], "perhaps 0.5"
    path = tmp_path / "log.jsonl"
    path.write_text('{"epoch": 1, "acc": 1' + "0" * 400 + "}\n")
    assert FileReader(Reports(), ["acc"], str(path)).new(ended=True) == []
    with pytest.raises(AblateError, match="cannot be read: field larger"):
        rows_read(tmp_path, f"epoch,acc\n1,{'9' * 200_000}\n")


def test_the_rows_of_lightning_are_merged(tmp_path: Path) -> None:
    """Lightning's CSVLogger has a row for each step, and one for the validation."""
    first = "epoch,step,loss,val/acc\n0,9,3.0,\n0,19,2.0,\n0,19,,90.0\n1,29,1.0,\n"
    path = tmp_path / "version_0" / "metrics.csv"
    path.parent.mkdir()
    path.write_text(first)
    pattern = str(tmp_path / "version_*" / "metrics.csv")
    reader = FileReader(Reports(first=0), ["loss", "val_acc"], pattern)
    assert reader.new() == [Report(1, {"loss": 2.0, "val_acc": 90.0})]
    # A resumed run writes another file.
    second = tmp_path / "version_1" / "metrics.csv"
    second.parent.mkdir()
    second.write_text("epoch,step,loss,val/acc\n1,39,0.5,\n1,39,,95.0\n")
    assert reader.new() == [], "the epoch may go on"
    assert reader.new(ended=True) == [Report(2, {"loss": 0.5, "val_acc": 95.0})]


def test_events_of_tensorboard(tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    writer.add_text("note", "not a number", 100)
    for step, loss in ((100, 0.5), (200, 0.25)):
        writer.add_scalar("val/loss", loss, step)
        writer.add_scalar("acc", 10 * loss, step)
    writer.close()
    (file,) = tmp_path.glob("*tfevents*")
    reports = Reports(first=100, every=100)
    reader = FileReader(reports, ["val_loss", "acc"], str(tmp_path / "*tfevents*"))
    assert reader.new() == [Report(1, {"val_loss": 0.5, "acc": 5.0})]
    assert reader.new(ended=True) == [Report(2, {"val_loss": 0.25, "acc": 2.5})]
    file.write_bytes(file.read_bytes()[:-3])
    cut = FileReader(reports, ["val_loss", "acc"], str(tmp_path / "*tfevents*"))
    assert [report.epoch for report in cut.new(ended=True)] == [1]


def test_a_file_of_events_that_is_damaged_is_named(tmp_path: Path) -> None:
    content = (8).to_bytes(8, "little") + b"\0" * 4 + b"\xff" * 8 + b"\0" * 4
    (tmp_path / "tfevents.1").write_bytes(content)
    reader = FileReader(Reports(), ["loss"], str(tmp_path / "tfevents*"))
    with pytest.raises(AblateError, match="byte 0 begins no TensorBoard event"):
        reader.new(ended=True)


def test_an_epoch_that_is_a_tag_of_its_own_is_no_number(tmp_path: Path) -> None:
    """Lightning logs the epoch as a scalar, at steps of its own."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    for epoch, step in enumerate((10, 20)):
        writer.add_scalar("epoch", epoch, step)
        writer.add_scalar("loss", 1 / step, step)
    writer.close()
    reader = FileReader(
        Reports(first=10, every=10), ["loss"], str(tmp_path / "*tfevents*")
    )
    assert [report.epoch for report in reader.new(ended=True)] == [1, 2]


def test_where_some_rows_have_an_epoch_a_step_is_none(tmp_path: Path) -> None:
    text = "epoch,step,acc\n1,10,0.5\n2,20,0.6\n,30,0.9\n"
    reports = rows_read(tmp_path, text)
    assert [(r.epoch, r.metrics["acc"]) for r in reports] == [(1, 0.5), (2, 0.6)]


def test_the_file_that_was_changed_last_is_read_last(tmp_path: Path) -> None:
    for seconds, version, acc in ((1, 2, 0.1), (2, 10, 0.9)):
        path = tmp_path / f"version_{version}.csv"
        path.write_text(f"epoch,acc\n1,{acc}\n")
        os.utime(path, (seconds, seconds))
    reader = FileReader(Reports(), ["acc"], str(tmp_path / "version_*.csv"))
    assert reader.new(ended=True) == [Report(1, {"acc": 0.9})]


# As timm's train.py: epochs from 0, one CSV per run, and --resume needs a file.
TIMM = """
import argparse, csv, json, os, time
parser = argparse.ArgumentParser()
for name in ("lr", "seed", "epochs", "output", "resume"):
    parser.add_argument("--" + name, default="")
given = parser.parse_args()
start, loss = 0, 8.0
if given.resume:
    start, loss = json.load(open(given.resume))
os.makedirs(given.output + "/run", exist_ok=True)
file = given.output + "/run/summary.csv"
for epoch in range(start, int(given.epochs)):
    loss /= 1 + float(given.lr) + int(given.seed) / 10
    SLEEP
    new = not os.path.exists(file)
    with open(file, "a") as rows:
        if new:
            rows.write("epoch,train_loss,eval_loss\\n")
        rows.write(f"{epoch},0,{loss}\\n")
    with open(given.output + "/run/part", "w") as part:
        json.dump([epoch + 1, loss], part)
    os.replace(given.output + "/run/part", given.output + "/run/last.json")
print("*** Best metric")
"""
PARTS = """
import ablate
train = ablate.command(
    "python script.py --lr {rate} --seed {seed} --epochs {epochs} --output {output}",
    factors={"rate": [0.5, 1.0]},
    metrics={"eval_loss": "min"},
    reads="{output}/*/summary.csv",
    first=0,
    resume="--resume {output}/run/last.json",
)
"""
SPACE = """
question: Which rate is better?
trainer: train
factors: {rate: [0.5, 1.0]}
seeds: 2
recipe: {epochs: 4}
"""


def values(options: Options) -> list[tuple[object, ...]]:
    with Reader(options.url) as reader:
        statement = "SELECT trial_hash, epoch, value FROM epoch_metrics ORDER BY 1, 2"
        return [tuple(row) for row in reader.query(statement)[1]]


def test_a_script_that_writes_a_file(use: Use, run: Run, options: Options) -> None:
    use(PARTS, script=TIMM.replace("SLEEP", "pass"))
    assert run(SPACE).trained == 4
    first, _ = Study("own", options.url).results().cells
    assert first.values[0] == pytest.approx(8 / 1.5**4)


def test_the_folder_of_the_store_is_no_pattern(use: Use, tmp_path: Path) -> None:
    from ablate import pipeline, space

    use(PARTS, script=TIMM.replace("SLEEP", "pass"))
    declared = space.load(SPACE.replace("seeds: 2", "seeds: 1"), "own.yaml")
    options = Options(tmp_path / "g[1]", executor="inline")
    assert pipeline.run(declared, "own.yaml", options).trained == 2


@pytest.mark.proof
def test_it_is_interrupted_and_resumes(use: Use, run: Run, options: Options) -> None:
    use(PARTS, script=TIMM.replace("SLEEP", "time.sleep(0.6)"))
    text = SPACE.replace("seeds: 2", "seeds: 1")
    outcome = run(text, stopping_after(2))
    assert outcome.interrupted
    assert run(text).trained >= 1
    kept = values(options)
    assert [epoch for _, epoch, _ in kept] == [1, 2, 3, 4] * 2
    assert sorted(value for _, epoch, value in kept if epoch == 4) == pytest.approx(
        [8 / 2**4, 8 / 1.5**4]
    )


NANO = """
import sys
rate, seed, epochs = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for step in range(0, 100 * epochs, 100):
    print(f"iter {step}: loss 9, time 1ms")
    print(f"step {step}: train loss {9 - rate - seed / 10}, val loss {step / 100 - rate}")
"""


def test_a_script_that_prints(use: Use, run: Run, options: Options) -> None:
    parts = r"""
import ablate
train = ablate.command(
    "python script.py {rate} {seed} {epochs}",
    factors={"rate": [0.5, 1.0]},
    metrics={"val_loss": "min"},
    pattern=r"step (?P<epoch>\d+): .*val loss (?P<val_loss>[-.\d]+)",
    first=0,
    every=100,
)
"""
    use(parts, script=NANO)
    assert run(SPACE).trained == 4
    assert sorted({value for _, epoch, value in values(options) if epoch == 4}) == [
        2.0,
        2.5,
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"eval_loss": "min"', '"top1": "max"', "has no column top1; it has epoch"),
        ("{output}/*/summary", "{output}/summary", "there is no file"),
        ("first=0", "first=1", "it should begin at 1 and grow by 1 (first=, every=)"),
    ],
)
def test_a_trial_without_reports_says_why(
    use: Use, run: Run, options: Options, old: str, new: str, message: str
) -> None:
    use(PARTS.replace(old, new), script=TIMM.replace("SLEEP", "pass"))
    assert run(SPACE.replace("seeds: 2", "seeds: 1")).failed == 2
    assert all(message in error for error in errors(options)), errors(options)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reads=", "pattern='x', reads=", "give pattern= or reads=, not both"),
        ("reads=", 'pattern="(", #', "no regular expression"),
        ("reads=", 'pattern="(?P<loss>.)", #', "unknown group 'loss'"),
        ("reads=", 'pattern="loss", #', "no pattern has the group of the metric"),
        ("reads=", "#", "first= and every= go with pattern= or reads="),
        ("first=0", "every=0", "every= is 1 or more"),
        ("--output {output}", "--output {outptu}", "unknown placeholder 'outptu'"),
        ("{output}/*/s", "runs/s", "must begin with {output}/"),
        (
            "{output}/run/last",
            "run/last",
            "'run/last.json', must be a file of the trial",
        ),
        ('{"rate"', '{"output": [1], "rate"', "{output} has a meaning of its own"),
    ],
)
def test_a_wrong_declaration_is_named(
    use: Use, old: str, new: str, message: str
) -> None:
    with pytest.raises(AblateError) as caught:
        use(PARTS.replace(old, new), script=TIMM)
    assert message in str(caught.value)


def test_the_commands_of_the_documentation_are_declared(use: Use) -> None:
    from ablate.parts import trainer_named
    from tests.own.test_examples import block

    use(block("python", "gpt = ablate.command("), train="print(1)")
    reports = trainer_named("gpt").reports
    reader = LineReader(reports, ["val_loss"])
    # As nanoGPT prints it.
    assert reader.report("step 250: train loss 2.4517, val loss 2.4701") == Report(
        2, {"val_loss": 2.4701}
    )
    assert trainer_named("timm").reports.files == "{output}/run/summary.csv"


STEPS = """
import sys
options = dict(word.lstrip("-").split("=") for word in sys.argv[1:] if "=" in word)
bias = {"True": True, "False": False}[options["bias"]]
fast = "--fast" in sys.argv
assert "" not in sys.argv
for step in range(0, int(options["max_iters"]) + 1, 100):
    print(f"step {step}: val loss {1 + step / 1000 + bias + fast + int(options['seed'])}")
"""
STEPS_PARTS = """
import ablate
nano = ablate.command(
    "python nano.py --bias={bias!r} {fast} --max_iters={last} --seed={seed}",
    factors={"bias": [False, True], "fast": ["", "--fast"]}, metrics={"loss": "min"},
    pattern=r"step (?P<epoch>[0-9]+): val loss (?P<loss>[0-9.]+)", first=0, every=100)
"""


@pytest.mark.proof
def test_a_script_that_counts_steps_and_reads_python(
    use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    """Its steps follow from the epochs, its booleans are Python's, a flag is a word."""
    (tmp_path / "nano.py").write_text(STEPS)
    use(STEPS_PARTS)
    text = (
        "question: q?\nname: nano\ntrainer: nano\nseeds: 1\nrecipe: {epochs: 4}\n"
        "factors: {bias: [false, true], fast: ['', --fast]}\n"
    )
    assert run(text).trained == 4, errors(options)
    cells = Study("nano", options.url).results().cells
    values = [cell.values[0] for cell in cells]
    assert values == pytest.approx([1.3, 2.3, 2.3, 3.3])


def test_an_unknown_conversion_is_refused(use: Use) -> None:
    with pytest.raises(AblateError, match="unknown placeholder 'bias!s'"):
        use(STEPS_PARTS.replace("!r", "!s"))
