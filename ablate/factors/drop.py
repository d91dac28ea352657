"""Drop rates: stochastic depth, dropout, attention dropout."""

from __future__ import annotations

from dataclasses import replace

from ablate.factors.factor import Dimensions, Factor, Parameter, Real, Values


def edit(values: Values, before: Dimensions) -> Dimensions:
    return replace(
        before,
        drop_path=float(values["path"]),
        dropout=float(values["dropout"]),
        attention_dropout=float(values["attention"]),
        head_dropout=float(values["head"]),
    )


FACTOR = Factor(
    name="drop",
    kind="recipe",
    source="augmented-shortcuts, Tables 7 and 8; DeiT",
    claim=(
        "Augmented shortcuts tolerate larger drop rates: at dropout 0.3, Aug-ViT-S"
        " reaches 75.1 % top-1, DeiT-S 69.8 %."
    ),
    neutral=lambda values: not any(values.values()),
    edit_backbone=edit,
    parameters=(
        Parameter(
            name="path",
            allowed=Real(0, 1),
            default=0.0,
            about="stochastic depth (DropPath), rising linearly over depth up to this rate;"
            " equal in all of CaiT's blocks",
            typical=(0.1, 0.2),
        ),
        Parameter(
            name="dropout",
            allowed=Real(0, 1),
            default=0.0,
            about="dropout after the projection of attention and after both layers of"
            " the FFN; after the embedding too, if the backbone has a dropout layer"
            " there",
            typical=(0.1, 0.2),
        ),
        Parameter(
            name="attention",
            allowed=Real(0, 1),
            default=0.0,
            about="dropout of attention weights",
            typical=(0.1, 0.2),
        ),
        Parameter(
            name="head",
            allowed=Real(0, 1),
            default=0.0,
            about="dropout before the classifier, on ViT, DeiT and models of the family timm",
            typical=(0.2,),
        ),
    ),
)
