"""A stand-in for the server of Weights & Biases, as far as runs of a study need it.

It takes every key, and keeps the history lines that it receives.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """The stand-in.

    Attributes:
        history: the metrics that it received, by the name of the run.
        logins: how often somebody asked who he is.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.history: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.logins = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Returns what GraphQL answers."""
        if "upsertBucket" in query:
            return {"upsertBucket": {"bucket": _run(variables), "inserted": True}}
        if "createRunFiles" in query:
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{name}"}
                for name in variables["files"]
            ]
            made = {"runID": "1", "uploadHeaders": [], "files": files}
            return {"createRunFiles": made}
        if "viewer" in query:
            self.logins += 1
            teams: dict[str, Any] = {"edges": []}
            me = {"id": "1", "entity": "me", "username": "me", "teams": teams}
            return {"viewer": {**me, "email": "", "flags": "{}"}}
        return {}

    def stream(self, run: str, body: dict[str, Any]) -> None:
        """Keeps the history lines of a request."""
        told = body.get("files", {}).get("wandb-history.jsonl", {})
        self.history[run] += [json.loads(line) for line in told.get("content", [])]


def _run(variables: dict[str, Any]) -> dict[str, Any]:
    entity = {"id": "1", "name": "me"}
    project = {"id": "1", "name": variables["project"] or "s", "entity": entity}
    name = variables["name"]
    return {
        "id": name,
        "name": name,
        "displayName": name,
        "description": "",
        "config": "{}",
        "sweepName": None,
        "project": project,
        "historyLineCount": 0,
    }


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def do_PUT(self) -> None:
        self._reply()

    def _reply(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        answer: dict[str, Any] = {}
        run = re.fullmatch(r"/files/.+/([^/]+)/file_stream", self.path)
        if self.path == "/graphql":
            asked = json.loads(body)
            data = self.server.answer(asked["query"], asked.get("variables") or {})
            answer = {"data": data}
        elif run is not None:
            self.server.stream(run[1], json.loads(body))
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def wandb_server() -> Iterator[Server]:
    """Yields a server that runs while the context lasts."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
