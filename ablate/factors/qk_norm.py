"""QK-norm: queries and keys are normalised, head by head."""

from __future__ import annotations

from ablate.errors import Infeasible
from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from torch import nn

    from ablate.layers.rms_norm import RmsNorm

    if site.qk_normed:
        raise Infeasible(
            "qk_norm: the backbone normalises its queries and keys already"
        )
    norms: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "rms": RmsNorm}
    norm = norms[str(values["qk_norm"])]
    channels = site.width // site.heads
    return Edits(query=norm(channels, eps=1e-6), key=norm(channels, eps=1e-6))


FACTOR = Factor(
    name="qk_norm",
    source="Henry et al. 2020 (arXiv 2010.04245); Dehghani et al. 2023 (ViT-22B, arXiv"
    " 2302.05442); timm's qk_norm",
    claim="With normalised queries and keys, attention logits stay bounded, and large"
    " networks do not diverge at high learning rates.",
    neutral=lambda values: values["qk_norm"] == "none",
    edit_attention=make,
    parameters=(
        Parameter(
            name="qk_norm",
            allowed=OneOf(("none", "layer", "rms")),
            default="none",
            about="softmax(norm(Q) norm(K)^T / sqrt(d)), with a layer norm or an RMS"
            " norm over the d channels of a head, before the scale; d or 2 d parameters"
            " each for queries and keys, which the heads share. Its epsilon is 1e-6 in all"
            " families; Swin's own norms have 1e-5",
            typical=("layer", "rms"),
        ),
    ),
)
