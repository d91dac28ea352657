"""What users' backbones, data sets, losses, metrics and diagnostics keep."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ablate import factors
from ablate.contracts.check import BrokenContract, Check, require
from ablate.contracts.factor import refuse_dead, small
from ablate.cost import count
from ablate.cost.rules import ELEMENTWISE, FREE, MATRIX, OTHER
from ablate.data import describe
from ablate.data.arrays import read_own
from ablate.diagnostics.diagnostic import Diagnostic
from ablate.diagnostics.observe import measure
from ablate.errors import UncountedOperator
from ablate.factors.factor import Factor, Parameter
from ablate.families import resolve
from ablate.models import build
from ablate.records import Architecture, Level, Settings, level_text
from ablate.records.own_parts import (
    OwnBackbone,
    OwnData,
    OwnLoss,
    OwnMetric,
    OwnOperator,
)

CLASSES = 7


def backbone_checks(backbone: OwnBackbone) -> Iterator[Check]:
    """Yields the checks of one backbone."""
    yield Check("is built by its name", partial(_check_builds, backbone))
    yield Check("equal seeds give equal weights", partial(_check_seeded, backbone))
    yield Check(
        "every parameter gets a finite gradient",
        partial(_check_backbone_gradients, backbone),
    )
    yield Check("every operator is counted", partial(_check_backbone_cost, backbone))
    yield Check("a deep copy gives the same output", partial(_check_copy, backbone))
    for _, parameter in switches(backbone).values():
        for level in parameter.typical:
            yield Check(
                f"{parameter.name} = {level_text(level)}: changes the network, which"
                " trains and is counted",
                partial(_check_switch, backbone, parameter.name, level),
            )


def switches(backbone: OwnBackbone) -> dict[str, tuple[Factor, Parameter]]:
    """Returns the switches of a backbone by name."""
    return {
        name: (factor, parameter)
        for name, (factor, parameter) in factors.parameters(backbone.name).items()
        if factor.switch
    }


def _architecture(backbone: OwnBackbone, settings: Settings) -> Architecture:
    without_default = {
        name: _small_level(parameter.allowed)
        for name, (_, parameter) in switches(backbone).items()
        if parameter.default is None
    }
    return resolve(
        backbone.name,
        backbone.image_size,
        3,
        CLASSES,
        {**without_default, **settings},
    )


def _small_level(allowed: Any) -> Level:
    """The least number from 1 up that a switch without a default allows."""
    return next(number for number in itertools.count(1) if allowed.accepts(number))


def _built(backbone: OwnBackbone, settings: Settings | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    return build(_architecture(backbone, settings or {}))


def _images(backbone: OwnBackbone) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(
        4, 3, backbone.image_size, backbone.image_size, generator=generator
    )


def _check_builds(backbone: OwnBackbone) -> None:
    shape = tuple(_built(backbone).eval()(_images(backbone)).shape)
    require(shape == (4, CLASSES), f"its output is {shape}, not {(4, CLASSES)}")


def _check_seeded(backbone: OwnBackbone) -> None:
    first, other = _built(backbone).state_dict(), _built(backbone).state_dict()
    for name, tensor in first.items():
        require(
            torch.equal(tensor, other[name]),
            f"{name} differs between two networks of one seed",
        )


def _check_backbone_gradients(backbone: OwnBackbone) -> None:
    refuse_dead(_built(backbone).train(), _images(backbone), torch.arange(4))


def _check_backbone_cost(backbone: OwnBackbone) -> None:
    try:
        count(_architecture(backbone, {}))
    except UncountedOperator as error:
        raise BrokenContract(str(error)) from error


def _check_switch(backbone: OwnBackbone, name: str, level: Level) -> None:
    settings = {name: level}
    refuse_dead(_built(backbone, settings).train(), _images(backbone), torch.arange(4))
    count(_architecture(backbone, settings))
    images = _images(backbone)
    with torch.no_grad():
        default = _built(backbone).train()(images)
        other = _built(backbone, settings).train()(images)
    # In training mode, drop rates and norms over a batch differ too.
    require(
        not torch.equal(default, other),
        f"the output is that of the default level; the function ignores {name}",
    )


def _check_copy(backbone: OwnBackbone) -> None:
    model = _built(backbone).eval()
    with torch.no_grad():
        same = torch.equal(
            copy.deepcopy(model)(_images(backbone)), model(_images(backbone))
        )
    require(same, "a deep copy gives another output")


def data_checks(data: OwnData) -> Iterator[Check]:
    """Yields the checks of one data set."""
    yield Check("has images and labels as documented", partial(_check_described, data))
    yield Check("is the same each time", partial(_check_repeatable, data))
    yield Check("has every class in both splits", partial(_check_classes, data))


def _check_described(data: OwnData) -> None:
    described = describe(data.name)
    require(described.classes > 1, f"it has {described.classes} class only")


def _check_repeatable(data: OwnData) -> None:
    for first, other in zip(read_own(data.name), read_own(data.name), strict=True):
        require(torch.equal(first, other), "two calls return other images or labels")


def _check_classes(data: OwnData) -> None:
    _, train, _, test = read_own(data.name)
    for split, labels in (("training", train), ("test", test)):
        missing = set(range(int(max(train.max(), test.max())) + 1)) - set(
            labels.tolist()
        )
        require(not missing, f"the {split} labels lack the classes {sorted(missing)}")


def loss_checks(loss: OwnLoss) -> Iterator[Check]:
    """Yields the checks of one loss."""
    numbers = torch.tensor([0, 1, 2, 3])
    yield Check(
        "is a finite scalar with a gradient, for class numbers",
        partial(_check_loss, loss, numbers),
    )
    yield Check(
        "is smaller if the right class has the largest logit",
        partial(_check_loss_order, loss, numbers),
    )


def _check_loss(own_loss: OwnLoss, targets: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, CLASSES, generator=generator, requires_grad=True)
    loss = own_loss(logits, targets)
    require(isinstance(loss, Tensor), f"it returns {type(loss).__name__}, not a tensor")
    require(loss.numel() == 1, f"it returns a tensor of {tuple(loss.shape)}")
    require(math.isfinite(loss.item()), f"it is {loss.item()}")
    loss.reshape(()).backward()
    require(logits.grad is not None, "it has no gradient")
    assert logits.grad is not None
    require(bool(logits.grad.isfinite().all()), "its gradient is not finite")


def _check_loss_order(loss: OwnLoss, targets: Tensor) -> None:
    right = torch.nn.functional.one_hot(targets, CLASSES) * 4.0
    good, bad = loss(right, targets).item(), loss(-right, targets).item()
    require(good < bad, f"it is {good:g} for right and {bad:g} for wrong logits")


def metric_checks(metric: OwnMetric) -> Iterator[Check]:
    """Yields the checks of one metric."""
    yield Check("is a finite number", partial(_check_metric, metric))
    yield Check(
        f"is better for right logits, as its direction {metric.shown.direction} says",
        partial(_check_direction, metric),
    )


def _perfect() -> tuple[Tensor, Tensor]:
    labels = torch.arange(4 * CLASSES) % CLASSES
    return torch.nn.functional.one_hot(labels, CLASSES) * 4.0, labels


def _check_metric(metric: OwnMetric) -> None:
    _, labels = _perfect()
    generator = torch.Generator().manual_seed(0)
    value = metric(torch.randn(len(labels), CLASSES, generator=generator), labels)
    require(math.isfinite(value), f"it is {value}")


def _check_direction(metric: OwnMetric) -> None:
    logits, labels = _perfect()
    good, bad = metric(logits, labels), metric(-logits, labels)
    better = good > bad if metric.shown.direction == "max" else good < bad
    require(better, f"it is {good:g} for right and {bad:g} for wrong logits")


def operator_checks(operator: OwnOperator) -> Iterator[Check]:
    """Yields the checks of the rule of one operator."""
    yield Check("has no rule yet", partial(_check_operator, operator))


def _check_operator(operator: OwnOperator) -> None:
    built_in = {*MATRIX, *OTHER, *ELEMENTWISE, *FREE}
    require(
        operator.name not in built_in,
        f"ablate has a rule for {operator.name}; leave this one out",
    )


def diagnostic_checks(diagnostic: Diagnostic) -> Iterator[Check]:
    """Yields the checks of one diagnostic."""
    yield Check("says what it is", partial(_check_diagnostic_text, diagnostic))
    yield Check(
        "measures every layer of a small ViT", partial(_check_measures, diagnostic)
    )


def _check_diagnostic_text(diagnostic: Diagnostic) -> None:
    for field in ("about", "source", "axis"):
        require(bool(getattr(diagnostic, field)), f"{field} is empty")


def _check_measures(diagnostic: Diagnostic) -> None:
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    taken = measure(small({}).eval(), "vit", iter([images]), (diagnostic.name,), 1)
    layers = {measurement.layer for measurement in taken}
    require(layers == {0, 1, 2}, f"it has values of the layers {sorted(layers)}")
    for measurement in taken:
        if measurement.value is not None:
            require(
                math.isfinite(measurement.value),
                f"layer {measurement.layer}: it is {measurement.value}",
            )
