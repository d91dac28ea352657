from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.own import registry
from tests.commits.repository import make_repository


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository, in which the test runs."""
    folder = make_repository(tmp_path / "repository")
    monkeypatch.chdir(folder)
    yield folder
    registry.clear()
