"""AttnScale: the high-pass part of attention, scaled per layer and head."""

from __future__ import annotations

from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from ablate.layers.attention import ScaledHighPass

    return Edits(weights=ScaledHighPass(site.heads) if values["attnscale"] else None)


FACTOR = Factor(
    name="attnscale",
    source="anti-oversmoothing, section 3.1; Table 1",
    claim=(
        "A learnt scale on each head's high-pass part keeps attention from collapsing:"
        " DeiT-S gains 0.9 points of top-1, and has 72 more parameters."
    ),
    neutral=lambda values: values["attnscale"] is False,
    edit_attention=make,
    parameters=(
        Parameter(
            name="attnscale",
            allowed=OneOf((False, True)),
            default=False,
            about="scales A - 1/N by 1 + w, where A is the attention matrix, N the"
            " number of tokens, and w a learnt number per head, which starts at 0",
            typical=(True,),
        ),
    ),
)
