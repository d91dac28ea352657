"""Hides passwords wherever text with a URL in it is shown or stored.

Every place that prints, stores or serves text that may hold a URL calls `masked`. The
pattern works on any text, so that a message of a library that repeats a URL is covered
as well as a URL of our own.
"""

from __future__ import annotations

import re

MASK = "***"

# The password of `scheme://user:password@host`. It ends at the first @, and may hold
# blanks and quotes. The user may hold an @.
_USER_INFO = re.compile(
    r"(?P<before>[A-Za-z][\w+.-]*://[^\s:/]*:)(?P<secret>[^@\n]*?)(?P<after>@(?=[\w\[./-]|$))"
)

# A secret as a parameter of a URL (`?password=x`), or of libpq's connection string
# (`password=x`).
_PARAMETER = re.compile(
    r"(?P<before>\b(?:password|passwd|pwd|sslpassword|passfile|token|secret|api_?key|access_?key|secret_?key)=)"
    r"(?P<secret>[^&\s'\"]+)",
    re.IGNORECASE,
)

# The dashboard's token on a command line.
_OPTION = re.compile(r"(?P<before>--token[= ])(?P<secret>(?!NEW\b)[^\s'\"]+)")


def masked(text: str) -> str:
    """Returns the text with every password in a URL, connection string or `--token`
    option replaced by `***`.
    """
    text = _USER_INFO.sub(rf"\g<before>{MASK}\g<after>", text)
    text = _PARAMETER.sub(rf"\g<before>{MASK}", text)
    return _OPTION.sub(rf"\g<before>{MASK}", text)
