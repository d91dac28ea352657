"""The package's networks in float64, and their comparison with references."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ablate.families import resolve
from ablate.models import build
from ablate.records import Level

TOLERANCE = 1e-10
VIT: dict[str, Level] = {
    "size.patch_size": 4,
    "size.width": 12,
    "size.depth": 2,
    "size.heads": 3,
    "size.mlp_ratio": 2.0,
}
HEADS, DEPTH, SIDE, IMAGE, CLASSES = 3, 2, 4, 12, 5


def randomise(module: nn.Module) -> None:
    """Gives parameters and running statistics values that no formula is blind to: no
    zeros, no ones.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)


def network(backbone: str, image_size: int, settings: Mapping[str, Level]) -> nn.Module:
    """A network of the package in float64 with random weights, in evaluation."""
    torch.manual_seed(0)
    model = (
        build(resolve(backbone, image_size, 3, CLASSES, dict(settings))).double().eval()
    )
    randomise(model)
    return model


def vit(**settings: Level) -> nn.Module:
    """A ViT of two blocks on images of 12 x 12 pixels: nine patches.

    Double underscores stand for dots.
    """
    return network(
        "vit",
        IMAGE,
        VIT | {name.replace("__", "."): level for name, level in settings.items()},
    )


def images(batch: int = 2) -> Tensor:
    """Random images for `vit`."""
    return torch.randn(batch, 3, IMAGE, IMAGE, dtype=torch.float64)


def weights_of(
    module: nn.Module, names: Mapping[str, str] | None = None
) -> dict[str, Tensor]:
    """Parameters and buffers by name, where each text in `names` is replaced by the
    authors' text, in their order.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        for ours, theirs in (names or {}).items():
            name = name.replace(ours, theirs)
        found[name] = tensor
    return found


def agree(
    run: Callable[[], Tensor], reference: Callable[[], Tensor], module: nn.Module
) -> None:
    """Whether two outputs in float64 agree to 1e-10, and their gradients by every
    parameter of a module.

    The gradients are those of one random linear functional of the output.
    """
    found, wanted = run(), reference()
    assert found.dtype == wanted.dtype == torch.float64
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)
    functional = torch.randn_like(wanted)
    parameters = dict(module.named_parameters())
    leaves = list(parameters.values())
    gradients = torch.autograd.grad(
        (found * functional).sum(), leaves, allow_unused=True
    )
    expected = torch.autograd.grad(
        (wanted * functional).sum(), leaves, allow_unused=True
    )
    for name, ours, theirs in zip(parameters, gradients, expected, strict=True):
        assert (ours is None) == (theirs is None), name
        if ours is not None and theirs is not None:
            torch.testing.assert_close(
                ours,
                theirs,
                rtol=TOLERANCE,
                atol=TOLERANCE,
                msg=lambda text, of=name: f"{of}: {text}",
            )
