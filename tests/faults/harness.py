"""Disturbs real runs with seeded faults and checks what is left: `make faults
SEED=0 COUNT=300`, or `make faults EXECUTOR=local`.

A study is run again and again until it is finished (`ablate run`, then `ablate
resume`), with faults in and between its runs. After each run: the exit code and the
message are those of its faults, there is no traceback, and no attempt began before its
trial's last checkpoint. When the study is finished: each trial has exactly one result
and every epoch once, and the table is, byte for byte, that of an undisturbed run. Then
the next study begins, until `count` faults were made. One study in three is stored in a
private PostgreSQL, the others in SQLite.

The harness counts where in a trial's life each SIGKILL landed, by what the processes
wrote of their phases before they died (`tests/faults/phases.py`). A run of 300 faults
or more must hit each place 20 times.

The exit code is 1 where a study shows a problem: something lost, doubled or different,
a wrong exit code, a traceback. The exit code is 1, too, where a run of 300 faults hit a
place too rarely.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ablate.results.study import Study
from tests.faults.fault import FAULTS, IN_ONE_RUN, Fault
from tests.faults.phases import check_names
from tests.faults.report import write_report
from tests.faults.scene import (
    DIVERGING,
    EPOCHS,
    HANG_SECONDS,
    PATIENCE_SECONDS,
    TRIALS,
    WITH_RESULT,
    Ran,
    Scene,
    epochs_in,
)
from tests.faults.stores import KINDS, Kind, SqliteStore, Store, kind_of, store_of
from tests.faults.tally import FULL, Tally, shortfalls, summary
from tests.store.postgres import postgres

# Seconds after which a run that does not end counts as hung, or six times an
# undisturbed one where that is more.
LONGEST = 240.0
ALL_EPOCHS = (
    "SELECT COUNT(*), MAX(epochs.number) FROM epochs JOIN trials ON hash = trial_hash"
    " WHERE status = 'completed' GROUP BY trial_hash"
)
RESTARTED = (
    "SELECT COUNT(*) FROM attempts a JOIN attempts b ON b.trial_hash = a.trial_hash AND"
    " b.number = a.number + 1 AND b.provenance_id = a.provenance_id WHERE a.status ="
    " 'lost' AND a.provenance_id > ?"
)
RAYLET = "SIGKILL of Ray's raylet"
# Faults that only Ray can have.
OF_RAY = (RAYLET, "SIGKILL of an actor of Ray")
HANGING = "a worker hangs"
# After so many problems the harness stops.
MOST_PROBLEMS = 5
# After so many studies in a row without a fault, the harness gives up on the faults
# that are left.
#
# Some faults need a store of one kind, and a study may end before its fault can be
# made.
MOST_IDLE_STUDIES = 12


def draw(
    count: int, generator: random.Random, names: list[str] | None = None
) -> list[Fault]:
    """So many faults, each kind by its share and each at least once where there is
    room, in random order.
    """
    kinds = [FAULTS[name] for name in names or FAULTS]
    shares = [kind.share for kind in kinds]
    # Where there is no room for all of them, those that are drawn most often come
    # first.
    deck = sorted(kinds, key=lambda kind: -kind.share)[:count]
    left = count - len(deck)
    deck += [kind for kind in kinds for _ in range(left * kind.share // sum(shares))]
    deck += generator.choices(kinds, shares, k=count - len(deck))
    generator.shuffle(deck)
    return deck


class Server:
    """The private PostgreSQL, started when the first study needs it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._url = ""

    @property
    def url(self) -> str:
        """URL of the server; starts it."""
        if not self._url:
            self._url = self._stack.enter_context(postgres())
        return self._url

    def close(self) -> None:
        """Stops the server if it runs."""
        self._stack.close()


@contextmanager
def study_scene(
    generator: random.Random, store: Store, executor: str
) -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="ablate-faults-"))
    scene = Scene.make(folder, generator, store, executor)
    try:
        yield scene
    finally:
        if scene.alive:
            os.killpg(scene.pid, signal.SIGKILL)
        if scene.driver is not None:
            scene.tick(ended=True)
            scene.settle()
        scene.disk.close()
        shutil.rmtree(folder, ignore_errors=True)


