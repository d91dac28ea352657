"""The training loss of a recipe, and the targets that it takes."""

from __future__ import annotations

import torch
from timm.loss import (
    BinaryCrossEntropy,
    LabelSmoothingCrossEntropy,
    SoftTargetCrossEntropy,
)
from torch import Tensor, nn

from ablate.errors import AblateError
from ablate.layers.patch_losses import TINY, exact
from ablate.learning.named_parts import named_part
from ablate.learning.patches import PatchMixup
from ablate.records import Recipe
from ablate.records.own_parts import OwnLoss


class OffsetCrossEntropy(nn.Module):
    """The cross-entropy -sum_c t_c log(softmax(x)_c + 1e-8), the mean over images.

    This is the form in the published code of patch diversification.

    Shape:
        logits and targets (batch, classes), to a scalar.
    """

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (
            -(targets * torch.log(exact(logits).softmax(dim=-1) + TINY))
            .sum(dim=-1)
            .mean()
        )


class FunctionLoss(nn.Module):
    """The loss of a user's file.

    Shape:
        logits (batch, classes) and targets (batch) or (batch, classes), to a scalar.

    Raises:
        AblateError: the function returns something else.
    """

    def __init__(self, loss: OwnLoss) -> None:
        super().__init__()
        self.own = loss

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = self.own(logits, targets)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise AblateError(
                f"loss {self.own.name} must return a scalar tensor, such as a mean over"
                f" the batch; found {type(loss).__name__}"
                f" {tuple(getattr(loss, 'shape', ()))}"
            )
        return loss.reshape(())


def training_loss(recipe: Recipe, *, offset: bool = False) -> nn.Module:
    """Returns timm's loss for the targets of the recipe.

    Targets are soft under Mixup and CutMix, otherwise class numbers.

    Args:
        offset: the targets are soft, and the cross-entropy is that of patch
            diversification's published code.
    """
    mixes = recipe.mixes
    loss: nn.Module = nn.CrossEntropyLoss()
    own_loss = named_part("loss", recipe.loss)
    if own_loss is not None:
        loss = FunctionLoss(own_loss)
    elif offset and recipe.loss == "cross-entropy":
        loss = OffsetCrossEntropy()
    elif recipe.loss == "bce":
        loss = BinaryCrossEntropy(
            smoothing=0.0 if mixes else recipe.label_smoothing,
            target_threshold=recipe.loss_threshold or None,
        )
    elif mixes:
        loss = SoftTargetCrossEntropy()
    elif recipe.label_smoothing:
        loss = LabelSmoothingCrossEntropy(recipe.label_smoothing)
    return loss


def mixer(recipe: Recipe, classes: int) -> PatchMixup | None:
    """Returns timm's Mixup and CutMix, or None if the recipe has neither.

    It needs an even batch.
    """
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
