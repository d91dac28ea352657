"""What a network is, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

from ablate.identity import canonical_json, text_hash
from ablate.records.base import Settings

# Stands before the name of a user's trainer in place of a backbone or data set. No
# backbone and no data set has a colon in its name.
TRAINER = "trainer:"


@dataclass(frozen=True)
class Architecture:
    """What a network is. The settings are canonical."""

    backbone: str
    # Side of the input in pixels.
    image_size: int
    # Channels of the input.
    channels: int
    classes: int
    # Only settings that the model reads and that differ from the backbone.
    settings: Settings = field(default_factory=dict)
    # The content or revision of each user's part that builds it.
    code: Mapping[str, str] = field(default_factory=dict)
    # What turns the backbone into a network of its task; empty: its own classifier.
    head: str = ""
    # Width of the input in pixels where it is not square; `image_size` is then its
    # height. 0: it is square.
    image_width: int = 0

    @property
    def trainer(self) -> str:
        """The trainer that builds the network; empty: this package builds it."""
        if self.backbone.startswith(TRAINER):
            return self.backbone.removeprefix(TRAINER)
        return ""

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one input."""
        return self.channels, self.image_size, self.image_width or self.image_size

    @cached_property
    def canonical_json(self) -> str:
        values = asdict(self)
        for name in ("code", "head", "image_width"):
            if not values[name]:
                # Left out, so that a new field keeps old hashes.
                del values[name]
        return canonical_json(values)

    @cached_property
    def hash(self) -> str:
        return text_hash(self.canonical_json)


# Increased when a rule of `cost/rules.py` changes. Stored costs of older revisions are
# then counted again.
COST_REVISION = 2


@dataclass(frozen=True)
class Cost:
    """What a network costs for one image.

    The two counts of FLOPs follow two conventions and are never mixed. 0 means that a
    number was not counted, because a user's trainer gives no model or no inputs.
    """

    # Number of parameters.
    params: int
    # Multiply-adds of every operator that ran, by fvcore's convention.
    flops: int
    # Multiply-adds of convolutions, linear layers and matrix products, and of circulant
    # projections by their paper's formula.
    flops_paper: int
    # Number of output elements of the matrix operators.
    activations: int
    # Operations on single elements, such as additions and activations. fvcore's
    # convention leaves them out of FLOPs.
    elementwise: int


UNCOUNTED = Cost(params=0, flops=0, flops_paper=0, activations=0, elementwise=0)
