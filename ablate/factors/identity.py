"""The identity shortcut, on or off."""

from __future__ import annotations

from dataclasses import replace

from ablate.factors.factor import Factor, Join, OneOf, Parameter, Values


def join(values: Values, before: Join) -> Join:
    return replace(before, identity=bool(values["identity"]))


FACTOR = Factor(
    name="identity",
    source="augmented-shortcuts, Table 1",
    claim=(
        "Without the identity shortcut, tokens collapse: a ViT of four layers or more"
        " does not learn."
    ),
    neutral=lambda values: values["identity"] is True,
    join_branches=join,
    parameters=(
        Parameter(
            name="identity",
            allowed=OneOf((True, False)),
            default=True,
            about="whether MSA and MLP have their identity shortcut",
            typical=(False,),
        ),
    ),
)