def table(scene: Scene) -> str:
    """The study's table in every form, as `ablate table` prints it."""
    study = Study("space", scene.url)
    return "\n".join(study.table(form) for form in ("json", "md", "csv", "latex"))


def undisturbed(generator: random.Random, executor: str) -> tuple[str, float]:
    """The table of an undisturbed run, and how long it took."""
    with study_scene(generator, SqliteStore(), executor) as scene:
        start = time.monotonic()
        scene.start()
        assert scene.driver is not None
        if scene.driver.wait(4 * LONGEST) != 0:
            raise SystemExit(scene.phases.missing() or scene.log)
        return table(scene), time.monotonic() - start


def disturb(scene: Scene, deck: list[Fault], tally: Tally, typical: float) -> None:
    """Runs one study to its end, with the faults that come next, as long as there are
    any.
    """
    while not scene.problems:
        finished = one_run(scene, deck, tally, typical)
        between = 0
        if scene.words[0] == "resume":
            for kind in [
                kind for kind in deck[-IN_ONE_RUN - 1 :] if kind.when == "between"
            ]:
                if kind.inject(scene):
                    deck.remove(kind)
                    count(scene, kind, tally, deck)
                    between += 1
        if finished and not between:
            return


def one_run(scene: Scene, deck: list[Fault], tally: Tally, typical: float) -> bool:
    """One run of the driver; whether the study is finished."""
    generator = scene.rng
    hangs = any(kind.name == HANGING for kind in deck[-IN_ONE_RUN - 1 :])
    scene.start(HANG_SECONDS if hangs else PATIENCE_SECONDS)
    first = coming(scene, deck)
    started, longest = time.monotonic(), max(LONGEST, 6 * typical)
    moment = started + generator.uniform(
        0, 0.8 * typical if first is not None and first.when == "any" else 1
    )
    while scene.alive:
        if time.monotonic() - started > longest:
            scene.problems.append(
                f"a run hung for {longest:.0f} s after {scene.ran.faults}:"
                f" {scene.log[-2000:]}"
            )
            os.killpg(scene.pid, signal.SIGKILL)
        scene.tick()
        if time.monotonic() >= moment and len(scene.ran.faults) <= IN_ONE_RUN:
            # No worker may be training yet, or the trial at hand not be so far: then its
            # time comes at another random instant.
            made = next_fault(scene, deck, tally)
            moment = time.monotonic() + (
                longest
                if made is not None and made.when == "any"
                else generator.uniform(0.1, 2.5)
            )
        time.sleep(0.05)
    assert scene.driver is not None
    code = scene.driver.wait()
    scene.tick(ended=True)
    scene.settle()
    tally.runs += 1
    tally.codes[code] += 1
    scene.problems += judge(scene, scene.ran, code)
    scene.check_floors()
    for trial in scene.unfinished():
        scene.note_floor(trial)
    scene.ran = Ran()
    return code == 0


def next_fault(scene: Scene, deck: list[Fault], tally: Tally) -> Fault | None:
    """Does the next fault of those that come while a driver runs, if that is possible
    now.
    """
    following = coming(scene, deck)
    if following is None or not scene.alive or not following.inject(scene):
        return None
    # Equal cards are one: whichever goes, one less is left.
    deck.reverse()
    deck.remove(following)
    deck.reverse()
    scene.ran.codes |= following.codes
    scene.ran.says += [following.says] if following.says else []
    count(scene, following, tally, deck)
    return following


def coming(scene: Scene, deck: list[Fault]) -> Fault | None:
    """The next fault of those that come while a driver runs, and are possible in this
    run.
    """
    cards = (kind for kind in reversed(deck) if kind.when != "between")
    return next((kind for kind in cards if kind.possible(scene)), None)


