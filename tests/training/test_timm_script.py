"""The training loop against timm's own script: the same images, random states and
settings give the same numbers.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ablate.learning.work import Batch
from ablate.records import Recipe
from ablate.training import Training
from tests.training.test_training import trial
from tests.training.timm_script import Script

BASE = Recipe(
    epochs=3,
    batch_size=50,
    lr=2e-3,
    warmup_epochs=1,
    warmup_lr=1e-6,
    min_lr=1e-5,
    crop_padding=1,
    flip=0.5,
)
# What a recipe says, in the script's words where they differ.
WORDS = {
    "optimizer": "opt",
    "schedule": "sched",
    "eps": "opt_eps",
    "label_smoothing": "smoothing",
    "loss_threshold": "bce_target_thresh",
    "mixup_switch": "mixup_switch_prob",
    "ema": "model_ema_decay",
    "ema_warmup": "model_ema_warmup",
}
SAME = (
    "epochs weight_decay momentum warmup_epochs warmup_lr min_lr mixup cutmix"
    " mixup_prob mixup_mode mixup_off_epoch layer_decay"
).split()
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}


def arguments(recipe: Recipe) -> dict[str, object]:
    """The script's arguments for a recipe."""
    said = {name: getattr(recipe, name) for name in SAME}
    said |= {word: getattr(recipe, name) for name, word in WORDS.items()}
    return {
        **said,
        "lr": recipe.rate,
        "bce_target_thresh": recipe.loss_threshold or None,
        "opt_eps": recipe.eps or None,
        "opt_betas": (
            None if recipe.optimizer == "sgd" else (recipe.beta1, recipe.beta2)
        ),
        "layer_decay": recipe.layer_decay if recipe.layer_decay < 1 else None,
        "clip_grad": recipe.clip_grad or None,
        "bce_loss": recipe.loss == "bce",
        "model_ema": recipe.ema > 0,
        "amp_dtype": DTYPES[recipe.precision],
        "sched_on_updates": True,
    }


