"""RMS norm under autocast (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4)."""

from __future__ import annotations

from torch import Tensor, nn


class RmsNorm(nn.RMSNorm):
    """An RMS norm that computes in the precision of its scales, as autocast on CUDA does.

    Autocast on a CPU leaves the input in bfloat16 and the scales in float32, for which
    PyTorch has no fused kernel and warns.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (..., channels) in, the same out, in the precision of the scales."""
        return super().forward(x.to(self.weight.dtype))
