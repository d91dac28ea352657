"""Rotary positions of queries and keys."""

from __future__ import annotations

from ablate.errors import Infeasible
from ablate.factors.factor import Edits, Factor, OneOf, Parameter, Site, Values


def make(values: Values, site: Site) -> Edits:
    from torch import nn

    from ablate.layers.attention import GridPositions, WindowPositions

    kind = values["rotary"]
    channels = site.width // site.heads
    if channels % 4:
        raise Infeasible(
            f"rotary = {kind} needs heads whose width is a multiple of 4; {site.width}"
            f" channels and {site.heads} heads give {channels}"
        )

    def positions() -> nn.Module:
        if site.window != (0, 0):
            return WindowPositions(site.window)
        return GridPositions(site.grid, site.prefix)

    return Edits(query=positions(), key=positions())


FACTOR = Factor(
    name="rotary",
    source="Heo et al. 2024 (arXiv 2403.13298), section 3.2, RoPE-Axial; after Su et al."
    " 2021 (arXiv 2104.09864)",
    claim="Rotary positions raise the accuracy of ViT and Swin, above all at higher"
    " resolutions than in training.",
    neutral=lambda values: values["rotary"] == "none",
    edit_attention=make,
    needs=("positions",),
    parameters=(
        Parameter(
            name="rotary",
            allowed=OneOf(("none", "axial")),
            default="none",
            about="axial: pair t of the channels of a head is rotated by row *"
            " 100^(-4t/d) in the first half of the d channels, and by column * 100^(-4t/d)"
            " in the second; no parameters. The backbone's own positions stay; with"
            " windows, rows and columns count inside a window",
            typical=("axial",),
        ),
    ),
)
