"""Value residuals (NeuTRENO): each block is drawn to the values of the first one."""

from __future__ import annotations

from ablate.factors.factor import Edits, Factor, Parameter, Real, Site, Values


def make(values: Values, site: Site) -> Edits:
    from ablate.layers.attention import ValueResidual

    scale = float(values["value_residual"])
    return Edits(attended=ValueResidual(scale) if site.layer else None)


FACTOR = Factor(
    name="value_residual",
    source="Nguyen et al. 2023 (NeuTRENO, arXiv 2312.00751); DeiT/neutreno.py of its code",
    claim="Adding the difference to the first block's values keeps tokens from becoming"
    " equal.",
    neutral=lambda values: values["value_residual"] == 0,
    edit_attention=make,
    needs=("tokens",),
    parameters=(
        Parameter(
            name="value_residual",
            allowed=Real(0),
            default=0.0,
            about="lambda in A V + lambda (V1 - V), where V1 are the values of the first"
            " block; no parameters. NeuTRENO has 0.6",
            typical=(0.6,),
        ),
    ),
)
