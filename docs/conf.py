"""Builds the documentation: `make docs` writes it to docs/_build."""

from __future__ import annotations

import importlib.metadata

project = "ablate"
author = "the authors of ablate"
release = importlib.metadata.version("ablate-harness")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "ablate"
# Every heading can be linked to, as in recipe.md#presets.
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_member_order = "bysource"
