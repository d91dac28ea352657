"""What every factor keeps, on a small ViT."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ablate import factors
from ablate.contracts.check import BrokenContract, Check, require
from ablate.cost import count
from ablate.errors import Infeasible, UncountedOperator
from ablate.factors.factor import Factor, Parameter, always
from ablate.families import resolve
from ablate.models import build
from ablate.records import Level

SMALL: dict[str, Level] = {
    "size.patch_size": 2,
    "size.width": 24,
    "size.depth": 3,
    "size.heads": 3,
    "size.mlp_ratio": 4.0,
}
# Width and heads of the small ViTs; a factor is checked on the first one that suits it.
SHAPES: tuple[dict[str, Level], ...] = (
    {"size.width": 24, "size.heads": 3},
    {"size.width": 24, "size.heads": 4},
    {"size.width": 32, "size.heads": 2},
    {"size.width": 64, "size.heads": 4},
)
SIDE = 16
CLASSES = 10
# What the unmodified model is compared with: timm's own.
UNMODIFIED = "deit_tiny_patch16_224"
# Backbones with one and with two prefix tokens.
PREFIXED = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")


def small(
    settings: dict[str, Level], shape: dict[str, Level] | None = None
) -> nn.Module:
    """Returns a small ViT with these settings, always of the same initial weights.

    Args:
        shape: its width and heads; by default, the first ones that suit the settings.
    """
    sizes = {**SMALL, **(shaped(settings) if shape is None else shape)}
    torch.manual_seed(0)
    return build(resolve("vit", SIDE, 3, CLASSES, {**sizes, **settings}))


def shaped(settings: dict[str, Level]) -> dict[str, Level]:
    """Returns the first shape on which the settings can be built.

    Raises Infeasible if there is none.
    """
    refusals = []
    for shape in SHAPES:
        try:
            small(settings, shape)
        except Infeasible as error:
            refusals.append(error)
        else:
            return shape
    raise refusals[0]


def image(batch: int = 2, side: int = SIDE) -> Tensor:
    """Returns the same random images each time."""
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1))


def with_companions(
    factor: Factor, parameter: Parameter, level: Level
) -> dict[str, Level]:
    """Returns settings in which a level is read.

    It stands alone, or with the fewest levels of its neighbours.

    Raises:
        BrokenContract: no typical levels make the model read the parameter.
    """
    name = factor.full_name(parameter.name)
    others = [p for p in factor.parameters if p is not parameter]
    for number in range(len(others) + 1):
        for chosen in itertools.combinations(others, number):
            for levels in itertools.product(*(p.typical for p in chosen)):
                settings = {name: level}
                for companion, companion_level in zip(chosen, levels, strict=True):
                    settings[factor.full_name(companion.name)] = companion_level
                if not factors.unread_reason(name, settings):
                    return settings
    raise BrokenContract(
        f"{name} has no effect: no hook looks up {name} when the other parameters have"
        " their typical levels"
    )


def check_description(factor: Factor) -> None:
    """The factor says what it is, and its own levels are allowed."""
    require(bool(factor.source), "source is empty")
    require(factor.claim.endswith("."), "claim must be a sentence with a full stop")
    defaults = {p.name: p.default for p in factor.parameters if p.default is not None}
    require(factor.neutral(defaults), f"neutral is false at the defaults {defaults}")
    for parameter in factor.parameters:
        _check_parameter(parameter)


def _check_parameter(parameter: Parameter) -> None:
    name = parameter.name
    require(bool(parameter.about), f"{name}: about is empty")
    require(bool(parameter.typical), f"{name}: typical is empty, so nothing is tried")
    for level in parameter.typical:
        require(
            parameter.allowed.accepts(level),
            f"{name}: the typical level {level!r} is not allowed: {parameter.allowed}",
        )
        require(
            level != parameter.default,
            f"{name}: the typical level {level!r} is neutral",
        )
    default = parameter.default
    require(
        default is None or parameter.allowed.accepts(default),
        f"{name}: the default {default!r} is not allowed: {parameter.allowed}",
    )
    require(
        bool(parameter.when) == (parameter.read is not always),
        f"{name}: `read` and `when` come together: the condition, and its words",
    )


def check_neutral(factor: Factor, backbone: str = UNMODIFIED) -> None:
    """At the defaults, the network is the library's own, bit for bit."""
    neutral: dict[str, Level] = {}
    for parameter in factor.parameters:
        if parameter.default is not None:
            neutral[factor.full_name(parameter.name)] = parameter.default
    check_equal_to_timm(neutral, backbone)


