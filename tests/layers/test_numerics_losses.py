"""The three losses on patches, and sums of activations, against the papers' formulas,
written again slowly in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ablate.layers.ffn import ACTIVATIONS, RPReLU, SummedActivations, linear
from ablate.layers.patch_losses import (
    PatchLosses,
    contrastive_loss,
    cosine_loss,
    mixing_loss,
)
from tests.layers.slowly import Arrays, agree, gelu, parameters, randomise, silu

BASES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "swish": silu,
}


def cosine(h: np.ndarray) -> float:
    """Mean over images of 1 / (n (n - 1)) times the sum over i != j of cos(h_i, h_j)."""
    batch, n, _ = h.shape
    total = 0.0
    for image in h:
        for i in range(n):
            for j in range(n):
                if i != j:
                    total += (
                        image[i]
                        @ image[j]
                        / math.sqrt((image[i] @ image[i]) * (image[j] @ image[j]))
                    )
    return total / (n * (n - 1) * batch)


def log_sum_exp(values: list[float]) -> float:
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))


def contrastive(e: np.ndarray, h: np.ndarray) -> float:
    """Mean over images of -1/n sum_i log( exp(e_i.h_i) / (exp(e_i.h_i) + exp(e_i .
    mean_j h_j)) ).
    """
    batch, n, _ = h.shape
    total = 0.0
    for image in range(batch):
        mean = sum(h[image, j] for j in range(n)) / n
        for i in range(n):
            same, other = float(e[image, i] @ h[image, i]), float(e[image, i] @ mean)
            total -= same - log_sum_exp([same, other])
    return total / (n * batch)


def mixing(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean over images and patches of the cross-entropy with the patch's distribution
    of labels.
    """
    batch, n, classes = logits.shape
    total = 0.0
    for image in range(batch):
        for i in range(n):
            norm = log_sum_exp(list(logits[image, i]))
            total -= sum(
                labels[image, i, c] * (logits[image, i, c] - norm)
                for c in range(classes)
            )
    return total / (n * batch)


def distributions(*shape: int) -> torch.Tensor:
    """Labels of patches: whole ones, and one patch that was cut in two."""
    labels = nn.functional.one_hot(
        torch.randint(shape[-1], shape[:-1]), shape[-1]
    ).float()
    labels[0, 0] = 0
    labels[0, 0, 0], labels[0, 0, 1] = 0.25, 0.75
    return labels


@pytest.mark.parametrize("shape", [(1, 2, 3), (2, 5, 3), (3, 4, 6)])
def test_cosine_loss(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    h = torch.randn(shape)
    agree(lambda: cosine_loss(h), {"h": h}, lambda at: np.array(cosine(at["h"])))


def test_cosine_loss_of_as_many_tokens_as_an_image_has() -> None:
    """Nothing is lost in the difference of two large sums: with independent tokens, and
    with ones that have become alike.
    """
    torch.manual_seed(1)
    for h in (
        torch.randn(2, 49, 8),
        torch.randn(2, 1, 8) + 1e-3 * torch.randn(2, 49, 8),
        1e3 * torch.randn(2, 49, 8),
    ):
        assert abs(cosine_loss(h).item() - cosine(h.double().numpy())) < 1e-5


def test_cosine_loss_knows_its_extremes() -> None:
    """Alike tokens have 1, orthogonal ones 0, two opposite ones -1, whatever their
    lengths.
    """
    assert (
        abs(
            cosine_loss(torch.tensor([[[1.0, 2.0], [2.0, 4.0], [0.1, 0.2]]])).item() - 1
        )
        < 1e-6
    )
    assert (
        abs(cosine_loss(torch.diag(torch.tensor([1.0, 5.0, 0.2]))[None]).item()) < 1e-6
    )
    assert (
        abs(cosine_loss(torch.tensor([[[1.0, 2.0], [-2.0, -4.0]]])).item() + 1) < 1e-6
    )


def test_contrastive_loss() -> None:
    torch.manual_seed(2)
    e, h = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    agree(
        lambda: contrastive_loss(e, h),
        {"h": h},
        lambda at: np.array(contrastive(e.double().numpy(), at["h"])),
    )


def test_contrastive_loss_gives_no_gradient_to_the_first_layer() -> None:
    torch.manual_seed(3)
    e, h = (
        torch.randn(2, 4, 3, requires_grad=True),
        torch.randn(2, 4, 3, requires_grad=True),
    )
    contrastive_loss(e, h).backward()
    assert e.grad is None
    assert h.grad is not None
    # Where first and last layer are one tensor, only its part as last layer counts.
    both = e.detach().clone().requires_grad_(True)
    contrastive_loss(both, both).backward()
    apart = e.detach().clone().requires_grad_(True)
    contrastive_loss(e.detach(), apart).backward()
    torch.testing.assert_close(both.grad, apart.grad)


def test_contrastive_loss_of_products_that_overflow() -> None:
    torch.manual_seed(4)
    e, h = 30 * torch.randn(2, 4, 8), 30 * torch.randn(2, 4, 8)
    assert (e * h).sum(-1).abs().max() > 1000
    h.requires_grad_(True)
    loss = contrastive_loss(e, h)
    loss.backward()
    expected = contrastive(e.double().numpy(), h.detach().double().numpy())
    assert abs(loss.item() / expected - 1) < 1e-5
    assert h.grad is not None and h.grad.isfinite().all()


def test_mixing_loss() -> None:
    torch.manual_seed(5)
    logits, labels = torch.randn(2, 4, 3), distributions(2, 4, 3)
    agree(
        lambda: mixing_loss(logits, labels),
        {"logits": logits},
        lambda at: np.array(mixing(at["logits"], labels.numpy())),
    )


def test_losses_of_half_precision_are_taken_in_float32() -> None:
    torch.manual_seed(6)
    e, h, labels = (
        torch.randn(2, 5, 4).bfloat16(),
        torch.randn(2, 5, 4).bfloat16(),
        distributions(2, 5, 4),
    )
    e64, h64 = e.double().numpy(), h.double().numpy()
    pairs = [
        (cosine_loss(h), cosine(h64)),
        (contrastive_loss(e, h), contrastive(e64, h64)),
    ]
    for found, expected in [
        *pairs,
        (mixing_loss(h, labels), mixing(h64, labels.numpy())),
    ]:
        assert found.dtype == torch.float32
        assert abs(found.item() - expected) < 1e-5


@pytest.mark.parametrize(
    "weights",
    [
        (0.7, 0.0, 0.0),
        (0.0, 1.3, 0.0),
        (0.0, 0.0, 0.4),
        (0.0, 2.0, 1.0),
        (0.7, 1.3, 0.4),
    ],
)
def test_weighted_sum_of_losses(weights: tuple[float, float, float]) -> None:
    torch.manual_seed(7)
    layer = PatchLosses(
        3, 4, cosine=weights[0], contrastive=weights[1], mixing=weights[2]
    )
    assert sum(p.numel() for p in layer.parameters()) == (
        3 * 4 + 4 if weights[2] else 0
    )
    randomise(layer)
    e, h, labels = torch.randn(2, 5, 3), torch.randn(2, 5, 3), distributions(2, 5, 4)

    def reference(at: Arrays) -> np.ndarray:
        total = weights[0] * cosine(at["h"]) + weights[1] * contrastive(
            e.double().numpy(), at["h"]
        )
        if weights[2]:
            logits = at["h"] @ at["head.weight"].T + at["head.bias"]
            total += weights[2] * mixing(logits, labels.numpy())
        return np.array(total)

    given = labels if weights[2] else None
    agree(lambda: layer(e, h, given), {"h": h, **parameters(layer)}, reference)


@pytest.mark.parametrize("base", list(BASES))
@pytest.mark.parametrize("count", [1, 3, 18])
def test_sum_of_arbitrary_activations(base: str, count: int) -> None:
    """sum_k beta_k phi(alpha_k x + gamma_k) + theta_k (iffn, eq. 4 and 11)."""
    torch.manual_seed(8)
    width = 2
    layer = SummedActivations(width, count, ACTIVATIONS[base](width), arbitrary=True)
    assert sum(p.numel() for p in layer.parameters()) == 4 * width * count
    randomise(layer)
    x = torch.randn(2, 2, width)

    def reference(at: Arrays) -> np.ndarray:
        total = np.zeros_like(at["x"])
        for k in range(count):
            total += (
                at["beta"][k] * BASES[base](at["alpha"][k] * at["x"] + at["gamma"][k])
                + at["theta"][k]
            )
        return total

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference)
    expected = layer(x).detach()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("base", list(BASES))
