"""What can go wrong, as exceptions.

AblateError                  a message for a person; the command line prints it and
exits with code 2 ├── SpaceError               the YAML document is wrong; each problem
with file and line ├── UnknownName              a name that nobody knows; says which are
known ├── Infeasible               a combination that cannot be built, with the reason
├── UncountedOperator        a cost would leave an operator out ├── UnreadParameter
a built model did not read a parameter that claims to matter ├── DataError
data are missing or not what was declared ├── StoreError               the database is
missing, of another version, locked or refuses a statement ├── CheckpointError
a checkpoint cannot be read or belongs to another trial │   └── TrialBusy
another process still trains the trial └── ExecutorError            an executor cannot
do what the study asks
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Problems that one message lists; a person mends these first.
MOST_PROBLEMS = 20
# Characters of one problem: more than the longest list of known names takes.
MOST_CHARACTERS = 1_500
# Characters of a wrong value that a message repeats.
SHOWN = 80


class AblateError(Exception):
    """A message for a person: the wrong value, where it stood, what is allowed, what to
    type.
    """


class UnknownName(AblateError):
    """A name that nobody knows."""


class Infeasible(AblateError):
    """A combination of factors that cannot be built. The text is the reason."""


class UncountedOperator(AblateError):
    """An operator computes, but no rule says how much."""


class UnreadParameter(AblateError):
    """A built model did not read a parameter that claims to matter: its result would
    carry a false label.
    """


class DataError(AblateError):
    """Data are missing or are not what was declared."""


class DiagnosticError(AblateError):
    """A diagnostic cannot be taken."""


class StoreError(AblateError):
    """The database is missing, of another version, in use, or refuses a statement."""


class CheckpointError(AblateError):
    """A checkpoint cannot be read, or belongs to another trial."""


class TrialBusy(CheckpointError):
    """Another process still trains the trial."""


class ExecutorError(AblateError):
    """An executor cannot do what the study asks."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a document: where it stands and what it is.

    Line 0 is the document as a whole.

    A text that takes long to make, because it looks for the name that was meant, may be
    a function: it is called only for the problems that are shown.
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

    `problems` lists every mistake found, in the order of their lines; the message has
    the first `MOST_PROBLEMS`.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(first(self.problems, "problems")))


def first(lines: Sequence[object], what: str) -> list[str]:
    """The first `MOST_PROBLEMS` lines of a message, and how many more there are."""
    shown = [str(line) for line in lines[:MOST_PROBLEMS]]
    more = len(lines) - len(shown)
    if more:
        return [*shown, f"... and {more:,} more {what}"]
    return shown


def shortened(text: str, most: int = SHOWN) -> str:
    """A text in one line: of one that is too long its beginning and its end, and
    characters that do not print as escapes.
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
    """A number with its noun: `1 seed`, `2 seeds`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(
        shortened(str(found)), list(known), n=1, cutoff=0.6
    )
    if near:
        return f"; did you mean '{near[0]}'?"
    return ""


def unknown(what: str, found: object, known: Iterable[str]) -> str:
    """The message for a name that nobody knows: the nearest known one if there is one,
    else all of them.
    """
    names = list(known)
    shown = shortened(str(found))
    hint = did_you_mean(found, names)
    if hint:
        return f"unknown {what} '{shown}'{hint}"
    return f"unknown {what} '{shown}'; known: {', '.join(names)}"
