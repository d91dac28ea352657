"""A real PostgreSQL for a test: a cluster of its own in a temporary folder, on the
loopback only.
"""

from __future__ import annotations

import getpass
import glob
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from tests.ports import free_port

USER = "postgres"


def _programs() -> Path:
    """The folder of initdb and pg_ctl: Debian keeps them off the PATH."""
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"),
        key=lambda path: float(path.split("/")[4]),
    )
    if found:
        return Path(found[-1]).parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise RuntimeError("these tests need PostgreSQL: apt-get install postgresql")
    return Path(on_path).resolve().parent


def _as_owner(*words: str) -> None:
    """PostgreSQL refuses to run as root; Debian's package has made a user for it."""
    command = (
        ["runuser", "-u", USER, "--", *words]
        if getpass.getuser() == "root"
        else list(words)
    )
    subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)


# What starts each running server, by its port.
_starts: dict[int, list[str]] = {}


def restart(url: str, mode: str, pause: float) -> None:
    """Stops a server, waits, and starts it again."""
    start = _starts[make_url(url).port or 0]
    _as_owner(*start[:3], "-m", mode, "-w", "stop")
    time.sleep(pause)
    _as_owner(*start)


@contextmanager
def postgres() -> Iterator[str]:
    """URL of an empty database."""
    programs = _programs()
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="ablate-pg-"))
    try:
        if getpass.getuser() == "root":
            shutil.chown(folder, USER)
        data = folder / "data"
        _as_owner(
            str(programs / "initdb"),
            "-D",
            str(data),
            "-A",
            "trust",
            "-U",
            USER,
            "--no-sync",
        )
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories="
            " -c fsync=off"
        )
        control = [str(programs / "pg_ctl"), "-D", str(data)]
        _starts[port] = [*control, "-w", "-l", os.devnull, "-o", options, "start"]
        _as_owner(*_starts[port])
        try:
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _as_owner(*control, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
