"""Loss terms on patch tokens while a network trains, and the labels of patches that mixing two images gives."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from timm.data.mixup import Mixup, cutmix_bbox_and_lam
from torch import Tensor, nn

from ablate import families
from ablate.layers.layout import to_tokens
from ablate.models import build_losses, places_of
from ablate.records import Architecture


class PatchTerms(nn.Module):
    """The loss terms of an architecture's loss factors, and the hooks that fetch their tokens.

    The network itself is left as it is: its state has no part of them, and in evaluation nothing is fetched. Make it after
    any copy of the network.
    """

    def __init__(self, architecture: Architecture, model: nn.Module) -> None:
        super().__init__()
        found = build_losses(architecture, model)
        self.terms = nn.ModuleDict({name: module for name, (_, module) in found.items()})
        self._first: Tensor | None = None
        self._last: Tensor | None = None
        if not found:
            return
        family = families.find(architecture.backbone)
        place = places_of(model)[0]
        self.grid, prefix = place.site.grid, place.site.prefix

        def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if module.training:
                self._first = to_tokens(inputs[0], place.layout)[:, prefix:]

        def leave(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if module.training:
                self._last = to_tokens(output, place.layout)[:, prefix:]

        model.get_submodule(place.name).register_forward_pre_hook(enter)
        model.get_submodule(family.last_norm).register_forward_hook(leave)

    def forward(self, labels: Tensor | None) -> Tensor | float:
        """The weighted terms for the batch that the network saw last; 0 without any.

        Args:
            labels: (batch, patches, classes), or None where patches have no labels.
        """
        if not self.terms:
            return 0.0
        assert self._first is not None and self._last is not None
        first, last = self._first, self._last
        self._first = self._last = None
        total = last.new_zeros((), dtype=torch.float32)
        for term in self.terms.values():
            total = total + term(first, last, labels)
        return total


class PatchMixup(Mixup):  # type: ignore[misc]
    """timm's Mixup and CutMix, batch by batch, that remembers which share of each pixel is the image's own."""

    share: Tensor | float = 1.0

    def _mix_batch(self, x: Tensor) -> float:
        lam, use_cutmix = self._params_per_batch()
        self.share = float(lam)
        if lam == 1.0:
            return 1.0
        if use_cutmix:
            (top, bottom, left, right), lam = cutmix_bbox_and_lam(x.shape, lam, ratio_minmax=None, correct_lam=True)
            x[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
            self.share = torch.ones(x.shape[-2:], device=x.device)
            self.share[top:bottom, left:right] = 0.0
        else:
            # The other image first: scaling in place would scale it too.
            others = x.flip(0).mul_(1.0 - lam)
            x.mul_(lam).add_(others)
        return float(lam)

    def patch_labels(self, labels: Tensor, classes: int, grid: tuple[int, int]) -> Tensor:
        """The label of each patch of the batch just mixed: a patch cut in two has both, by area.

        Args:
            labels: the class numbers before mixing, (batch).

        Returns:
            (batch, patches, classes).
        """
        off = self.label_smoothing / classes
        own = F.one_hot(labels, classes).float() * (1 - self.label_smoothing) + off
        share = torch.as_tensor(self.share, device=labels.device)
        area = F.adaptive_avg_pool2d(share.expand(1, 1, *(share.shape or grid)), grid).reshape(1, -1, 1)
        mixed: Tensor = area * own[:, None] + (1 - area) * own.flip(0)[:, None]
        return mixed
