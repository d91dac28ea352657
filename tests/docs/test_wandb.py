"""The commands of Weights & Biases that docs/logging.md prints, against a stand-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from tests.conftest import TINY
from tests.docs.wandb_server import Server, wandb_server

pytestmark = pytest.mark.ray

PAGE = Path(__file__).parents[2] / "docs" / "logging.md"
LOGIN, SYNC = re.findall(r"`(wandb (?:login|sync)[^`]*)`", PAGE.read_text())
OFFLINE = "WANDB_MODE=offline ablate run SPACE.yaml --log wandb"
ONLINE = OFFLINE.removeprefix("WANDB_MODE=offline ")


@pytest.fixture
def server() -> Iterator[Server]:
    with wandb_server() as made:
        yield made


@pytest.mark.parametrize("commands", [[OFFLINE, LOGIN, SYNC], [LOGIN, ONLINE]])
def test_the_curves_arrive(commands: list[str], server: Server, tmp_path: Path) -> None:
    """A run that is offline is sent later; one that is online, while it trains."""
    assert OFFLINE in PAGE.read_text()
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        server.history.clear()
        said = "".join(run_in(folder, command, server) for command in commands)
        # On a busy machine, the processes of the service may start too late.
        if "has not taken everything" not in said:
            break
    assert server.logins
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/runs/ablate.db")
    with engine.connect() as store:
        rows = store.exec_driver_sql("SELECT trial, epoch, top1 FROM epoch_results")
        stored = {(trial[:20], epoch): top1 for trial, epoch, top1 in rows}
    engine.dispose()
    sent = {
        (run[:20], line["epoch"]): line["top1"]
        for run, lines in server.history.items()
        for line in lines
        if "top1" in line
    }
    assert sent == pytest.approx(stored)
    assert len(stored) == 2 * 3, "two trials of three epochs"


def run_in(folder: Path, command: str, server: Server) -> str:
    """Runs a command of the page in a reader's folder; returns what it prints."""
    folder.mkdir(exist_ok=True)
    text = TINY.replace("seeds: 2", "seeds: 1").replace("design: grid\n", "")
    text = text.replace("  layout: [serial, parallel]\n", "")
    (folder / "mine.yaml").write_text(text)
    tools = Path(sys.executable).parent
    settings = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "WANDB_BASE_URL": server.url,
        # What a person types when `wandb login` asks for it.
        "WANDB_API_KEY": "a" * 40,
    }
    said = command.replace("SPACE.yaml", "mine.yaml").replace("RUNS/", "runs/")
    done = subprocess.run(
        ["bash", "-c", said],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
