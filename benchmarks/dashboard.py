"""The dashboard on a store of 100,000 trials of ten epochs: `make bench-dashboard`.

A study is planned and registered as ever; its trials and epochs are then filled in with
made-up numbers. A real browser opens each page twice: what counts is the second time,
from the address to the last thing on the page. Memory is that of all server processes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright

from ablate import pipeline, space
from ablate.machine import provenance
from ablate.pipeline import Options
from ablate.records import COST_REVISION
from ablate.store.reader import Reader
from ablate.store.writer import Writer

EPOCHS, SEEDS = 10, 5
TOKEN = "open sesame"
SPACE = """
question: Does the dashboard keep up?
name: scale
backbone: {{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}}
factors:
  shortcuts.count: [0, 1]
  recipe.lr: {lr}
  recipe.weight_decay: {decay}
seeds: {seeds}
data: {{name: digits, train_images: 200, test_images: 50}}
recipe: {{epochs: {epochs}, batch_size: 50, warmup_epochs: 0}}
"""


def build(folder: Path, trials: int) -> Options:
    """A store with one study of about so many trials, all completed."""
    side = round((trials / SEEDS / 2) ** 0.5)
    levels = {
        "lr": [round(1e-4 * 1.05**i, 9) for i in range(side)],
        "decay": [round(0.001 * i, 6) for i in range(side)],
    }
    declared = space.load(
        SPACE.format(**levels, seeds=SEEDS, epochs=EPOCHS), "scale.yaml"
    )
    options = Options(runs=folder)
    with Writer(options.url) as writer:
        shown = pipeline.preview(declared, options.url, options, probe=False)
        study = writer.register(shown.plan, "scale.yaml", COST_REVISION)
        writer.begin(study, declared.document, provenance.collect())
        writer.finish(study)
    with sqlite3.connect(options.url) as connection:
        hashes = [row[0] for row in connection.execute("SELECT hash FROM trials")]
        connection.executemany(
            "INSERT INTO epochs (trial_hash, number, lr, seconds) VALUES (?, ?, 1e-3, 1)",
            itertools.product(hashes, range(1, EPOCHS + 1)),
        )
        connection.executemany(
            "INSERT INTO epoch_metrics (trial_hash, epoch, name, value) VALUES"
            " (?, ?, ?, ?)",
            made_up(hashes),
        )
        connection.execute(
            "INSERT INTO trial_metrics (trial_hash, name, value) SELECT trial_hash,"
            " name, value FROM epoch_metrics WHERE epoch = ?",
            (EPOCHS,),
        )
        connection.execute(
            "UPDATE trials SET status = 'completed', seconds = ?, selected_epoch = ?,"
            " epochs_done = ?, ended_at = '2026-01-01 00:00:00.000000'",
            (EPOCHS, EPOCHS, EPOCHS),
        )
        connection.executemany(
            "INSERT INTO attempts (trial_hash, provenance_id, number, status, executor,"
            " host, pid, device, threads, first_epoch, started_at, ended_at, error,"
            " weights) VALUES (?, 1, 1, 'completed', 'simulated', 'host', 1, 'cpu', 1,"
            " 0, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000', '', '')",
            zip(hashes),
        )
    return options


def made_up(hashes: list[str]) -> Iterator[tuple[str, int, str, float]]:
    """Metrics of each epoch of each trial."""
    generator = random.Random(0)
    for key in hashes:
        final = 70 + generator.gauss(0, 2)
        for epoch in range(1, EPOCHS + 1):
            top1 = final * (epoch / EPOCHS) ** 0.3
            yield key, epoch, "top1", top1
            yield key, epoch, "top5", min(100.0, top1 + 20)
            yield key, epoch, "loss", 1.0
            yield key, epoch, "train_loss", 1.0


@contextmanager
def served(options: Options, *more: str) -> Iterator[tuple[str, psutil.Process]]:
    """The dashboard's address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "ablate",
        "dashboard",
        "--runs",
        str(options.runs),
        "--port",
        str(port),
        "--no-browser",
        *more,
    ]
    server = subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "ABLATE_TOKEN": TOKEN},
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", psutil.Process(server.pid)
    finally:
        for process in [
            *psutil.Process(server.pid).children(recursive=True),
            psutil.Process(server.pid),
        ]:
            process.kill()
        server.wait()


def sign_in(context: BrowserContext, address: str) -> None:
    """Gives a browser the cookie of a dashboard."""
    answer = context.request.get(f"{address}/", params={"token": TOKEN})
    assert answer.ok, answer.text()


def seconds(page: Page, address: str, last: str) -> float:
    """From the address to the last thing on the page."""
    start = time.monotonic()
    page.goto(address)
    page.get_by_text(last).first.wait_for(timeout=180_000)
    page.wait_for_function(
        "!document.querySelector('[data-testid=stStatusWidget]')", timeout=180_000
    )
    return time.monotonic() - start


def memory(server: psutil.Process) -> float:
    """GB of all processes of the server."""
    return (
        sum(
            process.memory_info().rss
            for process in [server, *server.children(recursive=True)]
        )
        / 2**30
    )


def measure(options: Options) -> dict[str, Any]:
    """Seconds of each page the first time and then, seconds of the wide view, GB of
    memory.
    """
    pages = {
        "*Studies*": ("/", "Does the dashboard keep up?"),
        "study, verdicts": ("/study?study=scale", "verdicts at 5 %"),
        "study, table": ("/study?study=scale&view=table", "mean ± standard deviation"),
        "study, pareto": ("/study?study=scale&view=pareto", "Click a point"),
        "study, curves": ("/study?study=scale&view=curves", "The first 12 of"),
        "study, trials": ("/study?study=scale&view=trials", "Click a heading"),
        "study, scatter": ("/study?study=scale&view=scatter", "Each point is a trial"),
    }
    found: dict[str, Any] = {}
    with served(options) as (address, server), sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        sign_in(page.context, address)
        for name, (path, last) in pages.items():
            found[name] = [seconds(page, address + path, last) for _ in range(4)]
        browser.close()
        found["memory"] = memory(server)
    with Reader(options.url) as reader:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            reader.query('SELECT * FROM "results_scale"', most=1000, seconds=10)
            times.append(time.perf_counter() - start)
    found["wide view"] = times
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument(
        "--store",
        type=Path,
        help="a folder to build the store in, or in which it was built before",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.store or Path(name)
        options = (
            Options(runs=folder)
            if (folder / "ablate.db").exists()
            else build(folder, arguments.trials)
        )
        print(f"store: {os.path.getsize(options.url) / 2**20:.0f} MB", flush=True)
        found = measure(options)
    for name, times in found.items():
        if name == "memory":
            print(f"memory: {times:.2f} GB")
        else:
            print(
                f"{name}: first {times[0]:.2f} s, then"
                f" {statistics.median(times[1:]):.2f} s"
            )


if __name__ == "__main__":
    main()
