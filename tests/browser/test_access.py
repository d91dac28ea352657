"""Who gets into the dashboard, in a real browser (Debian's Chromium)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ablate.pipeline import Options
from tests.benchmarks import load
from tests.ports import free_port

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
]
serving = load("dashboard")
LINK = "/?token=open+sesame"
# What the first page shows without a store.
SHOWN = "There is no store yet"
# Attempts of a page on another server; each returns what it got.
SOCKET = """
host => new Promise(done => {
    const socket = new WebSocket(`ws://${host}/_stcore/stream`, ['streamlit'])
    socket.onopen = () => done('open')
    socket.onerror = () => done('refused')
})
"""
FETCH = """
host => fetch(`http://${host}/_stcore/health`, {credentials: 'include'})
    .then(answer => answer.text(), () => 'refused')
"""
PICTURE = """
host => new Promise(done => {
    const picture = new Image()
    picture.onload = () => done('open')
    picture.onerror = () => done('refused')
    picture.src = `http://${host}/favicon.png`
})
"""


class Elsewhere(BaseHTTPRequestHandler):
    """A page of someone else."""

    referrers: list[str | None]

    def do_GET(self) -> None:
        self.referrers.append(self.headers.get("Referer"))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><p>elsewhere</p>")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def referrers() -> list[str | None]:
    return []


@pytest.fixture
def elsewhere(referrers: list[str | None]) -> Iterator[int]:
    """The port of another server of this machine."""
    handler = type("Handler", (Elsewhere,), {"referrers": referrers})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", rule]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a browser that has not had the token."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    yield page
    context.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving.served(Options(runs=tmp_path_factory.mktemp("runs"))) as (address, _):
        yield address


def is_in(page: Page) -> None:
    expect(page.get_by_text(SHOWN)).to_be_visible()
    assert "token" not in page.evaluate("location.href")


def is_out(page: Page, text: str) -> None:
    expect(page.get_by_text(text)).to_be_visible()
    expect(page.get_by_text(SHOWN)).to_have_count(0)


def test_the_link_opens_and_the_browser_remembers(page: Page, address: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address}{LINK}&filter=a+%26+b")
    is_in(page)
    page.wait_for_url(f"{address}/?filter=a+%26+b")
    page.reload()
    is_in(page)
    second = page.context.new_page()
    second.goto(f"{address}/published")
    expect(second.get_by_text("Published tables")).to_be_visible(timeout=60_000)
    second.get_by_role("link", name="Studies").click()
    expect(second.get_by_text(SHOWN)).to_be_visible(timeout=60_000)
    cookie = next(
        cookie
        for cookie in page.context.cookies()
        if cookie.get("name", "").startswith("ablate")
    )
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Strict"
    assert "ablate" not in page.evaluate("document.cookie")
    # The link with the token left no entry.
    page.go_back()
    assert page.url == "about:blank"


@pytest.mark.parametrize("path", ["/", "/study?study=x", "/sql"])
def test_without_the_token_nothing_opens(page: Page, address: str, path: str) -> None:
    page.goto(f"{address}{path}")
    is_out(page, "This dashboard needs its token")


def test_a_wrong_token_is_refused(page: Page, address: str) -> None:
    page.goto(f"{address}/?token=wrong")
    is_out(page, "This token is wrong")
    page.goto(address)
    is_out(page, "This dashboard needs its token")
    page.goto(f"{address}{LINK}")
    is_in(page)


def test_a_page_that_is_left_gives_nothing_away(
    page: Page, address: str, elsewhere: int, referrers: list[str | None]
) -> None:
    page.goto(f"{address}{LINK}")
    is_in(page)
    for name in ("127.0.0.1", "localhost"):
        page.evaluate(
            """url => {
                const link = document.createElement('a')
                link.href = url
                document.body.append(link)
                link.click()
            }""",
            f"http://{name}:{elsewhere}/",
        )
        expect(page.get_by_text("elsewhere")).to_be_visible()
        assert page.evaluate("document.referrer") == ""
        page.goto(address)
        is_in(page)
    assert not [text for text in referrers if text and address in text]
    # Others are of its icon.
    assert referrers.count(None) == 2


def test_a_page_of_another_port_gets_nothing(
    page: Page, address: str, elsewhere: int
) -> None:
    page.goto(f"{address}{LINK}")
    is_in(page)
    host = address.removeprefix("http://")
    assert page.evaluate(SOCKET, host) == "open"
    assert page.evaluate(FETCH, host) == "ok"
    assert page.evaluate(PICTURE, host) == "open"
    # The cookie is sent from the first one, because sites do not distinguish ports.
    for name in ("127.0.0.1", "localhost", "evil.example"):
        page.goto(f"http://{name}:{elsewhere}/")
        assert page.evaluate(SOCKET, host) == "refused"
        assert page.evaluate(FETCH, host) == "refused"
        assert page.evaluate(PICTURE, host) == "refused"
        page.evaluate(
            """url => {
                const frame = document.createElement('iframe')
                frame.src = url
                document.body.append(frame)
            }""",
            address,
        )
        page.wait_for_timeout(2000)
        assert not [
            frame for frame in page.frames if frame.get_by_text(SHOWN).count() > 0
        ]


def test_a_name_that_is_led_to_this_machine_gets_nothing(
    page: Page, address: str
) -> None:
    foreign = address.replace("127.0.0.1", "evil.example")
    for path in ("", LINK):
        page.goto(f"{foreign}{path}")
        is_out(page, "does not answer to the name 'evil.example'")
    assert page.evaluate(SOCKET, foreign.removeprefix("http://")) == "refused"
    assert not page.context.cookies()


def test_a_link_on_another_site_opens(page: Page, address: str, elsewhere: int) -> None:
    page.goto(f"http://evil.example:{elsewhere}/")
    page.evaluate("url => { location.href = url }", f"{address}{LINK}")
    is_in(page)


def test_the_browser_is_opened_without_the_token_in_its_command_line(
    page: Page, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    called = tmp_path / "called"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$@" >{called}.part; mv {called}.part {called}')
    script.chmod(0o755)
    words = [sys.executable, "-m", "ablate", "dashboard", "--runs", str(runs)]
    with subprocess.Popen(
        [*words, "--port", str(free_port())],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": str(script)},
    ) as server:
        try:
            assert server.stderr is not None
            shown = server.stderr.readline() + server.stderr.readline()
            token = re.search(r"token=(\S+)", shown)
            assert token is not None
            deadline = time.monotonic() + 60
            while not called.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            opened = called.read_text().strip()
            assert token[1] not in opened
            file = Path(opened.removeprefix("file://"))
            assert file.is_relative_to(runs)
            assert file.parent.stat().st_mode & 0o777 == 0o700
            page.goto(opened)
            is_in(page)
            server.terminate()
            server.wait(30)
        finally:
            server.kill()
    assert not file.exists()
    assert list(runs.iterdir()) == []
