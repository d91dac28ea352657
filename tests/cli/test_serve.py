"""What `ablate dashboard` prints, and how it is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ablate.cli.serve import LOOPBACK, names_of
from tests.ports import free_port


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


@contextmanager
def started(
    runs: Path, port: int, *more: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A dashboard without a browser, once it listens."""
    words = [sys.executable, "-m", "ablate", "dashboard", "--runs", str(runs)]
    own = {**os.environ, **environment}
    with subprocess.Popen(
        [*words, "--port", str(port), "--no-browser", *more],
        stderr=subprocess.PIPE,
        text=True,
        env=own,
    ) as server:
        try:
            assert until(True, port, 60), "the server did not start"
            yield server
        finally:
            server.kill()


def printed(server: subprocess.Popen[str]) -> str:
    """The address that a dashboard of a missing store prints."""
    assert server.stderr is not None
    lines = server.stderr.readline() + server.stderr.readline()
    address = re.search(r"http://\S+", lines)
    assert address is not None, lines
    return address[0]


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_server_and_frees_its_port(
    number: signal.Signals, tmp_path: Path
) -> None:
    port = free_port()
    with started(tmp_path, port) as server:
        server.send_signal(number)
        server.wait(15)
        assert until(False, port, 5), "the port is still taken"


@pytest.mark.proof
@pytest.mark.parametrize(
    ("more", "environment"),
    [
        ((), {"ABLATE_TOKEN": "sesame"}),
        (("--token", "sesame"), {}),
        (("--token-file", "token"), {}),
    ],
)
def test_other_users_do_not_see_the_token(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    environment: dict[str, str],
) -> None:
    (tmp_path / "token").write_text("sesame\n")
    monkeypatch.chdir(tmp_path)
    port = free_port()
    with started(tmp_path, port, *more, **environment) as server:
        process = Path(f"/proc/{server.pid}")
        assert b"sesame" not in (process / "cmdline").read_bytes()
        assert b"sesame" in (process / "environ").read_bytes()
        assert (process / "environ").stat().st_mode & 0o077 == 0
        assert printed(server) == f"http://127.0.0.1:{port}/?token=sesame"


@pytest.mark.proof
def test_the_printed_address_opens_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABLATE_TOKEN", raising=False)
    port = free_port()
    with started(tmp_path, port) as server:
        address = printed(server)
        assert address.startswith(f"http://127.0.0.1:{port}/?token=")
        assert len(parse_qs(urlsplit(address).query)["token"][0]) > 16
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert answer.status == 200
        for other in (address[:-1], address.partition("?")[0]):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(other, timeout=30)


@pytest.mark.proof
def test_a_token_of_any_characters_is_printed_as_an_address(tmp_path: Path) -> None:
    with (
        started(tmp_path, free_port(), ABLATE_TOKEN="a&b=c#d e+f%20é") as server,
        urllib.request.urlopen(printed(server), timeout=30) as answer,
    ):
        assert answer.status == 200


@pytest.mark.proof
def test_other_machines_use_the_name_of_this_one(tmp_path: Path) -> None:
    port = free_port()
    name = socket.gethostname().lower()
    with started(tmp_path, port, "--host", "0.0.0.0") as server:
        address = printed(server)
        assert address.startswith(f"http://{name}:{port}/?token=")
        request = urllib.request.Request(
            address.replace(name, "127.0.0.1"), headers={"Host": f"{name}:{port}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200


def test_the_names_of_a_dashboard() -> None:
    assert names_of("127.0.0.1", []) == ["127.0.0.1", *LOOPBACK]
    # Behind a proxy, the dashboard itself is still at its own address.
    assert names_of("127.0.0.1", ["Lab.example"])[:2] == ["127.0.0.1", "lab.example"]
    assert names_of("0.0.0.0", ["lab.example"])[0] == "lab.example"
    assert names_of("::", ["::2"])[0] == "::2"


@pytest.mark.proof
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
