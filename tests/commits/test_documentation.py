"""What the pages show about commits and chains runs as it is printed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.own import registry
from tests.commits.repository import MODEL, branch, commit, git, write
from tests.docs.commands import snippets


def block(page: str, language: str, start: str) -> str:
    (text,) = (
        each.text
        for each in snippets(language)
        if each.page == page and each.text.startswith(start)
    )
    return text


def test_the_space_of_the_page_compares_two_commits(repository: Path) -> None:
    branch(repository, "my-branch", {"model.py": MODEL.replace("1.0", "2.0")})
    write(repository, {"mine.py": block("docs/commits.md", "python", "import ablate")})
    registry.load_all(["mine.py"])
    declared = space.load(block("docs/commits.md", "yaml", "question"), "space.yaml")
    plan = pipeline.cost_plan(declared, "no.db")
    assert [cell.levels["commit"] for cell in plan.cells] == ["main", "my-branch"]


class Enough(Exception):
    pass


@pytest.mark.proof
def test_the_loop_of_an_agent_keeps_what_is_better(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a better, a worse and a broken change, it keeps the first one."""
    gains = iter(["2.0", "1.5", "1 / 0"])

    def change_the_code() -> None:
        gain = next(gains, None)
        if gain is None:
            raise Enough
        write(repository, {"model.py": MODEL.replace("1.0", gain)})

    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    # The installed command.
    place = Path(sys.executable).parent
    assert shutil.which("ablate", path=str(place))
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    text = block("docs/agents.md", "python", "import json")
    text = text.replace("--format json", "--format json --executor inline")
    commit(repository, "ready")
    with pytest.raises(Enough):
        exec(text, {"change_the_code": change_the_code})
    assert "2.0" in (repository / "model.py").read_text()
    assert git(repository, "log", "--format=%s").splitlines() == [
        "proposal",
        "ready",
        "first",
    ]
