"""FeatScale: scales the constant and the high-frequency part of attention's output.

There is one pair of scales per channel.
"""

from __future__ import annotations

from ablate.errors import Infeasible
from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from ablate.layers.attention import ScaledFrequencies

    level = values["featscale"]
    if level == "code" and site.family != "vit":
        other = "image" if site.family == "swin" else "text"
        raise Infeasible(
            "`featscale: code` is for DeiT only, where the published code adds the"
            f" scaled parts twice; on this backbone, use `featscale: {other}`"
        )
    if level == "image":
        if site.family != "swin":
            raise Infeasible(
                "`featscale: image` is for attention with windows, which this backbone"
                " lacks; use `featscale: text`"
            )
        return Edits(image=ScaledFrequencies(site.width, dims=(1, 2)))
    return Edits(
        output=ScaledFrequencies(site.width, times=2 if level == "code" else 1)
    )


FACTOR = Factor(
    name="featscale",
    source="anti-oversmoothing, section 3.2; Table 1",
    claim=(
        "Weighing high frequencies against the mean keeps patches apart: +1.0 top-1 on"
        " DeiT-S."
    ),
    neutral=lambda values: values["featscale"] == "none",
    edit_attention=make,
    parameters=(
        Parameter(
            name="featscale",
            allowed=OneOf(("none", "text", "code", "image")),
            default="none",
            about="text: scales the mean over the tokens by 1 + s and the rest by 1 +"
            " t, where s and t start at 0; code: scales them by 1 + 2s and 1 + 2t, as"
            " in the published code for DeiT; image: takes the mean over the whole"
            " image and not over a window, as in the published code for Swin",
            typical=("text", "code"),
        ),
    ),
)
