"""The application that `ablate dashboard` serves: the script `app.py` behind a guard.

What it must know comes from the environment, which other users cannot read, and does
not stay there for the pages and the browser to inherit.
"""

from __future__ import annotations

import logging
import os
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from guard import Guard
from markupsafe import Markup
from starlette.middleware import Middleware
from streamlit.starlette import App

TOKEN = os.environ.pop("ABLATE_TOKEN")
NAMES = os.environ.pop("ABLATE_NAMES").split()
# The address to open in the browser; empty if none.
LINK = os.environ.pop("ABLATE_LINK")
FORWARD = Markup('<!doctype html><meta http-equiv="refresh" content="0; url={}">')

# It would repeat the address without the token.
logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


@asynccontextmanager
async def opened(app: App) -> AsyncIterator[None]:
    """Opens the browser, if it is to be opened.

    Every user can see the command line of a browser. Therefore it gets the name of a
    private file, which forwards to the address with the token. The file is in the
    folder of results, because a packaged browser has a `/tmp` of its own.
    """
    if not LINK:
        yield
        return
    runs = os.environ["ABLATE_RUNS"]
    place = runs if os.access(runs, os.W_OK) else None
    with TemporaryDirectory(prefix=".dashboard-", dir=place) as folder:
        file = Path(folder).resolve() / "open.html"
        file.write_text(FORWARD.format(LINK), encoding="utf-8")
        # A browser in the terminal runs until it is closed.
        threading.Thread(
            target=webbrowser.open, args=(file.as_uri(),), daemon=True
        ).start()
        yield


app = App(
    Path(__file__).with_name("app.py"),
    lifespan=opened,
    middleware=[Middleware(Guard, token=TOKEN, names=NAMES)],
)
