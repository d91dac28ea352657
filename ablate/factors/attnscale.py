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
        " +0.9 top-1 on DeiT-S, 72 parameters."
    ),
    neutral=lambda values: values["attnscale"] is False,
    edit_attention=make,
    parameters=(
        Parameter(
            name="attnscale",
            allowed=OneOf((False, True)),
            default=False,
            about="scales A - 1/N by 1 + w, one w per head, 0 at the start",
            typical=(True,),
        ),
    ),
)
