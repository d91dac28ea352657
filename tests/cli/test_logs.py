"""`ablate logs`: what trials print, with every executor that has workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ablate.execution import trial_log
from ablate.execution.trial_log import TrialLog
from ablate.pipeline import Options
from ablate.records import Status
from ablate.trained import logs as of_trials
from ablate.trained.logs import shown_lines
from tests.conftest import Say

TRAINER = """
import subprocess, sys
import ablate

@ablate.trainer(factors={"width": [4, 8]}, metrics={"loss": "min"})
def mine(trial):
    print("width", trial.levels["width"])
    print("a warning", file=sys.stderr)
    subprocess.run(["echo", "from a child"])
    for epoch in trial.epochs():
        print("\\r10 %\\r100 % of", epoch, "\\x1b[31mred\\x1b[0m")
        if trial.levels["width"] == 8 and epoch == 2:
            raise ValueError("broken here")
        trial.report(loss=1 / epoch)
"""
SCRIPT = """
import json, sys
print("the script says", *sys.argv[1:])
print("on standard error", file=sys.stderr)
for epoch in (1, 2, 3):
    print(json.dumps({"epoch": epoch, "loss": 1 / epoch}))
"""
COMMAND = """
import ablate
script = ablate.command("python script.py {width} {seed}",
    factors={"width": [4, 8]}, metrics={"loss": "min"})
