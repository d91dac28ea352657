"""Runs the command line in a fork of a process that has imported it already: `python
-m tests.attack.server`.

The fork runs one case after another, because a fork of a process this large costs more
than most cases. It is ended with what hangs or takes too much memory, and the next case
gets a new one.

Each line of the standard input is a request, each line of the standard output what
became of it, in JSON.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

PAGE = resource.getpagesize()
# Seconds between two looks at a run.
STEP = 0.01
# Cases of one fork: what they leave in memory ends with it.
MOST_CASES = 100


def preload() -> None:
    """Imports what planning imports, and fills what is looked up once a process."""
    import ablate.cli.app
    import ablate.cli.figures
    import ablate.cli.layers
    import ablate.results.html_report
    import ablate.trained.diagnosis
    import ablate.trained.reproduce  # noqa: F401
    from ablate import pipeline, space
    from ablate.cli.app import command
    from tests.conftest import TINY

    with tempfile.TemporaryDirectory() as folder:
        command()
        pipeline.preview(space.load(TINY, "tiny.yaml"), str(Path(folder, "none.db")))


def call(work: Path, argv: list[str]) -> int:
    """Runs the command as `python -m ablate` does, and returns its exit code."""
    from ablate.cli import main

    os.chdir(work)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        opened = os.open(work.parent / name, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
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
    return code if isinstance(code, int) else 1


def cpu_seconds() -> float:
    """Seconds of the CPU that this process and its ended children took."""
    used = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in used)


def peak() -> int:
    """The most bytes of memory that this process held since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status does not say VmHWM")


def serve(requests: int, answers: int) -> NoReturn:
    """Runs cases in a fork until it is killed."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in os.fdopen(requests):
        asked = json.loads(line)
        # The peak of memory begins again at what is held now.
        Path("/proc/self/clear_refs").write_text("5")
        before = cpu_seconds()
        with warnings.catch_warnings():
            # Entering the context lets a warning that was shown before show again.
            code = call(Path(asked["work"]), asked["argv"])
        used = cpu_seconds() - before
        found = {"code": code, "seconds": used, "peak": peak()}
        os.write(answers, (json.dumps(found) + "\n").encode())
    os._exit(0)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


class Fork:
    """A fork of this process that runs cases."""

    def __init__(self) -> None:
        asked, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.cases = 0
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._requests)
            os.close(self._answers)
            serve(asked, answers)
        os.close(asked)
        os.close(answers)

    def run(self, request: dict[str, Any]) -> dict[str, object]:
        """Has a case run. The fork has ended afterwards if the answer says `killed`."""
        self.cases += 1
        try:
            os.write(self._requests, (json.dumps(request) + "\n").encode())
        except BrokenPipeError:
            return self._end("the process ended before the case")
        end = time.monotonic() + request["seconds"]
        while not select.select([self._answers], [], [], STEP)[0]:
            if time.monotonic() > end:
                return self._end(f"it did not end within {request['seconds']:g} s")
            if resident(self._pid) > request["most"]:
                return self._end(f"it took more than {request['most'] / 1e6:.0f} MB")
        answer = os.read(self._answers, 10_000)
        if not answer:
            return self._end("it ended the process")
        return {"killed": "", **json.loads(answer)}

    def _end(self, killed: str) -> dict[str, object]:
        status, used = self.close()
        return {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": used.ru_utime + used.ru_stime,
            "peak": used.ru_maxrss * 1024,
            "killed": killed,
        }

    def close(self) -> tuple[int, resource.struct_rusage]:
        """Ends the process; returns its status and what it used."""
        os.kill(self._pid, signal.SIGKILL)
        _, status, used = os.wait4(self._pid, 0)
        os.close(self._requests)
        os.close(self._answers)
        return status, used


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload()
    # What is there now stays: a fork that collects it would copy every page.
    gc.collect()
    gc.freeze()
    print("ready", file=answers, flush=True)
    fork = None
    for line in sys.stdin:
        fork = fork or Fork()
        found = fork.run(json.loads(line))
        print(json.dumps(found), file=answers, flush=True)
        if found["killed"]:
            fork = None
        elif fork.cases == MOST_CASES:
            fork.close()
            fork = None
    if fork is not None:
        fork.close()
    # Without what libraries do at the end of a process: some of them print then.
    os._exit(0)


if __name__ == "__main__":
    main()
