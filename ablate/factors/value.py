"""An activation on the value tensor inside attention."""

from __future__ import annotations

from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from ablate.layers.attention import GATES, GatedValue, ValueActivation

    name = str(values["value"])
    return Edits(
        value=GatedValue(site.width, name) if name in GATES else ValueActivation(name)
    )


FACTOR = Factor(
    name="value",
    source="mabvit, Modified Attention Block and GLU Variant",
    claim="Non-linearity on V raises the top-1 of ViT-S/16 by 0.5 points (GELU) to 1.1"
    " points (SwiGLU).",
    neutral=lambda values: values["value"] == "none",
    edit_attention=make,
    parameters=(
        Parameter(
            name="value",
            allowed=OneOf(("none", "gelu", "silu", "glu", "geglu", "swiglu")),
            default="none",
            about="activation on V; with a GLU, the value projection is twice as"
            " large, which adds d^2 + d parameters per block (d: width)",
            typical=("gelu", "silu", "glu", "geglu", "swiglu"),
        ),
    ),
)
