"""Commands that messages advise, as they can be typed: with the options by which they
find the store of the command at hand.
"""

from __future__ import annotations

from ablate import escape
from ablate.masking import masked

CHECKPOINTS = "--checkpoints"
# Verbs that read or write checkpoints.
TRAINING = ("run", "resume", "diagnose")

_options: dict[str, str] = {}


def keep(option: str, value: str) -> None:
    """Notes an option of the command at hand, to be said again with every command that
    is advised.

    An empty value is none.
    """
    _options.pop(option, None)
    if value:
        _options[option] = value


def place(verb: str = "") -> str:
    """The options that a verb needs to find the same store and checkpoints, each after
    a blank.

    A password is masked.
    """
    needed = {
        name: value
        for name, value in _options.items()
        if name != CHECKPOINTS or verb in TRAINING
    }
    said = "".join(
        f" {name} {escape.shell(masked(value))}" for name, value in needed.items()
    )
    return escape.line(said)


def command(verb: str, *words: str) -> str:
    """A command of ablate on the same store."""
    said = ["ablate", verb, *map(escape.shell, words)]
    return " ".join(said) + place(verb)
