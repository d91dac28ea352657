"""Optimizers, schedules and augmentations of a user's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ablate import space
from ablate.contracts import checks
from ablate.contracts.check import BrokenContract
from ablate.cost import count
from ablate.errors import AblateError, PartError, SpaceError
from ablate.own import registry
from ablate.plan.plan import make_plan
from ablate.records import Recipe, Trial
from tests.own.conftest import Use
from tests.training.test_training import train, trial

PARTS = """
import ablate
import torch


class Signum(torch.optim.Optimizer):
    def __init__(self, params, lr, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                mean = state.setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["beta"])
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(mean.sign(), alpha=-group["lr"])


signum = ablate.optimizer(name="signum")(Signum)


@ablate.optimizer()
def plain(groups, lr, **options):
    return torch.optim.SGD(groups, lr=lr, **options)


@ablate.schedule()
def triangle(share, power=1.0):
    return (1 - abs(2 * share - 1)) ** power


@ablate.augmentation()
def noise(images, generator):
    drawn = torch.randn(images.shape, generator=generator)
    return images + 0.1 * drawn.to(images.device)
"""
TEXT = """
question: Does the optimizer matter?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {recipe.optimizer: [adamw, signum]}
data: {name: digits, train_images: 100, test_images: 50}
seeds: 1
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
OWN = Recipe(
    epochs=4,
    batch_size=40,
    lr=2e-3,
    warmup_epochs=1,
    optimizer="signum",
    optimizer_options="beta=0.8",
    schedule="triangle",
    schedule_options="power=2.0",
    augmentation="noise",
)


def planned(text: str = TEXT) -> list[Trial]:
    plan = make_plan(space.load(text, "own.yaml"), count)
    return [each for cell in plan.cells for each in cell.trials]


def notes(text: str) -> list[str]:
    return [cell.note for cell in make_plan(space.load(text, "own.yaml"), count).cells]


def test_they_train_and_resume_bit_for_bit(use: Use, tmp_path: Path) -> None:
    use(PARTS)
    straight, weights = train(trial(OWN), tmp_path / "straight")
    resumed, others = train(trial(OWN), tmp_path / "resumed", (1, 2, 3))
    assert resumed == straight
    assert all(torch.equal(weights[key], others[key]) for key in weights)
    # The last number of a row is the learning rate of its epoch.
    assert [row[-1] for row in straight][-1] < 2e-4
    for field in ("optimizer", "schedule", "augmentation"):
        usual = replace(
            OWN,
            **{field: getattr(Recipe(), field)},
            **({f"{field}_options": ""} if field != "augmentation" else {}),
        )
        assert train(trial(usual), tmp_path / field)[0] != straight, field


def test_weight_decay_and_layer_decay_are_those_of_other_optimizers(
    use: Use,
) -> None:
    from ablate.learning.optimizers import make_optimizer
    from ablate.models import build

    use(PARTS)
    model = build(trial().architecture)
    recipe = Recipe(optimizer="plain", weight_decay=0.1)
    for changed in (recipe, replace(recipe, layer_decay=0.5)):
        own = make_optimizer(model, changed).param_groups
        usual = make_optimizer(model, replace(changed, optimizer="sgd")).param_groups
        assert [
            (len(g["params"]), g["weight_decay"], g.get("lr_scale")) for g in own
        ] == [(len(g["params"]), g["weight_decay"], g.get("lr_scale")) for g in usual]


def test_an_own_schedule_sets_the_rates_that_one_of_timm_would(use: Use) -> None:
    """With a warm-up, decay by layer, and a group with a rate of its own."""
    from ablate.learning.optimizers import make_optimizer, make_schedule
    from ablate.models import build

    use(PARTS + "\n\n@ablate.schedule()\ndef falling(share):\n    return 1 - share\n")
    rates: list[list[float]] = []
    for name in ("linear", "falling"):
        recipe = Recipe(
            optimizer="plain",
            schedule=name,
            epochs=4,
            warmup_epochs=1,
            layer_decay=0.5,
            lr=0.1,
        )
        optimizer = make_optimizer(build(trial().architecture), recipe)
        optimizer.param_groups[0]["lr"] = 0.7
        schedule = make_schedule(recipe, optimizer, updates=5)
        rates.append([])
        for update in range(20):
            schedule.step_update(update)
            rates[-1] += [group["lr"] for group in optimizer.param_groups]
    assert rates[1] == pytest.approx(rates[0])
    assert len(set(rates[0])) > 40


