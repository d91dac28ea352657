"""Hides passwords wherever text with a URL is shown or stored.

Every place that prints, stores or serves text that may contain a URL calls `masked`. It
works on any text, so it also covers a URL that a library repeats in a message. The time
that it takes is linear in the length of the text.
"""

from __future__ import annotations

import re

MASK = "***"
# The longest password of a URL.
LONGEST = 1_000

_SCHEME = re.compile(r"[A-Za-z][\w+.-]{0,40}\Z")
# `localhost:5432`, and what follows it in a URL or in a sentence.
_PORT = re.compile(r"\d{1,5}(?=[/?#\s'\"`),;:]|\Z)")
_BREAKS = re.compile(r"[\s'\"`]")

# A secret with its name: a parameter of a URL (`?password=x`), of libpq's connection
# string (`password='x y'`), or a variable (`PGPASSWORD=x`).
_NAMED = re.compile(
    r"(?P<before>(?:password|passwd|passphrase|passfile|pwd|secret|credentials?"
    r"|(?:api|access|secret|account|private|auth)[_-]?key"
    r"|(?:access|auth|refresh|session|security|sas|bearer|api|hf|github)[_-]?token"
    r"|(?<![A-Za-z0-9_])(?:token|sig|signature|x-amz-signature))"
    r"(?:\s{0,3}=\s{0,3}|[\"']\s{0,3}:\s{0,3}(?=[\"'])))"
    r"(?P<secret>'[^'\n]*'|\"[^\"\n]*\"|[^&\s'\"]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<before>\b(?:bearer|basic)\s{1,3})(?P<secret>[A-Za-z0-9._~+/-]{12,}=*)",
    re.IGNORECASE,
)

# The dashboard's token on a command line.
_OPTION = re.compile(r"(?P<before>--token[= ])(?P<secret>(?!NEW\b)[^\s'\"]+)")


def masked(text: str) -> str:
    """Replaces every password in a text by `***`.

    It finds those in URLs, connection strings, variables and `--token` options.
    """
    text = _without_passwords(text)
    for pattern in (_NAMED, _BEARER, _OPTION):
        text = pattern.sub(rf"\g<before>{MASK}", text)
    return text


def _without_passwords(text: str) -> str:
    """Masks the password of each `scheme://user:password@host`."""
    parts: list[str] = []
    done = 0
    while True:
        begin = text.find("://", done)
        if begin < 0:
            break
        begin += len("://")
        parts.append(text[done:begin])
        done = begin
        if not _SCHEME.search(text[max(0, begin - 45) : begin - len("://")]):
            continue
        password = _password(text, begin)
        if password is not None:
            parts += [text[begin : password[0]], MASK]
            done = password[1]
    return "".join([*parts, text[done:]])


def _password(text: str, begin: int) -> tuple[int, int] | None:
    """Returns where the password of a URL begins and ends; None if it has none.

    It ends at the first @, and may contain blanks and quotes, as database drivers allow
    it. The user name may contain an @ (`user@server:password@host`), so `user@host:5432/db`
    could be one. It is not one if a port, a slash, a blank or a quote says otherwise.

    Args:
        begin: the place after `://`.
    """
    line = text.find("\n", begin, begin + 2 * LONGEST)
    end = line if line >= 0 else min(len(text), begin + 2 * LONGEST)
    colon = text.find(":", begin, end)
    at = text.find("@", max(colon, begin), end)
    if min(colon, at) < 0:
        return None
    user = text[begin:colon]
    secret = text[colon + 1 : at]
    after = text[at + 1 : at + 2]
    has_breaks = _BREAKS.search(secret) is not None
    is_other = (
        # A path, or the address of an IPv6 host.
        "/" in user
        or user.startswith("[")
        or _BREAKS.search(user)
        or secret[:1].isspace()
        or (after and not (after.isalnum() or after in "_[./-"))
        or ("@" in user and (has_breaks or "/" in secret))
        or (has_breaks and _PORT.match(secret))
    )
    return None if is_other else (colon + 1, at)
