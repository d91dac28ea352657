"""Lengths of trainings in steps and in images."""

from __future__ import annotations

import pytest

from ablate import space
from ablate.cost import count
from ablate.errors import AblateError, SpaceError
from ablate.parts import trainer
from ablate.plan.plan import make_plan
from ablate.records import Plan, Recipe
from tests.conftest import Say

TEXT = """
question: Does the batch size matter at equal steps?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {recipe.batch_size: [20, 50]}
data: {name: digits, train_images: 200, test_images: 60}
recipe: {steps: 40, warmup_epochs: 0}
seeds: 1
"""


def planned(text: str) -> Plan:
    return make_plan(space.load(text, "x.yaml"), count)


def epochs(text: str) -> list[int]:
    return [trial.recipe.epochs for trial in planned(text).trials]


def test_steps_are_whole_epochs() -> None:
    assert epochs(TEXT) == [4, 10]
    assert epochs(TEXT.replace("steps: 40", "steps: 43")) == [4, 11]
    assert epochs(TEXT.replace("steps: 40", "steps: 1")) == [1, 1]
    assert epochs(TEXT.replace("steps: 40", "images: 1000")) == [5, 5]
    # A batch has at most all images; the held-out ones are not trained on.
    assert epochs(TEXT.replace("[20, 50]", "[500, 50]")) == [40, 10]
    assert epochs(TEXT.replace("test_images: 60", "validation: 0.5")) == [8, 20]


def test_the_identity_is_that_of_the_epochs() -> None:
    steps = [trial.hash for trial in planned(TEXT).trials]
    plain = [
        planned(TEXT.replace("steps: 40", f"epochs: {number}")).trials[row].hash
        for row, number in enumerate((4, 10))
    ]
    assert steps == plain
    assert not {"steps", "images"} & set(Recipe().canonical())
    assert Recipe().canonical()["epochs"] == 20


def test_a_length_can_be_a_factor() -> None:
    text = TEXT.replace("recipe.batch_size: [20, 50]", "recipe.steps: [8, 16, 17]")
    text = text.replace("steps: 40", "batch_size: 50")
    plan = planned(text)
    assert [trial.recipe.epochs for trial in plan.trials] == [2, 4]
    assert plan.cells[2].same_as == 1


def test_the_warm_up_is_shorter_than_the_training() -> None:
    text = TEXT.replace("steps: 40, warmup_epochs: 0", "steps: 10")
    assert all(
        trial.recipe.warmup_epochs < trial.recipe.epochs
        for trial in planned(text).trials
    )
    text = TEXT.replace("warmup_epochs: 0", "warmup_epochs: 5")
    assert "set recipe.warmup_epochs below 4" in planned(text).cells[0].note


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps: 40", "steps: 40, epochs: 3", "epochs and steps both give the length"),
        ("steps: 40", "steps: 40, images: 3", "steps and images both give the length"),
        (
            "recipe.batch_size: [20, 50]",
            "recipe.epochs: [2, 3]",
            "steps and recipe.epochs both give the length",
        ),
        ("seeds: 1", "seeds: 1\nscheduler: asha", "give the length as recipe.epochs"),
        ("steps: 40", "steps: -1", "greater than or equal to 0"),
        ("steps: 40", "steps: 1.5", "valid integer"),
    ],
)
def test_wrong_lengths(old: str, new: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        planned(TEXT.replace(old, new))


def test_a_training_of_ones_own_has_epochs() -> None:
    with pytest.raises(AblateError, match="unknown recipe field 'steps'"):
        trainer(metrics={"loss": "min"}, recipe=["steps"])(lambda trial: None)


def test_the_plan_shows_epochs(say: Say) -> None:
    from pathlib import Path

    Path("steps.yaml").write_text(TEXT)
    out = say("plan", "steps.yaml")[1]
    assert "4 epochs are 40 steps, 800 images (row 0)" in out
    assert "10 epochs are 40 steps, 2,000 images (row 1)" in out
    assert "Recipe: epochs 4 to 10, " in out
