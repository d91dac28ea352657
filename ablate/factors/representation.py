"""The representation (pre-logits) layer of the original ViT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.factors.factor import Factor, OneOf, Parameter, Values

if TYPE_CHECKING:
    from torch import nn


def make(values: Values, width: int) -> nn.Module:
    """A linear layer of `width` channels and tanh; (batch, width) to the same."""
    from torch import nn

    assert values["representation"] is True
    layer = nn.Linear(width, width)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.Tanh())


FACTOR = Factor(
    name="representation",
    source="ViT, appendix D.3; mabvit, Number of Parameters",
    claim=(
        "With a layer before the classifier, models have the parameter counts that the"
        " paper on MABViT prints. There is one exception: the printed count of the"
        " unmodified B/16 is without the layer."
    ),
    neutral=lambda values: values["representation"] is False,
    before_classifier=make,
    parameters=(
        Parameter(
            name="representation",
            allowed=OneOf((False, True)),
            default=False,
            about="a d x d layer and tanh before the classifier",
            typical=(True,),
        ),
    ),
)
