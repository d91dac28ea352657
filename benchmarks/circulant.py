"""Ways to compute circulant projections, by wall time: forward and backward.

    make bench-circulant
    make bench-circulant DEVICE=cuda

ablate uses `fourier` on a CPU and `matrices` on a GPU. All give the same values within
rounding:

    fourier        products in the Fourier domain
    own backward   the same forward, and a backward whose transforms are real
    matrices       circulant blocks written out, and one matrix product
    DFT matrices   the transforms as matrix products

The benchmark fails if they differ. Rounds alternate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import cache
from typing import Any

import torch
from machine import machine_text
from torch import Tensor

from ablate.layers.circulant import CirculantProjection

# Width, blocks, projections, images and tokens.
SHAPES = (
    (32, 4, 2, 64, 17),
    (64, 4, 2, 64, 65),
    (128, 4, 1, 64, 65),
    (128, 4, 2, 64, 65),
    (128, 1, 2, 64, 65),
    (192, 4, 2, 16, 197),
    (384, 4, 1, 16, 197),
    (384, 4, 2, 16, 197),
    (768, 8, 2, 4, 197),
)


class _Transformed(torch.autograd.Function):
    """Products in the Fourier domain, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, c: Tensor) -> Tensor:
        count, blocks, _, size = c.shape
        rows = z.reshape(-1, blocks, size)
        spectrum = torch.fft.rfft(rows).permute(2, 0, 1).contiguous()
        kernels = torch.fft.rfft(c).conj().permute(3, 1, 0, 2).flatten(2)
        mixed = torch.bmm(spectrum, kernels).permute(1, 2, 0)
        ctx.save_for_backward(spectrum, kernels)
        ctx.sizes = count, blocks, size
        slices = torch.fft.irfft(mixed, n=size)
        return slices.reshape(*z.shape[:-1], count, blocks * size)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        spectrum, kernels = ctx.saved_tensors
        count, blocks, size = ctx.sizes
        rows = grads[0].reshape(-1, count * blocks, size)
        grad = torch.fft.rfft(rows).permute(2, 0, 1).contiguous()
        to_input = torch.bmm(grad, kernels.conj().transpose(1, 2))
        z = torch.fft.irfft(to_input.permute(1, 2, 0), n=size)
        to_weights = torch.bmm(spectrum.transpose(1, 2), grad.conj())
        weights = to_weights.reshape(-1, blocks, count, blocks).permute(2, 1, 3, 0)
        c = torch.fft.irfft(weights, n=size)
        return z.reshape(*grads[0].shape[:-2], blocks * size), c


class Fourier(CirculantProjection):
    def forward(self, z: Tensor) -> Tensor:
        return self._by_transforms(z)


class OwnBackward(CirculantProjection):
    def forward(self, z: Tensor) -> Tensor:
        projected: Tensor = _Transformed.apply(z, self.c)
        return projected


class Matrices(CirculantProjection):
    def forward(self, z: Tensor) -> Tensor:
        product = z @ self.matrices()
        return product.reshape(*z.shape[:-1], self.count, self.width)


class DftMatrices(CirculantProjection):
    def forward(self, z: Tensor) -> Tensor:
        size = self.width // self.blocks
        there, back = _dft(size, z.device)
        half = size // 2 + 1
        spectrum = _complex(z.reshape(-1, self.blocks, size) @ there, half)
        kernels = _complex(self.c @ there, half).conj()
        mixed = torch.bmm(
            spectrum.permute(2, 0, 1), kernels.permute(3, 1, 0, 2).flatten(2)
        ).permute(1, 2, 0)
        slices = torch.cat((mixed.real, mixed.imag), -1) @ back
        return slices.reshape(*z.shape[:-1], self.count, self.width)


@cache
def _dft(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The matrices of a real transform, to real and imaginary parts, and of its inverse."""
    frequencies = torch.arange(size // 2 + 1, device=device, dtype=torch.float64)
    places = torch.arange(size, device=device, dtype=torch.float64)
    angles = 2 * torch.pi * places[:, None] * frequencies / size
    # Each frequency but the first and the middle one stands for two.
    weight = torch.full_like(frequencies, 2.0)
    weight[0] = 1
    if size % 2 == 0:
        weight[-1] = 1
    there = torch.cat((angles.cos(), -angles.sin()), 1)
    back = torch.cat(((angles.cos() * weight).T, (-angles.sin() * weight).T), 0) / size
    return there.float(), back.float()


def _complex(parts: Tensor, half: int) -> Tensor:
    return torch.complex(parts[..., :half], parts[..., half:])


METHODS: dict[str, type[CirculantProjection]] = {
    "fourier": Fourier,
    "own backward": OwnBackward,
    "matrices": Matrices,
    "DFT matrices": DftMatrices,
}


class Timed:
    """One method on one shape."""

    def __init__(
        self, kind: type[CirculantProjection], like: CirculantProjection
    ) -> None:
        self._module = kind(like.width, like.blocks, like.count).to(like.c.device)
        self._module.load_state_dict(like.state_dict())

    def run(self, z: Tensor, grad: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        """Seconds of forward and backward; output and gradients."""
        inputs = z.clone().requires_grad_()
        self._module.c.grad = None
        _wait(z)
        start = time.perf_counter()
        out = self._module(inputs)
        out.backward(grad)
        _wait(z)
        seconds = time.perf_counter() - start
        assert inputs.grad is not None
        assert self._module.c.grad is not None
        return seconds, (out.detach(), inputs.grad, self._module.c.grad)


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()


def check(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], name: str) -> None:
    """Raises SystemExit if values or gradients differ by more than rounding."""
    for one, other in zip(found, expected, strict=True):
        error = (one - other).abs().max() / other.abs().max()
        if error > 1e-4:
            raise SystemExit(f"{name} differs by {error:.1e} of the largest value")


def main(rounds: int, device: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"| width | b | count | rows | {' | '.join(METHODS)} |")
    print("|---|---|---|---|" + "---|" * len(METHODS))
    for width, blocks, count, images, tokens in SHAPES:
        like = CirculantProjection(width, blocks, count).to(device)
        timed = {name: Timed(kind, like) for name, kind in METHODS.items()}
        z = torch.randn(images, tokens, width, device=device)
        grad = torch.randn(images, tokens, count, width, device=device)
        _, expected = timed["fourier"].run(z, grad)
        for name, one in timed.items():
            check(one.run(z, grad)[1], expected, name)
        taken: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(rounds):
            for name, one in timed.items():
                taken[name].append(one.run(z, grad)[0])
        usual = taken["fourier"]
        shown = [f"{1000 * statistics.median(usual):.2f} ms"]
        for name in list(METHODS)[1:]:
            pairs = zip(taken[name], usual, strict=True)
            shown.append(f"x {statistics.median(one / two for one, two in pairs):.2f}")
        print(
            f"| {width} | {blocks} | {count} | {images * tokens} | {' | '.join(shown)} |",
            flush=True,
        )
    print(f"\n{rounds} rounds, float32, one CPU thread, on {device}; {machine_text()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    given = parser.parse_args()
    main(given.rounds, given.device)
