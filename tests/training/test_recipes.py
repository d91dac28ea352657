"""Recipes by name, and those of the papers' tables, against the command lines of the
authors' code.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablate import space
from ablate.plan.plan import make_plan
from ablate.records import Cost, Recipe, Trial
from ablate.space.recipes import RECIPES
from ablate.training import Training
from tests.training.test_training import trial

SPACES = Path(__file__).parents[2] / "search_spaces"

# What `main.py` of DeiT takes where a command line does not say; a rate is for 512
# images.
DEFAULTS = {
    "optimizer": "adamw",
    "lr": 5e-4,
    "weight_decay": 0.05,
    "warmup_epochs": 5,
    "warmup_lr": 1e-6,
    "min_lr": 1e-5,
    "color_jitter": 0.3,
    "rand_augment": "rand-m9-mstd0.5-inc1",
    "label_smoothing": 0.1,
    "interpolation": "bicubic",
    "repeats": 3,
    "random_erasing": 0.25,
    "mixup": 0.8,
    "cutmix": 1.0,
    "mixup_prob": 1.0,
    "mixup_switch": 0.5,
    "mixup_mode": "batch",
}
COMMANDS: dict[str, dict[str, object]] = {
    "deit": {"batch_size": 1024, "epochs": 300, "ema": 0.99996},
    "finetune-60": {
        "batch_size": 256,
        "epochs": 60,
        "lr": 5e-5,
        "weight_decay": 5e-4,
        "min_lr": 1e-6,
        "warmup_epochs": 1,
    },
    # Its least rate is 5e-6, as is its rate: constant.
    "finetune-384": {
        "batch_size": 512,
        "epochs": 30,
        "lr": 5e-6,
        "weight_decay": 1e-8,
        "schedule": "constant",
        "min_lr": 0.0,
    },
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_recipe_by_name_is_the_command_line_of_its_source(name: str) -> None:
    said = Recipe(
        **{
            **DEFAULTS,
            **COMMANDS[name],
            "lr_batch": 512,
            "flip": 0.5,
            "precision": "bfloat16",
        }
    )
    assert RECIPES[name].canonical() == said.canonical()


def rates_of_epochs(recipe: Recipe) -> list[float]:
    """The learning rate after each epoch, without its training."""
    training = Training(
        trial(replace(recipe, batch_size=100, precision="float32")), None
    )
    updates = training._work.batches.updates
    first = training._optimizer.param_groups[0]
    found = [first["lr"]]
    for epoch in range(1, recipe.epochs):
        training._schedule.step_update(epoch * updates)
        found.append(first["lr"])
    return found


def in_memory(name: str) -> Recipe:
    """A preset on the digits."""
    text = (
        "question: q\nbackbone: vit_tiny_patch16_224\nfactors: {layout: [serial,"
        " parallel]}\n"
    )
    return space.load(
        text + f"recipe: {{preset: {name}, rand_augment: ''}}", "a.yaml"
    ).recipe


def test_fine_tuning_at_384_warms_up_and_stays() -> None:
    found = rates_of_epochs(in_memory("finetune-384"))
    assert found[:6] == pytest.approx(
        [1e-6 + epoch * (5e-6 - 1e-6) / 5 for epoch in range(6)]
    )
    assert set(found[5:]) == {5e-6}


def test_fine_tuning_for_60_epochs_warms_up_for_one() -> None:
    found = rates_of_epochs(in_memory("finetune-60"))
    assert found[0] == pytest.approx(1e-6)
    assert max(found) == found[1] <= 2.5e-5
    assert found[-1] == pytest.approx(1e-6, rel=0.05)


def trials(name: str) -> list[Trial]:
    """The first trial of each row of a table."""
    plan = make_plan(
        space.read(SPACES / f"{name}.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    return [cell.trials[0] for cell in plan.cells]


@pytest.mark.parametrize(
    "name", ["antioversmoothing/table1", "antioversmoothing/table2"]
)
def test_24_layers_of_deit_drop_a_fifth(name: str) -> None:
    """The command line of DeiT-24 with AttnScale or FeatScale; patch diversification's
    row in table 2 is another paper's.
    """
    deep = [
        t.architecture.settings
        for t in trials(name)
        if t.architecture.settings.get("size.depth") == 24
    ]
    own = [settings for settings in deep if "patch.mixing" not in settings]
    assert len(own) >= 2
    assert all(settings["drop.dropout"] == 0.2 for settings in own)
    others = [
        t.architecture.settings
        for t in trials(name)
        if t.architecture.settings not in own
    ]
    assert others
    assert not any("drop.dropout" in settings for settings in others)


@pytest.mark.parametrize("name", ["mabvit/parallel", "mabvit/glu", "mabvit/prglu"])
def test_b_16_of_mabvit_trains_with_half_the_batch_and_dropout(name: str) -> None:
    found = [
        (
            t.architecture.backbone,
            t.recipe.batch_size,
            t.architecture.settings.get("drop.dropout", 0.0),
        )
        for t in trials(name)
    ]
    small = [("vit_tiny_patch16_224", 4096, 0.0)] * 2 + [
        ("vit_small_patch16_224", 4096, 0.0)
    ] * 2
    assert found == [*small, *[("vit_base_patch16_224", 2048, 0.1)] * 2]
    assert all(t.data.mean == t.data.std == (0.5, 0.5, 0.5) for t in trials(name)), (
        "AugReg's values are from -1 to 1"
    )
