"""Size: patch, width, depth, heads, MLP ratio, pooling."""

from __future__ import annotations

from dataclasses import replace

from ablate.factors.factor import (
    Dimensions,
    Factor,
    OneOf,
    Parameter,
    Real,
    Values,
    Whole,
)

# The most blocks of a backbone. The deepest published transformers have about as many,
# and building a block takes a millisecond.
MOST_DEPTH = 1_000
# The most channels, heads, and pixels or tokens of a side: a larger network fits into
# no memory.
MOST_WIDTH = 1_000_000


def edit(values: Values, before: Dimensions) -> Dimensions:
    return replace(
        before,
        patch_size=int(values.get("patch_size", before.patch_size)),
        width=int(values.get("width", before.width)),
        depth=int(values.get("depth", before.depth)),
        heads=int(values.get("heads", before.heads)),
        mlp_ratio=float(values.get("mlp_ratio", before.mlp_ratio)),
        pool=str(values.get("pool", before.pool)),
        window=int(values.get("window", before.window)),
    )


FACTOR = Factor(
    name="size",
    source="ViT; augmented-shortcuts, Table 1 (depth)",
    claim=(
        "The capacity of the backbone itself. A factor that adds capacity must gain"
        " more than a larger backbone of the same cost."
    ),
    neutral=lambda values: not values,
    edit_backbone=edit,
    parameters=(
        Parameter(
            name="patch_size",
            allowed=Whole(1, MOST_WIDTH),
            default=None,
            about="side of a patch in pixels",
            typical=(4, 8),
        ),
        Parameter(
            name="width",
            allowed=Whole(1, MOST_WIDTH),
            default=None,
            about="channels of a token (embedding dimension)",
            typical=(48, 96),
        ),
        Parameter(
            name="depth",
            allowed=Whole(1, MOST_DEPTH),
            default=None,
            about="number of blocks",
            typical=(1, 2),
        ),
        Parameter(
            name="heads",
            allowed=Whole(1, MOST_WIDTH),
            default=None,
            about="number of attention heads; the width must be a multiple of it",
            typical=(2, 6),
        ),
        Parameter(
            name="mlp_ratio",
            allowed=Real(0, closed=False),
            default=None,
            about="hidden width of the FFN divided by the width",
            typical=(2.0, 3.0),
        ),
        Parameter(
            name="pool",
            allowed=OneOf(("token", "mean", "norm-mean", "distilled")),
            default=None,
            about="what is classified; token: the class token; mean: the mean of the"
            " patch tokens, then normalised; norm-mean, as in IFFN's published code:"
            " the mean of the normalised patch tokens; distilled, as in DeiT: the class"
            " token and a distillation token, each by a head of its own",
            typical=("mean", "norm-mean", "distilled"),
        ),
        Parameter(
            name="window",
            allowed=Whole(2, MOST_WIDTH),
            default=None,
            about="side of an attention window in tokens, on Swin",
            typical=(4,),
        ),
    ),
)
