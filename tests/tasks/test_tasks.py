"""Tasks: what a space says of them, and that a training of each resumes exactly."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from ablate import families, pipeline, space
from ablate.data import describe
from ablate.data.scene import IGNORED
from ablate.errors import SpaceError
from ablate.learning.scenes import parts_of
from ablate.learning.segmentation import Step
from ablate.records import Diagnostics, Recipe, Trial
from ablate.tasks import find, of, tasks
from ablate.training import Training
from ablate.training.probe import seconds_per_image

SPACE = """
question: q
task: {task}
backbone: vit_tiny_patch16_224
factors:
  shortcuts.count: [0, 1]
data: digit-scenes
"""
VIT = {"size.width": 32, "size.depth": 2, "size.heads": 2, "size.patch_size": 8}
HEADS = ["mask-rcnn-small", "detr-small", "upernet-small"]
# Trained twice, two of them take long.
HEADS_TRAINED_TWICE = [
    *(pytest.param(head, marks=pytest.mark.proof) for head in HEADS[:2]),
    HEADS[2],
]


class Both(nn.Module):
    """A network whose two heads are one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.network(images)
        return logits, logits


def trial(head: str, **recipe: object) -> Trial:
    task = next(task for task in tasks().values() if head in task.heads)
    data = describe(
        "digit-scenes", train_images=24, test_images=6, background=task.background
    )
    return Trial(
        architecture=families.resolve(
            "vit", 64, 1, data.classes, {**VIT, "ffn.kernel": 3}, head=head
        ),
        recipe=replace(Recipe(epochs=2, batch_size=8, flip=0.5, lr=1e-3), **recipe),
        data=data,
        seed=0,
    )


def trained(training: Training, epochs: int = 2) -> Training:
    while len(training.epochs) < epochs:
        training.epoch()
    return training


def problems(text: str) -> str:
    with pytest.raises(SpaceError) as error:
        space.load(text, "a.yaml")
    return str(error.value)


@pytest.mark.proof
@pytest.mark.parametrize("head", HEADS_TRAINED_TWICE)
def test_a_training_that_was_interrupted_gives_the_same_bits(
    head: str, tmp_path: Path
) -> None:
    whole = trained(Training(trial(head, ema=0.9), tmp_path / "whole"))
    first = trained(Training(trial(head, ema=0.9), tmp_path / "parts"), 1)
    first.save()
    first.close()
    second = trained(Training(trial(head, ema=0.9), tmp_path / "parts"))
    metrics = [epoch.metrics for epoch in whole.epochs]
    assert [epoch.metrics for epoch in second.epochs] == metrics
    ours, theirs = whole._model.state_dict(), second._model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    whole.close()
    second.close()


@pytest.mark.proof
@pytest.mark.parametrize("head", HEADS_TRAINED_TWICE)
def test_a_longer_training_continues_a_shorter_one_exactly(
    head: str, tmp_path: Path
) -> None:
    """Evaluating on the test set at the end of the shorter one draws nothing."""
    longer = trial(head, epochs=3, schedule="constant")
    longer = replace(longer, data=replace(longer.data, validation=0.25))
    shorter = replace(longer, recipe=replace(longer.recipe, epochs=1))
    with contextlib.closing(Training(longer, tmp_path / "whole")) as training:
        straight = trained(training, 3).epochs
    with contextlib.closing(Training(shorter, tmp_path / "begun")) as training:
        trained(training, 1).save()
    begun = {shorter.hash: str(tmp_path / "begun")}
    with contextlib.closing(
        Training(longer, tmp_path / "parts", beginnings=begun)
    ) as training:
        assert len(training.epochs) == 1
        continued = trained(training, 3).epochs
    assert [one.metrics for one in continued] == [one.metrics for one in straight]


@pytest.mark.proof
@pytest.mark.parametrize("head", HEADS)
def test_what_an_epoch_measures_is_what_the_task_says(
    head: str, tmp_path: Path
) -> None:
    with contextlib.closing(Training(trial(head, epochs=1), tmp_path)) as training:
        measured = trained(training, 1).epochs[0].metrics
        task = of(training._trial.architecture)
        # The digits of these scenes are small.
        absent = {
            f"{kind}_ap_{size}"
            for kind in ("box", "mask")
            for size in ("medium", "large")
        }
        names = {metric.name for metric in task.metrics_with(head)}
        assert set(measured) == names - absent
        taken = training.diagnose(Diagnostics(("high_frequency",), images=4))
        assert [one.layer for one in taken] == [0, 1]


@pytest.mark.proof
@pytest.mark.parametrize("head", HEADS_TRAINED_TWICE)
def test_a_batch_in_parts_has_about_the_loss_of_the_whole(
    head: str, tmp_path: Path
) -> None:
    losses = []
    for accumulate in (1, 3):
        wanted = trial(head, accumulate=accumulate, epochs=1)
        training = Training(wanted, tmp_path / str(accumulate))
        losses.append(training.epoch().metrics["train_loss"])
        training.close()
    assert losses[0] == pytest.approx(losses[1], rel=0.25)


@pytest.mark.parametrize("head", HEADS)
def test_the_time_of_a_step_is_measured(head: str) -> None:
    assert 0 < seconds_per_image(trial(head).architecture, 4) < 10


def test_each_task_has_what_the_others_need_of_it() -> None:
    heads = [head for task in tasks().values() for head in task.heads]
    assert len(heads) == len(set(heads))
    for task in tasks().values():
        assert task.decides.compared
        for head in task.heads or ("",):
            assert task.decides in task.metrics_with(head)
        fields = set(vars(Recipe()))
        assert task.unread <= fields


