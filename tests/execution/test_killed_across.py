"""Rows that choose their settings at several sizes, on a real Ray: kills change no byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.kills import killed_and_undisturbed

SPACE = """
question: Does a depthwise kernel help at both widths, at the best learning rate of each?
backbone: {family: vit, patch_size: 2, depth: 2, heads: 2}
factors: {ffn.kernel: [none, 3]}
design: one-at-a-time
across: {size.width: [8, 16]}
tune: {recipe.lr: [1e-3, 3e-3, 1e-2]}
data: {name: digits, validation: 0.2}
recipe: {epochs: 2, warmup_epochs: 0}
seeds: 5
"""
# At each width, 6 trials choose, and 10 to 15 follow.
TRIALS = 8


@pytest.mark.ray
@pytest.mark.proof
def test_a_ladder_that_is_killed_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    killed, undisturbed = killed_and_undisturbed(tmp_path, "sizes", SPACE, TRIALS)
    for form in ("md", "csv", "json", "html"):
        assert killed.table(form) == undisturbed.table(form)
    for size, other in zip(killed.sizes(), undisturbed.sizes(), strict=True):
        assert size.results.cells == other.results.cells
        assert all(cell.settings for cell in size.results.cells)
