"""Files of users' parts, and a runner for spaces that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.execution import make
from ablate.own import registry
from ablate.pipeline import Hooks, Options, Outcome
from ablate.results.study import Study

Use = Callable[..., Path]


@pytest.fixture
def use(tmp_path: Path) -> Use:
    """Writes a file of parts, and scripts beside it, and loads it."""

    def load(text: str, **scripts: str) -> Path:
        for name, script in scripts.items():
            (tmp_path / f"{name}.py").write_text(script)
        file = tmp_path / "own_parts.py"
        file.write_text(text)
        registry.load_file(file)
        return file

    return load


Run = Callable[..., Outcome]


@pytest.fixture
def run(options: Options) -> Run:
    """Runs a YAML text under the name `own`, in this process."""

    def train(text: str, hooks: Hooks | None = None) -> Outcome:
        declared = space.load(text, "own.yaml")
        return pipeline.run(declared, "own.yaml", options, hooks, make("inline"))

    return train


@pytest.fixture
def study(options: Options) -> Study:
    return Study("own", options.url)
