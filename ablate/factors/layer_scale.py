"""LayerScale: a learnt scale per channel on each branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.factors.factor import Branch, Factor, Parameter, Real, Site, Values

if TYPE_CHECKING:
    from torch import nn


def make(values: Values, site: Site, branch: Branch) -> nn.Module:
    from timm.layers.layer_scale import LayerScale

    if site.scaled:
        raise Infeasible("layer_scale: the backbone scales its branches already")
    scale: nn.Module = LayerScale(site.width, init_values=float(values["layer_scale"]))
    return scale


FACTOR = Factor(
    name="layer_scale",
    source="Touvron et al. 2021 (CaiT, arXiv 2103.17239), equation 4; timm's LayerScale",
    claim="Branches that start small let deeper ViTs converge.",
    neutral=lambda values: values["layer_scale"] == 0,
    scale_branch=make,
    needs=("unscaled",),
    parameters=(
        Parameter(
            name="layer_scale",
            allowed=Real(0),
            default=0.0,
            about="first value of g in x + g * branch(x), with a learnt g for each channel"
            " of each branch; 0: no g. CaiT has 0.1 up to 18 layers, 1e-5 up to 24, and"
            " 1e-6 for more",
            typical=(0.1, 1e-5),
        ),
    ),
)