def states() -> tuple[object, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def restore(found: tuple[object, ...]) -> None:
    random.setstate(found[0])
    np.random.set_state(found[1])
    torch.set_rng_state(found[2])


class Recorded:
    """A training whose batches, losses, rates and random states are kept."""

    def __init__(self, recipe: Recipe, **settings: object) -> None:
        self.training = Training(trial(recipe, **settings), None)
        self.start = copy.deepcopy(self.training._model)
        self.batches: list[tuple[Tensor, Tensor]] = []
        self.losses: list[float] = []
        self.rates: list[list[float]] = []
        drawn, update = self.training._work.batches.train, self.training._update

        def train(order: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
            for images, labels in drawn(order):
                self.batches.append((images.clone(), labels.clone()))
                yield images, labels

        def step(batch: Batch) -> Tensor:
            loss = update(batch)
            self.losses.append(loss.item())
            self.rates.append(
                [group["lr"] for group in self.training._optimizer.param_groups]
            )
            return loss

        self.training._work.batches.train = train
        self.training._update = step


CASES: dict[str, dict[str, object]] = {
    "plain": {},
    "deit": {
        "label_smoothing": 0.1,
        "mixup": 0.8,
        "cutmix": 1.0,
        "ema": 0.9,
        "lr": 5e-4,
        "lr_batch": 25,
    },
    "clipped": {"clip_grad": 0.1, "label_smoothing": 0.1},
    "sgd": {"optimizer": "sgd", "momentum": 0.8, "schedule": "constant", "min_lr": 0.0},
    "lamb bce": {"optimizer": "lamb", "loss": "bce", "cutmix": 1.0},
    "smooth bce": {"loss": "bce", "label_smoothing": 0.2},
    "bce of a1": {"loss": "bce", "mixup": 0.4, "cutmix": 1.0, "loss_threshold": 0.2},
    "lookahead": {"optimizer": "lookahead_radam"},
    "betas": {"eps": 1e-4, "beta1": 0.8, "beta2": 0.95},
    "layers": {"layer_decay": 0.7, "ema": 0.99, "ema_warmup": True},
    "pairs": {
        "mixup": 0.4,
        "cutmix": 0.6,
        "mixup_mode": "pair",
        "mixup_prob": 0.7,
        "mixup_switch": 0.3,
    },
    "elements": {
        "mixup": 0.4,
        "cutmix": 0.6,
        "mixup_mode": "elem",
        "mixup_off_epoch": 2,
    },
    "bfloat16": {
        "precision": "bfloat16",
        "mixup": 0.8,
        "cutmix": 1.0,
        "label_smoothing": 0.1,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_every_step_and_epoch_is_that_of_timms_script(name: str) -> None:
    """Losses, learning rates, weights, averaged weights and test results, bit for bit
    on one thread.
    """
    recipe = replace(BASE, **CASES[name])
    ours = Recorded(recipe, **{"drop.path": 0.2, "drop.dropout": 0.1})
    script = Script(
        ours.start, ours.training._work.batches.updates, **arguments(recipe)
    )
    assert script.epochs == recipe.epochs
    for epoch in range(recipe.epochs):
        before, seen = states(), len(ours.losses)
        found = ours.training.epoch()
        after = states()
        restore(before)
        theirs = script.train_one_epoch(epoch, ours.batches[seen:])
        tested = script.validate(ours.training._work.batches.test())
        script.step_epoch(epoch, tested["top1"])
        restore(after)
        assert ours.losses[seen:] == script.losses[seen:]
        assert found.metrics["train_loss"] == pytest.approx(theirs["loss"], rel=1e-6)
        names = ("loss", "top1", "top5")
        assert [found.metrics[name] for name in names] == pytest.approx(
            [tested[name] for name in names], rel=1e-5
        )
    assert len(script.losses) == 12
    assert [set(rates) for rates in ours.rates] == [
        set(rates) for rates in script.rates
    ]
    expected = script.task.get_trainable_module().state_dict()
    assert all(
        torch.equal(tensor, expected[key])
        for key, tensor in ours.training._model.state_dict().items()
    )
    if recipe.ema:
        average = script.task.get_trainable_module(ema=True).module.state_dict()
        assert all(
            torch.equal(tensor, average[key])
            for key, tensor in ours.training._ema.module.state_dict().items()
        )


def test_a_batch_in_parts_is_the_scripts_accumulation_over_smaller_batches() -> None:
    """The script accumulates over batches of the loader, this loop over parts of one
    batch: without mixing the same images.
    """
    recipe = replace(BASE, accumulate=2, label_smoothing=0.1)
    ours = Recorded(recipe)
    script = Script(
        ours.start,
        ours.training._work.batches.updates,
        **{**arguments(recipe), "grad_accum_steps": 2},
    )
    ours.training.epoch()
    halves = [
        half
        for images, labels in ours.batches
        for half in zip(images.split(25), labels.split(25), strict=True)
    ]
    script.train_one_epoch(0, halves)
    assert len(script.rates) == len(ours.rates) == 4
    assert [set(rates) for rates in ours.rates] == [
        set(rates) for rates in script.rates
    ]
    expected = script.task.get_trainable_module().state_dict()
    for key, tensor in ours.training._model.state_dict().items():
        torch.testing.assert_close(tensor, expected[key], atol=1e-6, rtol=1e-4)


def test_the_scripts_default_steps_the_rate_once_an_epoch_and_here_it_falls_at_each_update() -> (
    None
):
    ours = Recorded(BASE)
    script = Script(
        ours.start,
        ours.training._work.batches.updates,
        **{**arguments(BASE), "sched_on_updates": False},
    )
    for epoch in range(BASE.epochs):
        seen = len(ours.batches)
        ours.training.epoch()
        script.train_one_epoch(epoch, ours.batches[seen:])
        script.step_epoch(epoch, 0.0)
    by_epoch = [rates[0] for rates in script.rates]
    assert [len(set(by_epoch[start : start + 4])) for start in (0, 4, 8)] == [1, 1, 1]
    assert len({rates[0] for rates in ours.rates}) == len(ours.rates)
    # At the beginning of an epoch both are the same.
    assert [rates[0] for rates in ours.rates[3:-1:4]] == pytest.approx(
        [by_epoch[4], by_epoch[8]]
    )