def test_a_space_of_each_task_has_its_metrics_and_its_usual_head() -> None:
    found = space.load(SPACE.format(task="segmentation"), "a.yaml")
    assert (found.network.task, found.network.head) == ("segmentation", "upernet")
    assert found.criterion.metric == "miou"
    assert found.data.classes == 11, "the background is a class"
    found = space.load(SPACE.format(task="detection") + "head: detr", "a.yaml")
    assert (found.network.head, found.criterion.metric) == ("detr", "box_ap")
    assert "mask_ap" not in {metric.name for metric in found.criterion.metrics}
    assert found.data.classes == 10


@pytest.mark.parametrize(
    ("task", "more", "said"),
    [
        ("detektion", "", "unknown task 'detektion'; did you mean 'detection'"),
        (
            "detection",
            "head: upernet",
            "head upernet belongs to task segmentation; task detection has mask-rcnn,",
        ),
        ("detection", "head: mask", "unknown head of task detection 'mask'"),
        ("detection", "recipe: deit", "the recipe deit has cutmix, label_smoothing,"),
        (
            "detection",
            "recipe: {preset: cifar, epochs: 3}",
            "the recipe cifar has crop_padding, label_smoothing, mixup, which task",
        ),
        (
            "classification",
            "head: detr",
            "task classification has the backbone's own classifier and no other head;"
            " leave head out, or write task: detection",
        ),
        (
            "classification",
            "",
            "digit-scenes has nothing for task classification to learn from; data sets"
            " that have it: digits, cifar10",
        ),
        ("detection", "metric: {top1: max}", "must be one of box_ap, box_ap50"),
        (
            "detection",
            "recipe: {mixup: 0.2}",
            "task detection does not read recipe.mixup; leave it out",
        ),
        (
            "detection",
            "resources: {processes: 2}",
            "task detection trains in one process",
        ),
        (
            "segmentation",
            "teacher: {backbone: vit_tiny_patch16_224, weights: timm}",
            "task segmentation does not learn from a teacher",
        ),
    ],
)
def test_what_does_not_belong_to_a_task_is_said(
    task: str, more: str, said: str
) -> None:
    assert said in problems(SPACE.format(task=task) + more)


def test_a_task_without_data_says_which_it_has() -> None:
    text = SPACE.format(task="segmentation").replace("data: digit-scenes\n", "")
    assert "task segmentation needs data; write data: NAME, where" in problems(text)


def test_an_unknown_task_is_the_only_mistake() -> None:
    assert problems(SPACE.format(task="detect") + "head: detr").count("\n") == 0


def test_a_width_of_images_that_are_made_square_is_said() -> None:
    text = SPACE.format(task="classification").replace(
        "digit-scenes", "{name: digits, image_width: 96}"
    )
    assert "data.image_width = 96 is read only for detection and" in problems(text)


def test_a_head_that_normalises_over_a_batch_refuses_single_images() -> None:
    text = SPACE.format(task="segmentation")
    declared = space.load(text + "recipe: {batch_size: 4, accumulate: 3}", "a.yaml")
    plan = pipeline.cost_plan(declared, "none.db")
    assert "head upernet needs 2 images at once" in plan.cells[0].note


def test_data_of_one_class_are_nothing_to_detect_in() -> None:
    text = SPACE.format(task="detection").replace("digit-scenes", "cifar10")
    assert "cifar10 has nothing for task detection to learn from" in problems(text)


def test_a_factor_of_the_recipe_that_the_task_does_not_read_is_said() -> None:
    text = SPACE.format(task="detection").replace(
        "shortcuts.count: [0, 1]", "recipe.cutmix: [0, 1]"
    )
    assert "task detection does not read recipe.cutmix; remove it" in problems(text)


def test_parts_of_a_batch_count_by_their_pixels_with_a_class() -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    classes = torch.zeros(4, 8, 8, dtype=torch.uint8)
    classes[0] = IGNORED
    classes[1, :6] = IGNORED
    model = nn.Conv2d(3, 2, 1)
    step = Step(Both(model))
    known = (classes != IGNORED).flatten(1).sum(1).tolist()
    batch = parts_of((images, classes), 3, known)
    with torch.no_grad():
        losses = [step(*part.inputs).item() * part.share for part in batch.parts]
        whole = step(images, classes).item()
    assert sum(losses) == pytest.approx(whole, rel=1e-5)


def test_a_table_of_networks_with_another_head_is_refused() -> None:
    text = SPACE.format(task="detection") + "published: augvit/table9"
    assert "augvit/table9 is a table of networks with head detr" in problems(text)


def test_a_direction_that_contradicts_the_metric_is_refused() -> None:
    text = SPACE.format(task="detection") + "metric: {box_ap: min}"
    assert "box_ap is better when it is larger; write {box_ap: max}" in problems(text)


def test_a_stored_head_that_no_task_has_is_said() -> None:
    from ablate.errors import UnknownName

    architecture = replace(trial("detr-small").architecture, head="newer")
    with pytest.raises(UnknownName, match="unknown head 'newer'"):
        of(architecture)


def test_an_unknown_task_is_said_with_the_known_ones() -> None:
    from ablate.errors import UnknownName

    with pytest.raises(UnknownName, match="classification, detection, segmentation"):
        find("x")
