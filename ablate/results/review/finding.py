"""A finding of a review, and what the questions of a review look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.records import CellResult, Space, StudyResults
from ablate.records.stored import Circumstances, TriedSetting
from ablate.report.effect import Effect
from ablate.text import escape


@dataclass(frozen=True)
class Finding:
    """An objection that a referee would raise, and the command that fixes it."""

    name: str
    text: str
    command: str


def command(declared: Space, file: str, more: str = "") -> str:
    """Returns the command that runs a study as it was run.

    It includes `--until-decided` if the study used it; without the option, the study
    would lose the seeds that were added. Runs that were trained elsewhere are reported
    again.
    """
    if declared.reported is not None:
        return declared.reported.again(declared.name)
    if declared.seeds.looks and "--until-decided" not in more:
        until = f"--until-decided {declared.seeds.looks.most}"
    else:
        until = ""
    words = (f"ablate run {escape.shell(file)}{with_parts(declared)}", until, more)
    return " ".join(filter(None, words))


def with_parts(declared: Space) -> str:
    """Returns the options that name the files of the user's parts, each after a blank."""
    return "".join(f" --with {escape.shell(part)}" for part in declared.parts)


@dataclass(frozen=True)
class Read:
    """Everything that the questions of a review look at.

    It has the results of a study, its declaration, file and verdicts, and what its
    trials ran on.
    """

    results: StudyResults
    declared: Space
    file: str
    effects: Sequence[Effect]
    circumstances: Sequence[Circumstances]
    where: str = ""
    # The name and the space of each generation of the study, the first one first.
    generations: Sequence[tuple[str, Mapping[str, Any]]] = ()
    # Other studies that compare the same rows.
    relatives: Sequence[str] = ()
    by_row: Mapping[int, CellResult] = field(default_factory=dict)
    # The trials of rows at the settings that they try.
    tried: Sequence[TriedSetting] = ()

    @property
    def is_search(self) -> bool:
        return self.declared.strategy is not None

    @property
    def parts(self) -> str:
        """The options with which a command finds the user's parts and the store."""
        return f"{with_parts(self.declared)}{self.where}"

    def again(self, more: str = "") -> str:
        """Returns the command that runs the study again."""
        return command(self.declared, self.file, more) + self.where
