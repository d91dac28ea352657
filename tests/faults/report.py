"""docs/reliability.md, written by a run of the faults."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.disk import how
from tests.faults.fault import FAULTS, IN_ONE_RUN
from tests.faults.inject.ablate_test_phases import HOLD_SECONDS
from tests.faults.phases import MEANING, PLACES, Place
from tests.faults.scene import BUSY_SECONDS, DIVERGING, HANG_SECONDS, TRIALS
from tests.faults.stores import Kind
from tests.faults.tally import FULL, LEAST, Tally

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

    make faults SEED={seed} COUNT={asked}

{count} faults, {sigkills} of them SIGKILLs, in {runs} runs of {studies} studies; {date}, {machine};
{seconds:.0f} s, {each:.1f} s a fault.

{table}

A study's findings stand in the row of every kind that it was hit by.

## Where the SIGKILLs landed

{places}

{meanings}

A run of {full} faults or more hits each of the first {kinds} places at least {least} times, or fails.

## Stores

{stores}

## How it is checked

Each study has {trials} trials on a part of the digits, on a real Ray with two workers. It is run again and again, first with
`ablate run`, then with `ablate resume`, until it is finished. One study in three is stored in a private PostgreSQL, the others
in SQLite; what is done to the database file comes to SQLite only, and so do two drivers at once, which PostgreSQL allows. The
seed draws which faults come, in which order, when, on which worker and how; the instants are random, so that a second run with
the same seed hits other lines of code. Up to {most} faults come in one run. After each run its exit code must be one that its
faults explain, standard error must hold the message of one of them and no traceback. What outlives its driver by 30 s is counted
and ended. An attempt must never begin before the epoch that its trial's checkpoint held when the worker was stopped or the run
had ended; after SIGTERM or Ctrl-C alone, the checkpoints hold every epoch told. When a study is finished, each trial must have
exactly one result, each of its epochs must be stored once, and the table in all four forms must be, byte for byte, that of an
undisturbed run, whatever the store.

Most SIGKILLs are aimed at a place in a trial's life; the others come at any instant. For an aimed kill, a module that only the
harness puts on the PYTHONPATH of the run holds the next process that comes to the place for at most {hold:g} s, and the harness
kills while the process is held. The module wraps the functions of ablate that begin and end the phases, and writes each change
of phase to a memory-mapped file of the process, which stays readable after a SIGKILL. The table counts what these files say. A
kill of the driver or of Ray's raylet counts where the worker at hand was from before the signal until the killed process was
dead; one during which the worker changed its phase counts as elsewhere. A kill between result and commit counts only if the
driver had not asked the database to commit that result until the killed process was dead.

{notes}
"""


KILLS = (
    "SIGKILL of a worker",
    "SIGKILL of the driver",
    "SIGKILL of the whole process group",
    "SIGKILL of Ray's raylet",
)
STORE_HEAD = (
    "store",
    "studies",
    "faults",
    "SIGKILLs",
    "trials lost",
    "results doubled",
    "tables differing",
    "epochs lost",
)
STORE_COLUMNS = (
    "studies",
    "faults",
    "SIGKILLs",
    "lost",
    "doubled",
    "differing",
    "epochs",
)


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def places_table(tally: Tally) -> str:
    """SIGKILLs by the place in which they landed and by who was killed."""
    rows = []
    for place in PLACES:
        counts = [tally.landed[place, row] for row in KILLS]
        rows.append((place, tally.aimed[place], *counts, tally.landed_in(place)))
    kinds = [row.removeprefix("SIGKILL of ") for row in KILLS]
    return markdown(("place", "aimed at it", *kinds, "all that landed"), rows)


def stores_table(tally: Tally) -> str:
    """What was done and found by kind of store."""
    rows = [
        (kind, *(tally.stores[kind, column] for column in STORE_COLUMNS))
        for kind in Kind
    ]
    return markdown(STORE_HEAD, rows)


def write_report(
    file: Path, tally: Tally, seed: int, asked: int, rare: list[str]
) -> None:
    """Writes what a run found.

    Args:
        asked: how many faults the run was to make.
        rare: places that were hit too rarely, in words.
    """
    # An aimed kill is counted in the row of its unaimed kind.
    kinds = {name: kind for name, kind in FAULTS.items() if name == kind.row}
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
        for name, kind in kinds.items()
    ]
    rows.append(
        (
            "NaN loss",
            "`diverged`, in the table too",
            "its epochs",
            f"{tally.diverged} trials",
            0,
            0,
            0,
            0,
        )
    )
    notes = [
        f"- Disk full: {how()}.",
        (
            "- Out of memory: the worker's address space is limited from outside"
            " (RLIMIT_AS) for six seconds while it trains; a trial that asks for"
            " nothing new in that time is not hurt."
        ),
        (
            "- Clock: `time.time` of every Python process of the run, which ablate's"
            " own times come from, is put wrong by between 40 seconds and 460 days,"
            " forwards or backwards. The clocks of Ray's own C++ processes stay right:"
            " setting the machine's clock would disturb whoever else uses it, and under"
            " libfaketime Ray dies at its start."
        ),
        (
            f"- Database locked: the run waits {BUSY_SECONDS} s here (30 s by default,"
            " `ABLATE_BUSY_SECONDS`)."
        ),
        (
            f"- Hanging worker: stopped with SIGSTOP; given up after {HANG_SECONDS} s"
            " without a batch here (1800 s by default, `ABLATE_HANG_SECONDS`)."
        ),
        (
            f"- NaN loss: in every study {DIVERGING} trials have a learning rate of"
            " 1e30; they are not among the faults counted."
        ),
        (
            "- Processes that had to be ended after a run because they outlived it by"
            " 30 s, as a stopped worker does whose driver is killed before it is given"
            f" up: {tally.outlived}."
        ),
        (
            "- Exit codes of the runs:"
            f" {', '.join(f'{code}: {n}' for code, n in sorted(tally.codes.items()))}."
        ),
    ]
    found = [*tally.problems, *rare]
    text = TEXT.format(
        verdict=(
            "Nothing was lost, doubled or changed."
            if not found
            else f"**{len(found)} problems were found**; they stand below."
        ),
        seed=seed,
        count=tally.tried.total(),
        sigkills=tally.sigkills,
        runs=tally.runs,
        studies=tally.studies,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        seconds=tally.seconds,
        each=tally.seconds / max(1, tally.tried.total()),
        table=markdown(HEAD, rows),
        places=places_table(tally),
        meanings="\n".join(
            f"- {place.capitalize()}: {meaning}." for place, meaning in MEANING.items()
        ),
        stores=stores_table(tally),
        asked=asked,
        full=FULL,
        least=LEAST,
        kinds=len(Place),
        most=IN_ONE_RUN + 1,
        hold=HOLD_SECONDS,
        trials=TRIALS,
        notes="\n".join(notes),
    )
    if found:
        text += (
            "\n## Problems\n\n"
            + "\n\n".join(f"```\n{problem}\n```" for problem in found)
            + "\n"
        )
    file.write_text(text)
