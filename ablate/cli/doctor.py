"""Checks whether a machine is set up. Every finding is measured, none is assumed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ablate.machine import provenance
from ablate.machine.provenance import install_extra
from ablate.text.masking import masked


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    ok: bool
    found: str


def examine(
    url: str, runs: Path, begin: Callable[[str], None] = lambda what: None
) -> list[Check]:
    """All findings, from the basics to a start of Ray.

    Args:
        begin: called with the name of each check before it starts.
    """
    return list(_findings(url, runs, begin))


def _findings(url: str, runs: Path, begin: Callable[[str], None]) -> Iterator[Check]:
    begin("packages and machine")
    machine = provenance.collect()
    yield Check(
        "python", sys.version_info >= (3, 11), f"{machine.python}, needs 3.11 or newer"
    )
    for package, version in (
        ("ablate", machine.ablate),
        ("torch", machine.torch),
        ("timm", machine.timm),
        ("ray", machine.ray),
    ):
        yield Check(
            package,
            bool(version),
            version or "not installed; in a checkout, type: make",
        )
    yield Check(
        "machine",
        True,
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gb:.0f} GB",
    )
    begin("gpu")
    yield _try("gpu", _gpu)
    begin("disk and runs folder")
    # A folder that is missing is created in the nearest one that exists.
    folder = next(p for p in (runs, *runs.resolve().parents) if p.exists())
    free = shutil.disk_usage(folder).free / 1e9
    yield Check("disk", free > 1, f"{free:.0f} GB free at {folder.resolve()}")
    yield Check(
        "runs folder",
        os.access(folder, os.W_OK),
        f"{runs} can{'' if os.access(folder, os.W_OK) else 'not'} be written",
    )
    begin("store")
    yield _try("store", lambda: _store(url))
    begin("model")
    yield _try("model", _model)
    begin("ray starts")
    yield _try("ray starts", _ray)


def _try(what: str, look: Callable[[], str]) -> Check:
    try:
        return Check(what, True, look())
    except Exception as error:
        # Whatever goes wrong is the finding; the other checks still run.
        return Check(what, False, f"{type(error).__name__}: {error}")


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none; trials run on the CPU"
    names = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    gpus = ", ".join(names)
    if find_spec("pynvml") is None:
        gpus += f"; to measure their energy: {install_extra('energy')}"
    return gpus


def _store(url: str) -> str:
    from ablate.store.database import sqlite_file
    from ablate.store.reader import Reader

    file = sqlite_file(url)
    if file is not None and not file.is_file():
        return f"none yet at {file}; the first run creates it"
    with Reader(url) as reader:
        return f"{masked(url)}: {len(reader.studies.all())} studies"


def _model() -> str:
    from ablate.cost import count
    from ablate.families import resolve

    cost = count(resolve("deit_tiny_patch16_224", 224, 3, 1000, {}))
    return (
        f"deit_tiny_patch16_224 costs {cost.params / 1e6:.2f} M parameters,"
        f" {cost.flops / 1e9:.2f} GFLOPs"
    )


def _ray() -> str:
    from ablate.execution import make

    executor = make("ray")
    executor.prepare(None, None)
    try:
        executor.ready()
    finally:
        executor.close()
    return "a local Ray started and stopped"
