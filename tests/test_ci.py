"""`.ci/run` leaves out only proofs that a change cannot affect."""

from __future__ import annotations

import ast
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CI: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "proofs.py"))
ALL, FOUNDATIONS = CI["ALL"], CI["FOUNDATIONS"]
LONG = {"proof", "ray", "browser"}


def marks(file: Path) -> set[str]:
    """The names of the marks that a file of tests uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
    }


def folders(place: Path) -> set[str]:
    return {each.name for each in place.iterdir() if any(each.glob("*.py"))}


def test_each_folder_of_the_package_is_guarded_by_a_proof() -> None:
    guarded = {folder for proofs in ALL.values() for folder in proofs.guards}
    assert guarded.isdisjoint(FOUNDATIONS), "a change of a foundation runs all proofs"
    of_package = {name for name in guarded if "/" not in name and "." not in name}
    assert all((ROOT / other).exists() for other in guarded - of_package)
    assert of_package | {*FOUNDATIONS} == folders(ROOT / "ablate")


def test_each_long_test_is_one_of_the_proofs() -> None:
    chosen = [folder for proofs in ALL.values() for folder in proofs.tests]
    assert len(chosen) == len(set(chosen))
    for folder in folders(ROOT / "tests"):
        files = (ROOT / "tests" / folder).glob("**/test_*.py")
        if any(LONG & marks(file) for file in files):
            assert folder in chosen, folder
    assert not any(LONG & marks(file) for file in (ROOT / "tests").glob("test_*.py"))


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("ablate/report/effects.py", ["pages", "statistics"]),
        ("ablate/statistics/noise.py", ["statistics"]),
        ("ablate/layers/ffn.py", ["networks"]),
        ("ablate/store/writer.py", ["pages", "execution"]),
        ("tests/families/test_families.py", ["networks"]),
        ("docs/judge.md", ["pages"]),
        ("benchmarks/trust.py", ["statistics"]),
        ("tests/attack/case.py", []),
        ("README.md", ["pages"]),
        ("CHANGELOG.md", []),
        *(
            (file, list(ALL))
            for file in (
                "ablate/pipeline.py ablate/records/trial.py ablate/new/part.py"
                " requirements.lock tests/conftest.py .ci/run"
            ).split()
        ),
    ],
)
def test_what_a_change_can_affect(file: str, names: list[str]) -> None:
    assert CI["affected"]([file]) == names
    assert CI["affected"]([file, "CHANGELOG.md"]) == names


def test_without_a_commit_that_has_passed_all_proofs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = CI["changed"]
    passed = tmp_path / "passed"

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "--quiet")
    (tmp_path / "a.py").touch()
    git("add", "a.py")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setitem(changed.__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(changed.__globals__, "PASSED", passed)
    monkeypatch.delenv("FULL", raising=False)
    assert changed() is None
    passed.write_text(git("rev-parse", "HEAD") + "\n")
    assert changed() == ["passed"]
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.py").touch()
    assert changed() == ["a.py", "b.py", "passed"]
    monkeypatch.setenv("FULL", "1")
    assert changed() is None
    monkeypatch.delenv("FULL")
    passed.write_text("0" * 40)
    assert changed() is None
    assert CI["affected"](None) == list(ALL)
