"""What a factor is: a frozen record with typed parameters and hooks.

A hook changes one place of a network or of its training. A factor has one or several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from ablate.errors import UnreadParameter, did_you_mean, shortened
from ablate.records import LONGEST_LEVEL, Level, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

Branch = Literal["msa", "mlp"]
# A module's name as PyTorch writes it, with wildcards.
PART_NAMES = re.compile(r"(each )?[\w*?\[\]-]+(\.[\w*?\[\]-]+)*")

# What a backbone must have for a factor to be defined on it:
#
# residual    pre-norm blocks whose two branches are added to a shortcut
# attention   softmax attention between tokens, with weights to edit
# heads       attention whose heads do not talk to each other
# ffn         a feed-forward network of two linear layers around a GELU
# unscaled    branches without a scale of their own
# norms       a norm over the channels of each token before both branches
# positions   attention whose queries and keys are tokens of one grid
# tokens      patch tokens of equal number and width before the first and after the
#             last block
# head        one linear classifier on one vector
BackbonePart = Literal[
    "residual",
    "attention",
    "heads",
    "ffn",
    "unscaled",
    "norms",
    "positions",
    "tokens",
    "head",
]


def _is_same(level: Level, other: Level) -> bool:
    """Whether two levels are equal. False is not 0, but 0 is 0.0."""
    both_numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool)
        for each in (level, other)
    )
    return (both_numbers or type(level) is type(other)) and level == other


@dataclass(frozen=True)
class OneOf:
    """A parameter that takes one of a few named levels."""

    levels: tuple[Level, ...]

    def accepts(self, level: Level) -> bool:
        """Returns whether a level is one of them."""
        return any(_is_same(level, allowed) for allowed in self.levels)

    def declared(self, level: Level) -> Level:
        """Returns a level as it is declared: 0.0 for 0, if 0.0 is declared."""
        return next(
            (allowed for allowed in self.levels if _is_same(level, allowed)), level
        )

    def __str__(self) -> str:
        return ", ".join(
            str(level).lower() if isinstance(level, bool) else str(level)
            for level in self.levels
        )

    def schema(self) -> dict[str, object]:
        """Returns the JSON Schema of a level."""
        return {"enum": list(self.levels)}


@dataclass(frozen=True)
class Whole:
    """A parameter that takes whole numbers from `least` to `most`."""

    least: int
    most: int | None = None

    def accepts(self, level: Level) -> bool:
        """Returns whether a level is one of them."""
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
        """Returns the JSON Schema of a level."""
        return {"type": "integer", "minimum": self.least} | (
            {"maximum": self.most} if self.most is not None else {}
        )


@dataclass(frozen=True)
class Real:
    """A parameter that takes numbers from `least` up to, but not including, `below`.

    `least` itself is allowed only if `closed`.
    """

    least: float
    below: float | None = None
    closed: bool = True

    def accepts(self, level: Level) -> bool:
        """Returns whether a level is one of them."""
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
        """Returns the JSON Schema of a level."""
        bounds: dict[str, object] = {
            "minimum" if self.closed else "exclusiveMinimum": self.least
        }
        return (
            {"type": "number"}
            | bounds
            | ({"exclusiveMaximum": self.below} if self.below is not None else {})
        )


@dataclass(frozen=True)
class PartNames:
    """A parameter that takes names of modules, or patterns of names."""

    def accepts(self, level: Level) -> bool:
        """Returns whether a level is one of them."""
        if not isinstance(level, str) or len(level) > LONGEST_LEVEL:
            return False
        names = [name.strip() for name in level.split(",")]
        return all(PART_NAMES.fullmatch(name) for name in names)

    def __str__(self) -> str:
        return (
            "names of modules with commas between them, such as blocks.3.attn or"
            f" blocks.*.mlp, of {LONGEST_LEVEL} characters at most"
        )

    def schema(self) -> dict[str, object]:
        """Returns the JSON Schema of a level."""
        return {"type": "string", "maxLength": LONGEST_LEVEL}


# One factor's levels by parameter name, without the factor's name in front.
Values: TypeAlias = Mapping[str, Level]


def always(values: Values) -> bool:
    """Says that a parameter is always read, whatever the others are."""
    return True


def declared_level(allowed: OneOf | Whole | Real | PartNames, level: Level) -> Level:
    """Returns a level as the declaration writes it, so that 0 and 0.0 are one trial."""
    return allowed.declared(level) if isinstance(allowed, OneOf) else level


@dataclass(frozen=True)
class Parameter:
    """One thing that varies.

    Args:
        name: second half of the dotted name in a space.
        allowed: which levels it takes.
        default: the level if none is set; None means the backbone's own.
        about: what it is, in one line.
        typical: levels worth trying; the catalogue and the contract tests use them.
        read: whether the model reads the parameter, given the values of the others.
        when: the same in words, such as "shortcuts.count is above 0".
    """

    name: str
    allowed: OneOf | Whole | Real | PartNames
    default: Level | None
    about: str
    typical: tuple[Level, ...]
    read: Callable[[Values], bool] = always
    when: str = ""


@dataclass(frozen=True)
class Site:
    """What a factor needs to know about the block in which it is built.

    `layer` counts from 0 to `depth` - 1 over the whole backbone. `hidden` is the width
    of the feed-forward network. `grid` is the token grid (height, width); it is 0 if
    only prefix tokens pass. `prefix` is the number of class and register tokens before
    the grid tokens. `dropout` is the rate inside the feed-forward network. `norm` makes
    a norm over a number of channels, of the backbone's class. `window` is the grid in
    which tokens attend to each other, if it is smaller than `grid`; otherwise 0.
    `scaled` says whether the backbone scales its branches, and `qk_normed` whether it
    normalises queries and keys. `family` is the name of the backbone's family.
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
    window: tuple[int, int] = (0, 0)
    scaled: bool = False
    qk_normed: bool = False
    family: str = ""


