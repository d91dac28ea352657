"""Names in the code say what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "ablate").rglob("*.py"), *(ROOT / "dashboards").rglob("*.py")])
# Names that do not say what they hold.
EMPTY_NAMES = ("found", "one", "mine", "own", "said", "told", "wanted")
# A value of these names in a thousand is an accident, more is a habit.
MOST_EMPTY_NAMES = 5.0


def local_names(code: CodeType) -> Iterator[str]:
    """Yields the arguments and variables of all functions in compiled code."""
    yield from code.co_varnames
    yield from code.co_cellvars
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from local_names(inner)


def test_names_say_what_they_hold() -> None:
    counts = Counter[str]()
    for file in FILES:
        counts.update(local_names(compile(file.read_text(), str(file), "exec")))
    share = 1000 * sum(counts[name] for name in EMPTY_NAMES) / counts.total()
    assert 0.1 < share < MOST_EMPTY_NAMES