"""
SPACE = "question: q?\ntrainer: {}\nfactors: {{width: [4, 8]}}\nrecipe: {{epochs: 3}}\n"


def run(say: Say, *words: str, code: int = 0) -> tuple[str, str]:
    """Runs a command that ends with a code; gives stdout and stderr."""
    ended, out, error = say(*words)
    assert ended == code, error
    return out, error


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(TRAINER)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "command.py").write_text(COMMAND)
    (tmp_path / "mine.yaml").write_text(SPACE.format("mine") + "seeds: 2\n")
    (tmp_path / "script.yaml").write_text(SPACE.format("script") + "seeds: 1\n")
    return tmp_path


@pytest.mark.proof
def test_the_log_of_a_function_has_all_that_it_prints(folder: Path, say: Say) -> None:
    with_parts = ("--with", "own.py")
    run(say, "run", "mine.yaml", "--executor", "local", *with_parts, code=1)
    out, _ = run(say, "logs", "mine", "--row", "0", "--seed", "1")
    lines = out.splitlines()
    assert lines[0].startswith("== row 0, seed 1, trial ")
    assert lines[0].endswith(": completed")
    assert " UTC: begins on " in lines[1]
    assert lines[2:5] == ["width 4", "a warning", "from a child"]
    # A progress bar is shown in its last state, without colours.
    assert lines[5] == "100 % of 1 red"
    assert lines[6].startswith("epoch 1: loss 1 (")
    assert lines[-1] == "--- completed ---"
    out, _ = run(say, "logs", "mine", "--row", "1", "--seed", "0")
    assert "ValueError: broken here\n--- failed ---" in out
    # All of the traceback, from where the trial began to train.
    assert out.count("Traceback (most recent call last):") == 1
    assert "trial_run.py" in out
    # A second attempt is appended.
    run(say, "resume", "mine", "--executor", "local", *with_parts, code=1)
    again, _ = run(say, "logs", "mine", "--row", "1", "--seed", "0")
    assert again.startswith(out)
    assert again.count("begins on") == 2
    # Several: the last lines of each.
    out, _ = run(say, "logs", "mine", "--lines", "1")
    assert out.count("== row") == 4
    assert out.count("--- completed ---") == out.count("--- failed ---") == 2
    # A trial is also named by its hash.
    key = again.split("trial ")[1][:8]
    assert run(say, "logs", key)[0] == again
    mode = next((folder / "runs/logs").rglob("*.txt")).stat().st_mode
    assert mode & 0o077 == 0, "others cannot read it"


@pytest.mark.proof
def test_the_log_of_a_command_has_both_of_its_outputs(folder: Path, say: Say) -> None:
    run(say, "run", "script.yaml", "--executor", "local", "--with", "command.py")
    out, _ = run(say, "logs", "script", "--row", "1")
    assert "the script says 8 0\n" in out
    assert "on standard error\n" in out
    assert '{"epoch": 3, "loss": 0.3' in out
    # In this process, too, where nothing else is captured.
    run(
        say,
        "run",
        "script.yaml",
        "--executor",
        "inline",
        "--runs",
        "other",
        "--with",
        "command.py",
    )
    out, _ = run(say, "logs", "script", "--row", "0", "--runs", "other")
    assert "the script says 4 0\n" in out


def test_what_does_not_exist_is_named(folder: Path, say: Say) -> None:
    run(say, "run", "script.yaml", "--executor", "inline", "--with", "command.py")
    _, error = run(say, "logs", "script", "--row", "7", code=2)
    assert "--row 7: script has trials in the rows 0, 1" in error
    _, error = run(say, "logs", "script", "--row", "1", "--seed", "4", code=2)
    assert "--seed 4: row 1 of script has the seeds 0" in error
    _, error = run(say, "logs", "scirpt", code=2)
    assert "script" in error
    for log in (folder / "runs/logs").rglob("*.txt"):
        log.unlink()
    out, _ = run(say, "logs", "script", "--row", "0")
    assert "is missing; the trial was trained on " in out


@pytest.mark.proof
def test_a_log_is_followed_until_the_trials_have_ended(folder: Path, say: Say) -> None:
    slow = (
        TRAINER.replace("raise ValueError", "print")
        .replace("for epoch in", "import time\n    for epoch in")
        .replace(
            "        trial.report", "        time.sleep(0.5)\n        trial.report"
        )
    )
    (folder / "own.py").write_text(slow)
    ablate = [sys.executable, "-m", "ablate"]
    options = ["--executor", "local", "--with", "own.py"]
    running = subprocess.Popen([*ablate, "run", "mine.yaml", *options])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list((folder / "runs").rglob("*.txt")):
        time.sleep(0.1)
    out, _ = run(say, "logs", "mine", "--follow")
    # All trials have ended, and nothing was left out or shown twice.
    assert out.count("--- completed ---") == 4
    assert out.count("from a child") == 4
    assert "row 1 seed 1 | broken here\n" in out
    assert running.wait(60) == 0


@pytest.mark.proof
def test_what_a_killed_trial_printed_is_kept(folder: Path, say: Say) -> None:
    (folder / "own.py").write_text(
        TRAINER.replace("raise ValueError", "import os; os.kill(os.getpid(), 9); print")
    )
    run(say, "run", "mine.yaml", "--executor", "local", "--with", "own.py", code=1)
    out, _ = run(say, "logs", "mine", "--row", "1", "--seed", "0")
    assert "100 % of 2 red" in out


def test_a_long_log_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_log, "MOST_BYTES", 1000)
    monkeypatch.setattr(trial_log, "KEPT_BYTES", 500)
    file = tmp_path / "logs" / "log.txt"
    log = TrialLog(str(file))
    for number in range(100):
        log.write(f"line {number:5}\n")
        log.trim()
    log.close()
    log.write("after the end")
    text = file.read_text()
    assert len(text) <= 1000
    assert text.endswith("line    99\n")
    assert "bytes before this are not kept" in text


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("", str(tmp_path / "file" / "log.txt")):
        log = TrialLog(path)
        log.begin("host", "cpu")
        log.write("text \ud800")
        log.trim()
        log.close()
    log = TrialLog(str(tmp_path / "log.txt"))
    log.write("text \ud800")
    log.close()
    assert (tmp_path / "log.txt").read_text() == "text \\ud800"


def test_a_full_disk_of_logs_ends_no_training(tmp_path: Path) -> None:
    """/dev/full refuses each write, as a full disk does."""
    code = (
        "import sys\n"
        "from ablate.execution.trial_log import TrialLog\n"
        "log = TrialLog('/dev/full', captures=True)\n"
        "print('x' * 100_000, flush=True)\n"
        "sys.stderr.write('more')\n"
        "sys.stderr.flush()\n"
        "log.write('more')\n"
        "log.trim()\n"
        "log.close()\n"
        "sys.exit(7)\n"
    )
    folder = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )
    assert done.returncode == 7


def test_a_trial_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    """A log is trimmed within an epoch, too. Its secrets are masked in the file."""
    code = (
        "import os, time\n"
        "from ablate.execution import trial_log\n"
        "trial_log.MOST_BYTES, trial_log.KEPT_BYTES = 20_000, 10_000\n"
        "trial_log.LOOK_SECONDS = 0.05\n"
        "log = trial_log.TrialLog('log.txt', captures=True)\n"
        "for _ in range(20):\n"
        "    print('x' * 10_000)\n"
        "    time.sleep(0.02)\n"
        "time.sleep(0.2)\n"
        "assert os.stat('log.txt').st_size < 21_000\n"
        "print('postgresql://ada:s3cret@h/d')\n"
        "assert 's3cret' not in open('log.txt').read()\n"
        "os.system('echo MY_TOKEN=s3cret')\n"
        "log.close()\n"
    )
    folder = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=True,
    )
    text = (tmp_path / "log.txt").read_text()
    assert text.endswith("postgresql://ada:***@h/d\nMY_TOKEN=***\n")


def test_the_last_lines_of_a_long_log_are_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    log = of_trials.LogOfTrial(
        trial="t", row=0, seed=0, status=Status.RUNNING, path=path, host=""
    )
    with path.open("wb") as file:
        file.truncate(400_000_000)
        file.seek(0, 2)
        file.write(b"\n".join(b"line %d" % number for number in range(20_000)))
    began = time.process_time()
    assert log.last_lines(2) == ["line 19998", "line 19999"]
    assert len(log.last_lines(10_000)) == 10_000
    assert time.process_time() - began < 1


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("private\n")
    path = tmp_path / "log.txt"
    path.symlink_to(other)
    log = of_trials.LogOfTrial(
        trial="t", row=0, seed=0, status=Status.RUNNING, path=path, host="h"
    )
    assert "private" not in "".join(log.last_lines())
    TrialLog(str(path)).write("from a trial")
    assert other.read_text() == "private\n"


def test_logs_show_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("see postgresql://ada:s3cret@h/d\n--password s3cret\n")
    log = of_trials.LogOfTrial(
        trial="t", row=0, seed=0, status=Status.RUNNING, path=path, host="h"
    )
    assert log.last_lines() == ["see postgresql://ada:***@h/d", "--password ***"]


def test_outputs_go_back_to_nowhere(tmp_path: Path) -> None:
    """A worker that trains several jobs has one log for each."""
    code = (
        "import os\n"
        "from ablate.execution.trial_log import TrialLog\n"
        "for number in (1, 2):\n"
        "    log = TrialLog(f'{number}.txt', captures=True)\n"
        "    print('job', number)\n"
        "    os.system(f'echo child {number}')\n"
        "    log.close()\n"
        "    print('between')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )
    assert done.stdout == b""
    for number in (1, 2):
        text = (tmp_path / f"{number}.txt").read_text()
        assert text == f"job {number}\nchild {number}\n"


def test_a_log_is_not_closed_while_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its file could be that of another file by then."""
    log = TrialLog(str(tmp_path / "log.txt"))
    closing = threading.Thread(target=log.close)
    write = os.write
    was_open = []

    def slow(file: int, text: bytes) -> int:
        closing.start()
        closing.join(0.3)
        was_open.append(Path(f"/proc/self/fd/{file}").exists())
        return write(file, text)

    monkeypatch.setattr(os, "write", slow)
    log.write("from a thread")
    monkeypatch.undo()
    closing.join()
    assert was_open == [True]
    assert (tmp_path / "log.txt").read_text() == "from a thread"


def test_following_shows_long_output_and_a_last_line_without_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = of_trials.LogOfTrial(
        trial="t", row=0, seed=0, status=Status.RUNNING, path=tmp_path / "log", host=""
    )
    log.path.write_text("early\nbefore\nbegun")
    answers = iter([True, False])

    def running(*arguments: object) -> bool:
        # The trial prints three megabytes, and ends within a line.
        answer = next(answers)
        if not answer:
            with log.path.open("a") as stream:
                stream.write(" line\n" + "x" * 99 + "\n" * 30_001 + "y" * 3_000_000)
        return answer

    monkeypatch.setattr(of_trials, "_running", running)
    shown: list[str] = []
    of_trials.follow([log], Options(), 1, lambda log, line: shown.append(line))
    assert shown[:3] == ["before", "begun line", "x" * 99]
    assert shown[-1] == "y" * 3_000_000
    assert len(shown) == 3 + 30_000 + 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b" 1 %\r 2 %\r", [" 2 %"]),
        (b"\x1b[1;32mgreen\x1b[0m \x1b[2K", ["green "]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_as_a_terminal_shows_them(text: bytes, lines: list[str]) -> None:
    assert shown_lines(text) == lines
