"""Runs the command line in forks of one process that has imported it already: `python
-m tests.attack.server`.

Each line of the standard input is a request, each line of the standard output what
became of it, in JSON.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

PAGE = resource.getpagesize()
# Seconds between two looks at a run.
STEP = 0.005


def preload() -> None:
    """Imports what planning imports, and fills what is looked up once a process."""
    import ablate.cli.app
    import ablate.cli.inside
    import ablate.diagnosis
    import ablate.html_report
    import ablate.reproduce  # noqa: F401
    from ablate import pipeline, space
    from tests.conftest import TINY

    with tempfile.TemporaryDirectory() as folder:
        pipeline.preview(space.load(TINY, "tiny.yaml"), str(Path(folder, "none.db")))


def child(work: Path, argv: list[str]) -> NoReturn:
    """The command, as `python -m ablate` runs it."""
    from ablate.cli import main

    os.setsid()
    os.chdir(work)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(work.parent / "stdout", flags), 1)
    os.dup2(os.open(work.parent / "stderr", flags), 2)
    os.environ["TMPDIR"] = str(work.parent / "tmp")
    tempfile.tempdir = None
    sys.argv = ["ablate", *argv]
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def run(work: Path, argv: list[str], seconds: float, most: int) -> dict[str, object]:
    """Forks, waits, and ends what takes too long or too much."""
    pid = os.fork()
    if pid == 0:
        child(work, argv)
    end, killed = time.monotonic() + seconds, ""
    while True:
        found, status, used = os.wait4(pid, 0 if killed else os.WNOHANG)
        if found:
            break
        if time.monotonic() > end:
            killed = f"it did not end within {seconds:g} s"
        elif resident(pid) > most:
            killed = f"it took more than {most / 1e6:.0f} MB"
        if killed:
            os.kill(pid, signal.SIGKILL)
        time.sleep(STEP)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024,
        "killed": killed,
    }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload()
    # What is there now stays: a fork that collects it would copy every page.
    gc.collect()
    gc.freeze()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        found = run(Path(asked["work"]), asked["argv"], asked["seconds"], asked["most"])
        print(json.dumps(found), file=answers, flush=True)
    # Without what libraries do at the end of a process: some of them print then.
    os._exit(0)


if __name__ == "__main__":
    main()
