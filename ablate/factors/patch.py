"""Patch diversification: losses on patch tokens.

The network and its inference do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.factors.factor import (
    Factor,
    LossTerms,
    OneOf,
    Parameter,
    Real,
    TokenSite,
    Values,
)

if TYPE_CHECKING:
    from torch import nn


def _as_published(values: Values) -> bool:
    return values["variant"] == "code"


def make(values: Values, site: TokenSite) -> nn.Module:
    from ablate.layers.patch_losses import PatchLosses, PublishedPatchLosses

    if site.grid[0] * site.grid[1] < 2:
        raise Infeasible(
            "patch losses compare patches, but the image has only one; use a smaller"
            " size.patch_size"
        )
    if values["variant"] == "code":
        if values["cosine"]:
            raise Infeasible(
                "the published code has no cosine loss; set patch.cosine to 0, or"
                " patch.variant to text"
            )
        return PublishedPatchLosses(
            site.width,
            site.classes,
            site.grid,
            contrastive=float(values["contrastive"]),
            mixing=float(values["mixing"]),
        )
    return PatchLosses(
        site.width,
        site.classes,
        cosine=float(values["cosine"]),
        contrastive=float(values["contrastive"]),
        mixing=float(values["mixing"]),
    )


def _patch_labels(values: Values) -> bool:
    return bool(values["mixing"]) and not _as_published(values)


FACTOR = Factor(
    name="patch",
    source="patch-diversification, section 4; Tables 1 and 3",
    claim=(
        "Losses that keep patches apart gain 0.8 points on DeiT-B and cost nothing at"
        " inference."
    ),
    neutral=lambda values: (
        not any(values[name] for name in ("cosine", "contrastive", "mixing"))
    ),
    loss_terms=LossTerms(
        make=make,
        patch_labels=_patch_labels,
        as_published=_as_published,
    ),
    parameters=(
        Parameter(
            name="cosine",
            allowed=Real(0),
            default=0.0,
            about="weight of the mean pairwise cosine of last-layer patch tokens",
            typical=(1.0,),
        ),
        Parameter(
            name="contrastive",
            allowed=Real(0),
            default=0.0,
            about="weight of the contrastive loss between first- and last-layer tokens",
            typical=(1.0,),
        ),
        Parameter(
            name="mixing",
            allowed=Real(0),
            default=0.0,
            about="weight of the patch classification loss; needs recipe.cutmix (or, with"
            " patch.variant: code, recipe.mixup)",
            typical=(1.0,),
        ),
        Parameter(
            name="variant",
            allowed=OneOf(("text", "code")),
            default="text",
            about="text: as the paper says; code: as the published code does, in the"
            " points that docs/papers.md lists",
            typical=("code",),
            read=lambda values: bool(values["contrastive"] or values["mixing"]),
            when="patch.contrastive or patch.mixing is above 0",
        ),
    ),
)
