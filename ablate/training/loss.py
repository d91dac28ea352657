"""The training loss of a recipe, and the targets it takes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import Tensor, nn

from ablate.records import Recipe
from ablate.training.patches import PatchMixup


def training_loss(recipe: Recipe) -> nn.Module:
    """timm's loss for the recipe's targets: soft under Mixup and CutMix, else class numbers."""
    mixes = recipe.mixes
    loss: nn.Module = nn.CrossEntropyLoss()
    if recipe.loss == "bce":
        loss = BinaryCrossEntropy(smoothing=0.0 if mixes else recipe.label_smoothing)
    elif mixes:
        loss = SoftTargetCrossEntropy()
    elif recipe.label_smoothing:
        loss = LabelSmoothingCrossEntropy(recipe.label_smoothing)
    return loss


def mixer(recipe: Recipe, classes: int) -> PatchMixup | None:
    """timm's Mixup and CutMix, or None where the recipe has neither. It needs an even batch."""
    if not recipe.mixes:
        return None
    return PatchMixup(
        mixup_alpha=recipe.mixup,
        cutmix_alpha=recipe.cutmix,
        prob=recipe.mixup_prob,
        switch_prob=recipe.mixup_switch,
        mode=recipe.mixup_mode,
        label_smoothing=recipe.label_smoothing,
        num_classes=classes,
    )


def test_sums(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum of cross-entropies, number right, number right among the first five; float64 (3,)."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, reduction="sum").double()
    first = logits.topk(min(5, logits.shape[1]), dim=1).indices.eq(labels[:, None])
    return torch.stack([loss, first[:, 0].sum().double(), first.sum().double()])
