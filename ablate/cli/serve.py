"""Serves the dashboard."""

from __future__ import annotations

import os
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from ablate.cli.shipped import shipped
from ablate.errors import AblateError
from ablate.masking import masked
from ablate.provenance import install_extra
from ablate.store.database import sqlite_file

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "ABLATE_TOKEN"


def script() -> Path:
    """The dashboard's entry script, as installed or in a checkout."""
    return shipped("ablate_dashboards", "dashboards") / "app.py"


def token_of(word: str, file: Path | None) -> str:
    """The token that visitors need; empty if they need none.

    It comes from the option, a file, or the environment.

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
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise AblateError(
            f"--token-file {file} cannot be read: {reason}; write one line with the"
            " token into it"
        ) from None
    # A line feed at the end is no part of the token; one inside is a mistake.
    if not token or len(token.split()) > 1:
        raise AblateError(
            f"--token-file {file} holds no token; write one line with one word into it"
        )
    return token


def serve(
    url: str, where: str, runs: Path, host: str, port: int, token: str, browser: bool
) -> NoReturn:
    """Replaces this process by the server of the pages, so that every signal reaches
    the server itself.

    The store's URL and the token go through the environment, which only this user can
    read.

    Raises:
        AblateError: the address is reachable from other machines, and there is no
            token.
    """
    if find_spec("streamlit") is None:
        raise AblateError(
            "the dashboard needs packages that are not installed:"
            f" {install_extra('dashboard')}"
        )
    if host not in LOOPBACK and not token:
        raise AblateError(
            f"--host {host} gives access to anyone who can reach this machine: add"
            " --token NEW (generates and prints one), --token-file FILE, or set"
            f" {TOKEN_VARIABLE}; or stay on loopback and connect through ssh: ssh -L"
            f" {port}:localhost:{port} THIS_MACHINE"
        )
    file = sqlite_file(url)
    if file is not None and not file.exists():
        print(
            f"There is no store at {masked(url)} yet; the pages will show it once it"
            " exists.",
            file=sys.stderr,
        )
    shown = f"http://{host if ':' not in host else f'[{host}]'}:{port}"
    query = f"/?token={token}" if token else ""
    print(
        f"Dashboard of {masked(url)}: {shown}{query} (Ctrl-C stops it)",
        file=sys.stderr,
        flush=True,
    )
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": str(not browser).lower(),
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
    }
    command = [sys.executable, "-m", "streamlit", "run", str(script()), *flags]
    # Streamlit repeats the address, without the token.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.execve(sys.executable, command, environment)