def check_equal_to_timm(neutral: dict[str, Level], backbone: str) -> None:
    """With these settings, the network is the library's own, bit for bit."""
    import timm

    torch.manual_seed(3)
    ours = build(resolve(backbone, 224, 3, 1000, neutral)).eval()
    torch.manual_seed(3)
    theirs = timm.create_model(backbone).eval()
    require(_same_state(ours, theirs), f"its weights differ from those of {backbone}")
    with torch.no_grad():
        same = torch.equal(ours(image(1, 224)), theirs(image(1, 224)))
    require(same, f"its output differs from that of {backbone}")


def _same_state(model: nn.Module, other: nn.Module) -> bool:
    a, b = model.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def check_changes(factor: Factor, parameter: Parameter, level: Level) -> None:
    """A level changes the output or the shapes of the model."""
    settings = with_companions(factor, parameter, level)
    name = factor.full_name(parameter.name)
    without = {key: value for key, value in settings.items() if key != name}
    shape = shaped(settings)
    here, there = small(settings, shape).train(), small(without, shape).train()
    if _shapes(here) != _shapes(there):
        # Other parameters make another model, even if a new one begins at zero.
        return
    torch.manual_seed(5)
    out = here(image())
    torch.manual_seed(5)
    require(
        not torch.equal(out, there(image())),
        f"{name} = {level} gives the same output as the model without it",
    )


def _shapes(model: nn.Module) -> list[torch.Size]:
    # Without names: a module around another one only changes those.
    return sorted(tensor.shape for tensor in model.state_dict().values())


def check_gradients(factor: Factor, parameter: Parameter, level: Level) -> None:
    """Every parameter of the network gets a finite gradient."""
    model = small(with_companions(factor, parameter, level)).train()
    refuse_dead(model, image(), torch.tensor([1, 2]))


