"""What reaches a terminal while a study runs, and on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from ablate import space
from ablate.cli.progress import Progress
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Preview
from ablate.plan import make_plan
from ablate.records import Cost, Ended, Epoch, Place, Plan, Progressed, Started, Status
from tests.conftest import RunText
from tests.hostile.conftest import NAME, Hostile, failing
from tests.hostile.texts import ACTING, evil

LABEL = evil("label") + " [red]red[/red] [/] [link=http://evil.invalid]l[/link] :smile:"
PLACE = Place("ray", "here", 1, "cpu", 1)


def hostile_plan(text: str) -> Plan:
    """A plan in which a level is hostile."""
    plan = make_plan(
        space.load(text, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    cells = [
        replace(cell, levels={**cell.levels, "layout": LABEL}) if cell.index else cell
        for cell in plan.cells
    ]
    return replace(
        plan, cells=tuple(cells), space=replace(plan.space, name=evil("name"))
    )


def follow(progress: Progress, plan: Plan) -> None:
    """Everything that can be said of a trial: begun, lost, done, failed."""
    first, second = plan.cells[1].trials
    progress.planned(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    progress.event(Started(first.hash, PLACE, 0))
    progress.event(Started(first.hash, PLACE, 2))
    progress.event(
        Progressed(
            first.hash,
            (
                Epoch(
                    number=3,
                    metrics={
                        "train_loss": 1.0,
                        "loss": 1.0,
                        "top1": 50.0,
                        "top5": 60.0,
                    },
                    lr=1e-3,
                    seconds=1.0,
                ),
            ),
        )
    )
    progress.event(Ended(first.hash, Status.COMPLETED))
    progress.event(
        Ended(
            second.hash,
            Status.FAILED,
            "Traceback\n" + evil("error").replace("\n", "\r"),
        )
    )


def test_lines_of_a_run_show_control_characters(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(Progress(), hostile_plan(tiny))
    err = capsys.readouterr().err
    assert not ACTING.search(err)
    lines = err.splitlines()
    assert len(lines) == 5, "no text begins a line of its own"
    assert "[red]red[/red]" in err
    assert lines[-1].startswith("failed: ")
    assert lines[-1].endswith("end of error")


def test_bars_show_names_as_they_are(
    tiny: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20000")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress() as progress:
        follow(progress, hostile_plan(tiny))
    err = capsys.readouterr().err
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", err)
    assert not ACTING.search(shown), "no sequences but Rich's own"
    assert "\x1b[2J" not in err
    assert "\x1b]" not in err
    assert "[red]red[/red] [/] [link=http://evil.invalid]l[/link] :smile:" in shown
    assert "best top1 50.00 (" in shown


@pytest.mark.proof
@pytest.mark.parametrize(
    "words",
    [
        ("table", NAME),
        ("status", NAME),
        ("status", "\x1b[2J"),
        ("query", "SELECT * FROM studies"),
    ],
)
def test_a_real_terminal_gets_no_sequence_of_the_text(
    hostile: Hostile, words: tuple[str, ...]
) -> None:
    main, side = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "ablate",
        *words,
        "--runs",
        str(hostile.options.runs),
    ]
    process = subprocess.Popen(
        command, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm"}
    )
    os.close(side)
    found = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        found += part
    os.close(main)
    process.wait()
    text = found.decode()
    assert len(text) > 50
    for own in re.findall(r"\x1b.{0,4}", text):
        assert re.match(r"\x1b\[[0-9;]*m", own), "Rich's bold and dim, and nothing else"
    assert not ACTING.search(re.sub(r"\x1b\[[0-9;]*m|\r\n", "", text))


def test_a_run_with_a_failing_trial_keeps_its_terminal(
    run_text: RunText, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_text(tiny.replace("seeds: 2", "seeds: 3"), SimulatedExecutor(failing))
    assert outcome.failed
    assert not ACTING.search("".join(capsys.readouterr()))
