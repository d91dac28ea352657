"""Talking-heads attention: linear maps across heads, before and after the softmax."""

from __future__ import annotations

from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from ablate.layers.attention import TalkingHeads

    where = values["talking_heads"]
    return Edits(
        logits=TalkingHeads(site.heads) if where in ("before", "both") else None,
        weights=TalkingHeads(site.heads) if where in ("after", "both") else None,
    )


FACTOR = Factor(
    name="talking_heads",
    source="Shazeer et al. 2020; patch-diversification, Table 3",
    claim="Talking heads raise the top-1 of DeiT-B with the patch losses by another"
    " 0.1 points.",
    neutral=lambda values: values["talking_heads"] == "none",
    edit_attention=make,
    needs=("heads",),
    parameters=(
        Parameter(
            name="talking_heads",
            allowed=OneOf(("none", "before", "after", "both")),
            default="none",
            about="a linear map across heads, without bias, before or after the softmax",
            typical=("before", "after", "both"),
        ),
    ),
)
