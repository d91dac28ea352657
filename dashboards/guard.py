"""Decides which requests reach the pages.

A request or a WebSocket reaches Streamlit only if all of this is true:

- Its Host is a name of this dashboard. A foreign name that leads to this machine (DNS
  rebinding) gets nothing.
- Its Origin, if it has one, is that host with that port. A page of another server gets
  nothing, not even one on another port of this machine.
- It has the cookie that this process gives to a visitor with the token.

All other requests get a refusal. Every answer has headers that keep other sites from
embedding the page, and the page from running or loading anything that is not ours.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from urllib.parse import quote, urlencode, urlsplit

from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

POLICY = (
    "default-src 'none'",
    # The hash is that of the line of script in Streamlit's page. Plotly compiles what it
    # draws with WebGL: parallel coordinates, and many points.
    "script-src 'self' 'sha256-THxz9J9+wf7rhwR2YkXJoSZ13UCmYyC+3lNDv2+8ugA='"
    " 'unsafe-eval'",
    # Streamlit, Plotly and `st.html` style elements one by one.
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
HEADERS = {
    "Content-Security-Policy": "; ".join(POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NOT_KEPT = {"Cache-Control": "no-store"}
# A redirect would follow a link on another site without the new cookie, which is
# strict. This page goes on by itself, and it leaves no entry in the history.
ENTRANCE = Markup(
    '<!doctype html><meta charset="utf-8"><title>ablate</title>'
    '<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Dashboard</a>'
)


class Guard:
    """Stands before an application: `Guard(app, token, names)`."""

    def __init__(self, app: ASGIApp, token: str, names: Iterable[str]) -> None:
        """Guards an application.

        Args:
            token: what a visitor must know.
            names: names and addresses of this dashboard, without ports.
        """
        if not token:
            raise ValueError("a dashboard without a token is open to everyone")
        self.app = app
        self.token = token
        self.names = frozenset(names)
        # Browsers send a cookie to all ports of a machine. This one does not reveal the
        # token to another server there, and is worthless after this process.
        self.cookie = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._own_answer(HTTPConnection(scope))
        if answer is None:
            await self.app(scope, receive, send_with_headers)
        elif scope["type"] == "websocket":
            # The server answers 403. No page can read the text of a refusal here.
            await WebSocketClose(code=1008)(scope, receive, send)
        else:
            await answer(scope, receive, send_with_headers)

    def _own_answer(self, request: HTTPConnection) -> Response | None:
        """A refusal or the entrance; none if the request may pass."""
        host = request.headers.get("host", "")
        if _name(host) not in self.names:
            return _refusal(
                f"This dashboard does not answer to the name {_name(host)!r}. Open the"
                " address that `ablate dashboard` printed. If the name is right, start"
                " the dashboard with --allow-host NAME."
            )
        origin = request.headers.get("origin")
        # A proxy that ends TLS speaks plain HTTP with this server.
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return _refusal(
                f"A page of {origin!r} asks for data of this dashboard, which answers"
                f" only its own pages. Open http://{host} itself. Behind a proxy, pass"
                " the header Host through, and start the dashboard with --allow-host"
                " NAME."
            )
        token = request.query_params.get("token")
        if token is not None and request.scope["type"] == "http":
            return self._entrance(request, token)
        cookie = request.cookies.get(_cookie_name(request), "")
        if _equal(cookie, self.cookie):
            return None
        return _refusal(
            "This dashboard needs its token. Open the address that `ablate dashboard`"
            f" printed, or http://{host}/?token=TOKEN with the token that you were"
            " given. If a link on another page led here, and this browser has had the"
            " token, press Enter in the address bar."
        )

    def _entrance(self, request: HTTPConnection, token: str) -> Response:
        """Exchanges the token in an address for the cookie."""
        if not _equal(token, self.token):
            return _refusal(
                "This token is wrong. Each start of `ablate dashboard` prints the"
                " address with the current token."
            )
        rest = [
            (key, value)
            for key, value in request.query_params.multi_items()
            if key != "token"
        ]
        # An address that begins with two slashes would lead to another machine.
        path = "/" + quote(request.scope["path"].lstrip("/"))
        target = f"{path}?{urlencode(rest)}" if rest else path
        answer = HTMLResponse(ENTRANCE.format(target), headers=NOT_KEPT)
        answer.set_cookie(
            _cookie_name(request),
            self.cookie,
            secure=request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return answer


def _refusal(text: str) -> Response:
    return PlainTextResponse(text + "\n", status_code=403, headers=NOT_KEPT)


def _name(host: str) -> str:
    """The name in a header Host, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _cookie_name(request: HTTPConnection) -> str:
    """A name for each port, because the dashboards of one machine share cookies."""
    return f"ablate-{request.scope['server'][1]}"


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())
