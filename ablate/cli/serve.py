"""Serves the dashboard."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import ablate
from ablate.errors import AblateError
from ablate.store.database import sqlite_file

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def script() -> Path:
    """The dashboard's first file: of a checkout, or as it was installed."""
    root = Path(ablate.__file__).parents[1]
    found = next(
        (file for file in (root / "dashboards" / "app.py", root / "ablate_dashboards" / "app.py") if file.is_file()), None
    )
    if found is None:
        raise AblateError(f"the pages of the dashboard are not beside {root}; install ablate again")
    return found


def serve(url: str, where: str, host: str, port: int, token: str, browser: bool) -> int:
    """Serves the pages until it is interrupted; gives Streamlit's exit code.

    Raises:
        AblateError: others than this machine could come, and there is no token.
    """
    if host not in LOOPBACK and not token:
        raise AblateError(
            f"--host {host} lets everybody in who reaches this machine: add --token NEW (one is made up and printed) or "
            f"--token WORD; "
            f"or stay on loopback and go through ssh: ssh -L {port}:localhost:{port} THIS_MACHINE"
        )
    file = sqlite_file(url)
    if file is not None and not file.exists():
        print(f"There is no store at {file} yet; the pages will show it when there is one.", file=sys.stderr)
    token = secrets.token_urlsafe(16) if token == "NEW" else token
    shown = f"http://{host if ':' not in host else f'[{host}]'}:{port}"
    print(f"Dashboard of {url}: {shown}{f'/?token={token}' if token else ''} (Ctrl-C ends it)", file=sys.stderr, flush=True)
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
    environment = {**os.environ, "ABLATE_STORE": url, "ABLATE_WHERE": where, "ABLATE_TOKEN": token}
    command = [sys.executable, "-m", "streamlit", "run", str(script()), *flags]
    try:
        return subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL).returncode
    except KeyboardInterrupt:
        return 0
