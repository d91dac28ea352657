"""What a factor is: a frozen record with typed parameters and one hook, whose contract
its kind fixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ablate.errors import UnreadParameter, did_you_mean, shortened
from ablate.records import Level, Settings

if TYPE_CHECKING:
    from torch import nn

Branch = Literal["msa", "mlp"]

# What a backbone must have for a factor to be defined on it:
#
# residual    pre-norm blocks whose two branches are added to a shortcut attention
# softmax attention between tokens, with weights to edit heads       attention whose
# heads do not talk to each other ffn         a feed-forward network of two linear
# layers around a GELU tokens      as many patch tokens of the same width before the
# first block as after the last head        one linear classifier on one vector
Slot = Literal["residual", "attention", "heads", "ffn", "tokens", "head"]


@dataclass(frozen=True)
class OneOf:
    """A parameter that takes one of a few named levels."""

    levels: tuple[Level, ...]

    def accepts(self, level: Level) -> bool:
        return any(
            type(level) is type(known) and level == known for known in self.levels
        )

    def __str__(self) -> str:
        return ", ".join(
            str(level).lower() if isinstance(level, bool) else str(level)
            for level in self.levels
        )

    def schema(self) -> dict[str, object]:
        return {"enum": list(self.levels)}


@dataclass(frozen=True)
class Whole:
    """A parameter that takes whole numbers from `least` to `most`."""

    least: int
    most: int | None = None

    def accepts(self, level: Level) -> bool:
        return (
            type(level) is int
            and self.least <= level
            and (self.most is None or level <= self.most)
        )

    def __str__(self) -> str:
        return f"whole numbers from {self.least}" + (
            f" to {self.most}" if self.most is not None else " up"
        )

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.least} | (
            {"maximum": self.most} if self.most is not None else {}
        )


@dataclass(frozen=True)
class Real:
    """A parameter that takes numbers from `least` (itself only if `closed`) up to, but
    not including, `below`.
    """

    least: float
    below: float | None = None
    closed: bool = True

    def accepts(self, level: Level) -> bool:
        if isinstance(level, bool) or not isinstance(level, int | float):
            return False
        above = level >= self.least if self.closed else level > self.least
        return above and (self.below is None or level < self.below)

    def __str__(self) -> str:
        if self.closed:
            start = f"numbers from {self.least:g}"
        else:
            start = f"numbers above {self.least:g}"
        return start + (f" to below {self.below:g}" if self.below is not None else "")

    def schema(self) -> dict[str, object]:
        bounds: dict[str, object] = {
            "minimum" if self.closed else "exclusiveMinimum": self.least
        }
        return (
            {"type": "number"}
            | bounds
            | ({"exclusiveMaximum": self.below} if self.below is not None else {})
        )


# One factor's levels by parameter name, without the factor's name in front.
Values: TypeAlias = Mapping[str, Level]


def always(values: Values) -> bool:
    """The parameter is read whatever the others say."""
    return True


@dataclass(frozen=True)
class Parameter:
    """One thing that varies.

    `default` is the level where nothing is said; None means: as the backbone has it.
    `read` says whether the model reads the parameter given the others, `when` the same
    in words. `typical` are levels worth trying, used by the catalogue and by the
    contract tests.
    """

    name: str
    allowed: OneOf | Whole | Real
    default: Level | None
    about: str
    typical: tuple[Level, ...]
    read: Callable[[Values], bool] = always
    when: str = ""


@dataclass(frozen=True)
class Site:
    """Everything that a factor needs to know of the block where it is built.

    `layer` counts from 0 to `depth` - 1 over the whole backbone. `hidden` is the width
    of the feed-forward network, `grid` the token grid (height, width; 0 where only
    prefix tokens pass), `prefix` the number of class and register tokens before the
    grid tokens, `dropout` the rate inside the feed-forward network, `norm` makes a norm
    over a number of channels, of the backbone's class, `family` the name of the
    backbone's family.
    """

    layer: int
    depth: int
    width: int
    heads: int
    hidden: int
    grid: tuple[int, int]
    prefix: int
    dropout: float
    norm: Callable[[int], nn.Module]
    family: str = ""


@dataclass(frozen=True)
class Dimensions:
    """The numbers of a backbone that size and recipe factors may change.

    Rates are probabilities.

    0, or an empty `pool`, stands for a number that the backbone has not, or has in
    several values.
    """

    patch_size: int = 0
    width: int = 0
    depth: int = 0
    heads: int = 0
    mlp_ratio: float = 0.0
    pool: str = ""
    window: int = 0
    drop_path: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    head_dropout: float = 0.0


@dataclass(frozen=True)
class Join:
    """How a block joins its branches, and beside which of them the identity shortcut
    stands.
    """

    layout: Literal["serial", "parallel"] = "serial"
    identity: bool = True


@dataclass(frozen=True)
class Path:
    """A module beside a branch, reading the branch's input or the branch's norm of it.

    The sum of branch, shortcuts and paths is multiplied by `rescale`.
    """

    module: nn.Module
    reads: Literal["input", "norm"]
    rescale: float = 1.0


@dataclass(frozen=True)
class Edits:
    """What a factor changes inside attention; a place that is None stays as it is.

    Shapes, for n queries, m keys and h heads:
        value: called with the tokens that the values are projected from, (batch, m, width), and with the values,
            (batch, m, h * head width); gives new values.
        logits: (batch, h, n, m) to the same, before any mask and the softmax.
        weights: (batch, h, n, m) to the same, after the softmax and before attention dropout.
        output: (batch, n, width) to the same, after the output projection.
        image: (batch, height, width, channels) to the same, after the windows of an image were put together again; on
            backbones whose attention works in windows.
    """

    value: nn.Module | None = None
    logits: nn.Module | None = None
    weights: nn.Module | None = None
    output: nn.Module | None = None
    image: nn.Module | None = None


@dataclass(frozen=True)
class TokenSite:
    """What a loss on patch tokens needs to know: their width, their grid (height,
    width), and the number of classes.
    """

    width: int
    grid: tuple[int, int]
    classes: int


@dataclass(frozen=True, kw_only=True)
class Factor:
    """What can vary, as one file of this package declares it.

    Attributes:
        name: first half of every dotted name, as in `shortcuts.count`.
        parameters: second halves; a factor with a single parameter of its own name is
            addressed by `name` alone.
        source: paper and place, or the library that defines it.
        claim: what the source says it does, in one line.
        neutral: whether the model is the unmodified one at these values.
        needs: what a backbone must have for the factor to be defined on it.
        decays_as_published: whether a layer of it reads `recipe.factor_decay`.
    """

    name: str
    parameters: tuple[Parameter, ...]
    source: str
    claim: str
    neutral: Callable[[Values], bool]
    needs: tuple[Slot, ...] = ()
    kind: str = ""
    decays_as_published: bool = False

    def full_name(self, parameter: str) -> str:
        if parameter == self.name:
            return self.name
        return f"{self.name}.{parameter}"


@dataclass(frozen=True, kw_only=True)
class SizeFactor(Factor):
    """Changes numbers of the backbone before it is built."""

    edit: Callable[[Values, Dimensions], Dimensions]
    kind: str = "size"


@dataclass(frozen=True, kw_only=True)
class ReplaceFactor(Factor):
    """Takes the feed-forward network's place: gets the original module, returns one of
    the same tensor shapes.

    The original has `fc1`, `act` and `fc2`; inputs and outputs are (batch, tokens,
    width).
    """

    make: Callable[[Values, Site, nn.Module], nn.Module]
    needs: tuple[Slot, ...] = ("ffn",)
    kind: str = "replace"


@dataclass(frozen=True, kw_only=True)
class EditFactor(Factor):
    """Changes the inside of attention."""

    make: Callable[[Values, Site], Edits]
    needs: tuple[Slot, ...] = ("attention",)
    kind: str = "edit"


@dataclass(frozen=True, kw_only=True)
class PathFactor(Factor):
    """Adds paths beside a branch: modules from (batch, tokens, width) to the same."""

    make: Callable[[Values, Site, Branch], list[Path]]
    needs: tuple[Slot, ...] = ("residual",)
    kind: str = "path"


@dataclass(frozen=True, kw_only=True)
class ArrangeFactor(Factor):
    """Changes how a block joins its branches."""

    join: Callable[[Values, Join], Join]
    needs: tuple[Slot, ...] = ("residual",)
    kind: str = "arrange"


@dataclass(frozen=True, kw_only=True)
class HeadFactor(Factor):
    """Puts a module between the pooled vector and the classifier: from (batch, width)
    to the same.
    """

    make: Callable[[Values, int], nn.Module]
    needs: tuple[Slot, ...] = ("head",)
    kind: str = "head"


@dataclass(frozen=True, kw_only=True)
class LossFactor(Factor):
    """Adds terms to the training loss, from patch tokens; the network itself stays as
    it is.

    The module is called with early tokens, those after the last block (both (batch,
    patches, width), without prefix tokens) and labels: those of patches, (batch,
    patches, classes), or `Regions`, or None; it gives a scalar.

    Attributes:
        patch_labels: whether the terms need labels of patches.
        as_published: whether early tokens are patch embeddings without position, and
            any two images of a batch are mixed on the patch grid; else they are the
            tokens before the first block.
    """

    make: Callable[[Values, TokenSite], nn.Module]
    patch_labels: Callable[[Values], bool]
    as_published: Callable[[Values], bool] = lambda values: False
    needs: tuple[Slot, ...] = ("tokens",)
    kind: str = "loss"


class ReadValues(Mapping[str, Level]):
    """A factor's values while a model is built; remembers which were read.

    An argument that is accepted and ignored is a false result with a label on it, so
    the builder asks `check` at the end.
    """

    def __init__(self, factor: Factor, values: Values) -> None:
        self._factor = factor
        self._values = values
        self._seen = set[str]()

    def __getitem__(self, name: str) -> Level:
        self._seen.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def quietly(self) -> Values:
        """The same values, without remembering who looks."""
        return self._values

    def check(self, said: Settings) -> None:
        """Raises UnreadParameter if a parameter among the names `said` was never read."""
        for parameter in self._factor.parameters:
            name = self._factor.full_name(parameter.name)
            if name in said and parameter.name not in self._seen:
                raise UnreadParameter(
                    f"the built model did not read {name} = {said[name]}; this is a"
                    f" mistake in factor '{self._factor.name}'"
                )


def explain_refusal(name: str, parameter: Parameter, level: object) -> str:
    """The message for a level that a parameter does not take."""
    if isinstance(parameter.allowed, OneOf):
        known = [str(x) for x in parameter.allowed.levels]
    else:
        known = []
    return (
        f"{name}: {shortened(repr(level))} is not a level; allowed:"
        f" {parameter.allowed}{did_you_mean(level, known)}"
    )
