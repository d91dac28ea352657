"""The lines of a run without a terminal."""

from __future__ import annotations

import pytest

from ablate import space
from ablate.cli.progress import Progress
from ablate.pipeline import Preview
from ablate.plan import make_plan
from ablate.records import Cost, Place, Started


def test_a_lost_worker_is_a_line_with_the_trial_and_where_it_goes_on(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(
        space.load(tiny, "tiny.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    key = plan.trials[0].hash
    progress = Progress()
    progress.planned(Preview(plan=plan, known={}, to_train=plan.trials, seconds=None))
    progress.event(Started(key, Place("ray", "here", 1, "cpu", 1), 0))
    assert "lost" not in capsys.readouterr().err
    progress.event(Started(key, Place("ray", "here", 2, "cpu", 1), 3))
    assert (
        capsys.readouterr().err
        == "the worker was lost: baseline, seed 0; the trial continues after epoch 3\n"
    )