def test_they_are_part_of_the_identity_of_trials_that_use_them(use: Use) -> None:
    use(PARTS)
    usual, own = planned()
    assert usual.code == {}
    assert list(own.code) == ["optimizer signum"]
    (both,) = planned(
        TEXT.replace("[adamw, signum]", "[signum, plain]")
        .replace("seeds", "exclude: [{recipe.optimizer: plain}]\nseeds")
        .replace("epochs: 2", "epochs: 2, schedule: triangle, augmentation: noise")
    )
    assert sorted(both.code) == [
        "augmentation noise",
        "optimizer signum",
        "schedule triangle",
    ]
    registry.clear()
    use(PARTS.replace("0.9", "0.8"))
    after = planned()
    assert after[0].hash == usual.hash
    assert after[1].hash != own.hash


def test_recipes_without_them_keep_their_hashes(use: Use) -> None:
    before = Recipe().canonical()
    use(PARTS)
    assert Recipe().canonical() == before
    assert "augmentation" not in before


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("optimizer: signumm", "did you mean 'signum'"),
        ("optimizer: signum, optimizer_options: {betta: 1}", "did you mean 'beta'"),
        ("optimizer: signum, optimizer_options: {lr: 1}", "write recipe.lr"),
        ("optimizer: signum, momentum: 0.5", "not read unless optimizer is sgd"),
        ("schedule: triangl", "did you mean 'triangle'"),
        ("schedule: triangle, schedule_options: {pow: 1}", "did you mean 'power'"),
        ("schedule: triangle, min_lr: 0.1", "not read unless schedule is cosine"),
        ("augmentation: noisy", "did you mean 'noise'"),
        ("augmentation: noisy", "name its file: with FILE"),
    ],
)
def test_wrong_names_and_options(use: Use, recipe: str, message: str) -> None:
    use(PARTS)
    text = TEXT.replace(
        "recipe.optimizer: [adamw, signum]", "layout: [serial, parallel]"
    )
    with pytest.raises(SpaceError) as caught:
        space.load(text.replace("epochs: 2", f"epochs: 2, {recipe}"), "own.yaml")
    assert message in str(caught.value)
    assert "own.yaml:7" in str(caught.value)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("recipe.optimizer: [adamw, nothing]", "unknown optimizer 'nothing'"),
        ("recipe.schedule: [cosine, nothing]", "unknown schedule 'nothing'"),
        ("recipe.augmentation: [none, nothing]", "unknown augmentation 'nothing'"),
        ("recipe.loss: [bce, nothing]", "unknown loss 'nothing'"),
    ],
)
def test_levels_are_names_too(use: Use, levels: str, message: str) -> None:
    use(PARTS)
    with pytest.raises(SpaceError, match=message):
        space.load(
            TEXT.replace("recipe.optimizer: [adamw, signum]", levels), "own.yaml"
        )


def test_a_wrong_name_is_found_although_another_field_varies(use: Use) -> None:
    use(PARTS)
    text = TEXT.replace("[adamw, signum]", "[adamw, sgd]")
    with pytest.raises(SpaceError, match="unknown schedule 'cosin'"):
        space.load(text.replace("epochs: 2", "epochs: 2, schedule: cosin"), "own.yaml")


@pytest.mark.parametrize("kind", ["optimizer", "schedule", "augmentation"])
def test_a_built_in_name_is_refused(use: Use, kind: str) -> None:
    taken = {"optimizer": "adamw", "schedule": "cosine", "augmentation": "none"}[kind]
    use(f"import ablate\n@ablate.{kind}(name='{taken}')\ndef f(*a, **b): pass\n")
    with pytest.raises(AblateError, match=f"the {kind} '{taken}' is built in"):
        planned(TEXT.replace("[adamw, signum]", "[adamw, sgd]"))


