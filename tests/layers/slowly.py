"""What the numerical tests share: gradients by central differences in float64, and the
formulas that several layers use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

Arrays = dict[str, np.ndarray]

STEP = 1e-6
TOLERANCE = 1e-5


def agree(
    run: Callable[[], Tensor],
    leaves: Mapping[str, Tensor],
    reference: Callable[[Arrays], np.ndarray],
    entries: int | None = None,
) -> None:
    """Whether `run`, in float32, equals the reference in float64, and so do the
    gradients of a random linear functional of the output with respect to every leaf.

    Args:
        run: gives the output from the leaves.
        leaves: inputs and parameters; all of them must get a gradient.
        reference: the same from float64 copies of the leaves.
        entries: of each leaf, gradients of so many random entries are compared, and the
            derivative along one random direction, which all the entries enter; by
            default, gradients of all entries are.
    """
    random = np.random.default_rng(0)
    for leaf in leaves.values():
        leaf.requires_grad_(True)
        leaf.grad = None
    values = {
        name: leaf.detach().double().numpy().copy() for name, leaf in leaves.items()
    }
    out, expected = run(), np.asarray(reference(values))
    assert out.dtype == torch.float32
    assert tuple(out.shape) == expected.shape
    np.testing.assert_allclose(
        out.detach().numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE
    )

    # Rounded to float32 first, so that both functionals are the same.
    weight = random.standard_normal(expected.shape).astype(np.float32)
    (out * torch.from_numpy(weight)).sum().backward()

    def derivative(name: str, direction: np.ndarray) -> float:
        plus, minus = (
            {**values, name: values[name] + sign * STEP * direction} for sign in (1, -1)
        )
        return float(
            (
                (np.asarray(reference(plus)) - np.asarray(reference(minus))) * weight
            ).sum()
            / (2 * STEP)
        )

    for name, leaf in leaves.items():
        assert leaf.grad is not None, name
        gradient = leaf.grad.double().numpy().ravel()
        size = gradient.size
        chosen = (
            np.arange(size)
            if entries is None or entries >= size
            else random.choice(size, entries, replace=False)
        )
        directions = [np.eye(1, size, at).reshape(values[name].shape) for at in chosen]
        if len(chosen) < size:
            dense = random.standard_normal(size)
            directions.append(
                (dense / np.linalg.norm(dense)).reshape(values[name].shape)
            )
        found = [float(direction.ravel() @ gradient) for direction in directions]
        wanted = [derivative(name, direction) for direction in directions]
        np.testing.assert_allclose(
            found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"gradient of {name}"
        )


def parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters, by name."""
    return dict(module.named_parameters())


def randomise(module: nn.Module, deviation: float = 0.5) -> None:
    """Gives parameters values that no formula is blind to: no zeros, no ones."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, deviation)


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in np.ravel(x).tolist()]).reshape(np.shape(x))


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution function."""
    return x * (1 + erf(x / math.sqrt(2))) / 2


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float
) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * weight + bias


@cache
def dft(n: int) -> np.ndarray:
    """The matrix of the discrete Fourier transform of n numbers."""
    return np.array(
        [
            [np.exp(-2j * math.pi * row * column / n) for column in range(n)]
            for row in range(n)
        ]
    )


@cache
def low_pass(n: int) -> np.ndarray:
    """The filter F^-1 diag(1, 0, ..., 0) F, which keeps the constant part of n tokens."""
    return (np.linalg.inv(dft(n)) @ np.diag([1.0] + [0.0] * (n - 1)) @ dft(n)).real


def block_circulant(c: np.ndarray) -> np.ndarray:
    """Theta (augmented-shortcuts, eq. 12) from its vectors (b, b, w): in each block,
    column s is the vector turned on by s places (eq. 13).
    """
    b, _, w = c.shape
    return np.block(
        [
            [
                np.stack([np.roll(c[i, j], s) for s in range(w)], axis=1)
                for j in range(b)
            ]
            for i in range(b)
        ]
    )
