"""Seeds until decided on a real Ray: a study that is killed ends the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.kills import killed_and_undisturbed

ROOT = Path(__file__).parents[2]
SPACE = (ROOT / "search_spaces" / "until-decided.yaml").read_text()
# The study of the gallery with few epochs.
QUICK = SPACE.replace("epochs: 25", "epochs: 4").replace(
    "warmup_epochs: 2", "warmup_epochs: 1"
)
TRIALS = 6


@pytest.mark.ray
@pytest.mark.proof
def test_a_study_that_is_killed_ends_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    killed, undisturbed = killed_and_undisturbed(
        tmp_path, "until-decided", QUICK, TRIALS
    )
    assert killed.table("json") == undisturbed.table("json")
    seeds = [len(cell.statuses) for cell in killed.results().cells]
    assert max(seeds[1:]) > 3, "some row got further seeds"
