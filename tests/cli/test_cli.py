"""The command line: every verb, every format, every bad word."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from ablate import pipeline, space
from ablate.cli import doctor
from ablate.machine import provenance
from ablate.text import advice
from tests.conftest import TINY, Say

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which tiny.yaml was run, once for all tests."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY.replace("seeds: 2", "seeds: 1"))
    declared = space.read(folder / "tiny.yaml")
    assert (
        pipeline.run(
            declared,
            "tiny.yaml",
            pipeline.Options(runs=folder / "runs", executor="inline"),
        ).trained
        == 4
    )
    return folder


@pytest.fixture
def trained(say: Say, trained_folder: Path) -> Say:
    """The same, after tiny.yaml was run inline."""
    shutil.copytree(trained_folder, Path.cwd(), dirs_exist_ok=True)
    return say


def test_run_prints_the_table_and_what_to_do_next(say: Say) -> None:
    code, out, err = say("run", "tiny.yaml", "--executor", "inline")
    assert code == 0
    assert "Does a shortcut help a very small ViT?" in out
    assert "tiny: 4 cells x 1 seeds, 4 trials, 0 known, 4 to train" in err
    assert "[4/4]" in err
    done = "4 trials trained, 0 known before."
    assert f"{done} All are near chance; see: ablate review tiny" in err
    assert "\x1b" not in out + err, "no bars and no colours outside a terminal"
    code, again, err = say("run", "tiny.yaml", "--executor", "inline")
    assert code == 0
    assert again == out
    assert "0 trials trained, 4 known before" in err


def test_a_study_in_which_nothing_completes_says_where_to_look(say: Say) -> None:
    text = Path("tiny.yaml").read_text().replace("seeds: 2", "seeds: 1")
    recipe = "recipe: {epochs: 2, lr: 1.0e+30, optimizer: sgd}\n"
    Path("wild.yaml").write_text(re.sub(r"recipe: .*\n", recipe, text))
    code, _, err = say("run", "wild.yaml", "--executor", "inline")
    assert code == 0
    assert "none of them completed. See why: ablate status wild" in err
    assert "effects" not in err


@pytest.mark.parametrize(
    ("recipe", "other"),
    [
        ("optimizer: adopt", "adoptw"),
        ("optimizer: nadam", "nadamw"),
        ("optimizer: adopt, weight_decay: 1e-4", ""),
        ("optimizer: lamb", ""),
        ("optimizer: sgd", ""),
    ],
)
def test_plan_warns_of_decay_in_the_gradient(
    recipe: str, other: str, tiny: str, say: Say, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny.replace("recipe: {", f"recipe: {{{recipe}, "))
    code, out, _ = say("plan", str(file), "--runs", str(tmp_path / "runs"))
    assert code == 0
    assert (f"{other} decouples them" in out) is bool(other)


def test_plan_shows_cells_costs_and_reasons(say: Say) -> None:
    Path("more.yaml").write_text(
        Path("tiny.yaml").read_text() + "fixed: {shortcuts.b: 3}\n"
    )
    code, out, _ = say("plan", "more.yaml")
    assert code == 0
    assert "shortcuts.b = 3 does not divide the width 16" in out
    assert re.search(r"2 trials: 0 known, 2 to train, about \d+ s of training\.", out)
    assert "Data: digits, 200 training images of 8 x 8 x 1, 10 classes." in out
    assert not Path("runs").exists()


def test_plan_says_how_many_seeds_are_added(say: Say) -> None:
    code, out, _ = say("plan", "tiny.yaml", "--until-decided", "20", "--all")
    assert code == 0
    assert (
        "Inconclusive rows get more seeds after 2, 5, ..., 17 seeds, up to 20 per cell:"
        " 80 trials at most." in out
    )
    assert re.search(r"^  20 seeds: [\d.]+ sd$", out, re.MULTILINE)


VERBS: list[tuple[str, ...]] = [
    ("table", "tiny"),
    ("status",),
    ("status", "tiny"),
    ("plan", "tiny.yaml"),
    ("cost", "tiny.yaml"),
    (
        "cost",
        "--model",
        "deit_tiny_patch16_224",
        "--set",
        "shortcuts.count=2",
        "--set",
        "layout=parallel",
        "--image-size",
        "32",
    ),
    ("cost", "--model", "deit_tiny_patch16_224", "--operators", "--image-size", "32"),
    ("query", "SELECT trial, top1 FROM trial_results ORDER BY trial"),
    ("query", "SELECT * FROM results_tiny"),
    ("query", "SELECT 1 WHERE 0"),
    ("factors",),
    ("factors", "shortcuts"),
    ("backbones",),
    ("backbones", "swin"),
    ("init", "--list"),
    ("run", "tiny.yaml", "--executor", "inline"),
    ("resume", "tiny", "--executor", "inline"),
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_prints_in_every_format(verb: tuple[str, ...], trained: Say) -> None:
    code, shown, _ = trained(*verb)
    assert code == 0
    assert shown.strip()
    code, text, _ = trained(*verb, "--format", "json")
    rows = json.loads(text)
    assert isinstance(rows, list)
    code, text, _ = trained(*verb, "--format", "csv")
    assert len(list(csv.reader(io.StringIO(text)))) == len(rows) + 1
    code, text, _ = trained(*verb, "--format", "md")
    assert "|-" in text or "|:" in text or not rows


def test_hints_find_the_store_that_was_named(say: Say, tmp_path: Path) -> None:
    assert (
        say("run", "tiny.yaml", "--runs", "elsewhere", "--executor", "inline")[0] == 0
    )
    with sqlite3.connect(tmp_path / "elsewhere" / "ablate.db") as connection:
        connection.execute("UPDATE trials SET status = 'planned'")
        connection.execute("DELETE FROM epochs")
    for words in (
        ("pareto", "tiny"),
        ("plot", "tiny", "--to", "x.svg"),
        ("plot", "tiny", "--of", "curves", "--to", "x.svg"),
    ):
        code, _, err = say(*words, "--runs", "elsewhere")
        assert (code, "ablate resume tiny --runs elsewhere" in err) == (2, True), err


def test_a_store_that_another_program_holds_is_said_to_be_held(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.store.database.BUSY_SECONDS", 0.1)
    assert say("run", "tiny.yaml", "--executor", "inline")[0] == 0
    with contextlib.closing(
        sqlite3.connect(tmp_path / "runs" / "ablate.db", isolation_level=None)
    ) as other:
        other.execute("UPDATE trials SET status = 'planned'")
        other.execute("BEGIN EXCLUSIVE")
        code, _, err = say("resume", "tiny", "--executor", "inline")
    assert code == 2
    assert err.endswith(
        "cannot be opened: database is locked; end the other program that holds it,"
        " then try again\n"
    ), err


def test_a_full_disk_is_said_with_the_command_that_goes_on(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OperationalError(
            "UPDATE", {}, sqlite3.OperationalError("database or disk is full")
        )

    monkeypatch.setattr("ablate.store.events.EventStore._started", full)
    code, _, err = say(
        "run",
        "tiny.yaml",
        "--runs",
        "else where",
        "--executor",
        "inline",
        "--checkpoints",
        "kept",
    )
    assert code == 2
    assert err.rstrip().endswith(
        "Go on with: ablate resume --runs 'else where' --executor inline"
        " --checkpoints kept"
    ), err


def test_advised_commands_name_the_store_and_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advice, "_options", {})
    assert advice.command("resume", "a b") == "ablate resume 'a b'"
    advice.keep("--store", "postgresql://me:secret@host/db")
    advice.keep("--checkpoints", "s3://here")
    assert (
        advice.command("resume")
        == "ablate resume --store 'postgresql://me:***@host/db' --checkpoints s3://here"
    )
    assert (
        advice.command("table", "x")
        == "ablate table x --store 'postgresql://me:***@host/db'"
    )
    advice.keep("--store", "")
    assert advice.command("table", "x") == "ablate table x"


@pytest.mark.proof
def test_a_study_is_read_where_its_data_are_not(say: Say, tmp_path: Path) -> None:
    import numpy as np

    images = np.zeros((60, 8, 8), dtype=np.uint8)
    np.savez(
        tmp_path / "own.npz",
        x_train=images,
        y_train=np.arange(60) % 10,
        x_test=images[:20],
        y_test=np.arange(20) % 10,
    )
    (tmp_path / "own.yaml").write_text(
        TINY.replace("{name: digits, train_images: 200, test_images: 50}", "own.npz")
    )
    assert say("run", "own.yaml", "--executor", "inline")[0] == 0
    (tmp_path / "own.npz").unlink()
    for verb in (
        ("table", "own"),
        ("effects", "own"),
        ("pareto", "own"),
        ("review", "own"),
        ("report", "own"),
    ):
        code, _, err = say(*verb)
        assert code in (0, 1), err
    code, _, err = say("resume", "own")
    assert (code, "no file" in err) == (2, True)


def test_latex_of_a_table(trained: Say) -> None:
    code, out, _ = trained("table", "tiny", "--format", "latex")
    assert code == 0
    assert r"\toprule" in out
    assert r"\caption{Does a shortcut help a very small ViT?}" in out
    words = ["table", "tiny", "--format", "latex", "--columns", "layout, top1"]
    code, out, _ = trained(*words, "--labels", "layout=Layout", "--caption", "C")
    assert code == 0
    assert "      Layout & top-1 (\\%) \\\\\n" in out
    assert r"\caption{C}" in out
    code, out, _ = trained("table", "tiny", "--format", "latex", "--bold", "none")
    assert code == 0
    assert "Bold" not in out
    assert r"\mathbf" not in out
    code, _, err = trained("table", "tiny", "--label", "tab:x")
    assert (code, err) == (2, "error: --label goes with --format latex, not table\n")
    code, _, err = trained("table", "tiny", "--format", "latex", "--columns", "layuot")
    assert (code, err) == (
        2,
        "error: unknown column 'layuot'; did you mean 'layout'?\n",
    )


def test_a_plan_does_not_name_one_value_of_a_recipe_that_varies(say: Say) -> None:
    text = Path("tiny.yaml").read_text()
    text = text.replace("layout: [serial, parallel]", "recipe.lr: [2e-3, 1e-2]")
    Path("rates.yaml").write_text(text)
    code, out, _ = say("plan", "rates.yaml")
    assert code == 0
    said = " ".join(out.split())
    assert "lr varies;" in said
    assert "lr 0.002" not in said


def test_a_folder_in_the_place_of_a_data_set_says_how_to_name_it(say: Say) -> None:
    Path("imgs").mkdir()
    text = Path("tiny.yaml").read_text()
    text = text.replace("{name: digits, train_images: 200, test_images: 50}", "imgs")
    Path("mine.yaml").write_text(text)
    code, _, err = say("plan", "mine.yaml")
    assert code == 2
    assert "imgs is a folder; write data: {name: folder, path: imgs}" in err


def test_another_store_and_another_folder(say: Say) -> None:
    assert (
        say(
            "run",
            "tiny.yaml",
            "--executor",
            "inline",
            "--runs",
            "here",
            "--store",
            "sqlite:///elsewhere/x.db",
        )[0]
        == 0
    )
    assert Path("elsewhere/x.db").is_file()
    assert list(Path("here/checkpoints").iterdir())
    assert "tiny" in say("status", "--store", "elsewhere/x.db")[1]
    assert say("status")[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "none.yaml"), "none.yaml: cannot be read: No such file"),
        (("run", "tiny"), "No such file or directory; did you mean tiny.yaml?"),
        (("run", "a" * 253), "aaa: cannot be read: No such file or directory\n"),
        (("run", "."), "cannot be read"),
        (("table", "tiny"), "no store at runs/ablate.db; `ablate run FILE` makes one"),
        (("status",), "no store at"),
        (("query", "SELECT 1"), "no store at"),
        (("resume",), "no store at"),
        (("cost",), "name a space or a model"),
        (("cost", "tiny.yaml", "--model", "x"), "name a space or a model"),
        (("cost", "tiny.yaml", "--set", "a=1"), "are for --model only"),
        (("cost", "tiny.yaml", "--classes", "7"), "are for --model only"),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "drop.path="),
            "None is not a level",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "drop.path=[1, 2]"),
            "is not a level",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--operators", "--timing"),
            "use one at a time",
        ),
        (("run", "tiny.yaml", "--store", "tiny.yaml/x.db"), "cannot be made"),
        (
            ("cost", "--model", "deit_tiny"),
            "unknown backbone 'deit_tiny'; did you mean",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "shortcuts.count"),
            "write FACTOR=LEVEL",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "shortcut.count=1"),
            "did you mean 'shortcuts.count'",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "shortcuts.b=2"),
            "would change nothing",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--set", "ffn.kernel=[1"),
            "not valid YAML",
        ),
        (
            ("cost", "--model", "deit_tiny_patch16_224", "--image-size", "33"),
            "does not divide the image size 33",
        ),
        (("cost", "--model", "vit"), "needs size.width, size.depth and size.heads"),
        (
            ("factors", "shortcut"),
            "unknown factor 'shortcut'; did you mean 'shortcuts'?",
        ),
        (("run", "tiny.yaml", "--store", "nonsense://x"), "nonsense"),
        (("run", "tiny.yaml", "--executor", "slurm"), "Invalid value for '--executor'"),
        (("plan", "tiny.yaml", "--format", "xml"), "Invalid value for '--format'"),
        (
            ("plan", "tiny.yaml", "--format", "cvs"),
            "'html'; did you mean 'csv'? See: ablate plan --help",
        ),
        (("plan",), "error: Missing argument 'FILE'. See: ablate plan --help"),
        (("pln", "tiny.yaml"), "No such command 'pln'"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_bad_words_give_one_message_and_code_2(
    words: tuple[str, ...], message: str, say: Say
) -> None:
    code, out, err = say(*words)
    assert code == 2
    assert not out
    assert message in err
    assert "Traceback" not in err


def test_unknown_studies_and_statements(trained: Say) -> None:
    assert "did you mean 'tiny'" in trained("table", "tinny")[2]
    code, _, err = trained("query", "DELETE FROM trials")
    assert code == 2
    assert "a query can only read" in err
    assert trained("table", "tiny")[0] == 0


def test_columns_of_one_name_are_not_lost_in_silence(trained: Say) -> None:
    code, _, err = trained("query", "SELECT 1 AS a, 2 AS a")
    assert code == 2
    assert "returns the column 'a' twice" in err


def test_doctor_tells_what_is_wrong(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no shared memory")

    monkeypatch.setattr("ablate.execution.ray_tune.RayExecutor._start", fail)
    code, out, _ = say("doctor", "--format", "json")
    found = {row["what"]: row for row in json.loads(out)}
    assert code == 1
    assert not found["ray starts"]["ok"]
    assert "no shared memory" in found["ray starts"]["found"]


def test_failed_trials_are_reported_with_code_1(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise MemoryError("cannot allocate 99 GB")

    monkeypatch.setattr("ablate.training.loop.Training._train", explode)
    code, _, err = say("run", "tiny.yaml", "--executor", "inline")
    assert code == 1
    assert "Stopped: the first 2 trials ended in the same error" in err
    assert "cannot allocate 99 GB" in err


@pytest.mark.proof
def test_schema_is_json(say: Say) -> None:
    schema = json.loads(say("schema")[1])
    factors = schema["properties"]["factors"]["properties"]
    assert factors["shortcuts.count"]["anyOf"][0]["items"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 64,
    }


def test_help_names_every_verb(say: Say) -> None:
    out = say("help", "all")[1]
    for verb in (
        "run",
        "resume",
        "status",
        "plan",
        "cost",
        "table",
        "query",
        "factors",
        "schema",
        "doctor",
    ):
        assert re.search(rf"^  {verb} ", out, re.MULTILINE), verb
        assert say(verb, "--help")[0] == 0


@pytest.mark.proof
def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny.replace("epochs: 3", "epochs: 2000"))
    command = [
        sys.executable,
        "-m",
        "ablate",
        "run",
        "tiny.yaml",
        "--executor",
        "inline",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(
        tmp_path.glob("runs/checkpoints/*/*/lock")
    ):
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted: 0 of 8 trials done. Go on with: ablate resume tiny" in err
    assert "Traceback" not in out + err
    assert list(tmp_path.glob("runs/checkpoints/*/*/last.pt")), (
        "the running trial was saved"
    )


@pytest.mark.proof
def test_on_a_terminal_there_are_bars(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny)
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "ablate",
        "run",
        "tiny.yaml",
        "--executor",
        "inline",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=theirs, stdout=subprocess.PIPE, text=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert "trials" in shown.decode()
    assert "epochs" in shown.decode()


@pytest.mark.ray
def test_doctor_finds_this_machine_well(say: Say) -> None:
    code, out, _ = say("doctor", "--format", "json")
    found = {row["what"]: row for row in json.loads(out)}
    assert code == 0
    assert (
        found["model"]["found"]
        == "deit_tiny_patch16_224 costs 5.72 M parameters, 1.26 GFLOPs"
    )
    assert found["ray starts"]["ok"]


def test_doctor_checks_the_folder_in_which_runs_will_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for look in ("_gpu", "_store", "_model", "_ray"):
        monkeypatch.setattr(doctor, look, lambda *_: "")
    checks = {check.what: check for check in doctor.examine("x", tmp_path / "a/b")}
    assert str(tmp_path) in checks["disk"].found
    assert checks["runs folder"].ok


def test_doctor_names_each_check_before_it_begins(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for look in ("_gpu", "_store", "_model", "_ray"):
        monkeypatch.setattr(doctor, look, lambda *_, look=look: str(seen.append(look)))
    doctor.examine("x.db", Path(), seen.append)
    slow = [
        "gpu",
        "_gpu",
        "disk and runs folder",
        "store",
        "_store",
        "model",
        "_model",
        "ray starts",
        "_ray",
    ]
    assert seen == ["packages and machine", *slow]
    _, _, err = say("doctor")
    assert err.splitlines() == [
        f"checking: {name}"
        for name in seen[: len(slow) + 1]
        if not name.startswith("_")
    ]


def test_a_checkout_that_is_not_installed_has_no_version(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "DISTRIBUTION", "ablate-that-is-not-there")
    message = (
        "error: ablate-that-is-not-there is not installed; in a checkout, type: make\n"
    )
    assert say("--version") == (2, "", message)


@pytest.mark.proof
def test_diagnose_and_plot(trained: Say) -> None:
    code, shown, told = trained(
        "diagnose",
        "tiny",
        "--name",
        "token_cosine",
        "--name",
        "smoothing",
        "--images",
        "20",
    )
    assert code == 0
    assert "diagnostics of 4 trials measured" in told
    assert "smoothing.bound" in shown
    assert "count 1, layout parallel" in shown
    for file in ("cosine.svg", "smoothing.png", "one.pdf"):
        name = "token_cosine" if file != "smoothing.png" else "smoothing"
        code, _, told = trained(
            "plot",
            "tiny",
            "--diagnostic",
            name,
            "--to",
            file,
            *(["--row", "1"] if file == "one.pdf" else []),
        )
        assert code == 0, told
        assert Path(file).stat().st_size > 1000
    first = Path("cosine.svg").read_bytes()
    trained("plot", "tiny", "--diagnostic", "token_cosine", "--to", "cosine.svg")
    assert Path("cosine.svg").read_bytes() == first, "equal data give equal bytes"
    for words, message in (
        (
            ("plot", "tiny", "--diagnostic", "diversity", "--to", "x.svg"),
            "measure it with: ablate diagnose tiny --name diversity",
        ),
        (
            ("plot", "tiny", "--diagnostic", "token_cosin", "--to", "x.svg"),
            "did you mean 'token_cosine'",
        ),
        (
            ("plot", "tiny", "--diagnostic", "token_cosine", "--to", "x.gif"),
            "name a file like x.svg",
        ),
        (
            (
                "plot",
                "tiny",
                "--diagnostic",
                "token_cosine",
                "--to",
                "x.svg",
                "--row",
                "9",
            ),
            "no row 9 has the diagnostic",
        ),
        (("diagnose", "tiny", "--name", "x"), "unknown diagnostic 'x'"),
        (("diagnose", "tinu"), "did you mean 'tiny'"),
        (("verify-costs", "augvid"), "did you mean 'augvit'"),
        (("backbones", "swim"), "did you mean 'swin'"),
        (("table", "tiny", "--published"), "names no published table"),
    ):
        code, _, told = trained(*words)
        assert code == 2, words
        assert message in told, told
        assert "Traceback" not in told


def test_verify_costs_tells_what_differs_and_why(say: Say) -> None:
    code, shown, told = say("verify-costs", "augvit/table3", "--format", "md")
    assert code == 0
    assert "params (M): printed 22.1, computed 22.05: equal" in told
    assert "| different  | three times one" in shown
    assert "multiplied the rounded 0.04" in shown
    assert "equal: 5 of 8;" in shown
    assert "convention: 2 of 8;" in shown
    assert "different: 1 of 8;" in shown
    assert "convention matrix: 4 of 4 equal;" in shown


def test_verify_costs_fails_where_a_print_is_unexplained(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate.audit import costs_table

    table = costs_table.tables()["augvit/table3"]
    bare = [replace(row, causes={}) for row in table.rows]
    monkeypatch.setattr(
        costs_table,
        "tables",
        lambda: {"augvit/table3": replace(table, rows=tuple(bare))},
    )
    code, shown, _ = say("verify-costs", "augvit/table3", "--format", "json")
    assert code == 1
    rows = json.loads(shown)
    assert [row["row"] for row in rows if not row["explained"]] == ["3"]
    assert {row["class"] for row in rows} == {"equal", "convention", "different"}


def test_an_interrupted_verb_says_so(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ablate.cli.figures.drawn", interrupted)
    assert say("plot", "tiny", "--to", "x.svg") == (130, "", "interrupted\n")
