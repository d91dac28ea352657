"""Only a browser that has had the token gets anything of the dashboard, and only under
the dashboard's own address.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import streamlit
from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from ablate.pipeline import Options
from tests.benchmarks import load

serving = load("dashboard")
SCRIPT = next(Path(streamlit.__file__).parent.glob("static/static/js/index.*.js")).name
PATHS = (
    "/",
    "/study?study=x",
    "/_stcore/health",
    "/_stcore/host-config",
    "/_stcore/metrics",
    "/_stcore/script-health-check",
    "/_stcore/agent/openapi.json",
    "/_stcore/upload_file/a/b",
    "/_stcore/stream",
    "/media/a.csv",
    "/component/a/b",
    f"/static/js/{SCRIPT}",
    "/static/../app.py",
    "/favicon.png",
    "/icon.png",
    "//evil.example",
    "/%2f%2fevil.example/",
)
ALLOWED = "lab.example"


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: http.client.HTTPMessage
    text: str


class Server:
    """The dashboard at a port, with a visitor's cookie."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.here = f"127.0.0.1:{port}"
        self.cookie = ""

    def ask(
        self,
        path: str = "/",
        *,
        method: str = "GET",
        host: str | None = None,
        **headers: str,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        sent = {"Host": self.here if host is None else host, **headers}
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
        connection.close()
        return Answer(answer.status, answer.headers, body)

    def stream(self, host: str, **headers: str) -> ClientConnection:
        """A WebSocket under a name, as a page of that name opens it."""
        return connect(
            f"ws://{host}/_stcore/stream",
            sock=socket.create_connection(("127.0.0.1", self.port)),
            subprotocols=["streamlit"],  # type: ignore[list-item]
            additional_headers=headers,
        )

    def is_open(self, host: str, **headers: str) -> bool:
        """Whether a WebSocket gets data of the dashboard."""
        try:
            with self.stream(host, **headers) as stream:
                message = BackMsg()
                message.rerun_script.query_string = ""
                stream.send(message.SerializeToString())
                return bool(stream.recv(timeout=30))
        except InvalidStatus as refused:
            assert refused.response.status_code == 403
            return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = Options(runs=tmp_path_factory.mktemp("runs"))
    with serving.served(options, "--allow-host", ALLOWED) as (address, _):
        server = Server(int(address.rpartition(":")[2]))
        entrance = server.ask("/?token=open+sesame")
        assert entrance.status == 200, entrance.text
        server.cookie = entrance.headers["Set-Cookie"].partition(";")[0]
        yield server


def foreign_pages(server: Server) -> list[str]:
    """Origins of pages that are not the dashboard's."""
    return [
        "http://evil.example",
        f"http://evil.example:{server.port}",
        f"http://127.0.0.1.evil.example:{server.port}",
        f"http://127.0.0.1:{server.port + 1}",
        "http://127.0.0.1",
        f"http://localhost:{server.port}",
        "http://localhost:3000",
        f"http://{ALLOWED}:{server.port}",
        f"ftp://127.0.0.1:{server.port}",
        f"http://127.0.0.1:{server.port}/",
        f"http://127.0.0.1:{server.port}@evil.example",
        "null",
        "",
        "http://[::1",
    ]


def foreign_names(server: Server) -> list[str]:
    """Names in a header Host that are not the dashboard's."""
    return [
        "evil.example",
        f"evil.example:{server.port}",
        f"127.0.0.1.evil.example:{server.port}",
        f"localhost.evil.example:{server.port}",
        f"evil.example#127.0.0.1:{server.port}",
        f"evil.example:{server.port}@localhost.evil",
        f"0.0.0.0:{server.port}",
        f"[::2]:{server.port}",
        "[::1",
        "",
    ]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST"])
def test_nothing_is_answered_without_the_token(
    server: Server, method: str, path: str
) -> None:
    for cookie in ("", "ablate=x", f"ablate-{server.port}=x", f"ablate-{server.port}="):
        answer = server.ask(path, method=method, Cookie=cookie)
        assert answer.status == 403
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "Set-Cookie" not in answer.headers
        if method != "HEAD":
            assert f"http://{server.here}/?token=TOKEN" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_name_or_page_gets_nothing(server: Server, path: str) -> None:
    for host in foreign_names(server):
        answer = server.ask(path, host=host, Cookie=server.cookie)
        # An empty or impossible name may be refused before it gets here.
        assert answer.status in ((400, 403) if host == "" else (403,)), host
        if answer.status == 403:
            assert "--allow-host NAME" in answer.text
    for origin in foreign_pages(server):
        for method in ("GET", "OPTIONS", "PUT", "POST"):
            answer = server.ask(
                path, method=method, Origin=origin, Cookie=server.cookie
            )
            assert answer.status == 403, origin
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert repr(origin) in answer.text


def test_a_foreign_name_or_page_cannot_use_the_token(server: Server) -> None:
    for host in foreign_names(server):
        answer = server.ask("/?token=open+sesame", host=host)
        assert "Set-Cookie" not in answer.headers
    for origin in foreign_pages(server):
        answer = server.ask("/?token=open+sesame", Origin=origin)
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "token",
    ["", "wrong", "open", "open+sesame+", "Open+sesame", "%00", "%ff", "%C3%A9"],
)
def test_a_wrong_token_is_refused(server: Server, token: str) -> None:
    for cookie in ("", server.cookie):
        answer = server.ask(f"/study?study=x&token={token}", Cookie=cookie)
        assert answer.status == 403
        assert "This token is wrong" in answer.text
        assert "Set-Cookie" not in answer.headers


