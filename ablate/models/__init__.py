"""The modified network: `build(architecture)`."""

from ablate.models.build import build, resolve

__all__ = ["build", "resolve"]
