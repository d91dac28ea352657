"""The table of text and published code names tests that exist, and levels that exist."""

from __future__ import annotations

import re
from pathlib import Path

from ablate import factors

HERE = Path(__file__).parent
ROWS = [
    line
    for line in (
        (HERE.parents[1] / "docs" / "papers.md")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    if line.startswith("|") and line.count("|") == 6
]


def test_every_named_test_exists() -> None:
    named = {name for line in ROWS for name in re.findall(r"`(test_\w+)`", line)}
    defined = {
        name
        for file in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) >= 15
    assert named - defined == set()


def test_every_named_level_exists() -> None:
    parameters = factors.parameters()
    named = [
        found for line in ROWS for found in re.findall(r"`([\w.]+): ([\w-]+)`", line)
    ]
    assert len(named) >= 10
    for name, level in named:
        if name.startswith("recipe."):
            continue
        assert name in parameters, name
        allowed = getattr(parameters[name][1].allowed, "levels", None)
        assert allowed is None or level in map(str, allowed), (name, level)