def test_the_token_is_exchanged_for_a_cookie(server: Server) -> None:
    answer = server.ask("/study?study=a+%26+b&token=open+sesame&view=table")
    assert answer.status == 200
    assert "sesame" not in answer.text
    assert '"0; url=/study?study=a+%26+b&amp;view=table"' in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    cookie, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert cookie.startswith(f"ablate-{server.port}=")
    assert "sesame" not in cookie
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=strict"]
    assert server.ask("/", Cookie=f"x=y; {cookie}").status == 200
    # A proxy with TLS in front.
    answer = server.ask("/?token=open+sesame", **{"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "path", ["//evil.example", "/%2f%2fevil.example/", '/"><script>', "/\\evil.example"]
)
def test_the_entrance_leads_to_this_machine_only(server: Server, path: str) -> None:
    answer = server.ask(f"{path}?token=open+sesame")
    assert answer.status == 200
    links = re.findall(r'(?:url=|href=")([^">]*)', answer.text)
    assert len(links) == 2
    assert all(re.match(r"/[^/\\]", link) for link in links)
    assert "<script>" not in answer.text


def test_its_own_names_are_answered(server: Server) -> None:
    # A tunnel of ssh may have another port on the visitor's side.
    for name in (server.here, "localhost:9000", "127.0.0.1", "[::1]:9000", "LOCALHOST"):
        assert server.ask(host=name, Cookie=server.cookie).status == 200, name
        origin = f"http://{name}"
        answer = server.ask(host=name, Cookie=server.cookie, Origin=origin)
        assert answer.status == 200, name
    for scheme in ("http", "https"):
        answer = server.ask(
            host=ALLOWED, Cookie=server.cookie, Origin=f"{scheme}://{ALLOWED}"
        )
        assert answer.status == 200


def test_a_websocket_is_for_own_pages_with_the_cookie(server: Server) -> None:
    own = f"http://{server.here}"
    assert server.is_open(server.here, Origin=own, Cookie=server.cookie)
    assert server.is_open("localhost", Origin="http://localhost", Cookie=server.cookie)
    for origin in foreign_pages(server):
        assert not server.is_open(server.here, Origin=origin, Cookie=server.cookie)
    for host in ("evil.example", f"evil.example:{server.port}"):
        for origin in (f"http://{host}", own):
            assert not server.is_open(host, Origin=origin, Cookie=server.cookie)
    for cookie in ("", f"ablate-{server.port}=x"):
        assert not server.is_open(server.here, Origin=own, Cookie=cookie)
    assert not server.is_open(f"{server.here}/?token=open+sesame&x=", Origin=own)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers(server: Server, path: str) -> None:
    answers = [
        server.ask(path, Cookie=server.cookie),
        server.ask(path, Cookie=server.cookie, method="HEAD"),
        server.ask(path, Cookie=server.cookie, method="DELETE"),
        server.ask(path),
        server.ask(path, host="evil.example"),
        server.ask(f"{path.partition('?')[0]}?token=open+sesame"),
    ]
    for answer in answers:
        assert answer.status < 500
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'"} <= {*policy}
        scripts = next(rule for rule in policy if rule.startswith("script-src "))
        # No script of a text, of another server, or of an address of its own.
        assert re.fullmatch("script-src 'self' 'sha256-[^ ']+' 'unsafe-eval'", scripts)
        assert not re.search("https?:|ws:|[*]", str(policy))
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
