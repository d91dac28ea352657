"""Serves the dashboard."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import NoReturn

from ablate.cli.shipped import shipped
from ablate.errors import AblateError
from ablate.masking import masked
from ablate.store.database import sqlite_file

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "ABLATE_TOKEN"


def script() -> Path:
    """The dashboard's first file: of a checkout, or as it was installed."""
    return shipped("ablate_dashboards", "dashboards") / "app.py"


def token_of(word: str, file: Path | None) -> str:
    """The token that visitors need: from the option, a file, or the environment; empty
    where none is asked for.

    Raises:
        AblateError: the file cannot be read, holds no token, or two of them are given.
    """
    if word and file is not None:
        raise AblateError(
            "--token and --token-file exclude each other; the file keeps the token out"
            " of the process list"
        )
    if file is None:
        word = word or os.environ.get(TOKEN_VARIABLE, "")
        if word == "NEW":
            return secrets.token_urlsafe(16)
        return word
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise AblateError(
            f"--token-file {file} cannot be read: {reason}; write one line with the"
            " token into it"
        ) from None
    if not found or len(found.split()) > 1:
        raise AblateError(
            f"--token-file {file} holds no token; write one line with one word into it"
        )
    return found


def serve(
    url: str, where: str, host: str, port: int, token: str, browser: bool
) -> NoReturn:
    """Replaces this process by the server of the pages, so that every signal reaches
    the server itself.

    The store's URL and the token go through the environment, which only this user can
    read.

    Raises:
        AblateError: the address is reachable from other machines, and there is no
            token.
    """
    if host not in LOOPBACK and not token:
        raise AblateError(
            f"--host {host} lets everybody in who reaches this machine: add --token NEW"
            " (one is made up and printed), --token-file FILE, or set"
            f" {TOKEN_VARIABLE}; or stay on loopback and go through ssh: ssh -L"
            f" {port}:localhost:{port} THIS_MACHINE"
        )
    file = sqlite_file(url)
    if file is not None and not file.exists():
        print(
            f"There is no store at {masked(url)} yet; the pages will show it when there"
            " is one.",
            file=sys.stderr,
        )
    shown = f"http://{host if ':' not in host else f'[{host}]'}:{port}"
    query = f"/?token={token}" if token else ""
    print(
        f"Dashboard of {masked(url)}: {shown}{query} (Ctrl-C ends it)",
        file=sys.stderr,
        flush=True,
    )
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": str(not browser).lower(),
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": "true",
        "browser.gatherUsageStats": "false",
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
        TOKEN_VARIABLE: token,
    }
    command = [sys.executable, "-m", "streamlit", "run", str(script()), *flags]
    # Streamlit repeats the address, without the token.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.execve(sys.executable, command, environment)