def count(scene: Scene, made: Fault, tally: Tally, deck: list[Fault]) -> None:
    """Counts a fault that was made.

    An aimed kill that landed in another place comes once more, at the end.
    """
    store = scene.store.kind
    tally.tried[made.row] += 1
    tally.stores[store, "faults"] += 1
    scene.hit.add(made.row)
    scene.ran.faults.append(made.name)
    where = f"; {store}"
    if made.sigkill:
        tally.stores[store, "SIGKILLs"] += 1
        tally.landed[scene.landed, made.row] += 1
        where += f"; landed {scene.landed}"
    if made.aim is not None:
        tally.aimed[made.aim] += 1
        if scene.landed != made.aim:
            deck.insert(0, made)
    print(f"{tally.tried.total()}: {made.name}{where}", flush=True)


def judge(scene: Scene, ran: Ran, code: int) -> list[str]:
    """What is wrong with the way in which a run ended."""
    log, found = scene.log, []
    if scene.phases.missing():
        found.append(scene.phases.missing())
    errors = [line for line in log.splitlines() if line.startswith("error: ")]
    if code not in ran.codes:
        found.append(f"exit code {code} is none of {sorted(ran.codes)}")
    if "Traceback" in log:
        found.append("a traceback")
    # One that was killed may have given its message before.
    if len(errors) > 1 or (code >= 0 and len(errors) != (code == 2)):
        found.append(f"{len(errors)} messages")
    # Where its raylet dies while Ray starts, Ray's C++ ends the process at once, with a
    # word of its own or without.
    begun = scene.rows("SELECT 1 FROM attempts WHERE provenance_id > ?", ran.after)
    starting = code == 1 and RAYLET in ran.faults and not begun
    # Killed, terminated or interrupted before it could say anything: there is nothing
    # to read.
    if (
        code > 0
        and not starting
        and ran.says
        and not re.search("|".join(ran.says), log)
    ):
        found.append(f"says nothing of {ran.says}")
    if code == 1 and not starting and "failed: " not in log:
        found.append("does not say what failed")
    restarted = int(str((scene.rows(RESTARTED, ran.after) or [(0,)])[0][0]))
    if code >= 0 and log.count("the worker was lost") != restarted:
        found.append(
            f"{log.count('the worker was lost')} lines of {restarted} lost workers"
        )
    if code == 130 and len(ran.faults) == 1:
        found += forgotten_epochs(scene, ran.after)
    if not found:
        return []
    return [f"after {ran.faults}: {'; '.join(found)}\n{log[-3000:]}"]


def forgotten_epochs(scene: Scene, after: int) -> list[str]:
    """Trials whose checkpoint has fewer epochs than the store, after an interrupt.

    Only trials that this run has begun: a trial may have lost its checkpoint before.

    Args:
        after: the last provenance before this run.
    """
    found = []
    for trial, told in scene.rows(
        "SELECT hash, epochs_done FROM trials WHERE status = 'planned' AND epochs_done"
        " > 0 AND hash IN (SELECT trial_hash FROM attempts WHERE provenance_id > ?)",
        after,
    ):
        file = scene.checkpoints().get(str(trial))
        kept = epochs_in(file) if file else 0
        if kept < int(str(told)):
            found.append(f"{trial} had told {told} epochs, and kept {kept}")
    return found


def check(scene: Scene, expected: str, tally: Tally) -> None:
    """Exactly one result for each trial, no epoch missing or doubled, and the
    undisturbed table.
    """
    states = Counter(
        str(status) for (status,) in scene.rows("SELECT status FROM trials")
    )
    results = [
        int(str(n))
        for (n,) in scene.rows(
            "SELECT COUNT(*) FROM attempts WHERE status IN (?, ?) GROUP BY trial_hash",
            *WITH_RESULT,
        )
    ]
    epochs = scene.rows(ALL_EPOCHS)
    lost = TRIALS - sum(states[known] for known in WITH_RESULT)
    doubled = sum(n > 1 for n in results)
    differs = table(scene) != expected
    store = scene.store.kind
    tally.stores[store, "lost"] += lost
    tally.stores[store, "doubled"] += doubled
    tally.stores[store, "differing"] += differs
    for name in scene.hit:
        tally.lost[name] += lost
        tally.doubled[name] += doubled
        tally.differing[name] += differs
        tally.epochs[name] += scene.epochs_lost
    if (
        states != {"completed": TRIALS - DIVERGING, "diverged": DIVERGING}
        or results != [1] * TRIALS
    ):
        scene.problems.append(f"states {dict(states)}, results a trial {results}")
    if set(epochs) != {(EPOCHS, EPOCHS)}:
        scene.problems.append(f"epochs a trial {epochs}")
    if differs:
        scene.problems.append(
            f"the table differs from that of the undisturbed run:\n{table(scene)}"
        )
    tally.diverged += states["diverged"]


