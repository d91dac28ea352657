"""The command line: parsing and printing only. Heavy imports stand inside the verbs."""

from __future__ import annotations

import re
import sys


def _with_place(message: str) -> str:
    """The message with commands that find the store of this one: what raised it knows no options."""
    said = [" ".join(sys.argv[at : at + 2]) for at, word in enumerate(sys.argv[:-1]) if word in ("--runs", "--store")]
    if not said or any(option in message for option in said):
        return message
    hint = re.compile(r"ablate (?:resume|table|status|diagnose) [\w./-]*\w")
    return hint.sub(lambda found: " ".join([found.group(), *said]), message)


def main() -> None:
    """The `ablate` command. Mistakes end with one message and code 2, an interruption with code 130."""
    from ablate.cli.app import app
    from ablate.errors import AblateError

    try:
        app()
    except AblateError as error:
        print(f"error: {_with_place(str(error))}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of a pipe has gone, as in `ablate table x | head`.
            sys.stderr.close()
            sys.exit(0)
        print(f"error: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
