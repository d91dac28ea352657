"""Serves the tools for programs, over stdin and stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    CpusOption,
    ExecutorName,
    ExecutorOption,
    GpusOption,
    RunsOption,
    StoreOption,
    WithOption,
    url_of,
)
from ablate.records import MOST_WHOLE
from ablate.text import advice


def mcp(
    max_trials: Annotated[
        int | None,
        typer.Option(
            "--max-trials",
            metavar="TRIALS",
            min=1,
            max=MOST_WHOLE,
            help="Maximum number of trials that all runs in the store together may begin.",
        ),
    ] = None,
    max_hours: Annotated[
        float | None,
        typer.Option(
            "--max-hours",
            metavar="HOURS",
            help="Maximum hours of training and testing, added up over all runs in the store.",
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    own: WithOption = None,
) -> None:
    """Give research agents tools to plan, run and report studies, within a budget.

    The agents speak the Model Context Protocol over stdin and stdout; no network port
    is open. All runs in the store share the budget, also those that you start, so give
    agents a separate folder.
    """
    from ablate.budget import Budget
    from ablate.errors import AblateError
    from ablate.machine.provenance import install_extra, installed_version

    limits = Budget(trials=max_trials, hours=max_hours)
    if not limits.is_limited:
        raise AblateError(
            "agents need a budget: add --max-hours 8, --max-trials 200, or both"
        )
    if find_spec("mcp") is None:
        raise AblateError(
            "the tools for agents need a package that is not installed:"
            f" {install_extra('agents')}"
        )
    from mcp.server import MCPServer

    from ablate.cli.agent_tools import GUIDE, Tools

    how = ["--executor", executor.value]
    for name, number in (("--cpus", cpus), ("--gpus", gpus)):
        if number is not None:
            how += [name, str(number)]
    for file in own or ():
        how += [advice.WITH, str(file)]
    tools = Tools(runs=runs, url=url_of(store, runs), limits=limits, how=tuple(how))
    server = MCPServer(
        "ablate",
        instructions=GUIDE,
        version=installed_version(),
        log_level="WARNING",
        lifespan=_session,
    )
    for tool in tools.all:
        server.add_tool(tool)

    def leave(number: int, frame: object) -> NoReturn:
        tools.leave()
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    try:
        server.run("stdio")
    finally:
        tools.leave()
        tools.close()


@asynccontextmanager
async def _session(server: object) -> AsyncIterator[None]:
    """Keeps stdout for the protocol: what tools print goes to stderr."""
    with redirect_stdout(sys.stderr):
        yield
