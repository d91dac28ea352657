"""Benchmarks are scripts, no package: a test loads them by their file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(name: str) -> ModuleType:
    """The module of `benchmarks/NAME.py`."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    if folder not in sys.path:
        # They import each other, as they do when they are run.
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(
        f"benchmark_{name}", Path(folder) / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Records look their own module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