def refuse_dead(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Raises BrokenContract if a parameter gets no gradient, or one not finite."""
    nn.functional.cross_entropy(model(inputs), labels).backward()
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        require(weight.grad is not None, f"the parameter {name} gets no gradient")
        assert weight.grad is not None
        require(
            bool(weight.grad.isfinite().all()),
            f"the gradient of the parameter {name} is not finite",
        )


def check_cost(factor: Factor, parameter: Parameter, level: Level) -> None:
    """Every operator of the network is counted."""
    settings = with_companions(factor, parameter, level)
    sizes = {**SMALL, **shaped(settings)}
    try:
        cost = count(resolve("vit", SIDE, 3, CLASSES, {**sizes, **settings}))
    except UncountedOperator as error:
        raise BrokenContract(str(error)) from error
    require(cost.flops > 0, "no FLOP is counted")


def check_copies(factor: Factor, parameter: Parameter, level: Level) -> None:
    """A deep copy, and a model that loads the state dict, give the same output."""
    settings = with_companions(factor, parameter, level)
    model = small(settings).eval()
    with torch.no_grad():
        expected = model(image(1))
        copied = copy.deepcopy(model)(image(1))
        require(torch.equal(copied, expected), "a deep copy gives another output")
        again = small(settings)
        for weight in again.parameters():
            weight.add_(1.0)
        again.load_state_dict(model.state_dict())
        loaded = again.eval()(image(1))
    require(
        torch.equal(loaded, expected),
        "a model that loads the state dict gives another output",
    )


def check_alone(factor: Factor, parameter: Parameter, level: Level) -> None:
    """A pass of another network in the middle of one changes nothing.

    What is stored outside of the network, for example in a module, is shared.
    """
    settings = with_companions(factor, parameter, level)
    model, other = small(settings).eval(), small(settings).eval()
    blocks = [module for name, module in model.named_modules() if name == "blocks.1"]
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.1)
        expected = model(image(1))
        for block in blocks:
            block.register_forward_pre_hook(lambda *_: _pass(other))
        out = model(image(1))
    require(
        torch.equal(out, expected),
        "another network, run between two of its blocks, changes the output: keep"
        " nothing that a forward pass computes outside of the network",
    )


def _pass(network: nn.Module) -> None:
    network(image(2))


def check_prefix_tokens(
    factor: Factor, parameter: Parameter, level: Level, backbone: str
) -> None:
    """The factor works with no, one and two prefix tokens."""
    settings = with_companions(factor, parameter, level)
    sizes = {"size.depth": 2, **shaped(settings)}
    default_pool = "distilled" if "distilled" in backbone else "token"
    for pool in (default_pool, "mean"):
        try:
            model = build(
                resolve(
                    backbone, 32, 3, CLASSES, {**sizes, "size.pool": pool, **settings}
                )
            )
        except Infeasible as error:
            require(
                pool == "mean"
                or settings.get("size.pool", default_pool) != default_pool,
                str(error),
            )
            continue
        shape = tuple(model.eval()(image(1, 32)).shape)
        require(shape == (1, CLASSES), f"{backbone}, pool {pool}: output of {shape}")


def check_pair(name: str, other: str) -> bool:
    """Two factors can be combined, or a message says why not.

    Returns:
        whether they can.
    """
    settings: dict[str, Level] = {}
    for full_name in (name, other):
        factor, parameter = factors.find(full_name)
        settings |= with_companions(factor, parameter, parameter.typical[-1])
    try:
        out = small(settings).eval()(image(1))
    except Infeasible as error:
        require(bool(str(error)), f"{name} with {other} is refused without a reason")
        return False
    require(
        tuple(out.shape) == (1, CLASSES) and bool(out.isfinite().all()),
        f"{name} with {other} gives {tuple(out.shape)}, or numbers that are not finite",
    )
    return True


def factor_checks(factor: Factor) -> Iterator[Check]:
    """Yields the checks of one factor."""
    yield Check("says what it is", partial(check_description, factor))
    yield Check(
        f"is {UNMODIFIED} of timm at its defaults, bit for bit",
        partial(check_neutral, factor),
    )
    # A loss leaves the network as it is.
    if factor.kind == "loss":
        return
    for parameter in factor.parameters:
        name = factor.full_name(parameter.name)
        for level in parameter.typical:
            setting = f"{name} = {level}"
            of = (factor, parameter, level)
            yield Check(f"{setting} changes the model", partial(check_changes, *of))
            yield Check(
                f"{setting}: every parameter gets a finite gradient",
                partial(check_gradients, *of),
            )
            yield Check(
                f"{setting}: every operator is counted", partial(check_cost, *of)
            )
            yield Check(
                f"{setting}: copies and loaded states are equal",
                partial(check_copies, *of),
            )
            yield Check(
                f"{setting}: two networks share nothing", partial(check_alone, *of)
            )
            for backbone in PREFIXED:
                yield Check(
                    f"{setting}: works on {backbone}",
                    partial(check_prefix_tokens, *of, backbone),
                )
        yield Check(
            f"{name} goes with every other factor, or says why not",
            partial(_check_pairs, name),
        )


def _check_pairs(name: str) -> None:
    for other, (factor, _) in factors.parameters().items():
        if other != name and factor.kind != "loss":
            check_pair(name, other)