@dataclass(frozen=True)
class Dimensions:
    """The numbers of a backbone that size and recipe factors may change.

    Rates are probabilities. 0, or an empty `pool`, means that the backbone does not
    have this number, or has several values of it.
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
    """How a block joins its branches, and whether it has the identity shortcut.

    Without `mlp`, a block has one branch, MSA.
    """

    layout: Literal["serial", "parallel"] = "serial"
    identity: bool = True
    mlp: bool = True


@dataclass(frozen=True)
class Path:
    """A module beside a branch, reading the branch's input or the norm of it.

    The sum of branch, shortcuts and paths is multiplied by `rescale`.
    """

    module: nn.Module
    reads: Literal["input", "norm"]
    rescale: float = 1.0


@dataclass(frozen=True)
class Edits:
    """What a factor changes inside attention; a place that is None does not change.

    Shapes, for n queries, m keys and h heads:
        query: (batch, h, n, head width) to the same, before the scale.
        key: (batch, h, m, head width) to the same.
        value: receives the tokens that the values are projected from, (batch, m,
            width), and the values, (batch, m, h * head width); returns new values.
        logits: (batch, h, n, m) to the same, before any mask and the softmax.
        weights: (batch, h, n, m) to the same, after the softmax and before attention
            dropout.
        attended: receives the result of attention, (batch, h, n, head width), the
            values, and the values of the first block, both (batch, h, m, head width);
            returns a new result, before the output projection. All blocks must have
            tokens of equal number and width (`needs=("tokens",)`).
        output: (batch, n, width) to the same, after the output projection.
        image: (batch, height, width, channels) to the same, after the windows of an
            image are merged, on backbones whose attention has windows.
    """

    query: nn.Module | None = None
    key: nn.Module | None = None
    value: nn.Module | None = None
    logits: nn.Module | None = None
    weights: nn.Module | None = None
    attended: nn.Module | None = None
    output: nn.Module | None = None
    image: nn.Module | None = None


@dataclass(frozen=True)
class TokenSite:
    """What a loss on patch tokens needs to know.

    It is their width, their grid (height, width), and the number of classes.
    """

    width: int
    grid: tuple[int, int]
    classes: int


@dataclass(frozen=True)
class LossTerms:
    """Terms on patch tokens that a factor adds to the training loss.

    Attributes:
        make: builds the terms: a module that receives early tokens, the tokens after
            the last block (both (batch, patches, width), without prefix tokens) and
            labels, and returns a scalar. Labels are those of patches, (batch, patches,
            classes), or `Regions`, or None.
        patch_labels: whether the terms need labels of patches.
        as_published: whether early tokens are patch embeddings without position, and
            any two images of a batch are mixed on the patch grid. Otherwise early
            tokens are those before the first block.
    """

    make: Callable[[Values, TokenSite], nn.Module]
    patch_labels: Callable[[Values], bool]
    as_published: Callable[[Values], bool] = lambda values: False


@dataclass(frozen=True, kw_only=True)
class Factor:
    """What can vary, as one file of this package declares it.

    A factor has one hook or several: each changes another place of the model.

    Attributes:
        name: first half of every dotted name, as in `shortcuts.count`.
        parameters: second halves; a factor with a single parameter of its own name is
            written as `name` alone.
        source: paper and place, or the library that defines it.
        claim: the effect according to the source, in one line.
        neutral: whether the model is the unmodified one at these values.
        edit_backbone: changes numbers of the backbone before it is built.
        replace_ffn: replaces the feed-forward network. Receives the original, which has
            `fc1`, `act` and `fc2`; returns a module from (batch, tokens, width) to the
            same.
        edit_attention: changes the inside of attention.
        replace_norm: replaces the norms before the branches of a block. Receives the
            original, a layer norm over the last dimension; returns a module from
            (..., width) to the same.
        scale_branch: changes the output of a branch before it is added: a module from
            (batch, tokens, width) to the same; None for no change.
        add_paths: adds paths beside a branch: modules from (batch, tokens, width) to
            the same. An empty list adds none.
        add_tokens: adds tokens behind the class token, before the first block. Receives
            the width; returns a parameter, (1, number of tokens, width).
        join_branches: changes how a block joins its branches.
        before_classifier: inserts a module between the pooled vector and the
            classifier, from (batch, width) to the same. Receives the width.
        remove_parts: removes modules, after all other changes. Receives the network and
            a function that returns so many images of zeros, (n, channels, height,
            width); returns their names.
        loss_terms: adds terms to the training loss; the network does not change.
        switch: whether it is a switch of one backbone of a user's file, whose function
            gets the level by name. It has no hooks.
        needs: what a backbone must have, beyond what the hooks need.
        kind: what the catalogue calls the factor; by default, what its hooks change.
        decays_as_published: whether one of its layers reads `recipe.factor_decay`.
        revision: raised when a correction makes old results invalid; it is part of the
            identity of every trial that the factor changes. In a user's file it takes
            the place of the file's content.
    """

    part: ClassVar[str] = "factor"

    name: str
    parameters: tuple[Parameter, ...]
    source: str
    claim: str
    neutral: Callable[[Values], bool]
    edit_backbone: Callable[[Values, Dimensions], Dimensions] | None = None
    replace_ffn: Callable[[Values, Site, nn.Module], nn.Module] | None = None
    edit_attention: Callable[[Values, Site], Edits] | None = None
    replace_norm: Callable[[Values, Site, nn.Module], nn.Module] | None = None
    scale_branch: Callable[[Values, Site, Branch], nn.Module | None] | None = None
    add_paths: Callable[[Values, Site, Branch], list[Path]] | None = None
    add_tokens: Callable[[Values, int], nn.Parameter] | None = None
    join_branches: Callable[[Values, Join], Join] | None = None
    before_classifier: Callable[[Values, int], nn.Module] | None = None
    remove_parts: (
        Callable[[Values, nn.Module, Callable[[int], Tensor]], list[str]] | None
    ) = None
    loss_terms: LossTerms | None = None
    switch: bool = False
    needs: tuple[BackbonePart, ...] = ()
    kind: str = ""
    decays_as_published: bool = False
    revision: int | str | None = None

    def __post_init__(self) -> None:
        hooks = [name for name in HOOKS if getattr(self, name) is not None]
        if not hooks and not self.switch:
            raise ValueError(
                f"factor '{self.name}' has no hook; it needs at least one"
                f" of {', '.join(HOOKS)}"
            )
        needs: list[BackbonePart] = []
        for name in hooks:
            needs += HOOKS[name][1]
        kinds = [HOOKS[name][0] for name in hooks]
        # A frozen record sets its derived fields this way.
        object.__setattr__(self, "needs", tuple(dict.fromkeys([*needs, *self.needs])))
        object.__setattr__(self, "kind", self.kind or " + ".join(kinds))

    def full_name(self, parameter: str) -> str:
        """Returns the name of a parameter as it is written in a space."""
        if parameter == self.name:
            return self.name
        return f"{self.name}.{parameter}"


# What the catalogue calls a factor with this hook, and what a backbone must have for it.
HOOKS: dict[str, tuple[str, tuple[BackbonePart, ...]]] = {
    "edit_backbone": ("size", ()),
    "replace_ffn": ("replace", ("ffn",)),
    "edit_attention": ("edit", ("attention",)),
    "replace_norm": ("replace", ("norms",)),
    "scale_branch": ("edit", ("residual",)),
    "add_paths": ("path", ("residual",)),
    "add_tokens": ("edit", ("tokens",)),
    "join_branches": ("arrange", ("residual",)),
    "before_classifier": ("head", ("head",)),
    "remove_parts": ("remove", ()),
    "loss_terms": ("loss", ("tokens",)),
}


class ReadValues(Mapping[str, Level]):
    """A factor's values while a model is built; records which of them are read.

    An argument that is accepted and then ignored would give a wrongly labelled result,
    so the builder calls `check` at the end.
    """

    def __init__(self, factor: Factor, values: Values) -> None:
        self.factor = factor
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
        """Returns the same values without recording what is read."""
        return self._values

    def check(self, settings: Settings) -> None:
        """Raises UnreadParameter if a parameter in `said` was never read."""
        for parameter in self.factor.parameters:
            name = self.factor.full_name(parameter.name)
            if name in settings and parameter.name not in self._seen:
                raise UnreadParameter(
                    f"the built model did not read {name} = {settings[name]}; a hook of"
                    f" factor '{self.factor.name}' must look up"
                    f" values['{parameter.name}'] instead of using a constant"
                )


def explain_refusal(name: str, parameter: Parameter, level: object) -> str:
    """Returns the message for a level that a parameter does not accept."""
    if isinstance(parameter.allowed, OneOf):
        levels = [str(x) for x in parameter.allowed.levels]
    else:
        levels = []
    return (
        f"{name}: {shortened(repr(level))} is not a level; allowed:"
        f" {parameter.allowed}{did_you_mean(level, levels)}"
    )
