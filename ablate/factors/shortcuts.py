"""Augmented shortcuts: T parameterised paths beside the identity shortcut."""

from __future__ import annotations

from typing import Literal

from ablate.errors import Infeasible
from ablate.factors.factor import OneOf, Parameter, Path, PathFactor, Site, Values, Whole


def _used(values: Values) -> bool:
    return int(values["count"]) > 0


def _projects(values: Values) -> bool:
    return _used(values) and values["order"] != "activation"


def _circulant(values: Values) -> bool:
    return _projects(values) and values["projection"] == "circulant"


def make(values: Values, site: Site) -> list[Path]:
    """The paths beside one branch: none, or one module that computes the sum over all T."""
    from ablate.layers import shortcuts as layers
    from ablate.layers.circulant import CirculantProjection

    count = int(values["count"])
    if count == 0 or values["placement"] not in (site.branch, "both"):
        return []
    reads: Literal["input", "norm"] = "norm" if values["reads"] == "norm" else "input"
    order = values["order"]
    if order == "activation":
        return [Path(layers.ActivationOnly(count), reads)]
    projection: layers.Projection
    if values["projection"] == "dense":
        projection = layers.DenseProjection(site.width, count)
    else:
        b = int(values["b"])
        if site.width % b:
            raise Infeasible(f"shortcuts.b = {b} does not divide the width {site.width}")
        projection = CirculantProjection(site.width, b, count)
    orders = {
        "projection-activation": layers.ProjectionActivation,
        "activation-projection": layers.ActivationProjection,
        "projection": layers.ProjectionOnly,
    }
    return [Path(orders[str(order)](projection), reads)]


FACTOR = PathFactor(
    name="shortcuts",
    source="augmented-shortcuts, eq. 8, 11, 14; Tables 3 to 6",
    claim="Parameterised shortcuts beside MSA and MLP keep tokens diverse: +1.1 top-1 on DeiT-S for +0.07 M parameters.",
    neutral=lambda values: not _used(values),
    make=make,
    parameters=(
        Parameter("count", Whole(0, 64), 0, "T, number of augmented shortcuts beside a branch", (1, 2, 3)),
        Parameter(
            "b",
            Whole(1),
            4,
            "the projection is a b x b grid of circulant blocks",
            (1, 2, 8),
            _circulant,
            "a circulant projection is used",
        ),
        Parameter(
            "projection",
            OneOf(("circulant", "dense")),
            "circulant",
            "structure of the projection",
            ("dense",),
            _projects,
            "a projection is used",
        ),
        Parameter(
            "placement",
            OneOf(("msa", "mlp", "both")),
            "both",
            "branches with shortcuts beside them",
            ("msa", "mlp"),
            _used,
            "shortcuts.count > 0",
        ),
        Parameter(
            "order",
            OneOf(("projection-activation", "activation-projection", "projection", "activation")),
            "projection-activation",
            "what a shortcut computes; the activation is GELU",
            ("activation-projection", "projection", "activation"),
            _used,
            "shortcuts.count > 0",
        ),
        Parameter(
            "reads",
            OneOf(("input", "norm")),
            "input",
            "a shortcut reads the branch's input or its LayerNorm",
            ("norm",),
            _used,
            "shortcuts.count > 0",
        ),
    ),
)
