"""The modified network: `build(architecture)`."""

from ablate.models.build import (
    build,
    build_from,
    build_losses,
    make_editable,
    places_of,
)

__all__ = ["build", "build_from", "build_losses", "make_editable", "places_of"]
