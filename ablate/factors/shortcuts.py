"""Augmented shortcuts: T parameterised paths beside the identity shortcut."""

from __future__ import annotations

from ablate.errors import Infeasible
from ablate.factors.factor import (
    Branch,
    Factor,
    OneOf,
    Parameter,
    Path,
    Site,
    Values,
    Whole,
)


def _used(values: Values) -> bool:
    return int(values["count"]) > 0


def _projects(values: Values) -> bool:
    return _used(values) and (
        values["variant"] == "code" or values["order"] != "activation"
    )


def _circulant(values: Values) -> bool:
    return _projects(values) and values["projection"] == "circulant"


def _text(values: Values) -> bool:
    return _used(values) and values["variant"] == "text"


def make(values: Values, site: Site, branch: Branch) -> list[Path]:
    """Returns the paths beside one branch.

    There are none, or one module that computes the sum over all T.
    """
    from ablate.layers import shortcuts as layers
    from ablate.layers.circulant import CirculantProjection

    count = int(values["count"])
    if count == 0 or values["placement"] not in (branch, "both"):
        return []
    code = values["variant"] == "code"
    if code and count > 2:
        raise Infeasible(
            "shortcuts.variant = code: the published code has one or two shortcuts,"
            f" not {count}"
        )
    # The published code has an activation only with two shortcuts, and then takes 3/4
    # of the whole sum.
    if not code:
        order = values["order"]
    elif count == 1:
        order = "projection"
    else:
        order = "projection-activation"
    if order == "activation":
        return [Path(layers.ActivationOnly(count), "input")]
    projection: layers.Projection
    if values["projection"] == "dense":
        projection = layers.DenseProjection(site.width, count, bias=code)
    else:
        b = int(values["b"])
        if site.width % b:
            raise Infeasible(
                f"shortcuts.b = {b} does not divide the width {site.width}"
            )
        projection = CirculantProjection(site.width, b, count, bias=code)
    orders = {
        "projection-activation": layers.ProjectionActivation,
        "activation-projection": layers.ActivationProjection,
        "projection": layers.ProjectionOnly,
    }
    module = orders[str(order)](projection)
    if code:
        return [Path(module, "norm", rescale=0.75 if count == 2 else 1.0)]
    return [Path(module, "input")]


FACTOR = Factor(
    name="shortcuts",
    decays_as_published=True,
    source="augmented-shortcuts, eq. 8, 11, 14; Tables 3 to 6",
    claim=(
        "Parameterised shortcuts beside MSA and MLP keep tokens diverse: +1.1 top-1 on"
        " DeiT-S for +0.07 M parameters."
    ),
    neutral=lambda values: not _used(values),
    add_paths=make,
    parameters=(
        Parameter(
            name="count",
            allowed=Whole(0, 64),
            default=0,
            about="T, number of augmented shortcuts beside a branch",
            typical=(1, 2, 3),
        ),
        Parameter(
            name="b",
            allowed=Whole(1),
            default=4,
            about="the projection is a b x b grid of circulant blocks",
            typical=(1, 2, 8),
            read=_circulant,
            when="a circulant projection is used",
        ),
        Parameter(
            name="projection",
            allowed=OneOf(("circulant", "dense")),
            default="circulant",
            about="structure of the projection",
            typical=("dense",),
            read=_projects,
            when="a projection is used",
        ),
        Parameter(
            name="placement",
            allowed=OneOf(("msa", "mlp", "both")),
            default="both",
            about="branches with shortcuts beside them",
            typical=("msa", "mlp"),
            read=_used,
            when="shortcuts.count > 0",
        ),
        Parameter(
            name="order",
            allowed=OneOf(
                (
                    "projection-activation",
                    "activation-projection",
                    "projection",
                    "activation",
                )
            ),
            default="projection-activation",
            about="what a shortcut computes; the activation is GELU",
            typical=("activation-projection", "projection", "activation"),
            read=_text,
            when="shortcuts.count > 0 and shortcuts.variant is text",
        ),
        Parameter(
            name="variant",
            allowed=OneOf(("text", "code")),
            default="text",
            about="text: as the paper says; code: as the published code does. In the"
            " code, shortcuts read LN(x) and have a bias. A single shortcut has no"
            " activation. If there are two, each has an activation, and the sum of"
            " branch and shortcuts is multiplied by 3/4",
            typical=("code",),
            read=_used,
            when="shortcuts.count > 0",
        ),
    ),
)
