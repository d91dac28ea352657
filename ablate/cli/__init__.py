"""The command line: parsing and printing only. Heavy imports are inside the verbs."""

from __future__ import annotations

import contextlib
import re
import select
import sys
import traceback
import warnings
from typing import Any


def _message_of_typer(message: str) -> str:
    """Typer's message for a wrong option, with the name that was most likely meant."""
    from ablate.errors import did_you_mean

    message = message.replace("Value error, ", "").removesuffix(".")
    wrong = re.search(r"'([^']*)' is not one of (.*)", message)
    if wrong:
        message += did_you_mean(wrong[1], re.findall(r"'([^']+)'", wrong[2]))
    if message.endswith("?"):
        return message
    return f"{message}."


def _hint_at_file(message: str, context: Any) -> str:
    """How to name the file to write, where it was typed without its option."""
    extra = re.search(r"unexpected extra argument\S* \((\S+)\)", message)
    if extra is None or context is None:
        return ""
    options = [name for parameter in context.command.params for name in parameter.opts]
    if "--to" not in options:
        return ""
    return f" Name the file to write with --to {extra[1]}."


def _lacks_memory(error: Exception) -> bool:
    """Whether a command ended for lack of memory, also while a library was loaded."""
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError)
        and ("failed to map segment" in str(error) or "allocate memory" in str(error))
    )


def _reader_has_gone() -> bool:
    """Whether a pipe that this process prints to has lost its reader."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            poll.register(stream.fileno(), 0)
    return bool(poll.poll(0))


def main() -> None:
    """The `ablate` command.

    A user error ends with one message and exit code 2, an interruption with code 130.
    """
    from ablate.cli.output import use_plain_signs
    from ablate.machine.timm_imports import refuse_wandb
    from ablate.text import advice

    use_plain_signs()
    warnings.showwarning = _show_warning
    refuse_wandb()
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        with advice.command_line():
            _main()
    except KeyboardInterrupt:
        # While modules load. An interruption of a verb ends in `app`.
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Prints a warning of a library, as of a sign that a font lacks, without its source."""
    from ablate.cli.output import tell

    tell(f"warning: {message}")


def _main() -> None:
    from typer.exceptions import TyperException

    from ablate.cli.app import command
    from ablate.cli.output import tell
    from ablate.errors import AblateError

    try:
        run = command()
        sys.exit(run(prog_name="ablate", standalone_mode=False))
    except TyperException as error:
        context = getattr(error, "ctx", None)
        verb = context.command_path if context else "ablate"
        message = error.format_message()
        tell(
            f"error: {_message_of_typer(message)}{_hint_at_file(message, context)}"
            f" See: {verb} --help"
        )
        sys.exit(error.exit_code)
    except AblateError as error:
        tell(f"error: {error}")
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            # As in `ablate table x | head`.
            sys.stderr.close()
            sys.exit(0)
        tell(
            f"error: {error.strerror or error}"
            + (f": {error.filename}" if error.filename else "")
        )
        sys.exit(2)
    except Exception as error:
        if _lacks_memory(error):
            tell(
                f"error: there is too little memory: {error or 'MemoryError'}; end other"
                " programs, or raise the limit that `ulimit -v` shows or the batch system"
                " has set. What was stored is intact"
            )
            sys.exit(2)
        # A bug. Python would print its message unescaped, and the message may contain
        # anything.
        tell(traceback.format_exc().rstrip())
        sys.exit(1)
