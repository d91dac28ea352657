"""Tracing modules that compute the same once gives the cost of the whole network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from timm.layers import trunc_normal_
from torch import Tensor, nn

from ablate import factors, heads
from ablate.cost import count, operators
from ablate.cost.alike import Alike, what_it_computes
from ablate.cost.count import JitModelAnalysis, Uninitialised, by_operator, cost_of
from ablate.cost.rules import handles
from ablate.errors import Infeasible
from ablate.families import resolve
from ablate.layers.circulant import CirculantProjection
from ablate.models import build
from ablate.records import Architecture, Level
from tests.families.test_families import SMALL

# `ablate.cost.count` is the function.
module: Any = import_module("ablate.cost.count")

DEPTHS: dict[str, Level] = {"cait": 4, "t2t": 4, "vit": 5}
HEADS = ("mask-rcnn-small", "detr-small", "upernet-small")
# Families whose smallest member takes several seconds.
LARGE = ("cait", "lvt", "poolformer", "pvt", "swin", "t2t", "timm")


def marked(names: Iterable[str], long: Sequence[str]) -> list[Any]:
    """Parameters of a test; those that take long are proofs."""
    marks = {True: pytest.mark.proof, False: ()}
    return [pytest.param(name, marks=marks[name in long]) for name in names]


def whole(architecture: Architecture) -> tuple[nn.Module, Tensor]:
    """The network as it would be trained, and an input."""
    model = build(architecture).eval()
    if architecture.head:
        model = heads.find(architecture.head).counted(model).eval()
    return model, torch.zeros(1, *architecture.input_shape)


def counted_in_full(model: nn.Module, image: Tensor) -> Counter[str]:
    """Every operator of the network, by fvcore's own analysis of all modules."""
    analysis = JitModelAnalysis(model, (image,)).set_op_handle(**handles())
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.tracer_warnings("none")
    with torch.no_grad():
        return Counter(analysis.by_operator())


def formula_of(model: nn.Module, image: Tensor) -> float:
    """What circulant projections cost by their paper's formula."""
    total = 0.0

    def add(module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        nonlocal total
        assert isinstance(module, CirculantProjection)
        total += module.paper_flops(int(inputs[0].shape[:-1].numel()))

    for module in model.modules():
        if isinstance(module, CirculantProjection):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(image)
    return total


def check(architecture: Architecture) -> None:
    """The cost of an architecture is that of all its modules, operator by operator."""
    model, image = whole(architecture)
    expected = counted_in_full(model, image)
    found = by_operator(model, image, handles(), share=True)
    assert set(found) == set(expected)
    for key, number in expected.items():
        assert found[key] == pytest.approx(number, rel=1e-12), key
    matrix = sum(n for key, n in expected.items() if key.startswith("matrix/"))
    other = sum(n for key, n in expected.items() if key.startswith("other/"))
    cost = count(architecture)
    assert cost.params == sum(p.numel() for p in model.parameters())
    assert cost.flops == round(matrix + other)
    assert cost.flops_paper == round(matrix + formula_of(model, image))
    assert cost.activations == expected["activations/"]
    by_group = operators(architecture)
    assert cost.elementwise == sum(by_group["elementwise"].values())


levels = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(parameter.typical)
        for name, (factor, parameter) in factors.parameters().items()
        if factor.name != "size"
    },
)


@pytest.mark.proof
@pytest.mark.parametrize("family", marked(SMALL, LARGE))
@settings(max_examples=2)
@example({})
@example({"shortcuts.count": 2, "ffn.kernel": 3, "drop.path": 0.1})
@given(levels)
def test_the_cost_is_that_of_all_modules(family: str, chosen: dict[str, Level]) -> None:
    name, side, sizes = SMALL[family]
    if family in DEPTHS:
        sizes = {**sizes, "size.depth": DEPTHS[family]}
    try:
        architecture = resolve(name, side, 3, 10, {**sizes, **chosen})
        build(architecture)
    except Infeasible:
        return
    check(architecture)


@pytest.mark.proof
@pytest.mark.parametrize("head", HEADS)
def test_the_cost_with_a_head_is_that_of_all_modules(head: str) -> None:
    task = heads.find(head)
    assert task is not None
    name, _, sizes = SMALL["swin"]
    check(resolve(name, 64, 3, 10, {**sizes, "shortcuts.count": 1}, head=head))


def test_blocks_of_a_vit_are_traced_once() -> None:
    model, image = whole(resolve("deit_tiny_patch16_224", 32, 3, 10, {}))
    alike = Alike(model)
    with alike.in_place(), torch.no_grad():
        model(image)
    assert alike.repeats == {"blocks.0": 11}
    assert alike.times("blocks.0.attn.qkv") == 12
    assert alike.times("head") == 1
    assert not any("forward" in vars(module) for module in model.modules())


