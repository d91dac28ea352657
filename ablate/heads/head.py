"""What a head is: one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ablate.errors import Infeasible
from ablate.machine.provenance import install_extra

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.backbones.features import FeatureMaps


def as_it_is(network: nn.Module) -> nn.Module:
    """The module that a cost counts, if it is the network itself."""
    return network


@dataclass(frozen=True, kw_only=True)
class Head:
    """What turns a backbone into a network that looks at places of an image.

    Attributes:
        name: as in `head: NAME`.
        about: the network and its source.
        build: returns the network of feature maps and a number of classes.
        counted: returns the module whose forward pass, on images alone, is counted as
            the cost of the network. It must not depend on what an image shows.
        fewest: images that the network needs at once in training.
        loss: returns a training loss for images, with made-up objects; it is only for
            measuring how long a step takes. None: the mean of the outputs will do.
    """

    name: str
    about: str
    build: Callable[[FeatureMaps, int], nn.Module]
    counted: Callable[[nn.Module], nn.Module] = as_it_is
    fewest: int = 1
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None


def require(package: str, head: str) -> None:
    """Raises Infeasible if a package that a head needs is not installed."""
    if find_spec(package) is None:
        raise Infeasible(
            f"head {head} needs the package {package}: {install_extra('dense')}"
        )
