"""What a diagnostic is: a frozen record with one function of one layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.layers.attention import EditableAttention, Seen

Form = Literal["number", "vector", "matrix"]


@dataclass(frozen=True)
class Layer:
    """What one layer of a network made of a batch of images.

    Attributes:
        tokens: (batch, n, width), the grid tokens that leave the block, without prefix
            tokens.
        attention: the module and what its call computed; None where the block has no
            attention to look into. Swin's batch runs over windows.
        ffn: the feed-forward network and its input, (batch, n, width).
    """

    tokens: Tensor
    attention: tuple[EditableAttention, Seen] | None
    ffn: tuple[nn.Module, Tensor] | None


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One thing to look at inside a network, as one file of this package declares it.

    Attributes:
        about: what it is, with its range.
        source: paper and place.
        form: a number a layer, a vector or a matrix.
        axis: what the axis of a plot says.
        requires: a package that is no dependency of this one, if it needs it.
        measure: the values of one layer by their names' endings (`""` for the
            diagnostic's own name), each with one entry an image (or window) in front;
            an empty mapping where the layer has no such thing.
    """

    name: str
    about: str
    source: str
    axis: str
    measure: Callable[[Layer], Mapping[str, Tensor]]
    form: Form = "number"
    requires: str = ""
