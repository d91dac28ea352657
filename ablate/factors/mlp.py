"""The MLP branch of a block, present or not."""

from __future__ import annotations

from dataclasses import replace

from ablate.factors.factor import Factor, Join, OneOf, Parameter, Values


def join(values: Values, before: Join) -> Join:
    return replace(before, mlp=bool(values["mlp"]))


FACTOR = Factor(
    name="mlp",
    source="anti-oversmoothing, Figure 1",
    claim=(
        "Without MLP and without identity shortcut, the high frequencies of tokens"
        " vanish exponentially with depth."
    ),
    neutral=lambda values: values["mlp"] is True,
    join_branches=join,
    parameters=(
        Parameter(
            name="mlp",
            allowed=OneOf((True, False)),
            default=True,
            about="whether a block has its MLP (FFN) with the norm before it; without"
            " them, tokens pass unchanged from MSA to the next block",
            typical=(False,),
        ),
    ),
)
