"""The dashboard's pages import only what exists. This needs no browser."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "dashboards").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_imports_exists(page: Path) -> None:
    for node in ast.walk(ast.parse(page.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "ablate"
        ):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