def main(
    seed: int,
    count: int,
    names: list[str] | None = None,
    kinds: tuple[Kind, ...] = tuple(Kind),
    executor: str = "ray",
) -> Tally:
    """Makes `count` faults and gives what was found.

    Args:
        names: only faults of these names.
        kinds: what the studies are stored in.
        executor: what trains the trials.

    Raises:
        Missing: a function whose begin or end is a phase is not in ablate any more.
    """
    check_names()
    generator, tally = random.Random(seed), Tally()
    start = time.monotonic()
    expected, typical = undisturbed(generator, executor)
    print(f"undisturbed: {typical:.0f} s", flush=True)
    if executor != "ray":
        names = [name for name in names or FAULTS if name not in OF_RAY]
    deck = draw(count, generator, names)
    server, idle = Server(), 0
    try:
        while deck and len(tally.problems) < MOST_PROBLEMS:
            before = tally.tried.total()
            kind = kind_of(tally.studies, kinds)
            with store_of(kind, server.url if kind == Kind.POSTGRESQL else "") as store:
                one_study(generator, store, executor, deck, tally, expected, typical)
            idle = 0 if tally.tried.total() > before else idle + 1
            if idle == MOST_IDLE_STUDIES:
                left = ", ".join(sorted({fault.name for fault in deck}))
                tally.problems.append(
                    f"{idle} studies ended without a fault; not possible: {left}"
                )
                break
    finally:
        server.close()
    tally.seconds = time.monotonic() - start
    return tally


def one_study(
    generator: random.Random,
    store: Store,
    executor: str,
    deck: list[Fault],
    tally: Tally,
    expected: str,
    typical: float,
) -> None:
    """Disturbs one study to its end, and checks what is left."""
    with study_scene(generator, store, executor) as scene:
        disturb(scene, deck, tally, typical)
        if not scene.problems:
            check(scene, expected, tally)
        else:
            tally.epochs.update(dict.fromkeys(scene.hit, scene.epochs_lost))
        tally.stores[store.kind, "studies"] += 1
        tally.stores[store.kind, "epochs"] += scene.epochs_lost
        tally.problems += [
            f"study {tally.studies}, {store.kind}: {problem}"
            for problem in scene.problems
        ]
        tally.studies += 1
        tally.outlived += scene.outlived


def command(words: list[str] | None = None) -> int:
    """The command line; gives the exit code.

    It is 1 where something is wrong with ablate, or with the coverage of the run.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=FULL)
    parser.add_argument(
        "--kind",
        action="append",
        choices=list(FAULTS),
        help="only these kinds; repeatable",
    )
    parser.add_argument(
        "--store", choices=list(KINDS), default="both", help="what keeps the studies"
    )
    parser.add_argument("--executor", choices=("ray", "local"), default="ray")
    parser.add_argument(
        "--report", type=Path, help="writes the tables of this run to a Markdown file"
    )
    arguments = parser.parse_args(words)
    found = main(
        arguments.seed,
        arguments.count,
        arguments.kind,
        KINDS[arguments.store],
        arguments.executor,
    )
    print(summary(found))
    rare = shortfalls(found, arguments.count)
    for problem in [*found.problems, *rare]:
        print(problem)
    if arguments.report and not arguments.kind:
        write_report(arguments.report, found, arguments.seed, arguments.count, rare)
    return int(bool(found.problems or rare))


if __name__ == "__main__":
    # The run at hand, its file system and the private PostgreSQL end with the harness.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(command())
