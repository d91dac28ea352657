"""Counting: against fvcore's own numbers, for fused and unfused attention alike, and
never with anything left out.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import timm
import torch
from timm.layers import set_fused_attn
from torch import nn

from ablate.cost import count, operators, rules
from ablate.cost.count import JitModelAnalysis, cost_of, model_and_image
from ablate.errors import Infeasible, UncountedOperator
from ablate.families import resolve
from tests.families.test_families import SMALL

PUBLISHED = {
    "deit_tiny_patch16_224": (5.72, 1.26),
    "deit_small_patch16_224": (22.05, 4.61),
    "deit_base_patch16_224": (86.57, 17.58),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_unmodified_models_cost_what_fvcore_says(name: str) -> None:
    """timm and fvcore with fused attention off."""
    found = count(resolve(name, 224, 3, 1000, {}))
    assert (round(found.params / 1e6, 2), round(found.flops / 1e9, 2)) == PUBLISHED[
        name
    ]


def test_fused_and_unfused_attention_cost_the_same() -> None:
    image = torch.zeros(1, 3, 32, 32)
    try:
        set_fused_attn(True)
        fused = cost_of(
            timm.create_model("deit_tiny_patch16_224", img_size=32).eval(), image
        )
        set_fused_attn(False)
        plain = cost_of(
            timm.create_model("deit_tiny_patch16_224", img_size=32).eval(), image
        )
    finally:
        set_fused_attn(True)
    assert (fused.params, fused.flops, fused.flops_paper, fused.activations) == (
        plain.params,
        plain.flops,
        plain.flops_paper,
        plain.activations,
    )
    # The softmax and the scaling inside the fused call cannot be seen: they are single
    # elements, outside both totals.
    assert plain.elementwise > fused.elementwise


class Unheard(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x[:, 0], -1) + torch.logcumsumexp(x[:, 0], -1)


def test_an_operator_without_a_rule_is_named() -> None:
    with pytest.raises(
        UncountedOperator,
        match=r"aten::cumprod \(1 times\), aten::logcumsumexp \(1 times\)",
    ):
        cost_of(Unheard(), torch.zeros(1, 3, 4, 4))


class Known(nn.Module):
    """Operators whose count is known by hand."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which, self.linear = which, nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[0, 0]  # (4, 6)
        if self.which == "linear":
            return self.linear(rows)
        if self.which == "fft":
            return torch.fft.irfft(torch.fft.rfft(rows), n=6)
        if self.which == "complex":
            z = torch.fft.rfft(rows)
            return (z * z).real
        return rows + rows


@pytest.mark.parametrize(
    ("which", "flops", "elementwise"),
    [
        ("linear", 4 * 6 * 5, 0),
        ("fft", round(2 * 4 * 6 * 2.584962500721156), 0),
        ("complex", round(4 * 6 * 2.584962500721156 + 4 * 4 * 4), 0),
        ("add", 0, 24),
    ],
)
def test_known_counts(which: str, flops: int, elementwise: int) -> None:
    found = cost_of(Known(which), torch.zeros(1, 1, 4, 6))
    assert (found.flops, found.elementwise) == (flops, elementwise)


def test_tables_of_operators_do_not_overlap() -> None:
    groups = [
        set(rules.MATRIX),
        set(rules.OTHER),
        set(rules.ELEMENTWISE),
        set(rules.FREE),
    ]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_operators_add_up() -> None:
    architecture = resolve(
        "vit",
        16,
        3,
        10,
        {
            "size.width": 24,
            "size.depth": 2,
            "size.heads": 3,
            "size.patch_size": 4,
            "shortcuts.count": 2,
        },
    )
    found, table = count(architecture), operators(architecture)
    assert sum(table["matrix"].values()) + sum(
        table["other"].values()
    ) == pytest.approx(found.flops, abs=5)
    assert "complex aten::bmm" in table["other"] or "complex bmm" in table["other"]


def test_counting_leaves_the_random_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    count(
        resolve(
            "vit",
            8,
            1,
            10,
            {"size.width": 8, "size.depth": 1, "size.heads": 1, "size.patch_size": 4},
        )
    )
    assert torch.equal(torch.rand(1), expected)


def test_two_threads_do_not_trace_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's tracer and Python's warning filters are global to the process."""
    inside: list[int] = []
    together: list[int] = []
    trace = JitModelAnalysis.by_module_and_operator

    def slow_trace(self: JitModelAnalysis) -> dict[str, Counter[str]]:
        inside.append(1)
        together.append(len(inside))
        time.sleep(0.05)
        try:
            return trace(self)
        finally:
            inside.pop()

    monkeypatch.setattr(JitModelAnalysis, "by_module_and_operator", slow_trace)
    model, image = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(1, 1, 2, 2)
    with ThreadPoolExecutor(2) as pool:
        costs = list(pool.map(lambda _: cost_of(model, image), range(4)))
    assert together == [1, 1, 1, 1]
    assert {cost.flops for cost in costs} == {8}


@pytest.mark.parametrize("family", ["vit", "pvt", "swin", "cait"])
def test_a_drop_rate_changes_no_cost(family: str) -> None:
    """So it is counted once for all drop rates."""
    name, side, settings = SMALL[family]
    dropped = {**settings, "drop.path": 0.1, "drop.attention": 0.1}
    architecture = resolve(name, side, 3, 10, dropped)
    with_drop = cost_of(*model_and_image(architecture))
    assert count(architecture) == with_drop
    assert count(resolve(name, side, 3, 10, settings)) == with_drop


def test_a_drop_rate_that_a_network_cannot_have_is_refused() -> None:
    name = "resnet18"
    with pytest.raises(Infeasible):
        count(resolve(name, 32, 3, 10, {"drop.attention": 0.1}))
