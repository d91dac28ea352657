"""Names of options and commands in messages, as the reader can type them.

An advised command repeats the options of the command at hand that it needs too, such as
those by which it found its store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ablate.text import escape
from ablate.text.masking import masked

WITH = "--with"
# The verbs that read or write checkpoints.
TRAINING = ("run", "resume", "diagnose")
# The verbs that need the user's own parts.
USING_PARTS = (*TRAINING, "plan", "cost", "reproduce", "try", "export")
RUNNING = ("run", "resume")
# The verbs that have an option, if it is not every verb.
READERS = {
    "--checkpoints": TRAINING,
    WITH: USING_PARTS,
    "--executor": RUNNING,
    "--ray-address": RUNNING,
    "--log": (*RUNNING, "export"),
}

# The values of each option: --with may have several.
_options: dict[str, tuple[str, ...]] = {}
# A variable of the process, not of a context: the threads of the loggers report too.
_is_command_line = False


@contextmanager
def command_line() -> Iterator[None]:
    """While this lasts, messages name options as they are typed: `--store`.

    It forgets the options of an earlier command of this process.
    """
    _options.clear()
    # Of the process, not of a thread: a verb runs for the whole process.
    global _is_command_line  # noqa: PLW0603
    before = _is_command_line
    _is_command_line = True
    try:
        yield
    finally:
        _is_command_line = before


def option(name: str) -> str:
    """The name of an option in a message: `--store` on the command line, else `store`."""
    if _is_command_line:
        return f"--{name.replace('_', '-')}"
    return name


def keep(option: str, *values: str) -> None:
    """Records an option of the current command, to repeat it in suggested commands.

    An empty value, or none, removes the option.
    """
    _options.pop(option, None)
    if any(values):
        _options[option] = values


def place(verb: str = "") -> str:
    """Returns the recorded options that a verb needs too.

    Each has a blank before it. A password is masked.
    """
    options = ""
    for name, values in _options.items():
        if verb in READERS.get(name, (verb,)):
            for value in values:
                options += f" {name} {escape.shell(masked(value))}"
    return escape.line(options)


def command(verb: str, *words: str) -> str:
    """Returns a command of ablate on the same store."""
    words_of_command = ["ablate", verb, *map(escape.shell, words)]
    return " ".join(words_of_command) + place(verb)
