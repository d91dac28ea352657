"""Hides passwords, keys and tokens wherever text from outside is shown or stored.

Every place that prints, stores or serves such text calls `masked`: messages, errors,
commands, and what trials print. The time that it takes is linear in the length of the
text.

It finds a secret by its name (`password=x`, `--api-key x`, `X-Api-Key: x`), by its place
in a URL, or by its form (a private key, a token of GitHub). It cannot find others.
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
# The rest of a password that contains an @.
_REST = re.compile(r"[^\s/?#'\"`,;@]*@")
# `https://TOKEN@host`; shorter ones are names of users.
_TOKEN_OF_URL = re.compile(r"[\w.~-]{16,1000}(?=@)")

_WORDS = (
    r"password|passwd|passphrase|passfile|pwd|secret|credentials?"
    r"|(?:api|access|secret|account|private|auth)[_-]?key"
    r"|(?:access|auth|refresh|session|security|sas|bearer|api|hf|github)[_-]?token"
)
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""
# A secret with its name: a parameter of a URL (`?password=x`), of libpq's connection
# string (`password='x y'`), or an item of JSON or Python.
_NAMED = re.compile(
    rf"(?P<before>(?:{_WORDS}"
    r"|(?<![A-Za-z0-9_])(?:token|sig|signature|x-amz-signature))"
    r"(?:\s{0,3}=\s{0,3}|[\"']\s{0,3}[:,]\s{0,3}(?=[\"'])))"
    rf"(?P<secret>{_QUOTED}|[^&\s'\"]+)",
    re.IGNORECASE,
)
# A line of YAML or a header: `api_key: x`. What follows in a sentence, such as `password:
# the server said no`, begins with a word and goes on.
_LINE = re.compile(
    rf"(?P<before>(?:{_WORDS}|(?<![A-Za-z0-9_])token(?=: \S{{8}}))\s{{0,3}}:\s{{1,3}})"
    rf"(?P<secret>{_QUOTED}|(?![a-z]{{1,40}}[ \t]+\S)[^\s'\",;)}}\]]+)",
    re.IGNORECASE,
)
# A variable: `DB_PASS=x`, `MY_TOKEN=x`.
_VARIABLE = re.compile(
    r"(?P<before>(?:_|\b)(?:TOKEN|PASS|PASSWD|SECRET|APIKEY|PAT)=)"
    rf"(?P<secret>{_QUOTED}|[^&\s'\"]+)"
)
# Of an HTTP header. What follows `basic` in a sentence has small letters only.
_BEARER = re.compile(
    r"(?P<before>\b(?i:bearer|basic)\s{1,3})"
    r"(?P<secret>(?=[A-Za-z0-9._~+/-][a-z._~+/-]*[A-Z0-9=])[A-Za-z0-9._~+/-]{12,}=*)"
)
# An option of a command. `--token NEW` of the dashboard is no secret.
_OPTION = re.compile(
    rf"(?P<before>(?<![\w-])--?(?:[a-z]{{1,20}}[_-]){{0,3}}(?:{_WORDS}|(?<=--)token)"
    rf"(?:=|\s{{1,3}}))(?P<secret>{_QUOTED}|(?!NEW\b|-)[^\s'\"]+)",
    re.IGNORECASE,
)
# Secrets by their form: a private key in PEM, a JSON web token, tokens of GitHub, GitLab,
# Hugging Face, AWS, Google, OpenAI, Slack and package registries.
_FORMS = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----"
    r"(?:(?!-----END )[\s\S])*(?:-----END [A-Z0-9 ]{0,40}-----)?"
    r"|(?<![A-Za-z0-9_-])(?:"
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"
    r"|AIza[\w-]{35}|sk-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|(?:npm|pypi)[_-][\w-]{32,})"
)
# What stands in a text that a pattern can match: most texts have none of it.
_SIGNS = {
    _NAMED: ("pass", "pwd", "secret", "cred", "key", "token", "sig"),
    _LINE: ("pass", "pwd", "secret", "cred", "key", "token"),
    _VARIABLE: ("token=", "pass=", "passwd=", "secret=", "apikey=", "pat="),
    _BEARER: ("bearer", "basic"),
    _OPTION: ("-pass", "-pwd", "-secret", "-cred", "key", "token", "_pass"),
}
_MARKS_OF_FORMS = (
    *(
        "private key",
        "eyj",
        "gh",
        "github",
        "glpat-",
        "hf_",
        "akia",
        "asia",
        "aiza",
        "sk-",
    ),
    *("xox", "npm", "pypi"),
)


def masked(text: str) -> str:
    """Replaces every secret in a text by `***`."""
    text = _without_passwords(text)
    lower = text.lower()
    for pattern, signs in _SIGNS.items():
        if any(sign in lower for sign in signs):
            text = pattern.sub(rf"\g<before>{MASK}", text)
    if any(mark in lower for mark in _MARKS_OF_FORMS):
        text = _FORMS.sub(MASK, text)
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
        token = _TOKEN_OF_URL.match(text, begin)
        password = token.span() if token else _password(text, begin)
        if password is not None:
            parts += [text[begin : password[0]], MASK]
            done = password[1]
    return "".join([*parts, text[done:]])


def _password(text: str, begin: int) -> tuple[int, int] | None:
    """Returns where the password of a URL begins and ends; None if it has none.

    It may contain blanks and quotes, as database drivers allow it. The user name may
    contain an @ (`user@server:password@host`), so `user@host:5432/db` could be one. It is
    not one if a port, a slash, a blank or a quote says otherwise.

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
    if is_other:
        return None
    while rest := _REST.match(text, at + 1, end):
        at = rest.end() - 1
    return colon + 1, at