def test_sum_of_plain_activations(base: str) -> None:
    torch.manual_seed(9)
    layer = SummedActivations(3, 5, ACTIVATIONS[base](3), arbitrary=False)
    assert not list(layer.parameters())
    x = torch.randn(2, 4, 3)
    agree(
        lambda: layer(x),
        {"x": x},
        lambda at: sum(
            (BASES[base](at["x"]) for _ in range(5)), np.zeros_like(at["x"])
        ),
    )


def test_rprelu() -> None:
    """Equation 4 of ReActNet, with a turning point, a shift and a slope per channel."""
    torch.manual_seed(12)
    layer = RPReLU(3)
    x = torch.randn(2, 4, 3)
    torch.testing.assert_close(layer(x), F.leaky_relu(x, 0.25))
    randomise(layer)

    def reference(at: Arrays) -> np.ndarray:
        moved = at["x"] - at["gamma"]
        return np.where(moved > 0, moved, at["beta"] * moved) + at["zeta"]

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference)


def test_sum_of_arbitrary_activations_starts_near_the_plain_one() -> None:
    torch.manual_seed(10)
    layer, x = SummedActivations(4, 16, nn.GELU(), arbitrary=True), torch.randn(2, 3, 4)
    np.testing.assert_allclose(
        layer(x).detach().numpy(), 16 * gelu(x.double().numpy()), rtol=0.05, atol=0.5
    )
    assert len({tuple(row.tolist()) for row in layer.alpha}) == 16


@pytest.mark.parametrize("bias", [False, True])
def test_a_pointwise_convolution_is_a_linear_layer(bias: bool) -> None:
    torch.manual_seed(11)
    convolution = nn.Conv2d(3, 5, 1, bias=bias)
    randomise(convolution)
    layer = linear(convolution)
    image = torch.randn(2, 3, 2, 2)
    out = convolution(image).detach().numpy()
    tokens = torch.stack([image[:, :, i, j] for i in range(2) for j in range(2)], dim=1)

    def reference(at: Arrays) -> np.ndarray:
        result = np.zeros((2, 4, 5))
        for n in range(2):
            for place in range(4):
                for o in range(5):
                    result[n, place, o] = sum(
                        at["weight"][o, c] * at["tokens"][n, place, c] for c in range(3)
                    )
                    result[n, place, o] += at["bias"][o] if bias else 0
        return result

    agree(lambda: layer(tokens), {"tokens": tokens, **parameters(layer)}, reference)
    found = layer(tokens).detach().numpy()
    for place in range(4):
        np.testing.assert_allclose(
            found[:, place], out[:, :, place // 2, place % 2], atol=1e-5
        )
    assert layer.weight.data_ptr() != convolution.weight.data_ptr()


def test_a_linear_layer_stays_the_same_object() -> None:
    layer = nn.Linear(3, 2)
    assert linear(layer) is layer
