"""Block-circulant projection (augmented-shortcuts, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn


class CirculantProjection(nn.Module):
    """Several block-circulant projections of one input, `Z @ Theta_t` for t = 1..count.

    There is no bias unless it is asked for. Theta_t is a b x b grid of circulant blocks
    of size w = width / b (eq. 12); block (i, j) has the entries `c[t, i, j, (r - s) mod
    w]` at row r and column s (eq. 13). Each projection has `b * width` parameters. On a
    CPU, the product is computed in the Fourier domain (eq. 14), with one forward
    transform that all projections share. On a GPU, the matrices are written out,
    because one matrix product is much faster there than three transforms.

    Args:
        width: channels of the input, d.
        blocks: b; it must divide `width`.
        count: number of projections.
        bias: one vector per projection, as in the published code. Weights and bias then
            start from the wider, uniform distribution of that code.

    Shape:
        input (..., width), output (..., count, width). In the Fourier domain, the
            output has the dtype of the input, and transforms run in at least float32. A
            matrix product has the dtype that autocast gives it.
    """

    DECAYS_AS_PUBLISHED: ClassVar[Mapping[str, bool]] = {"c": False}
    """The published code keeps each projection's parameters in one vector, and timm's
    rule does not decay vectors.
    """

    def __init__(
        self, width: int, blocks: int, count: int = 1, *, bias: bool = False
    ) -> None:
        super().__init__()
        if width % blocks:
            raise ValueError(
                f"{blocks} blocks are not possible, because the width"
                f" {width} is not a multiple of {blocks}"
            )
        self.width = width
        self.blocks = blocks
        self.count = count
        self.c = nn.Parameter(torch.empty(count, blocks, blocks, width // blocks))
        self.bias = nn.Parameter(torch.empty(count, width)) if bias else None
        if self.bias is None:
            nn.init.trunc_normal_(self.c, std=0.02)
        else:
            nn.init.uniform_(self.c, -(width**-0.5), width**-0.5)
            nn.init.uniform_(self.bias, -(width**-0.5), width**-0.5)

    @staticmethod
    def from_published(weights: Tensor, blocks: int) -> Tensor:
        """Converts the authors' `Circulant_Linear` parameter to `c` of a projection.

        Their index is output minus input, and their first block index is the output's.
        Here both are the other way round.

        Shape:
            (blocks * width) to (blocks, blocks, width / blocks).
        """
        grid = weights.reshape(blocks, blocks, -1).transpose(0, 1)
        # Negating an index modulo the size: flip, then shift by one so that 0 stays 0.
        return torch.roll(grid.flip(-1), 1, dims=-1)

    def forward(self, z: Tensor) -> Tensor:
        if z.is_cuda:
            product = z @ self.matrices().to(z.dtype)
            projected: Tensor = product.unflatten(-1, (self.count, self.width))
        else:
            projected = self._by_transforms(z)
        if self.bias is None:
            return projected
        return projected + self.bias

    def matrices(self) -> Tensor:
        """Returns all Theta_t side by side, shape (width, count * width)."""
        size = self.width // self.blocks
        # Row r of a block is the reversed vector, moved by r places: a window of the
        # doubled vector.
        reversed_ = self.c.flip(-1).roll(1, -1)
        windows = torch.cat((reversed_, reversed_), -1).unfold(-1, size, 1)
        blocks = windows[..., 1:, :].flip(-2)
        return blocks.permute(1, 3, 0, 2, 4).reshape(self.width, -1)

    def _by_transforms(self, z: Tensor) -> Tensor:
        size, lead = self.width // self.blocks, z.shape[:-1]
        # The FFT has no bfloat16 version, and half precision only for some sizes.
        with torch.autocast(z.device.type, enabled=False):
            exact = torch.promote_types(z.dtype, torch.float32)
            spectrum = torch.fft.rfft(z.to(exact).reshape(-1, self.blocks, size))
            # z @ circ(c) is a circular correlation with c, hence the conjugate.
            kernels = torch.fft.rfft(self.c.to(exact)).conj()
            # For each frequency, a (rows, b) by (b, count * b) product: this needs far
            # less memory than element-wise products with a sum.
            mixed = torch.bmm(
                spectrum.permute(2, 0, 1), kernels.permute(3, 1, 0, 2).flatten(2)
            )
            slices = torch.fft.irfft(mixed.permute(1, 2, 0), n=size)
        projected: Tensor = slices.reshape(*lead, self.count, self.width)
        return projected.to(z.dtype)

    def paper_flops(self, rows: int) -> float:
        """Returns multiply-adds by the paper's formula for `rows` input vectors.

        It is `2 d log2(d/b) + 2 b d` for each vector and projection. The text prints `d
        log2(d/b) + 2 b d`, but its own tables need the FFT and the inverse FFT counted
        once each.
        """
        per_row = (
            2 * self.width * math.log2(self.width / self.blocks)
            + 2 * self.blocks * self.width
        )
        return rows * self.count * per_row

    def extra_repr(self) -> str:
        return f"width={self.width}, blocks={self.blocks}, count={self.count}"
