"""docs/reliability.md, written by a run of the faults."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.disk import how
from tests.faults.fault import FAULTS
from tests.faults.scene import BUSY_SECONDS, DIVERGING, HANG_SECONDS, TRIALS

if TYPE_CHECKING:
    from tests.faults.harness import Tally

HEAD = (
    "fault",
    "what the user sees",
    "what is kept",
    "tried",
    "trials lost",
    "results doubled",
    "tables differing",
    "epochs lost beyond the last checkpoint",
)
TEXT = """# Reliability

Written by a run of the faults; do not edit. {verdict}

    make faults SEED={seed} COUNT={count}

{count} faults, {sigkills} of them SIGKILLs, in {runs} runs of {studies} studies; {date}, {machine};
{seconds:.0f} s, {each:.1f} s a fault.

{table}

A study's findings stand in the row of every kind that it was hit by.

## How it is checked

Each study has {trials} trials on a part of the digits, on a real Ray with two workers. It is run again and again, first with
`ablate run`, then with `ablate resume`, until it is finished. The seed draws which faults come, in which order, when, on which
worker and how; the instants are random, so that a second run with the same seed hits other lines of code. Up to four faults come
in one run. After each run its exit code must be one that its faults explain, standard error must hold the message of one of them
and no traceback. What outlives its driver by 30 s is counted and ended. An attempt must never begin before the epoch that its
trial's checkpoint held when the worker was stopped or the run had ended; after SIGTERM or Ctrl-C alone, the checkpoints hold
every epoch told. When a study is finished, each trial must have exactly one result, each of its epochs must be stored once, and
the table in all four forms must be, byte for byte, that of a run that nobody disturbed.

{notes}
"""


def write_report(file: Path, tally: Tally, seed: int) -> None:
    """Writes what a run found."""
    rows: list[tuple[object, ...]] = [
        (
            name,
            kind.sees,
            kind.keeps,
            tally.tried[name],
            tally.lost[name],
            tally.doubled[name],
            tally.differing[name],
            tally.epochs[name],
        )
        for name, kind in FAULTS.items()
    ]
    rows.append(("NaN loss", "`diverged`, in the table too", "its epochs", f"{tally.diverged} trials", 0, 0, 0, 0))
    lines = [HEAD, tuple("---" for _ in HEAD), *rows]
    notes = [
        f"- Disk full: {how()}.",
        "- Out of memory: the worker's address space is limited from outside (RLIMIT_AS) for six seconds while it trains; a trial"
        " that asks for nothing new in that time is not hurt.",
        "- Clock: `time.time` of every Python process of the run, which ablate's own times come from, is put wrong by between 40"
        " seconds and 460 days, forwards or backwards. The clocks of Ray's own C++ processes stay right: setting the machine's"
        " clock would disturb whoever else uses it, and under libfaketime Ray dies at its start.",
        f"- Database locked: the run waits {BUSY_SECONDS} s here (30 s by default, `ABLATE_BUSY_SECONDS`).",
        f"- Hanging worker: stopped with SIGSTOP; given up after {HANG_SECONDS} s without a batch here (1800 s by default,"
        " `ABLATE_HANG_SECONDS`).",
        f"- NaN loss: in every study {DIVERGING} trials have a learning rate of 1e30; they are not among the faults counted.",
        f"- Processes that had to be ended after a run because they outlived it by 30 s, as a stopped"
        " worker does whose driver is killed"
        f" before it is given up: {tally.outlived}.",
        f"- Exit codes of the runs: {', '.join(f'{code}: {n}' for code, n in sorted(tally.codes.items()))}.",
    ]
    found = tally.problems
    text = TEXT.format(
        verdict="Nothing was lost, doubled or changed."
        if not found
        else f"**{len(found)} problems were found**; they stand below.",
        seed=seed,
        count=tally.tried.total(),
        sigkills=tally.sigkills,
        runs=tally.runs,
        studies=tally.studies,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        seconds=tally.seconds,
        each=tally.seconds / max(1, tally.tried.total()),
        table="\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines),
        trials=TRIALS,
        notes="\n".join(notes),
    )
    if found:
        text += "\n## Problems\n\n" + "\n\n".join(f"```\n{problem}\n```" for problem in found) + "\n"
    file.write_text(text)
