"""What a command runs on and from, without importing anything heavy."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ablate.records import Provenance
from ablate.text.masking import masked

# The name on the package index, because `ablate` there is another project.
DISTRIBUTION = "ablate-harness"


def install_extra(name: str) -> str:
    """Returns the command that installs the packages of an extra."""
    return f"pip install '{DISTRIBUTION}[{name}]'"


def installed_version() -> str:
    """Returns the installed version; empty if only the code is there."""
    return _version(DISTRIBUTION)


def collect() -> Provenance:
    """Returns the provenance of the running command."""
    commit, dirty = _commit()
    return Provenance(
        command=masked(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        ablate=installed_version(),
        commit=commit,
        dirty=dirty,
        python=platform.python_version(),
        torch=_version("torch"),
        timm=_version("timm"),
        ray=_version("ray"),
        platform=platform.platform(),
        host=socket.gethostname(),
        cpu=cpu(),
        cores=os.cpu_count() or 1,
        memory_gb=round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1
        ),
        gpus=_gpus(),
    )


def versions() -> dict[str, str]:
    """Returns the versions of what trains, by their names in the store."""
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "timm": _version("timm"),
    }


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode == 0:
        return done.stdout.strip()
    return ""


@cache
def _commit() -> tuple[str, bool]:
    """Returns the commit of this code's checkout, and whether it was changed since.

    Both are empty outside a checkout. An environment may lie inside the repository of
    another project; that repository does not track this file. What the process has loaded
    does not change with the checkout, so the first answer counts.
    """
    if not _output("git", "ls-files", Path(__file__).name):
        return "", False
    commit = _output("git", "rev-parse", "HEAD")
    return commit, bool(
        commit and _output("git", "status", "--porcelain", "--untracked-files=no")
    )


@cache
def cpu() -> str:
    """Returns the model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (
            line.partition(":")[2].strip()
            for line in lines
            if line.startswith("model name")
        ),
        platform.processor(),
    )


@cache
def _gpus() -> str:
    return _output(
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader",
    )
