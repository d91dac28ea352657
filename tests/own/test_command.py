"""A user's script in a process of its own: reports, resume, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError, SpaceError
from ablate.pipeline import Hooks, Options
from ablate.records import Ended, Event, Progressed
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Killed, killing
from tests.own.conftest import Run, Use
from tests.own.test_trainer import stopping_after
from tests.processes import descendant, ended

# Each epoch adds a number that depends on the seed and the epoch to the sum so far.
SCRIPT = """
import argparse, json, os, random, sys, time
parser = argparse.ArgumentParser()
for name in ("scale", "lr", "seed", "epochs", "resume"):
    parser.add_argument("--" + name)
said = parser.parse_args()
done, total = 0, 0.0
if os.path.exists(said.resume):
    done, total = json.load(open(said.resume))
print("begins at", done)
for epoch in range(done + 1, int(said.epochs) + 1):
    total += float(said.scale) * random.Random(f"{said.seed} {epoch}").random()
    BODY
    with open(said.resume + ".part", "w") as file:
        json.dump([epoch, total], file)
    os.replace(said.resume + ".part", said.resume)
    print(json.dumps({"epoch": epoch, "total": total}))
"""
PARTS = """
import ablate

add = ablate.command(
    "python add.py --scale {scale} --lr {recipe.lr} --seed {seed} --epochs {epochs}"
    " --resume {checkpoint}",
    factors={"scale": [1, 2]},
    metrics={"total": "max"},
)
"""
SPACE = """
question: Does the scale matter?
trainer: add
factors: {scale: [1, 2]}
seeds: 2
recipe: {epochs: 4, lr: 0.5}
"""


def prepare(use: Use, body: str = "", parts: str = PARTS) -> None:
    """Writes the script with some lines in its loop, and the file that declares it."""
    use(parts, add=SCRIPT.replace("BODY", body or "pass"))


def totals(options: Options) -> list[tuple[object, ...]]:
    with Reader(options.url) as reader:
        statement = "SELECT trial_hash, epoch, value FROM epoch_metrics ORDER BY 1, 2"
        return [tuple(row) for row in reader.query(statement)[1]]


def errors(options: Options) -> list[str]:
    with Reader(options.url) as reader:
        statement = "SELECT DISTINCT error FROM attempts ORDER BY 1"
        return [row[0] for row in reader.query(statement)[1]]


def test_a_script_is_studied(use: Use, run: Run, options: Options) -> None:
    prepare(use)
    assert run(SPACE).trained == 4
    assert run(SPACE).trained == 0
    study = Study("own", options.url)
    first, second = (cell.values for cell in study.results().cells)
    assert second == pytest.approx({seed: 2 * first[seed] for seed in first})
    assert "FLOPs" not in study.table()


@pytest.mark.parametrize(
    "noise",
    [
        # A progress bar on stderr, on stdout, and on the line of the report.
        "sys.stderr.write('\\r 50%|###   | 1/2'); sys.stderr.flush()",
        "sys.stdout.write('\\r 50%|###   | 1/2'); sys.stdout.flush()",
        'print("metrics so far: " + json.dumps({"epoch": 99}))',
        "print('{not json'); print('[1, 2]')",
    ],
)
def test_other_output_does_not_hide_a_report(
    use: Use, run: Run, options: Options, noise: str
) -> None:
    prepare(use, noise)
    assert run(SPACE).trained == 4
    assert len(totals(options)) == 16


@pytest.mark.parametrize(
    "epochs",
    [
        pytest.param(1, marks=pytest.mark.proof),
        3,
        pytest.param(5, marks=pytest.mark.proof),
    ],
)
def test_an_interrupted_script_goes_on(
    use: Use, run: Run, options: Options, tmp_path: Path, epochs: int
) -> None:
    prepare(use, "time.sleep(0.1)")
    run(SPACE)
    expected = totals(options)
    other = Options(runs=tmp_path / "other", executor="inline", cpus=2)
    declared = space.load(SPACE, "own.yaml")
    pipeline.run(declared, "own.yaml", other, stopping_after(epochs))
    pipeline.run(declared, "own.yaml", other)
    assert totals(other) == expected
    with Reader(other.url) as reader:
        assert reader.query("SELECT MAX(first_epoch) FROM attempts")[1] != [(0,)]


@pytest.mark.proof
def test_reports_that_were_not_read_are_not_lost(
    use: Use, run: Run, options: Options
) -> None:
    """The script runs ahead, and is stopped after its first report was read."""
    prepare(use, "if epoch == 4: time.sleep(60)")
    text = SPACE.replace("seeds: 2", "seeds: 1")

    def event(happened: Event) -> None:
        if isinstance(happened, Progressed):
            # Time to run ahead.
            time.sleep(0.5)

    seen = stopping_after(1)
    run(text, Hooks(event=lambda one: (seen.event(one), event(one)), stop=seen.stop))
    (saved,) = (options.runs / "checkpoints").rglob("script/checkpoint")
    assert json.loads(saved.read_text())[0] == 3
    saved.write_text("[4, 1.0]")
    numbers: list[int] = []

    def record(happened: Event) -> None:
        if isinstance(happened, Progressed):
            numbers.extend(epoch.number for epoch in happened.epochs)

    again = stopping_after(3)
    run(text, Hooks(event=lambda one: (again.event(one), record(one)), stop=again.stop))
    assert numbers[:3] == [1, 2, 3]


@pytest.mark.proof
def test_a_script_without_checkpoint_begins_again(
    use: Use, run: Run, options: Options
) -> None:
    saving = SCRIPT.index("    with open(said.resume")
    reporting = SCRIPT.index('    print(json.dumps({"epoch"')
    script = (SCRIPT[:saving] + SCRIPT[reporting:]).replace("BODY", "time.sleep(0.2)")
    use(PARTS.replace("{checkpoint}", "none"), add=script)
    assert run(SPACE, stopping_after(2)).interrupted
    assert run(SPACE).trained == 4
    assert len(totals(options)) == 16
    with Reader(options.url) as reader:
        assert reader.query("SELECT MAX(first_epoch) FROM attempts")[1] == [(0,)]


@pytest.mark.proof
@pytest.mark.parametrize("ahead", [2, 4])
def test_a_gap_between_checkpoint_and_reports_begins_again(
    use: Use, run: Run, options: Options, tmp_path: Path, ahead: int
) -> None:
    """The script was killed after it saved an epoch and before it reported it."""
    prepare(use)
    run(SPACE)
    expected = totals(options)
    other = Options(runs=tmp_path / "other", executor="inline", cpus=2)
    declared = space.load(SPACE, "own.yaml")
    with pytest.raises(Killed):
        pipeline.run(declared, "own.yaml", other, killing(3))
    (saved,) = (other.runs / "checkpoints").rglob("script/checkpoint")
    saved.write_text(json.dumps([ahead, 100.0]))
    (saved.parents[1] / "last.pt").unlink()
    pipeline.run(declared, "own.yaml", other)
    assert totals(other) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(3)", "ended with status 3"),
        ("raise ValueError('no luck')", "ValueError: no luck"),
        ("break", "ended after 0 of 4 epochs"),
        ("os.kill(os.getpid(), 9)", "was killed by signal 9"),
        ("print(json.dumps({'epoch': 0, 'total': 1}))", "reported the epoch 0"),
        ("print(json.dumps({'epoch': 'a', 'total': 1}))", "reported the epoch 'a'"),
        ("print(json.dumps({'epoch': epoch, 'sum': 1}))", "it reported sum"),
        ("print(json.dumps({'epoch': epoch, 'total': 'x'}))", "reported total = 'x'"),
        ("said.epochs = 9", ""),
    ],
)
def test_a_script_that_fails(
    use: Use, run: Run, options: Options, body: str, message: str
) -> None:
    prepare(use, body)
    ended: list[Ended] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Ended):
            ended.append(happened)

    outcome = run(SPACE, Hooks(event=event))
    if not message:
        assert outcome.trained == 4
        return
    assert outcome.failed == 2
    assert all(message in one.error for one in ended), ended[0].error
    prepare(use)
    assert run(SPACE).trained == 4


def test_other_output_is_shown_if_the_script_fails(
    use: Use, run: Run, options: Options
) -> None:
    prepare(use, "print('{not json'); print([1]); sys.exit('the end')")
    run(SPACE)
    for error in errors(options):
        assert "begins at 0\n{not json\n[1]\nthe end" in error
        assert "add.py --scale" in error, "the command, to try it by hand"


def test_a_script_that_is_missing(use: Use, run: Run, options: Options) -> None:
    parts = PARTS.replace("python add.py", "no-such-program")
    with pytest.raises(AblateError, match="its command names no file in"):
        use(parts)
    use(parts.replace("factors=", "revision=1, factors="))
    assert run(SPACE).failed == 2
    assert any("there is no program no-such-program" in one for one in errors(options))


@pytest.mark.proof
def test_the_script_is_part_of_the_identity(use: Use, run: Run, tmp_path: Path) -> None:
    file = use(PARTS, add=SCRIPT.replace("BODY", "import helping"), helping="")
    script = tmp_path / "add.py"
    assert run(SPACE).trained == 4
    assert run(SPACE).trained == 0
    script.write_text(SCRIPT.replace("BODY", "import helping  # changed"))
    assert run(SPACE).trained == 0
    script.write_text(SCRIPT.replace("BODY", "import helping; pass"))
    assert run(SPACE).trained == 4
    (tmp_path / "helping.py").write_text("x = 1")
    assert run(SPACE).trained == 4
    assert file.exists()


@pytest.mark.proof
def test_a_script_ends_with_its_worker(use: Use, tmp_path: Path) -> None:
    """A worker that is killed leaves no process behind."""
    prepare(use, "time.sleep(60)")
    (tmp_path / "own.yaml").write_text(SPACE)
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ablate",
            "run",
            "own.yaml",
            "--with",
            "own_parts.py",
            "--executor",
            "inline",
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with ended(worker):
        script = descendant(worker, "add.py")
    script.wait(30)
    assert not script.is_running()


def test_a_command_needs_a_folder_for_its_checkpoint(
    use: Use, options: Options
) -> None:
    prepare(use)
    remote = Options(
        runs=options.runs, executor="inline", checkpoints="memory://checkpoints"
    )
    outcome = pipeline.run(space.load(SPACE, "own.yaml"), "own.yaml", remote)
    assert outcome.failed == 2
    assert any("use a folder that all nodes mount" in one for one in errors(options))


def test_a_recipe_field_has_its_place_in_the_command(use: Use) -> None:
    prepare(use)
    with pytest.raises(SpaceError, match=r"trainer add does not read recipe\.momentum"):
        space.load(SPACE.replace("lr: 0.5", "momentum: 0.5"), "own.yaml")


@pytest.mark.proof
def test_epochs_arrive_while_the_script_runs(use: Use, run: Run) -> None:
    prepare(use, "time.sleep(0.3)")
    times: list[float] = []

    def event(happened: Event) -> None:
        if isinstance(happened, Progressed):
            times.append(time.monotonic())

    run(SPACE.replace("seeds: 2", "seeds: 1"), Hooks(event=event))
    assert times[3] - times[0] > 0.6


@pytest.mark.proof
def test_a_script_that_fails_at_its_end_has_failed(
    use: Use, run: Run, options: Options
) -> None:
    prepare(use)
    script = options.runs.parent / "add.py"
    script.write_text(f"{script.read_text()}\nsys.exit('at the end')\n")
    assert run(SPACE).failed == 4
    assert run(SPACE).failed == 4, "its reports alone make no result"
    assert all("at the end" in one for one in errors(options))


def test_a_damaged_checkpoint_begins_again(
    use: Use, run: Run, options: Options
) -> None:
    prepare(use, "if epoch == 3 and not done: sys.exit('first time')")
    run(SPACE.replace("seeds: 2", "seeds: 1"))
    for saved in (options.runs / "checkpoints").rglob("script/checkpoint"):
        saved.write_text("[2,")
    again = SPACE.replace("seeds: 2", "seeds: 1")
    assert run(again).failed == 2, "this script fails whenever it begins"
    assert len(list(options.runs.rglob("checkpoint.unreadable"))) == 2


@pytest.mark.proof
def test_files_with_a_place_in_their_name_count(use: Use, run: Run) -> None:
    parts = PARTS.replace("add.py --scale {scale}", "add_{scale}.py --scale 1")
    script = SCRIPT.replace("BODY", "pass")
    use(parts, add_1=script, add_2=script)
    assert run(SPACE).trained == 4
    use(parts, add_1=script, add_2=script.replace("total +=", "total -="))
    assert run(SPACE).trained == 4


def test_a_module_of_a_command_counts(use: Use, run: Run) -> None:
    parts = PARTS.replace("python add.py", "python -m add")
    script = SCRIPT.replace("BODY", "pass")
    use(parts, add=script)
    assert run(SPACE).trained == 4
    use(parts, add=script.replace("total +=", "total -="))
    assert run(SPACE).trained == 4


def test_a_first_report_with_a_wrong_number(
    use: Use, run: Run, options: Options
) -> None:
    prepare(use, "epoch += 1; time.sleep(0.1)")
    began = time.monotonic()
    assert run(SPACE).failed == 2
    assert time.monotonic() - began < 30
    assert any("reported epoch 2 after epoch 0" in one for one in errors(options))


def test_a_command_without_epochs_reports_once(use: Use, run: Run) -> None:
    """What `recipe.epochs` is by default says nothing of such a script."""
    parts = PARTS.replace(" --epochs {epochs}", " --epochs 1")
    prepare(use, "", parts)
    assert run(SPACE.replace("epochs: 4, ", "")).trained == 4


def test_a_command_without_epochs_is_told_how_often_it_should_report(
    use: Use, run: Run, options: Options
) -> None:
    prepare(use, "", PARTS.replace(" --epochs {epochs}", " --epochs 3"))
    assert run(SPACE).failed == 4
    assert any("does not mention {epochs}" in one for one in errors(options))
    assert run(SPACE.replace("epochs: 4, ", "")).failed > 0
    assert any("write recipe: {epochs: N}" in one for one in errors(options))


def test_braces_in_a_level_stay(use: Use, run: Run) -> None:
    parts = PARTS.replace("[1, 2]", "['{seed}', 'x']")
    parts = parts.replace("--scale {scale} --lr {recipe.lr}", "--scale 1 --lr {scale}")
    prepare(use, "assert said.lr in ('{seed}', 'x'), said.lr", parts)
    text = SPACE.replace("[1, 2]", "['{seed}', x]").replace(", lr: 0.5", "")
    assert run(text).trained == 4


@pytest.mark.proof
def test_children_of_a_script_end_with_the_worker(use: Use, tmp_path: Path) -> None:
    """Also those that the script started: they could write its checkpoint."""
    child = "import time; time.sleep(99)  # the child"
    prepare(
        use, f"import subprocess; subprocess.run([sys.executable, '-c', {child!r}])"
    )
    (tmp_path / "own.yaml").write_text(SPACE)
    words = ["run", "own.yaml", "--with", "own_parts.py", "--executor", "inline"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "ablate", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with ended(worker):
        found = descendant(worker, child)
    found.wait(30)
    assert not found.is_running()


@pytest.mark.proof
def test_a_child_that_keeps_the_output_open_does_not_hold_the_trial(
    use: Use, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.own_command.STOP_SECONDS", 2.0)
    body = "import subprocess; subprocess.Popen(['sleep', '60'])"
    prepare(use, body)
    began = time.monotonic()
    assert run(SPACE.replace("seeds: 2", "seeds: 1")).trained == 2
    assert time.monotonic() - began < 30


@pytest.mark.proof
@pytest.mark.parametrize(
    "body", ["print('a line'); time.sleep(0.2)", "time.sleep(0.2)"]
)
def test_a_script_gives_signs_of_life(
    use: Use, run: Run, options: Options, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    beats: list[float] = []
    monkeypatch.setattr(
        "ablate.training.own_base.OwnTraining._beat",
        lambda self: beats.append(time.monotonic()),
    )
    prepare(use, f"for _ in range(4): {body}")
    run(SPACE.replace("seeds: 2", "seeds: 1"))
    assert len(beats) >= 8
