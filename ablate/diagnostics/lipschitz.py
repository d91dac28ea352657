"""The Lipschitz bound of a feed-forward network with (A)GELUs.

It comes from semidefinite programming, with a sampled lower bound beside it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ablate.diagnostics.diagnostic import Diagnostic, Layer
from ablate.errors import DiagnosticError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    Matrix = npt.NDArray[np.float64]

_GELU = 0.5 * (1 + math.erf(1.0)) + math.exp(-1) / math.sqrt(math.pi)
# Least and greatest slope of each base activation; GELU has them at -sqrt 2 and sqrt 2.
SLOPES = {
    "GELU": (1 - _GELU, _GELU),
    "SiLU": (-0.09984, 1.09984),
    "Softplus": (0.0, 1.0),
    "ELU": (0.0, 1.0),
    "Identity": (1.0, 1.0),
}

# With more rows than this, the first-order solver SCS replaces the interior-point
# solver Clarabel.
LARGE = 120

# A program with more rows takes hours.
LARGEST = 800

_KNOWN: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()


def bound(inner: Matrix, parts: list[tuple[Matrix, Matrix, Matrix]]) -> float:
    """Returns `sum_i sqrt(rho_i)` for `f(x) = sum_i W1_i phi_i(W0 x + b)`.

    See iffn, Theorem 4.3, with W1_i as in its proof. Each channel has its own slopes,
    while the theorem uses the widest of all channels. As T is diagonal, its proof still
    holds.

    Args:
        inner: W0, (hidden, width).
        parts: for each i the matrix W1_i, (outputs, hidden), and the least and greatest
            slope of each channel, (hidden).

    Raises:
        DiagnosticError: the program is too large.
    """
    return sum(math.sqrt(_rho(inner, *part)) for part in parts)


def _rho(inner: Matrix, outer: Matrix, least: Matrix, greatest: Matrix) -> float:
    """Returns the least rho that the matrix inequality allows, certified.

    It is computed for the T that the solver found, whatever that is.
    """
    import cvxpy as cp
    import numpy as np

    width, hidden = inner.shape[1], inner.shape[0]
    if width + hidden > LARGEST:
        raise DiagnosticError(
            f"lipschitz: the width plus the hidden width is {width + hidden}; beyond"
            f" {LARGEST}, the semidefinite program would not end; leave lipschitz out"
        )
    # Scaled to norms of one, so that the solver's tolerances mean the same for every
    # layer.
    scales = (
        max(float(np.linalg.norm(inner, 2)), 1e-30),
        max(float(np.linalg.norm(outer, 2)), 1e-30),
    )
    w0 = inner / scales[0]
    gram = (outer.T @ outer) / scales[1] ** 2
    t = cp.Variable(hidden, nonneg=True)
    rho = cp.Variable(nonneg=True)
    diagonal = cp.diag(t)
    upper = -2 * w0.T @ cp.diag(cp.multiply(least * greatest, t)) @ w0 - rho * np.eye(
        width
    )
    side = w0.T @ cp.diag(cp.multiply(least + greatest, t))
    matrix = cp.bmat([[upper, side], [side.T, -2 * diagonal + gram]])
    problem = cp.Problem(cp.Minimize(rho), [matrix << 0])
    # An inaccurate solution, or none, makes the bound less tight but not wrong: the
    # bound is certified from whatever T there is.
    with warnings.catch_warnings(), contextlib.suppress(cp.error.SolverError):
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cp.CLARABEL if width + hidden <= LARGE else cp.SCS)
    multipliers = np.ones(hidden) if t.value is None else np.clip(t.value, 0, None)
    return float(
        _certified(w0, gram, least, greatest, multipliers)
        * scales[0] ** 2
        * scales[1] ** 2
    )


def _certified(
    w0: Matrix, gram: Matrix, least: Matrix, greatest: Matrix, t: Matrix
) -> float:
    """Returns the least rho for a given diagonal T, by the Schur complement.

    T is raised until its block is positive definite.
    """
    import numpy as np

    rises = [10.0**power for power in range(-9, 2)]
    candidates = []
    for raised in [t + 0.51, *(t + rise * max(float(t.max()), 1e-3) for rise in rises)]:
        block = 2 * np.diag(raised) - gram
        try:
            np.linalg.cholesky(block)
        except np.linalg.LinAlgError:
            continue
        side = w0.T * ((least + greatest) * raised)
        whole = -2 * (w0.T * (least * greatest * raised)) @ w0 + side @ np.linalg.solve(
            block, side.T
        )
        candidates.append(max(float(np.linalg.eigvalsh(whole)[-1]), 0.0))
    assert candidates, "gram is bounded by one, so the first makes the block definite"
    return min(candidates)


def sampled(
    inner: nn.Linear, act: nn.Module, outer: nn.Linear, count: int, x: Tensor
) -> Tensor:
    """Returns the largest spectral norm of f's Jacobian at some tokens of each image.

    It is a lower bound of the Lipschitz constant.

    Shape:
        x (batch, n, width), to (batch).
    """
    import torch

    some = x[:, :: max(1, x.shape[1] // 16)]
    pre = inner(some).detach()
    slopes = []
    for part in range(count):
        with torch.enable_grad():
            leaf = pre.clone().requires_grad_()
            out = act(leaf).unflatten(-1, (count, -1))[..., part, :]
            slopes.append(torch.autograd.grad(out.sum(), leaf)[0])
    w1 = outer.weight.unflatten(1, (count, -1))
    jacobians = sum(
        torch.einsum("oh,bnh,hi->bnoi", w1[:, part], slopes[part], inner.weight)
        for part in range(count)
    )
    assert isinstance(jacobians, torch.Tensor)
    norms: Tensor = torch.linalg.matrix_norm(jacobians, ord=2)
    return norms.amax(1)


def measure(layer: Layer) -> Mapping[str, Tensor]:
    """Returns bound and sampled lower bound of `fc2(phi(fc1(x)))`.

    Norms and a depthwise block between them are left out, as in the theorem.
    """
    import torch
    from torch import nn

    if layer.ffn is None:
        return {}
    module, x = layer.ffn
    fc1, act, fc2 = (getattr(module, name, None) for name in ("fc1", "act", "fc2"))
    if not (
        isinstance(fc1, nn.Linear)
        and isinstance(fc2, nn.Linear)
        and isinstance(act, nn.Module)
    ):
        return {}
    base = getattr(act, "activation", act)
    count = int(getattr(act, "count", 1))
    if type(base).__name__ not in SLOPES:
        return {}
    if module not in _KNOWN:
        _KNOWN[module] = bound(
            fc1.weight.double().cpu().numpy(),
            _parts(act, type(base).__name__, fc2, count),
        )
    bounds = sampled(fc1, act, fc2, count, x)
    return {"bound": torch.full_like(bounds, _KNOWN[module]), "sampled": bounds}


def _parts(
    act: Any, base: str, fc2: nn.Linear, count: int
) -> list[tuple[Matrix, Matrix, Matrix]]:
    """Returns W1_i and the slopes of each of the concatenated activations."""
    import numpy as np

    least, greatest = SLOPES[base]
    w1 = fc2.weight.double().cpu().numpy()
    hidden = w1.shape[1] // count
    gains = np.ones(w1.shape[1])
    if hasattr(act, "alpha"):
        gains = (act.alpha * act.beta).double().cpu().numpy()
    layers = []
    for part in range(count):
        channels = slice(part * hidden, (part + 1) * hidden)
        ends = np.stack((gains[channels] * least, gains[channels] * greatest))
        layers.append((w1[:, channels], ends.min(0), ends.max(0)))
    return layers


DIAGNOSTIC = Diagnostic(
    name="lipschitz",
    about=(
        "Lipschitz constant of the feed-forward network's linear layers and"
        " activations, bounded from above and sampled"
    ),
    source="iffn, Theorem 4.3",
    axis="Lipschitz constant",
    measure=measure,
    requires="cvxpy",
)
