"""Names in the code, and figures about its style, which are printed and not limited:
`python -m tests.language.test_style`.
"""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "ablate").rglob("*.py"), *(ROOT / "dashboards").rglob("*.py")])
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names that do not say what they hold.
EMPTY_NAMES = ("found", "one", "mine", "own", "said", "told", "wanted")
# A value of these names in a thousand is an accident, more is a habit.
MOST_EMPTY_NAMES = 5.0


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yields every variable and argument that code binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def nested(tree: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[int]:
    """Yields the lines of expressions that hold another of the same kind."""
    for node in ast.walk(tree):
        if not isinstance(node, kinds):
            continue
        if any(isinstance(inner, kinds) for inner in ast.walk(node) if inner != node):
            yield node.lineno


def empty_names_per_thousand(trees: list[ast.Module]) -> float:
    counts = Counter(name for tree in trees for name in bound_names(tree))
    return 1000 * sum(counts[name] for name in EMPTY_NAMES) / counts.total()


def local_names(code: CodeType) -> Iterator[str]:
    """Yields the arguments and variables of all functions in compiled code."""
    yield from code.co_varnames
    yield from code.co_cellvars
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from local_names(inner)


def test_names_say_what_they_hold() -> None:
    """Each function counts a name once, which takes less time than a syntax tree."""
    counts = Counter[str]()
    for file in FILES:
        counts.update(local_names(compile(file.read_text(), str(file), "exec")))
    share = 1000 * sum(counts[name] for name in EMPTY_NAMES) / counts.total()
    assert 0.1 < share < MOST_EMPTY_NAMES


def test_the_checks_see_what_they_look_for() -> None:
    tree = ast.parse("a = [[x for x in y] for y in z]\nb = 1 if c else 2 if d else 3\n")
    assert list(nested(tree, COMPREHENSIONS)) == [1]
    assert list(nested(tree, (ast.IfExp,))) == [2]
    assert list(bound_names(tree)) == ["a", "b", "y", "x"]
    assert empty_names_per_thousand([ast.parse("found = a\nb = c")]) == 500


def main() -> None:
    trees = {file: ast.parse(file.read_text()) for file in FILES}
    lengths = sorted(len(file.read_text().splitlines()) for file in FILES)
    functions = sorted(
        node.end_lineno - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    )
    comprehensions = [
        line for tree in trees.values() for line in nested(tree, COMPREHENSIONS)
    ]
    conditionals = [
        line for tree in trees.values() for line in nested(tree, (ast.IfExp,))
    ]
    for what, values in (("file", lengths), ("function", functions)):
        tenth = statistics.quantiles(values, n=10)[-1]
        print(
            f"lines of a {what}: median {statistics.median(values):.0f}, 90 % below"
            f" {tenth:.0f}, longest {values[-1]}"
        )
    print(f"nested comprehensions: {len(comprehensions)}")
    print(f"nested conditional expressions: {len(conditionals)}")
    share = empty_names_per_thousand(list(trees.values()))
    print(f"names such as {', '.join(EMPTY_NAMES)}: {share:.1f} of 1,000 bound names")


if __name__ == "__main__":
    main()
