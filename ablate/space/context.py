"""What all sections of a space share while they are read: the document and its mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args, get_type_hints

from ablate import factors
from ablate.errors import Problem, UnknownName, shortened
from ablate.factors.factor import Parameter
from ablate.parts import Trainer, trainer_named
from ablate.records import Level
from ablate.space.schema import SpaceForm
from ablate.text.document import Document, Where


@dataclass
class Context:
    """A document of the right shape, and the mistakes found in it so far.

    A section never raises for a mistake. It notes the mistake and goes on, so that one
    message lists them all.
    """

    document: Document
    form: SpaceForm
    problems: list[Problem] = field(default_factory=list)
    # The levels of each factor that varies; ranges and patterns are expanded.
    levels: dict[str, list[Level]] = field(default_factory=dict)
    # The scale of each factor whose levels are declared as a range.
    scales: dict[str, str] = field(default_factory=dict)

    @cached_property
    def trainer(self) -> Trainer | None:
        """The user's trainer; None if the space has none, or none that is known."""
        if self.form.trainer is None:
            return None
        try:
            return trainer_named(self.form.trainer)
        except UnknownName as error:
            self.wrong(("trainer",), str(error))
            return None

    @property
    def tuned(self) -> tuple[str, ...]:
        """The names of the hyperparameters under `tune`."""
        return tuple(self.form.tune.hyperparameters) if self.form.tune else ()

    @cached_property
    def backbones(self) -> tuple[str, ...]:
        """The names of all backbones, whether they exist or not."""
        form = self.form.backbone
        if form is None:
            return tuple(map(str, self.levels.get("backbone", [])))
        return (form if isinstance(form, str) else form.family,)

    def wrong(self, where: Where, text: str | Callable[[], str]) -> None:
        """Notes a mistake. A text that is a function is made only if it is shown."""
        self.problems.append(self.document.problem(where, text))

    @cached_property
    def listed(self) -> dict[str, dict[tuple[bool, Level], Level]]:
        """The listed levels of each factor that varies, by `level_key`."""
        listed = {}
        for name, levels in self.levels.items():
            # If two levels have the same key, the first one in the list is kept.
            listed[name] = {level_key(level): level for level in reversed(levels)}
        return listed


def parameters_of(backbones: tuple[str, ...], name: str) -> dict[str, Parameter]:
    """The parameter of a full name, by the backbones that have it."""
    parameters = {}
    for backbone in backbones or ("",):
        if name in factors.parameters(backbone):
            parameters[backbone] = factors.parameters(backbone)[name][1]
    return parameters


def level_key(level: Level) -> tuple[bool, Level]:
    """Equal for levels that mean the same: 0 and 0.0 do, 1 and true do not."""
    return isinstance(level, bool), level


def shown(level: Level) -> str:
    """A wrong level as a message repeats it."""
    return shortened(repr(level))


def literal(record: type, name: str) -> tuple[str, ...]:
    """The values that a field of type `Literal` allows."""
    return get_args(get_type_hints(record)[name])
