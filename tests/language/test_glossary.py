"""The glossary and the code agree, and retired words stay retired."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.space.schema import SeedsForm, SpaceForm, UntilDecidedForm
from ablate.store.sql_tables import metadata

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PACKAGE = [
    file
    for file in sorted((ROOT / "ablate").rglob("*.py"))
    if "migrations" not in file.parts  # history
]
CODE = "\n".join(file.read_text() for file in PACKAGE)
READ_BY_USERS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "search_spaces").rglob("*.yaml")),
    *PACKAGE,
    *sorted((ROOT / "dashboards").rglob("*.py")),
]


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yields every variable and argument that code binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def table(heading: str) -> list[dict[str, str]]:
    """The rows of the table below a heading, by column."""
    section = GLOSSARY.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not set(line) <= set("|-")
    ]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


TERMS = [
    row
    for heading in (
        "What is declared",
        "What is planned and trained",
        "What runs",
        "What is concluded",
    )
    for row in table(heading)
]
RETIRED = table("Retired words")


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row["term"])
def test_the_names_of_a_term_exist(row: dict[str, str]) -> None:
    keys = {*SpaceForm.model_fields}
    for form in (UntilDecidedForm, SeedsForm):
        keys |= {f"seeds.{name}" for name in form.model_fields}
    assert set(names(row["YAML"])) <= keys
    columns = {
        f"{table.name}.{column.name}"
        for table in metadata.tables.values()
        for column in table.columns
    }
    assert set(names(row["SQL"])) <= columns | set(metadata.tables)
    for name in names(row["code"]):
        defined = rf"(class|def) {name}\b|^ *{name}(: [\w\[\], |]+)?( =|$|:)|\"{name}\""
        assert re.search(defined, CODE, re.MULTILINE), name


def test_each_term_is_defined_once() -> None:
    terms = [row["term"] for row in TERMS]
    assert len(set(terms)) == len(terms) > 40


@pytest.mark.parametrize("row", RETIRED, ids=lambda row: row["instead of"])
def test_retired_words_do_not_come_back(row: dict[str, str]) -> None:
    words = [re.escape(word.strip()) for word in row["instead of"].split(",")]
    pattern = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)
    found = []
    for file in READ_BY_USERS:
        if file.name == "glossary.md":
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if pattern.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_a_table_is_no_grid_in_the_code_either() -> None:
    printing = [
        file
        for folder in ("ablate/cli", "ablate/report", "ablate/results", "dashboards")
        for file in sorted((ROOT / folder).rglob("*.py"))
    ]
    bound = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in printing
        for name in bound_names(ast.parse(file.read_text()))
        if "grid" in name.split("_") or "grids" in name.split("_")
    }
    # Whether a design has every combination of levels.
    assert bound <= {"ablate/report/factorial.py: full_grid"}
