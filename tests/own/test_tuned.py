"""Own trainers and commands whose rows choose their settings."""

from __future__ import annotations

import sys

import pytest

from ablate import space
from ablate.errors import SpaceError
from ablate.results.review import review
from ablate.results.study import Study
from tests.own.conftest import Run, Use

TRAINER = """
import ablate


@ablate.trainer(
    factors={"norm": ["layer", "rms"], "rate": ablate.Real(0)},
    metrics=[
        ablate.Metric("test_loss", direction="min"),
        ablate.Metric("val_loss", direction="min"),
    ],
)
def tunable(trial):
    best = 0.1 if trial.levels["norm"] == "layer" else 0.4
    distance = abs(trial.levels["rate"] - best)
    for _ in trial.epochs():
        trial.report(
            val_loss=distance + 0.001 * trial.seed % 0.01,
            test_loss=distance + 0.002 * trial.seed % 0.01,
        )
"""
STUDY = """
question: Which norm, each at its own rate?
trainer: tunable
factors: {norm: [layer, rms]}
tune: {rate: [0.1, 0.2, 0.4], metric: val_loss}
seeds: 3
recipe: {epochs: 1}
"""
SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--norm")
parser.add_argument("--rate", type=float)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
distance = abs(given.rate - (0.1 if given.norm == "layer" else 0.4))
print(f"val_loss {distance:.4f} test_loss {distance + 0.01 * (given.seed % 7):.4f}")
"""
COMMAND = rf"""
import ablate

tunable = ablate.command(
    "{sys.executable} script.py --norm {{norm}} --rate {{rate}} --seed {{seed}}",
    name="tunable",
    factors={{"norm": ["layer", "rms"], "rate": ablate.Real(0)}},
    metrics=[
        ablate.Metric("test_loss", direction="min"),
        ablate.Metric("val_loss", direction="min"),
    ],
    pattern=r"val_loss (?P<val_loss>\S+) test_loss (?P<test_loss>\S+)",
)
"""


def test_a_factor_without_a_default_may_be_tuned(
    use: Use, run: Run, study: Study
) -> None:
    use(TRAINER)
    outcome = run(STUDY)
    assert not outcome.interrupted
    # 3 settings of 2 rows, 3 seeds each, and row 1 at the setting of row 0.
    assert outcome.trained == 6 + 6 + 3
    rows = study.results_table().data
    assert [row["rate"] for row in rows] == [0.1, 0.4]
    changed = study.effects_table("tuning").data[1]
    assert changed["at_row_0"] == pytest.approx(0.3, abs=0.01)
    assert changed["own"] == pytest.approx(0, abs=0.01)


def test_a_trainer_must_say_which_metric_is_held_out(use: Use) -> None:
    use(TRAINER)
    with pytest.raises(SpaceError, match="it reports test_loss, val_loss") as error:
        space.load(STUDY.replace(", metric: val_loss", ""), "own.yaml")
    assert len(error.value.problems) == 1


def test_a_review_objects_to_settings_chosen_by_the_metric_of_the_table(
    use: Use, run: Run, study: Study
) -> None:
    use(TRAINER)
    run(STUDY.replace("metric: val_loss", "metric: test_loss"))
    names = {finding.name for finding in review("own", study.store)}
    assert "chosen on the test set" in names


@pytest.mark.proof
def test_the_rows_of_a_command_choose_their_settings(
    use: Use, run: Run, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = use(COMMAND, script=SCRIPT)
    monkeypatch.chdir(file.parent)
    assert not run(STUDY).interrupted
    assert [row["rate"] for row in study.results_table().data] == [0.1, 0.4]
