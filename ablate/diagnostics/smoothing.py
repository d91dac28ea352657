"""How much of the high frequencies passes attention, beside the bound of Theorem 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.diagnostics.diagnostic import Diagnostic, Layer

if TYPE_CHECKING:
    from torch import Tensor


def bound(logits: Tensor, norms: Tensor) -> Tensor:
    """Returns `sum_h sqrt(N e^(2 a) / (e^(2 a) + N - 1)) ||W_h||_2`.

    a is max |P_ij| of head h.

    Shape:
        logits (batch, heads, N, N), norms (heads), to (batch).
    """
    n = logits.shape[-1]
    alpha = logits.abs().amax((-1, -2))
    rate = (n / (1 + (n - 1) * (-2 * alpha).exp())).sqrt()
    return (rate * norms).sum(1)


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns `||HC[MSA(X)]||_F / ||HC[X]||_F` and its bound.

    W_h is value times output projection of a head. This is only for plain softmax
    attention of N tokens to themselves: the theorem does not cover edits of values,
    weights or output.
    """
    import torch

    if layer.attention is None:
        return {}
    attention, seen = layer.attention
    edits = attention.edits
    plain = attention.fusible and not (edits.value or edits.weights or edits.output)
    if (
        not plain
        or seen.weights.shape[-1] < 2
        or seen.weights.shape[-1] != seen.weights.shape[-2]
        or seen.source.shape != seen.output.shape
    ):
        return {}
    # The norm of W_h = W_V W_O is that of a product of two thin matrices, whose inner
    # side is the width of a head.
    heads = attention.num_heads
    value = attention.value_weight().float().unflatten(0, (heads, -1))
    output = attention.proj.weight.float().unflatten(1, (heads, -1)).movedim(1, 0)
    norms = torch.linalg.matrix_norm(output @ value, ord=2)
    before, after = (_high(x).clamp_min(1e-12) for x in (seen.source, seen.output))
    return {"measured": after / before, "bound": bound(seen.logits.float(), norms)}


def _high(x: Tensor) -> Tensor:
    norms: Tensor = (x - x.mean(1, keepdim=True)).flatten(1).norm(dim=1)
    return norms


DIAGNOSTIC = Diagnostic(
    name="smoothing",
    about=(
        "factor by which attention changes the high frequencies of its input, measured"
        " and bounded from above"
    ),
    source="anti-oversmoothing, Theorem 3 and Figure 1",
    axis="high frequencies after / before attention",
    measure=measure,
)