class Block(nn.Module):
    def __init__(self, width: int = 8, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.drop = nn.Dropout(scale / 10)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(self.linear(x)) * self.scale
        return y


class Wider(Block):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(super().forward(x))


class Row(nn.Module):
    """Blocks one after another."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def drops(rate: float) -> Block:
    block = Block()
    block.drop = nn.Dropout(rate)
    return block


class Acts(nn.Dropout):
    """Does something in evaluation mode."""


def acting(rate: float) -> Block:
    block = Block()
    block.drop = Acts(rate)
    return block


def evaluated() -> Block:
    block = Block()
    block.eval()
    return block


def hooked() -> Block:
    block = Block()
    block.register_forward_hook(lambda module, inputs, output: output)
    return block


def patched() -> Block:
    block = Block()
    block.forward = lambda x: x  # type: ignore[method-assign]
    return block


def having(value: object) -> Block:
    block = Block()
    block.extra = value  # type: ignore[assignment]
    return block


SHARED = Block()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Block(), Block(), True),
        (drops(0.1), drops(0.5), True),
        (evaluated(), evaluated(), True),
        (evaluated(), Block(), False),
        (acting(0.1), acting(0.5), False),
        (having((1, [2.0, {"a"}])), having((1, [2.0, {"a"}])), True),
        (having(partial(torch.add, 1)), having(partial(torch.add, 1)), True),
        (having(torch.zeros(3)), having(torch.ones(3)), True),
        (Block(), Wider(), False),
        (Block(), Block(scale=2.0), False),
        (Block(), Block(16), False),
        (having(1), having(True), False),
        (having(1), having(1.0), False),
        (having(torch.add), having(torch.sub), False),
        (having(torch.zeros(3)), having(torch.zeros(4)), False),
        (having(object()), having(object()), False),
        (having([SHARED]), having([SHARED]), False),
        (hooked(), hooked(), False),
        (patched(), patched(), False),
    ],
)
def test_modules_are_alike_if_they_differ_in_weights_only(
    one: nn.Module, other: nn.Module, same: bool
) -> None:
    first = what_it_computes(one)
    assert (first is not None and first == what_it_computes(other)) is same


class Grows(nn.Module):
    """Returns one token more than it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.linear(x), x[:, :1]), dim=1)


class Same(nn.Module):
    """Returns its input as it is, after it computed something else."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.linear(x)
        return x


class Pyramid(nn.Module):
    """The same two blocks on images of two sizes, as in heads of detectors."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Row(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.row(x)
        z: Tensor = self.row(x[:, :2])
        return torch.cat((y, z), dim=1)


class Again(nn.Module):
    """Three rounds through the same two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Row(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.row(x)
        return x


class Sizes(nn.Module):
    """Passes a number that comes from a size, which is a tensor while torch traces."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Cut(), Cut(), Cut()])

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(x, x.shape[1] // 2**number)
        return x


class Cut(Block):
    def forward(self, x: Tensor, most: int = 1) -> Tensor:
        return torch.cat((super().forward(x[:, :most]), x[:, most:]), dim=1)


class Inside(nn.Module):
    """Uses a part of a block, beside the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Row(Block(), Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        block = self.row.blocks[0]
        assert isinstance(block, Block)
        y: Tensor = self.row(x) + block.linear(x)
        return y


@pytest.mark.parametrize(
    "model",
    [
        Sizes(),
        Inside(),
        Pyramid(),
        Again(),
        Row(Block(), Block(), Block()),
        Row(Block(), Wider(), Block(), Wider()),
        Row(Grows(), Grows(), Grows()),
        Row(SHARED, SHARED, Block()),
        Row(Row(Block(), Block()), Row(Block(), Block()), Block()),
        Row(hooked(), hooked()),
        Row(Same(), Same()),
        nn.Sequential(Block(), Block(), nn.Linear(8, 3)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_small_networks_cost_what_all_their_modules_cost(model: nn.Module) -> None:
    image = torch.zeros(1, 5, 8)
    expected = counted_in_full(model, image)
    assert by_operator(model, image, handles(), share=True) == expected
    assert cost_of(model, image).params == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "fill",
    [
        trunc_normal_,
        nn.init.xavier_uniform_,
        nn.init.kaiming_normal_,
        nn.init.ones_,
        nn.init.kaiming_uniform_,
    ],
)
def test_the_weights_of_a_network_that_is_counted_are_not_drawn(
    fill: Callable[[Tensor], Tensor],
) -> None:
    before = torch.get_rng_state()
    with Uninitialised():
        linear = nn.Linear(4, 4)
        with torch.no_grad():
            linear.weight.data = torch.full((4, 4), 7.0)
        fill(linear.weight)
        linear.weight.requires_grad_(False)
    assert torch.equal(linear.weight, torch.full((4, 4), 7.0))
    assert not linear.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), before)


class Kept(nn.Module):
    """A user's network that no rule about modules describes: what a block keeps is read."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Keeps(), Keeps(), Keeps()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        kept = [block.kept for block in self.blocks if isinstance(block, Keeps)]
        return x + torch.stack([one for one in kept if one is not None]).sum(0)


class Keeps(Block):
    kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.kept = super().forward(x)
        return x + self.kept


def test_a_network_of_a_user_is_traced_in_full() -> None:
    model, image = Kept(), torch.zeros(1, 5, 8)
    expected = counted_in_full(model, image)
    assert by_operator(model, image, handles()) == expected
    matrix = sum(n for key, n in expected.items() if key.startswith("matrix/"))
    assert cost_of(model, image).flops_paper == matrix


@pytest.mark.proof
@pytest.mark.parametrize(
    ("backbone", "known"), [("swin_tiny_patch4_window7_224", True), ("resnet18", False)]
)
def test_only_families_with_known_blocks_share(
    backbone: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    trace = module._trace

    def spied(*arguments: Any, share: bool) -> Any:
        said.append(share)
        return trace(*arguments, share=share)

    monkeypatch.setattr(module, "_trace", spied)
    architecture = resolve(backbone, 32, 3, 10, {})
    count(architecture)
    count(replace(architecture, code={"ffn": "of a user"}))
    assert said == [known, False]
