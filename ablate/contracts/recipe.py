"""What users' optimizers, schedules and augmentations keep."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ablate.contracts.check import Check, require
from ablate.learning.augmentation import Augmentation
from ablate.learning.optimizers import make_optimizer, make_schedule
from ablate.records import Recipe
from ablate.records.own_parts import OwnAugmentation, OwnOptimizer, OwnSchedule

RATE = 0.01


def optimizer_checks(own: OwnOptimizer) -> Iterator[Check]:
    """Yields the checks of one optimizer."""
    yield Check("changes every parameter", partial(_check_steps, own))
    yield Check("follows the learning rate", partial(_check_rate, own))
    yield Check("continues from its state, bit for bit", partial(_check_state, own))


class _Toy:
    """A small network in training."""

    def __init__(self, own: OwnOptimizer) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
            self.images = torch.randn(8, 4)
        recipe = Recipe(optimizer=own.name, lr=RATE)
        self.optimizer = make_optimizer(self.model, recipe)

    def weights(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.model.parameters()]

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.images).square().sum().backward()
        self.optimizer.step()


def _check_steps(own: OwnOptimizer) -> None:
    toy = _Toy(own)
    before = toy.weights()
    for _ in range(3):
        toy.step()
    for number, (first, then) in enumerate(zip(before, toy.weights(), strict=True)):
        require(bool(then.isfinite().all()), f"parameter {number} is not finite")
        require(not torch.equal(first, then), f"parameter {number} does not change")


def _check_rate(own: OwnOptimizer) -> None:
    steps = []
    for rate in (RATE, RATE / 2):
        toy = _Toy(own)
        for group in toy.optimizer.param_groups:
            group["lr"] = rate
        toy.step()
        steps.append(toy.weights())
    same = all(map(torch.equal, *steps))
    require(
        not same,
        "a step is the same with half of the learning rate in"
        " optimizer.param_groups; read group['lr'] in each step",
    )


def _check_state(own: OwnOptimizer) -> None:
    straight, stopped = _Toy(own), _Toy(own)
    for _ in range(6):
        straight.step()
    for _ in range(3):
        stopped.step()
    resumed = _Toy(own)
    resumed.model.load_state_dict(stopped.model.state_dict())
    resumed.optimizer.load_state_dict(stopped.optimizer.state_dict())
    for _ in range(3):
        resumed.step()
    same = all(map(torch.equal, straight.weights(), resumed.weights()))
    require(
        same,
        "six steps differ from three steps, a new optimizer with their state_dict, and"
        " three more; keep all that steps need in self.state or in the groups",
    )


def schedule_checks(own: OwnSchedule) -> Iterator[Check]:
    """Yields the checks of one schedule."""
    yield Check("gives the same finite rates again", partial(_check_schedule, own))


def _check_schedule(own: OwnSchedule) -> None:
    rates: list[list[float]] = []
    for _ in range(2):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=RATE)
        schedule = make_schedule(Recipe(schedule=own.name, epochs=10), optimizer, 10)
        rates.append([])
        for update in range(101):
            schedule.step_update(update)
            rates[-1].append(optimizer.param_groups[0]["lr"])
    require(rates[0] == rates[1], "a second course differs from the first")
    require(max(rates[0]) > 0, "the learning rate is 0 at all times")


def augmentation_checks(own: OwnAugmentation) -> Iterator[Check]:
    """Yields the checks of one augmentation."""
    yield Check("changes images, and no shape", partial(_check_augmentation, own))
    yield Check("draws from its generator alone", partial(_check_draws, own))


def _augmented(own: OwnAugmentation, elsewhere: int) -> tuple[Tensor, Tensor]:
    """Images and augmented images.

    Args:
        elsewhere: the state of torch's own generator.
    """
    images = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(elsewhere)
        augment = Augmentation(own, torch.Generator().manual_seed(2))
        # An augmentation may leave out some batches.
        batches = [augment(images.clone()) for _ in range(20)]
    return images.expand(20, -1, -1, -1, -1), torch.stack(batches)


def _check_augmentation(own: OwnAugmentation) -> None:
    images, changed = _augmented(own, 0)
    require(bool(changed.isfinite().all()), "some pixel is not finite")
    require(not torch.equal(images, changed), "no image of 20 batches changes")


def _check_draws(own: OwnAugmentation) -> None:
    _, first = _augmented(own, 0)
    _, again = _augmented(own, 1)
    require(
        torch.equal(first, again),
        "the result depends on torch's own random numbers; pass generator=generator",
    )
