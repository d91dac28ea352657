"""Runs cases one after the other: in processes of their own, or in this one."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from ablate.cli import main
from tests.attack.case import MOST_BYTES, Case, Outcome

ROOT = Path(__file__).parents[2]
# Seconds of the clock after which a run is ended: more than it may take of the CPU, for
# machines that are busy.
PATIENCE = 20.0
# A process with threads may hang after a fork, so the libraries get none before they
# are imported.
THREADS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)


class Runner:
    """A server that has imported the command line, and folders for its runs below
    `root`.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._number = root, 0
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.server"],
            cwd=ROOT,
            env={**os.environ, **THREADS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        if self._server.stdout.readline() != "ready\n":
            raise RuntimeError("the server of the attack tests did not start")

    def __call__(
        self, case: Case, *, seconds: float = PATIENCE, most: int = 2 * MOST_BYTES
    ) -> Outcome:
        """Runs a case and compares its folders before and after."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._number += 1
        place = self._root / str(self._number)
        work, temporary = place / "work", place / "tmp"
        work.mkdir(parents=True)
        temporary.mkdir()
        # What is ended at once has not opened them.
        for name in ("stdout", "stderr"):
            (place / name).touch()
        for name, content in case.files.items():
            write(work / name, content)
        before = snapshot(work, temporary)
        asked = {
            "work": str(work),
            "argv": list(case.argv),
            "seconds": seconds,
            "most": most,
        }
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        found = json.loads(self._server.stdout.readline())
        after = snapshot(work, temporary)
        said = {
            name: (place / name).read_text(errors="replace")
            for name in ("stdout", "stderr")
        }
        shutil.rmtree(place)
        return Outcome(**found, **said, left=changes(before, after))

    def close(self) -> None:
        """Ends the server."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()


def here(case: Case, place: Path) -> Outcome:
    """Runs a case in this process, in the empty folder `place`, which is the current one.

    Its memory is not measured.
    """
    for name, content in case.files.items():
        write(place / name, content)
    before = snapshot(place)
    stdout, stderr = io.StringIO(), io.StringIO()
    code: object = 0
    start = time.process_time()
    with (
        mock.patch.object(sys, "argv", ["ablate", *case.argv]),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    seconds = time.process_time() - start
    after = snapshot(place)
    return Outcome(
        code=int(str(code or 0)),
        stdout=stdout.getvalue(),
        stderr=stderr.getvalue(),
        seconds=seconds,
        peak=0,
        left=changes(before, after),
    )


def changes(before: dict[Path, object], after: dict[Path, object]) -> tuple[str, ...]:
    """What is new, changed or gone between two snapshots."""
    return tuple(
        sorted(
            str(path)
            for path in {*before, *after}
            if before.get(path) != after.get(path)
        )
    )


def write(path: Path, content: object) -> None:
    """Makes a file of a case, and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif callable(content):
        content(path)


def snapshot(*folders: Path) -> dict[Path, object]:
    """What stands in folders: kind, size and time of change by path."""
    found: dict[Path, object] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            told = path.lstat()
            size, changed = (
                (0, 0)
                if stat.S_ISDIR(told.st_mode)
                else (told.st_size, told.st_mtime_ns)
            )
            found[path.relative_to(folder.parent)] = (
                stat.S_IFMT(told.st_mode),
                size,
                changed,
            )
    return found
