"""The feed-forward network: AGeLUs, base activation and depthwise block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.factors.factor import Factor, OneOf, Parameter, Site, Values, Whole

if TYPE_CHECKING:
    from torch import nn


def _neutral(values: Values) -> bool:
    return (
        values["agelu"] == 0
        and values["activation"] == "gelu"
        and values["kernel"] == "none"
        and values["form"] == "mlp"
    )


def _has_norms(values: Values) -> bool:
    return values["form"] == "mlp" and values["agelu"] != 0


def _has_kernel(values: Values) -> bool:
    return values["form"] == "mlp"


def make(values: Values, site: Site, original: nn.Module) -> nn.Module:
    """Returns the new network.

    It keeps the original's linear layers if their shape fits, so that equal seeds start
    with equal weights.
    """
    from torch import nn

    from ablate.layers.ffn import (
        ACTIVATIONS,
        ArbitraryActivations,
        DepthwiseBlock,
        FeedForward,
        SummedActivations,
        linear,
        narrow,
    )

    count = int(values["agelu"])
    original_activation = type(original.get_submodule("act")).__name__
    if original_activation != "GELU" or not isinstance(
        getattr(original, "norm", nn.Identity()), nn.Identity
    ):
        raise Infeasible(
            "the factors ffn.* work only on a feed-forward network with GELU and without"
            f" a norm inside; that of this backbone has {original_activation}"
        )
    activation = str(values["activation"])
    if values["form"] == "sum":
        if count > 1:
            raise Infeasible(
                "with ffn.form = sum, ffn.agelu must be 0 (plain activations) or 1"
                f" (AGeLUs), not {count}"
            )
        act = ACTIVATIONS[activation](site.width)
        return SummedActivations(site.width, site.hidden, act, arbitrary=bool(count))
    act = ACTIVATIONS[activation](site.hidden)
    # A block through which only prefix tokens pass has no grid to convolve.
    kernel = values["kernel"] if site.grid != (0, 0) else "none"
    fc1 = linear(original.get_submodule("fc1"))
    fc2 = linear(original.get_submodule("fc2"))
    if count:
        if site.hidden % count:
            raise Infeasible(
                f"ffn.agelu = {count} does not divide the hidden width {site.hidden}"
            )
        if count > 1:
            fc1 = narrow(fc1, site.hidden // count)
        act = ArbitraryActivations(site.hidden // count, count, act)
    depthwise: nn.Module = nn.Identity()
    if kernel != "none":
        depthwise = DepthwiseBlock(site.hidden, int(kernel), site.grid, site.prefix)
    norm1: nn.Module = nn.Identity()
    norm2: nn.Module = nn.Identity()
    published = bool(count) and values["variant"] == "code"
    if count:
        # The published code uses torch's LayerNorm, whose epsilon differs from the
        # backbone's.
        make_norm = nn.LayerNorm if published else site.norm
        norm1 = make_norm(site.hidden)
        norm2 = make_norm(site.width)
    return FeedForward(
        fc1,
        act,
        norm1,
        depthwise,
        fc2,
        norm2,
        site.dropout,
        drop_before_depthwise=published,
    )


FACTOR = Factor(
    name="ffn",
    decays_as_published=True,
    source="iffn, eq. 4, 5 and section 4.3; Tables 1 to 6",
    claim=(
        "Stronger non-linearity lets the FFN be narrower: DeiT-Ti has 12.6 % fewer"
        " parameters, and its top-1 is 0.4 points higher."
    ),
    neutral=_neutral,
    replace_ffn=make,
    parameters=(
        Parameter(
            name="agelu",
            allowed=Whole(0, 16),
            default=0,
            about="N, the number of AGeLUs (GELUs with learnt parameters) whose outputs"
            " are concatenated; the first layer has 1/N of the hidden width. 0: the plain"
            " activation",
            typical=(1, 2, 4),
        ),
        Parameter(
            name="activation",
            allowed=OneOf(("gelu", "softplus", "elu", "swish", "rprelu")),
            default="gelu",
            about="base activation; rprelu has a learnt turning point and slope for each"
            " channel",
            typical=("softplus", "elu", "swish", "rprelu"),
        ),
        Parameter(
            name="kernel",
            allowed=OneOf(("none", 1, 3, 5, 7)),
            default="none",
            about="kernel of the depthwise block on the hidden channels",
            typical=(1, 3, 5, 7),
            read=_has_kernel,
            when="ffn.form is mlp",
        ),
        Parameter(
            name="form",
            allowed=OneOf(("mlp", "sum")),
            default="mlp",
            about="mlp: two linear layers; sum: no linear layer. Each output channel"
            " is phi_1(x) + ... + phi_K(x), where x is the same channel of the input,"
            " and K the hidden width of the FFN (size.mlp_ratio times the width). Each"
            " phi is an AGeLU with its own parameters (ffn.agelu is 1), or each is the"
            " same activation (ffn.agelu is 0)",
            typical=("sum",),
        ),
        Parameter(
            name="variant",
            allowed=OneOf(("text", "code")),
            default="text",
            about="text: the norms in the FFN have the epsilon of the backbone, and the"
            " first dropout comes after the depthwise block; code: as in the published"
            " code, the norms in the FFN have epsilon 1e-5, and the first dropout comes"
            " before the depthwise block",
            typical=("code",),
            read=_has_norms,
            when="ffn.form is mlp and ffn.agelu is not 0",
        ),
    ),
)
