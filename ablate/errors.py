"""The exceptions of ablate.

AblateError                a message for a person; the CLI prints it, exit code 2
├── SpaceError             the YAML document is wrong; each problem with its line
├── UnknownName            an unknown name, with the nearest known one
├── Infeasible             a combination that cannot be built, with the reason
├── UncountedOperator      a cost would leave an operator out
├── UnreadParameter        the built model did not read a declared parameter
├── DataError              data are missing, or are not what the space declares
├── StoreError             the database is missing, locked or of another version
├── CheckpointError        a checkpoint is unreadable or belongs to another trial
│   └── TrialBusy          another process still trains the trial
└── ExecutorError          an executor cannot do what the study asks
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# The most problems that one message lists; these are enough to fix at a time.
MOST_PROBLEMS = 20
# The most characters of one problem: more than the longest list of known names.
MOST_CHARACTERS = 1_500
# The most characters of a wrong value that a message repeats.
SHOWN = 80


class AblateError(Exception):
    """A message for the user: the wrong value, its place, and what is allowed."""


class UnknownName(AblateError):
    """A name is unknown."""


class Infeasible(AblateError):
    """A combination of factors that cannot be built. The text is the reason."""


class PartError(AblateError):
    """A part of the user's own has a mistake, which is no matter of its levels."""


class UncountedOperator(AblateError):
    """The network contains an operator for which no rule counts FLOPs."""


class UnreadParameter(AblateError):
    """A factor should change a model, but the code that built the model did not read
    the factor.

    The result of the model would be stored under a level that had no effect."""


class DataError(AblateError):
    """Data are missing or are not what was declared."""


class DiagnosticError(AblateError):
    """A diagnostic cannot be taken."""


class StoreError(AblateError):
    """The database is missing, of another version, in use, or refuses a statement."""


class DamagedStore(StoreError):
    """The database has something that ablate does not write: what, and where."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the store is damaged: {what}; use a backup copy")


class MissingStore(StoreError):
    """There is no database at this place."""


class CheckpointError(AblateError):
    """A checkpoint cannot be read, or belongs to another trial."""


class TrialBusy(CheckpointError):
    """Another process still trains the trial."""


class ExecutorError(AblateError):
    """An executor cannot do what the study asks for."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a document: its place and what it is.

    Line 0 means the document as a whole. The text may be a function if it takes long to
    make, because it looks for the name that was meant. The function is called only for
    problems that are shown.
    """

    file: str
    line: int
    text: str | Callable[[], str]

    def __str__(self) -> str:
        text = shortened(
            self.text if isinstance(self.text, str) else self.text(), MOST_CHARACTERS
        )
        if self.line:
            return f"{self.file}:{self.line}: {text}"
        return f"{self.file}: {text}"


class SpaceError(AblateError):
    """The YAML document is wrong.

    `problems` has every mistake found, in the order of lines. The message shows the
    first `MOST_PROBLEMS`.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(first(self.problems, "problems")))


def first(lines: Sequence[object], what: str) -> list[str]:
    """Returns the first `MOST_PROBLEMS` lines, and how many more there are."""
    shown = [str(line) for line in lines[:MOST_PROBLEMS]]
    more = len(lines) - len(shown)
    if more:
        return [*shown, f"... and {more:,} more {what}"]
    return shown


def shortened(text: str, most: int = SHOWN) -> str:
    """Returns a text in one line, with characters that do not print as escapes.

    Of a text that is too long, the beginning and the end remain.
    """
    if len(text) <= most:
        kept = text
    else:
        kept = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    if kept.isprintable():
        return kept
    return "".join(map(_printable, kept))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 seed`, `2 seeds`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the nearest known name, or an empty text.

    `lr` means `recipe.lr` if no other name ends like it. The first part of a dotted name
    says what it is about, so `value.activation` means a name of `value`, and never
    `ffn.activation`.
    """
    names = list(known)
    text = shortened(str(name))
    longer = [known_name for known_name in names if known_name.endswith(f".{name}")]
    if len(longer) == 1:
        return f"; did you mean '{longer[0]}'?"
    about, dot, _ = text.partition(".")
    if dot:
        subjects = {known_name.partition(".")[0] for known_name in names}
        near_subjects = difflib.get_close_matches(about, subjects, n=1, cutoff=0.6)
        names = [
            known_name
            for known_name in names
            if known_name.partition(".")[0] in near_subjects
        ]
        if len(names) == 1:
            return f"; did you mean '{names[0]}'?"
    near = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return ""


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Returns the message for an unknown name.

    It suggests the nearest known name if there is one, otherwise it lists all of them.
    """
    names = list(known)
    shown = shortened(str(name))
    hint = did_you_mean(name, names)
    if hint:
        return f"unknown {what} '{shown}'{hint}"
    listed = names
    if sum(map(len, names)) > MOST_CHARACTERS:
        listed = [*map(shortened, names[:MOST_PROBLEMS])]
        listed.append(f"and {len(names) - len(listed):,} more")
    return f"unknown {what} '{shown}'; known: {', '.join(listed)}"
