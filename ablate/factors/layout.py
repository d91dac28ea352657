"""Serial or parallel branches."""

from __future__ import annotations

from dataclasses import replace

from ablate.factors.factor import Factor, Join, OneOf, Parameter, Values


def join(values: Values, before: Join) -> Join:
    return replace(
        before, layout="parallel" if values["layout"] == "parallel" else "serial"
    )


FACTOR = Factor(
    name="layout",
    source="mabvit, Parallel Structure",
    claim=(
        "MSA and MLP can read the same input and run at once. Small models then lose"
        " accuracy at an equal number of parameters."
    ),
    neutral=lambda values: values["layout"] == "serial",
    join_branches=join,
    parameters=(
        Parameter(
            name="layout",
            allowed=OneOf(("serial", "parallel")),
            default="serial",
            about="how a block joins MSA and MLP",
            typical=("parallel",),
        ),
    ),
)
