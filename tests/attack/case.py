"""A case of malformed input, what one run of it came to, and what the command line
owes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# A file's text or bytes, or a function that makes it at a path.
Content = str | bytes | Callable[[Path], object]

SPACE = "space.yaml"
PLAN = ("plan", SPACE)

MOST_SECONDS = 5.0
MOST_BYTES = 10**9
# The line that begins with `error: `, 20 problems, and how many more there are, with
# one line to spare.
MOST_LINES = 23
MOST_MESSAGE = 50_000


@dataclass(frozen=True)
class Case:
    """What is typed, in a folder with which files.

    `says` stands in the message: the wrong value, its place, or what is allowed.
    """

    name: str
    says: str
    argv: tuple[str, ...] = PLAN
    files: Mapping[str, Content] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    `killed` says why it was ended from outside; `seconds` are those of the CPU; `left`
    names what is new, changed or gone in its folders.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    peak: int
    killed: str = ""
    left: tuple[str, ...] = ()


def document(text: str, name: str, says: str, *, verb: str = "plan") -> Case:
    """A case of one YAML document."""
    return Case(
        name=name,
        says=says,
        argv=(verb, SPACE, *(("--executor", "inline") if verb == "run" else ())),
        files={SPACE: text},
    )


def breaches(outcome: Outcome, says: str) -> list[str]:
    """What of the contract a run broke; nothing where it was refused as it should be."""
    said = outcome.stderr
    found = {
        outcome.killed: bool(outcome.killed),
        f"exit code {outcome.code}": outcome.code != 2,
        "a traceback": "Traceback (most recent call last)" in said,
        "a warning": re.search(r"^\S*:\d+: \w*Warning", said, re.MULTILINE) is not None,
        "the message does not begin with `error: `": not said.startswith("error: "),
        "more than one message": len(re.findall(r"^error: ", said, re.MULTILINE)) > 1,
        f"the message does not say {says!r}": says not in said,
        f"{said.count(chr(10))} lines": said.count("\n") > MOST_LINES,
        f"{len(said)} characters": len(said) > MOST_MESSAGE,
        "output beside the message": outcome.stdout != "",
        f"{outcome.seconds:.1f} s": outcome.seconds > MOST_SECONDS,
        f"a peak of {outcome.peak / 1e6:.0f} MB": outcome.peak > MOST_BYTES,
        f"left behind: {', '.join(outcome.left)}": bool(outcome.left),
    }
    return [breach for breach, broken in found.items() if broken]
