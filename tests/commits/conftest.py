from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.own import registry
from tests.commits.repository import make_repository


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, in which the test runs."""
    folder = make_repository(tmp_path / "repository")
    monkeypatch.chdir(folder)
    return folder


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs `ablate WORDS` in this process."""

    def run(*words: str) -> Done:
        registry.clear()
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run
