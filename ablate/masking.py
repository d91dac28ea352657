"""Hides passwords wherever text with a URL is shown or stored.

Every place that prints, stores or serves text that may contain a URL calls `masked`.
The pattern works on any text, so it also covers a URL that a library repeats in a
message.
"""

from __future__ import annotations

import re

MASK = "***"

# The password of `scheme://user:password@host`. It ends at the first @, and may contain
# blanks and quotes. The user name may contain an @.
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
    """Replaces every password in a text by `***`.

    It finds those in URLs, connection strings and `--token` options.
    """
    text = _USER_INFO.sub(rf"\g<before>{MASK}\g<after>", text)
    text = _PARAMETER.sub(rf"\g<before>{MASK}", text)
    return _OPTION.sub(rf"\g<before>{MASK}", text)
