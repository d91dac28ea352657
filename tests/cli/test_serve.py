"""Signals reach the dashboard's server itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ports import free_port

pytestmark = pytest.mark.slow


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(wanted: bool, port: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while listening(port) != wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_server_and_frees_its_port(
    number: signal.Signals, tmp_path: Path
) -> None:
    port = free_port()
    words = [
        sys.executable,
        "-m",
        "ablate",
        "dashboard",
        "--runs",
        str(tmp_path),
        "--port",
        str(port),
        "--no-browser",
    ]
    secret = {"ABLATE_TOKEN": "sesame"}
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, env={**os.environ, **secret}
    ) as server:
        try:
            assert until(True, port, 60), "the server did not start"
            assert b"sesame" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
            server.send_signal(number)
            server.wait(15)
            assert until(False, port, 5), "the port is still taken"
        finally:
            server.kill()


def test_the_first_start_asks_for_nothing(tmp_path: Path) -> None:
    """Streamlit asks a new user for an address, on an output that is closed here."""
    port = free_port()
    words = [sys.executable, "-m", "ablate", "dashboard", "--runs", str(tmp_path)]
    # A new user has no files of Streamlit; `true` stands in for the browser.
    new_user = {"HOME": str(tmp_path), "BROWSER": "true"}
    with subprocess.Popen(
        [*words, "--port", str(port), "--browser"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **new_user},
    ) as server:
        try:
            assert until(True, port, 60), "the server did not start"
        finally:
            server.kill()
