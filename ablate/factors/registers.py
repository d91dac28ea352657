"""Registers: learnt tokens beside the patch tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.factors.factor import Factor, Parameter, Values, Whole

if TYPE_CHECKING:
    from torch import nn


def make(values: Values, width: int) -> nn.Parameter:
    import torch
    from torch import nn

    tokens = torch.empty(1, int(values["registers"]), width)
    return nn.Parameter(nn.init.trunc_normal_(tokens, std=0.02))


FACTOR = Factor(
    name="registers",
    source="Darcet et al. 2024 (arXiv 2309.16588), section 2.2",
    claim="Registers take over what outlier patch tokens store otherwise; attention maps"
    " and dense predictions get cleaner.",
    neutral=lambda values: values["registers"] == 0,
    add_tokens=make,
    parameters=(
        Parameter(
            name="registers",
            allowed=Whole(0, 64),
            default=0,
            about="number of learnt tokens without position that enter the first block"
            " behind the class token and are left out after the last one; width"
            " parameters each. In CaiT, they pass through class attention, too",
            typical=(1, 4),
        ),
    ),
)
