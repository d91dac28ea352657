"""RMS norm under autocast."""

from __future__ import annotations

import warnings

import torch

from ablate.layers.rms_norm import RmsNorm


def test_autocast_on_a_cpu_computes_in_float32_without_a_warning() -> None:
    norm = RmsNorm(8, eps=1e-6)
    x = torch.randn(3, 8).bfloat16()
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("error")
        out = norm(x)
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(out.double(), exact, rtol=1e-6, atol=1e-6)
