"""Loss terms on patch tokens, and labels of patches for mixed images."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from timm.data.mixup import Mixup, cutmix_bbox_and_lam
from torch import Tensor, nn

from ablate import factors, families
from ablate.layers.layout import to_tokens
from ablate.layers.patch_losses import Regions
from ablate.models import build_losses, places_of
from ablate.records import Architecture


class PatchTerms(nn.Module):
    """The loss terms of an architecture's loss factors, with hooks that collect tokens.

    The network itself does not change: its state does not include the terms, and
    nothing is collected in evaluation. Create this after any copy of the network.
    """

    def __init__(self, architecture: Architecture, model: nn.Module) -> None:
        super().__init__()
        losses = build_losses(architecture, model)
        self.terms = nn.ModuleDict(
            {name: module for name, (_, module) in losses.items()}
        )
        self.mixes_patches = False
        self._first: Tensor | None = None
        self._last: Tensor | None = None
        if not losses:
            return
        family = families.find(architecture.backbone)
        first_block = places_of(model)[0]
        self.grid, prefix = first_block.site.grid, first_block.site.prefix
        self.mixes_patches = factors.mixes_patches(
            architecture.settings, architecture.backbone
        )
        norm = model.get_submodule(family.last_norm)
        # If timm's ViT averages tokens, it normalises the mean with a norm of another
        # name, and does not normalise the tokens.
        if isinstance(norm, nn.Identity):
            own_norm = model.get_submodule("fc_norm")
        else:
            own_norm = nn.Identity()

        def embed(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if model.training:
                self._first = output

        def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if module.training:
                self._first = to_tokens(inputs[0], first_block.layout)[:, prefix:]

        def leave(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if module.training:
                self._last = own_norm(to_tokens(output, first_block.layout)[:, prefix:])

        if self.mixes_patches:
            model.get_submodule("patch_embed").register_forward_hook(embed)
        else:
            model.get_submodule(first_block.name).register_forward_pre_hook(enter)
        norm.register_forward_hook(leave)

    def forward(self, labels: Tensor | Regions | None) -> Tensor | float:
        """Returns the weighted terms for the network's last batch; 0 if there are none.

        Args:
            labels: (batch, patches, classes); the two regions if images are mixed on
                the patch grid; or None if patches have no labels.
        """
        if not self.terms:
            return 0.0
        assert self._first is not None and self._last is not None
        first, last = self._first, self._last
        # Drop the references, so that the tokens' memory is free after the backward
        # pass.
        self._first = self._last = None
        total = last.new_zeros((), dtype=torch.promote_types(last.dtype, torch.float32))
        for term in self.terms.values():
            total = total + term(first, last, labels)
        return total


# timm has no types, so mypy takes its class for Any.
class PatchMixup(Mixup):  # type: ignore[misc]
    """timm's Mixup and CutMix that remembers each pixel's share of the own image.

    It mixes batch by batch.
    """

    share: Tensor | float = 1.0

    def _mix_batch(self, x: Tensor) -> float:
        lam, use_cutmix = self._params_per_batch()
        self.share = float(lam)
        if lam == 1.0:
            return 1.0
        if use_cutmix:
            (top, bottom, left, right), lam = cutmix_bbox_and_lam(
                x.shape, lam, ratio_minmax=None, correct_lam=True
            )
            x[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
            self.share = torch.ones(x.shape[-2:], device=x.device)
            self.share[top:bottom, left:right] = 0.0
        else:
            # The other image is taken first, because scaling in place would scale it
            # too.
            others = x.flip(0).mul_(1.0 - lam)
            x.mul_(lam).add_(others)
        return float(lam)

    def patch_labels(
        self, labels: Tensor, classes: int, grid: tuple[int, int]
    ) -> Tensor:
        """Returns the label of each patch of the batch that was just mixed.

        A patch that is cut in two has both labels, weighted by area.

        Args:
            labels: the class numbers before mixing, (batch).

        Returns:
            (batch, patches, classes).
        """
        off = self.label_smoothing / classes
        smoothed = F.one_hot(labels, classes).float() * (1 - self.label_smoothing) + off
        share = torch.as_tensor(self.share, device=labels.device)
        area = F.adaptive_avg_pool2d(
            share.expand(1, 1, *(share.shape or grid)), grid
        ).reshape(1, -1, 1)
        mixed: Tensor = (
            area * smoothed[:, None] + (1 - area) * smoothed.flip(0)[:, None]
        )
        return mixed


def mix_on_grid(
    images: Tensor, labels: Tensor, grid: tuple[int, int]
) -> tuple[Tensor, Tensor, Regions]:
    """Mixes each image with another of its batch in whole patches.

    This follows the published code of patch diversification. The first image keeps a
    random rectangle of patches, the same for the whole batch, and its partner fills the
    rest. It draws from the global random states of numpy, Python and torch.

    Args:
        images: (batch, channels, height, width).
        labels: distributions, (batch, classes).
        grid: number of patches in a column and in a row.

    Returns:
        The mixed images, their labels by the share of patches, and the two regions.
    """
    mask = rectangle(grid, float(np.random.beta(1.0, 1.0))).to(images)
    partner = torch.randperm(len(images)).to(images.device)
    sides = images.shape[-2] // grid[0], images.shape[-1] // grid[1]
    pixels = mask.repeat_interleave(sides[0], 0).repeat_interleave(sides[1], 1)
    mixed = images * pixels + images[partner] * (1 - pixels)
    share = mask.mean()
    regions = Regions(mask.flatten(), labels, labels[partner])
    return mixed, share * regions.own + (1 - share) * regions.other, regions


def rectangle(grid: tuple[int, int], share: float) -> Tensor:
    """Returns a random rectangle of at most a share of the grid's patches.

    It is (height, width), of ones and zeros.
    """
    height, width = grid
    area = int(height * width * share)
    rows = random.randint(1, max(1, min(height, area) - 1))
    columns = area // rows
    if columns > width:
        columns = width
        rows = area // width
    top = random.randint(0, max(0, height - rows))
    left = random.randint(0, max(0, width - columns))
    mask = torch.zeros(grid)
    mask[top : top + rows, left : left + columns] = 1.0
    return mask
