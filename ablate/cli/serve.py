"""Serves the dashboard.

Every dashboard has a token, and answers to the names of this machine that it was told.
`dashboards/guard.py` checks both.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from ablate.cli.shipped import shipped
from ablate.errors import AblateError
from ablate.machine.provenance import install_extra
from ablate.store.database import sqlite_file
from ablate.text.masking import masked

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ALL_ADDRESSES = ("0.0.0.0", "::")
TOKEN_VARIABLE = "ABLATE_TOKEN"


def script() -> Path:
    """The dashboard's entry script, as installed or in a checkout."""
    return shipped("ablate_dashboards", "dashboards") / "app.py"


def token_of(word: str, file: Path | None) -> str:
    """The token that visitors need.

    It comes from the option, a file, or the environment. Otherwise it is a new one.

    Raises:
        AblateError: the file cannot be read, two tokens are given, or a token is no
            word.
    """
    if word and file is not None:
        raise AblateError(
            "--token and --token-file exclude each other; the file keeps the token out"
            " of the process list"
        )
    if file is not None:
        return _token_in(file)
    token = word or os.environ.get(TOKEN_VARIABLE, "")
    if token in ("", "NEW"):
        return secrets.token_urlsafe(16)
    if not token.isprintable():
        raise AblateError(
            f"the token {token!r} has characters that an address cannot contain; use"
            " letters and digits"
        )
    return token


def _token_in(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise AblateError(
            f"--token-file {file} cannot be read: {reason}; write one line with the"
            " token into it"
        ) from None
    # A line feed at the end is no part of the token; one inside is a mistake.
    if not token or len(token.split()) > 1 or not token.isprintable():
        raise AblateError(
            f"--token-file {file} holds no token; write one line with one word into it"
        )
    return token


def names_of(host: str, more: Sequence[str]) -> list[str]:
    """The names and addresses of the dashboard; the printed address has the first one.

    Args:
        host: the address to listen on.
        more: what `--allow-host` gives.

    Raises:
        AblateError: one of them is no name.
    """
    for name in more:
        if not _is_name(name):
            raise AblateError(
                f"--allow-host {name!r} is not the name of a machine; write it as"
                " visitors type it, without http:// and without a port: --allow-host"
                " workstation.example"
            )
    names = [host, *more, *LOOPBACK]
    if host in ALL_ADDRESSES:
        names.insert(0, more[0] if more else socket.gethostname())
    return [name.lower() for name in names]


def _is_name(word: str) -> bool:
    """Whether a word is the name or the address of a machine."""
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return re.fullmatch(r"[\w.-]+", word) is not None
    return True


def serve(
    url: str,
    where: str,
    runs: Path,
    host: str,
    port: int,
    names: Sequence[str],
    token: str,
    browser: bool,
) -> NoReturn:
    """Replaces this process by the server of the pages, so that every signal reaches
    the server itself.

    The store's URL and the token go through the environment, which only this user can
    read.

    Raises:
        AblateError: Streamlit is not installed.
    """
    if find_spec("streamlit") is None:
        raise AblateError(
            "the dashboard needs packages that are not installed:"
            f" {install_extra('dashboard')}"
        )
    file = sqlite_file(url)
    if file is not None and not file.exists():
        print(
            f"There is no store at {masked(url)} yet; the pages will show it once it"
            " exists.",
            file=sys.stderr,
        )
    name = f"[{names[0]}]" if ":" in names[0] else names[0]
    link = f"http://{name}:{port}/?token={quote(token, safe='')}"
    print(
        f"Dashboard of {masked(url)}: {link} (Ctrl-C stops it)",
        file=sys.stderr,
        flush=True,
    )
    options = {
        "server.address": host,
        "server.port": str(port),
        # `server.py` opens the browser.
        "server.headless": "true",
        # It would ask on the output that is closed below, and wait.
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": "true",
        "browser.gatherUsageStats": "false",
        # Otherwise Streamlit may advertise files for coding agents on our pages, and
        # install them.
        "logger.hideWelcomeMessage": "true",
        "client.toolbarMode": "viewer",
        "client.showErrorLinks": "false",
        "theme.light.primaryColor": "#0072B2",
        "theme.dark.primaryColor": "#56B4E9",
        "logger.level": "warning",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    environment = {
        **os.environ,
        "ABLATE_STORE": url,
        "ABLATE_WHERE": where,
        "ABLATE_RUNS": str(runs),
        TOKEN_VARIABLE: token,
        "ABLATE_NAMES": " ".join(names),
        "ABLATE_LINK": link if browser else "",
    }
    server = script().with_name("server.py")
    command = [sys.executable, "-m", "streamlit", "run", str(server), *flags]
    # Streamlit repeats the address, without the token.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.execve(sys.executable, command, environment)