@pytest.mark.parametrize(
    ("old", "new", "fields", "message"),
    [
        ("0.9):", "0.9):\n        missing", "optimizer: signum", "NameError"),
        (
            "return torch.optim.SGD(groups, lr=lr, **options)",
            "return 3",
            "optimizer: plain",
            "must return a torch.optim.Optimizer; found int",
        ),
        ("return (1", "return -(1", "schedule: triangle", "a finite number from 0"),
        ("(1 - abs", "(1 / abs", "schedule: triangle", "ZeroDivisionError"),
    ],
)
def test_mistakes_stop_the_plan(
    use: Use, old: str, new: str, fields: str, message: str
) -> None:
    use(PARTS.replace(old, new))
    text = TEXT.replace(
        "recipe.optimizer: [adamw, signum]", "layout: [serial, parallel]"
    )
    with pytest.raises(AblateError, match=message):
        space.load(text.replace("epochs: 2", f"epochs: 2, {fields}"), "own.yaml")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return images[:1]", "must return images of the shape (50, 1, 8, 8)"),
        ("return images.half()", "found Tensor (50, 1, 8, 8) torch.float16"),
        ("return None", "found NoneType"),
        ("raise ValueError('too small')", "ValueError: too small (own_parts.py:5)"),
    ],
)
def test_an_augmentation_that_does_not_fit_is_infeasible(
    use: Use, body: str, message: str
) -> None:
    use(
        "import ablate\n\n@ablate.augmentation()\ndef noise(images, generator):\n"
        f"    {body}\n"
    )
    text = TEXT.replace(
        "recipe.optimizer: [adamw, signum]", "recipe.augmentation: [none, noise]"
    )
    first, second = notes(text)
    assert first == ""
    assert message in second


def test_a_mistake_in_an_augmentation_stops_the_plan(use: Use) -> None:
    use(PARTS.replace("images + 0.1 * drawn.to", "images + 0.1 * drwan.to"))
    text = TEXT.replace(
        "recipe.optimizer: [adamw, signum]", "recipe.augmentation: [none, noise]"
    )
    with pytest.raises(PartError, match=r"NameError.*own_parts\.py"):
        planned(text)


def test_an_augmentation_needs_whole_batches(use: Use) -> None:
    use(PARTS)
    text = TEXT.replace(
        "recipe.optimizer: [adamw, signum]", "recipe.augmentation: [none, noise]"
    )
    assert (
        "set resources.processes to 1" in notes(text + "resources: {processes: 2}\n")[1]
    )


def broken() -> list[str]:
    """The checks that a loaded file does not keep."""
    failed = []
    for subject, check in checks():
        try:
            check.run()
        except BrokenContract as error:
            failed.append(f"{subject}: {check.what}: {error}")
    return failed


def test_the_documented_parts_keep_their_contracts(use: Use) -> None:
    use(PARTS)
    assert broken() == []


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        (
            'state.setdefault("mean", torch.zeros_like(weight))',
            'vars(self).setdefault("kept", {}).setdefault(id(weight),'
            " torch.zeros_like(weight))",
            "optimizer signum: continues from its state",
        ),
        ('alpha=-group["lr"])', "alpha=-0.01)", "optimizer signum: follows"),
        ("weight.add_(mean", "weight.clone().add_(mean", "optimizer signum: changes"),
        ("return (1 -", "return 0 * (1 -", "schedule triangle: gives"),
        (
            "torch.randn(images.shape, generator=generator)",
            "torch.randn(images.shape)",
            "augmentation noise: draws",
        ),
        ("images + 0.1 * drawn", "images + 0.0 * drawn", "augmentation noise: changes"),
    ],
)
def test_what_breaks_a_contract(use: Use, old: str, new: str, check: str) -> None:
    text = PARTS.replace(old, new)
    if "weight.clone()" in new:
        text = text.replace("weight.mul_(", "weight.mul(")
    if "alpha=-0.01" in new:
        text = text.replace("weight.mul_(", "weight.mul(")
    assert text != PARTS
    use(text)
    assert any(line.startswith(check) for line in broken()), broken()
