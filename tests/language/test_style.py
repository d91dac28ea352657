"""What the linter has no rule for: nested comprehensions and conditional expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "ablate").rglob("*.py"), *(ROOT / "dashboards").rglob("*.py")])
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Lines of a file; a longer one has more than one subject.
LONGEST = 600


def nested(tree: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[int]:
    """The lines of expressions that hold another of the same kind."""
    for node in ast.walk(tree):
        if not isinstance(node, kinds):
            continue
        if any(isinstance(inner, kinds) for inner in ast.walk(node) if inner != node):
            yield node.lineno


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_line_does_one_thing(file: Path) -> None:
    text = file.read_text()
    tree = ast.parse(text)
    assert not list(nested(tree, COMPREHENSIONS)), "nested comprehension"
    assert not list(nested(tree, (ast.IfExp,))), "nested conditional expression"
    assert len(text.splitlines()) <= LONGEST


def test_the_checks_find_what_they_look_for() -> None:
    tree = ast.parse("a = [[x for x in y] for y in z]\nb = 1 if c else 2 if d else 3\n")
    assert list(nested(tree, COMPREHENSIONS)) == [1]
    assert list(nested(tree, (ast.IfExp,))) == [2]
