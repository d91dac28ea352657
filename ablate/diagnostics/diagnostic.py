"""What a diagnostic is: a frozen record with one function of one layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.layers.attention import EditableAttention, Seen

Form = Literal["number", "vector", "matrix"]
Colours = Literal["cosines", "logarithm", "panel"]


@dataclass(frozen=True)
class Layer:
    """What one layer of a network computed for a batch of images.

    Attributes:
        tokens: (batch, n, width), the grid tokens that leave the block, without prefix
            tokens.
        attention: the module and what its call computed; None if the block has no
            attention to observe. Swin's batch is over windows.
        ffn: the feed-forward network and its input, (batch, n, width).
        grid: height and width of the grid of tokens; n is their product.
    """

    tokens: Tensor
    attention: tuple[EditableAttention, Seen] | None
    ffn: tuple[nn.Module, Tensor] | None
    grid: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A measurement inside a network, one layer at a time.

    Attributes:
        about: what it is, with its range.
        source: paper and place.
        form: a number per layer, a vector or a matrix.
        axis: the label of a plot's axis.
        colours: of matrices. `cosines`: from -1 to 1. `logarithm`: one logarithmic
            scale for all layers. `panel`: from the least to the largest value of each
            layer.
        requires: a package that it needs and that is not a dependency of this one.
        measure: returns the values of one layer by the ending of their name (`""` for
            the diagnostic's own name), each with one entry per image (or window) in its
            first dimension. It returns an empty mapping if the layer has no such value.
        revision: has no effect yet, because diagnostics do not change a trial.
    """

    part: ClassVar[str] = "diagnostic"

    name: str
    about: str
    source: str
    axis: str
    measure: Callable[[Layer], Mapping[str, Tensor]]
    form: Form = "number"
    colours: Colours = "panel"
    requires: str = ""
    revision: int | str | None = None
