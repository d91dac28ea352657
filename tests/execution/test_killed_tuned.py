"""Rows that choose their settings, on a real Ray: kills change no byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.kills import killed_and_undisturbed

ROOT = Path(__file__).parents[2]
SPACE = (ROOT / "search_spaces" / "tuned.yaml").read_text()
# The study of the documentation with few epochs.
QUICK = SPACE.replace("epochs: 20", "epochs: 2").replace("settings: 8", "settings: 4")
# 12 trials choose, and 25 follow.
TRIALS = 10


@pytest.mark.ray
@pytest.mark.proof
def test_a_study_that_is_killed_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    assert QUICK != SPACE
    killed, undisturbed = killed_and_undisturbed(tmp_path, "tuned", QUICK, TRIALS)
    for form in ("md", "csv", "json", "latex"):
        assert killed.table(form) == undisturbed.table(form)
    assert killed.effects_table("tuning") == undisturbed.effects_table("tuning")
    assert all(cell.settings for cell in killed.results().cells)
