"""Kills drivers and workers of real Ray runs at random moments, and checks what is left: `make faults SEED=0 COUNT=30`.

A study is run again and again until it is finished, with a SIGKILL at a random moment of each run: of the driver (`ablate run`,
then `ablate resume`) or of one of its workers. When it is finished, every trial must have exactly one result and the table must
be, byte for byte, that of an undisturbed run. Then the next study begins, until `count` kills have been made.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SPACE = """
question: Does it survive?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 1]
  layout: [serial, parallel]
design: grid
seeds: 2
data: {name: digits, train_images: 400, test_images: 100}
recipe: {epochs: 60, batch_size: 20, lr: 2e-3, warmup_epochs: 0}
"""
TRIALS = 8
LONGEST = 240.0
"""Seconds after which a run that does not end counts as hung."""


@dataclass
class Tally:
    """What was done and what was found."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    studies: int = 0
    problems: list[str] = field(default_factory=list)


def ablate(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Starts the command in a folder, without the terminal's signals."""
    # A checkpoint after every epoch or so: kills come within seconds.
    environment = {**os.environ, "ABLATE_CHECKPOINT_SECONDS": "0.5"}
    command = [sys.executable, "-m", "ablate", *words, "--cpus", "2"]
    with (folder / "log.txt").open("a") as log:
        return subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log, env=environment, text=True, start_new_session=True
        )


def table(folder: Path) -> bytes:
    """The study's table as JSON and Markdown."""
    forms = ("json", "md")
    command = [sys.executable, "-m", "ablate", "table", "space", "--format"]
    return b"".join(subprocess.run([*command, form], cwd=folder, capture_output=True, check=True).stdout for form in forms)


def workers(driver: int) -> list[psutil.Process]:
    """Processes in which trials run."""
    try:
        below = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for process in below:
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "ray::" in title and "Agent" not in title and "IDLE" not in title:
            found.append(process)
    return found


def progress(folder: Path) -> str:
    """How far the store says the study is: for the tally of moments at which kills came."""
    file = folder / "runs" / "ablate.db"
    if not file.is_file():
        return "before the store"
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            done, started = connection.execute(
                "SELECT COALESCE(SUM(status = 'completed'), 0), COALESCE(SUM(epochs_done > 0), 0) FROM trials"
            ).fetchone()
    except sqlite3.Error:
        return "before the store"
    finally:
        if "connection" in locals():
            connection.close()
    return "before training" if not started else "in training" if done < TRIALS else "after the last result"


@contextmanager
def study_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ablate-faults-"))
    (folder / "space.yaml").write_text(SPACE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def undisturbed() -> tuple[bytes, float]:
    """The table of a run that nobody disturbs, and how long it took."""
    with study_folder() as folder:
        start = time.monotonic()
        if ablate(folder, "run", "space.yaml").wait(LONGEST) != 0:
            raise SystemExit((folder / "log.txt").read_text())
        return table(folder), time.monotonic() - start


def disturbed(folder: Path, generator: random.Random, tally: Tally, count: int, typical: float) -> None:
    """Runs one study to its end with a kill in each run, as long as kills are left."""
    words = ("run", "space.yaml")
    while True:
        driver = ablate(folder, *words)
        left = count - tally.kills.total()
        target = generator.choice(("driver", "worker")) if left > 0 else ""
        moment = time.monotonic() + generator.uniform(0.0, typical)
        killed = ""
        started = time.monotonic()
        while driver.poll() is None:
            if time.monotonic() - started > LONGEST:
                tally.problems.append(f"a run hung for {LONGEST:.0f} s: {(folder / 'log.txt').read_text()[-2000:]}")
                os.killpg(driver.pid, signal.SIGKILL)
            if target and not killed and time.monotonic() >= moment:
                at = progress(folder)
                if target == "driver":
                    driver.kill()
                    killed = "driver"
                elif found := workers(driver.pid):
                    generator.choice(found).kill()
                    killed = "worker"
                if killed:
                    tally.kills[killed] += 1
                    tally.moments[at] += 1
                    print(f"kill {tally.kills.total()}: {killed} {at}", flush=True)
            time.sleep(0.05)
        if driver.returncode == 0:
            return
        if killed != "driver" and driver.returncode != 0:
            tally.problems.append(f"exit code {driver.returncode}: {(folder / 'log.txt').read_text()[-2000:]}")
            return
        words = ("resume", "space") if (folder / "runs" / "ablate.db").is_file() and registered(folder) else ("run", "space.yaml")


def registered(folder: Path) -> bool:
    """Whether the store knows the study already; a driver may die before."""
    command = [sys.executable, "-m", "ablate", "status", "space"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def check(folder: Path, expected: bytes, tally: Tally) -> None:
    """Exactly one result for each trial, no epoch missing or doubled, and the undisturbed table."""
    with sqlite3.connect(folder / "runs" / "ablate.db") as connection:
        statuses = Counter(row[0] for row in connection.execute("SELECT status FROM trials"))
        results = [
            row[0] for row in connection.execute("SELECT COUNT(*) FROM attempts WHERE status = 'completed' GROUP BY trial_hash")
        ]
        epochs = {row[0] for row in connection.execute("SELECT COUNT(*) FROM epochs GROUP BY trial_hash")}
    connection.close()
    if statuses != {"completed": TRIALS} or results != [1] * TRIALS or epochs != {60}:
        tally.problems.append(f"states {dict(statuses)}, results a trial {results}, epochs a trial {epochs}")
    if table(folder) != expected:
        tally.problems.append("the table differs from that of the undisturbed run")


def main(seed: int, count: int) -> Tally:
    """Makes `count` kills and gives what was found."""
    generator, tally = random.Random(seed), Tally()
    expected, typical = undisturbed()
    print(f"undisturbed: {typical:.0f} s", flush=True)
    while tally.kills.total() < count and not tally.problems:
        with study_folder() as folder:
            disturbed(folder, generator, tally, count, typical)
            check(folder, expected, tally)
            tally.studies += 1
    return tally


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    arguments = parser.parse_args()
    found = main(arguments.seed, arguments.count)
    kills = f"{found.kills.total()} kills {dict(found.kills)} at {dict(found.moments)}"
    print(f"{kills}, {found.studies} studies, {len(found.problems)} problems")
    for problem in found.problems:
        print(problem)
    sys.exit(bool(found.problems))
