"""`ablate gate`: the verdict on a row as an exit code."""

from __future__ import annotations

import json
import random

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from tests.conftest import Say

TEXT = """
question: Which level is better?
backbone: {family: vit, patch_size: 4, width: 8, depth: 2, heads: 2}
factors: {drop.path: [0.0, 0.1, 0.2, 0.3, 0.4]}
data: digits
recipe: {epochs: 1, warmup_epochs: 0}
seeds: 6
margin: 3
"""
# Gains of the levels, and the noise of a training: helps, hurts, no difference and
# inconclusive.
GAINS = {0.1: (5.0, 0.1), 0.2: (-5.0, 0.1), 0.3: (0.0, 0.1), 0.4: (3.0, 6.0)}
CODES = {1: 0, 2: 3, 3: 4, 4: 5}


def epoch(trial: Trial, number: int) -> Epoch:
    gain, noise = GAINS.get(
        float(trial.architecture.settings.get("drop.path", 0.0)), (0.0, 0.1)
    )
    top1 = 70 + gain + random.Random(trial.hash).gauss(0, noise)
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=1e-3,
        seconds=1.0,
    )


@pytest.fixture
def place(options: Options) -> tuple[str, ...]:
    pipeline.run(
        space.load(TEXT, "levels.yaml"),
        "levels.yaml",
        options,
        executor=SimulatedExecutor(epoch),
    )
    return ("--runs", str(options.runs))


def test_the_exit_code_is_the_verdict(say: Say, place: tuple[str, ...]) -> None:
    codes = {row: say("gate", "levels", "--row", str(row), *place)[0] for row in CODES}
    assert codes == CODES
    _, out, err = say("gate", "levels", "--row", "1", *place)
    assert out.startswith("drop.path = 0.1 helps: ")
    assert out.count("\n") == 1
    assert not err


def test_json_has_the_numbers(say: Say, place: tuple[str, ...]) -> None:
    code, out, _ = say("gate", "levels", "--row", "2", "--format", "json", *place)
    assert code == 3
    (effect,) = json.loads(out)
    assert effect["row"] == 2
    assert effect["verdict"] == "hurts"
    assert effect["p_adjusted"] < 0.05


def test_rows_that_are_not_compared_are_refused(
    say: Say, place: tuple[str, ...]
) -> None:
    code, out, err = say("gate", "levels", "--row", "9", *place)
    assert (code, out) == (2, "")
    assert "row 9 is not compared with row 0; rows that can be gated: 1, 2, 3, 4" in err


def test_rows_of_a_study_of_factors_are_exploratory(say: Say, options: Options) -> None:
    pipeline.run(
        space.load(TEXT + "primary: [drop.path]\n", "factors.yaml"),
        "factors.yaml",
        options,
        executor=SimulatedExecutor(epoch),
    )
    code, _, err = say("gate", "factors", "--row", "1", "--runs", str(options.runs))
    assert code == 2
    assert "comparisons of rows are exploratory" in err
    assert "--of factors" in err


@pytest.mark.proof
def test_a_project_accepts_only_what_stands(
    say: Say, place: tuple[str, ...], options: Options
) -> None:
    """Beside studies that found nothing, a finding needs a smaller p value."""
    code, out, _ = say("gate", "levels", "--row", "1", "--project", *place)
    assert code == 0, out
    late = TEXT.replace("seeds: 6", "seeds: 3").replace(
        "0.1, 0.2, 0.3, 0.4", "0.1, 0.2"
    )
    for images in (100, 120, 140, 160):
        text = late.replace(
            "data: digits", f"data: {{name: digits, train_images: {images}}}"
        )
        pipeline.run(
            space.load(text, f"null{images}.yaml"),
            f"null{images}.yaml",
            options,
            executor=SimulatedExecutor(lambda trial, number: noisy(trial, number, 0.0)),
        )
    last = late.replace("data: digits", "data: {name: digits, train_images: 180}")
    pipeline.run(
        space.load(last, "last.yaml"),
        "last.yaml",
        options,
        executor=SimulatedExecutor(lambda trial, number: noisy(trial, number, 6.0)),
    )
    assert say("gate", "last", "--row", "1", *place)[0] == 0
    code, out, _ = say("gate", "last", "--row", "1", "--project", *place)
    assert code == 5
    assert "has no level in the error budget, or a smaller one than p" in out
    code, out, _ = say(
        "gate", "last", "--row", "1", "--project", "--format", "json", *place
    )
    assert code == 5
    (found,) = json.loads(out)
    assert (found["verdict"], found["withheld"]) == (
        "inconclusive",
        "beyond the error budget",
    )
    # Verdicts that claim no effect stay what they are.
    assert say("gate", "levels", "--row", "3", "--project", *place)[0] == 4


def noisy(trial: Trial, number: int, gain: float) -> Epoch:
    differs = trial.architecture.settings.get("drop.path", 0.0) == 0.1
    noise = random.Random(trial.hash).gauss(0, 1)
    return Epoch(
        number=number,
        metrics={
            "train_loss": 1.0,
            "loss": 1.0,
            "top1": 70 + gain * differs + noise,
            "top5": 99.0,
        },
        lr=1e-3,
        seconds=1.0,
    )
