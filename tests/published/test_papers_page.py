"""docs/papers.md has a line for each table and figure of the five papers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ablate import diagnostics
from ablate.published import PAPERS, tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
LINES = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| `\w+` \| (Table|Figure) ", line)
]
# How many tables and figures each paper numbers; MABViT's tables have no numbers.
NUMBERED = {
    "augvit": (10, 5),
    "antioversmoothing": (3, 12),
    "patchdiv": (6, 3),
    "mabvit": (0, 5),
    "iffn": (8, 4),
}


def test_every_table_and_figure_has_one_line() -> None:
    expected = [
        (paper, f"{kind} {number}")
        for paper, counts in NUMBERED.items()
        for kind, count in zip(("Table", "Figure"), counts, strict=True)
        for number in range(1, count + 1)
    ]
    expected += [
        ("mabvit", f"Table {name.partition('/')[2]}")
        for name in tables()
        if name.startswith("mabvit/")
    ]
    assert set(NUMBERED) == set(PAPERS)
    listed = [(line[0].strip("`"), line[1]) for line in LINES]
    assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]} {line[1]}")
def test_a_line_has_a_space_and_a_verb_that_exist_or_a_reason(line: list[str]) -> None:
    _, _, spaces, verb, missing = line
    if verb == "not made":
        assert missing
        return
    assert verb
    for name in re.findall(r"`([\w/-]+)`", spaces):
        assert (ROOT / "search_spaces" / f"{name}.yaml").is_file(), name
    for name in re.findall(r"--(?:diagnostic|name) (\w+)", verb):
        assert name in diagnostics.catalogue()
    for verb_name in re.findall(r"`(\w+)", verb):
        assert verb_name in ("plot", "diagnose", "table", "cost")
