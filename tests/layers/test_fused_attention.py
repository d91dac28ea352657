"""AttnScale without an attention map: the fused call gives what the map gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.backbones.pieces import SelfAttention
from ablate.cost import operators
from ablate.families import resolve
from ablate.layers import attention as module
from ablate.layers.attention import ScaledHighPass, TalkingHeads

HEADS, WIDTH, TOKENS = 3, 12, 7


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The queries of each fused call."""
    seen: list[Tensor] = []
    fused = F.scaled_dot_product_attention

    def counted(q: Tensor, *inputs: Tensor, **named: object) -> Tensor:
        seen.append(q)
        return fused(q, *inputs, **named)

    monkeypatch.setattr(module.F, "scaled_dot_product_attention", counted)
    return seen


def attention(edits: int = 1) -> SelfAttention:
    torch.manual_seed(0)
    layer = SelfAttention(WIDTH, HEADS)
    for _ in range(edits):
        edit = ScaledHighPass(HEADS)
        torch.nn.init.normal_(edit.w)
        layer.edits.weights.append(edit)
    return layer.double()


def results(layer: SelfAttention, mask: Tensor | None) -> list[Tensor]:
    """The output for one input, and the gradients of the input and of edits."""
    torch.manual_seed(1)
    heads = torch.randn(4, 2, HEADS, TOKENS, 4, dtype=torch.float64).requires_grad_()
    q, k, v, source = heads
    tokens = source.transpose(1, 2).flatten(2)
    out = layer.attend(q, k, v, tokens, mask=mask)
    weight = torch.linspace(0, 1, out.numel(), dtype=torch.float64).view_as(out)
    (out * weight).sum().backward()
    leaves = [heads, *layer.edits.weights.parameters()]
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    assert len(gradients) == len(leaves)
    return [out, *gradients]


@pytest.mark.parametrize("edits", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_call_gives_what_the_map_gives(
    edits: int, masked: bool, calls: list[Tensor]
) -> None:
    mask = None
    if masked:
        mask = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
        mask[:, 4:] = -torch.inf
    fused = results(attention(edits), mask)
    assert len(calls) == 1
    observed = attention(edits)
    observed.observer = lambda seen: None
    by_map = results(observed, mask)
    assert len(calls) == 1, "with an observer there must be a map"
    for one, other in zip(fused, by_map, strict=True):
        torch.testing.assert_close(one, other)


def test_a_bias_and_fewer_keys_than_queries(calls: list[Tensor]) -> None:
    """As in Swin, and in PVT."""
    torch.manual_seed(2)
    q = torch.randn(2, HEADS, TOKENS, 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, HEADS, 3, 4, dtype=torch.float64)
    bias = torch.randn(1, HEADS, TOKENS, 3, dtype=torch.float64)
    tokens = v.transpose(1, 2).flatten(2)
    fused = attention().attend(q, k, v, tokens, bias=bias)
    assert len(calls) == 1
    observed = attention()
    observed.observer = lambda seen: None
    torch.testing.assert_close(fused, observed.attend(q, k, v, tokens, bias=bias))


def test_the_type_stays_under_autocast(calls: list[Tensor]) -> None:
    q, k, v = torch.randn(3, 2, HEADS, TOKENS, 4).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = attention().float().attend(q, k, v, v.transpose(1, 2).flatten(2))
    assert len(calls) == 1
    assert found.dtype == torch.bfloat16


def test_a_subclass_with_a_formula_of_its_own_gets_its_map(
    calls: list[Tensor],
) -> None:
    class Own(ScaledHighPass):
        def forward(self, weights: Tensor) -> Tensor:
            return self.w[:, None, None] + weights**2

    layer = attention(0)
    layer.edits.weights.append(Own(HEADS))
    results(layer.double(), None)
    assert not calls


def test_an_edit_that_needs_the_map_prevents_the_fused_call(
    calls: list[Tensor],
) -> None:
    layer = attention()
    layer.edits.weights.append(TalkingHeads(HEADS).double())
    results(layer, None)
    assert not calls


def test_dropout_comes_after_the_edits(calls: list[Tensor]) -> None:
    layer = attention()
    layer.attn_drop.p = 0.5
    results(layer.train(), None)
    assert not calls
    results(layer.eval(), None)
    assert len(calls) == 1


@pytest.mark.parametrize("attnscale", [False, True])
def test_the_form_of_the_paper_is_counted(attnscale: bool) -> None:
    """AttnScale changes each weight of each head, whatever call computes it."""
    settings = {"attnscale": attnscale, "size.depth": 2}
    network = resolve("deit_tiny_patch16_224", 32, 3, 10, settings)
    counted = {name for names in operators(network).values() for name in names}
    assert ("scaled_dot_product_attention" in counted) == (not attnscale)
    assert ("softmax" in counted) == attnscale
