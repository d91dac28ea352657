"""The norms of blocks: layer norm or RMS norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.factors.factor import Factor, OneOf, Parameter, Site, Values

if TYPE_CHECKING:
    from torch import nn


def make(values: Values, site: Site, original: nn.Module) -> nn.Module:
    """Returns an RMS norm with the scales of the original."""
    from torch import nn

    from ablate.layers.rms_norm import RmsNorm

    if not isinstance(original, nn.LayerNorm):
        raise Infeasible(
            f"norm = {values['norm']}: the backbone's own norm is a"
            f" {type(original).__name__}, not a layer norm"
        )
    kinds = {"rms": RmsNorm}
    norm = kinds[str(values["norm"])](original.normalized_shape[-1], eps=original.eps)
    norm.weight = original.weight
    return norm


FACTOR = Factor(
    name="norm",
    source="Zhang and Sennrich 2019 (arXiv 1910.07467), equation 4",
    claim="RMS norm is as accurate as layer norm, and faster.",
    neutral=lambda values: values["norm"] == "layer",
    replace_norm=make,
    parameters=(
        Parameter(
            name="norm",
            allowed=OneOf(("layer", "rms")),
            default="layer",
            about="rms: x / sqrt(mean(x^2) + eps) * g in place of the layer norms before"
            " MSA and MLP, without mean and bias, so width parameters fewer for each; the"
            " norm after the last block stays",
            typical=("rms",),
        ),
    ),
)
