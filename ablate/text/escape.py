"""Makes text safe as part of an output: one function per format.

A question, a level, a file name or the message of an exception may come from someone
else. An output shows such text literally. The text never acts: it starts no tag, link,
macro, formula or control sequence. No other module escapes text.

terminal, line   for a terminal; control characters are written as `\\x1b`
markdown         inside a line of GitHub's Markdown
markdown_line    at the beginning of a line of Markdown
latex            inside a paragraph or a cell of LaTeX
latex_comment    after a per cent sign
html             inside an element or a quoted attribute of HTML
csv              a cell of CSV that a spreadsheet may open
json             a JSON text
figure           a text of matplotlib
plotly           a text of Plotly
shell            a word of a command that the tool proposes

The functions make control characters visible, because these formats cannot contain
them, and because any output may end up on a terminal. No two texts become the same
one. JSON has its own escape for these characters, so it stays exact.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

# Characters that act instead of being displayed. The joiners U+200C and U+200D are not
# among them, because scripts and emoji need them.
_ACTING = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: cursor, colours, titles, bells
    # invisible, or changing the direction of text
    "\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
    "\u2028\u2029"  # line ends for some readers
    "\ud800-\udfff\ufffe\uffff"  # not characters; neither UTF-8 nor XML allows them
)
# A backslash is escaped only if it would read as one of these escapes, so that the
# text can be restored and other backslashes stay readable.
_HIDDEN = re.compile(rf"[{_ACTING}]|\\(?=x[0-9a-f]{{2}}|u[0-9a-f]{{4}}|U[0-9a-f]{{8}})")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
# The characters that begin a formula according to OWASP's page on CSV injection, and
# the full-width forms of the first four.
_FORMULA = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"
# A text that already has an apostrophe before the formula gets another, so that removing
# one restores it.
_BEGINS_FORMULA = re.compile(f"'*[{_FORMULA}]")


def visible(text: str, keep: str = "") -> str:
    """Writes each acting character as Python does, for example as `\\x1b`.

    A backslash that would read as such an escape is written as `\\x5c`, so that the
    original text can be restored.

    Args:
        keep: characters that stay, such as line feeds if several lines are allowed.
    """

    def shown(match: re.Match[str]) -> str:
        character = match.group()
        code = ord(character)
        if character in keep:
            return character
        if code < 0x100:
            return f"\\x{code:02x}"
        if code < 0x10000:
            return f"\\u{code:04x}"
        return f"\\U{code:08x}"

    return _HIDDEN.sub(shown, text)


def terminal(text: str) -> str:
    """Escapes text of one or several lines for a terminal."""
    return visible(text, keep="\n\t")


def line(text: str) -> str:
    """Escapes text of one line for a terminal: a line feed in it starts no new line."""
    return visible(text)


def _one_line(text: str) -> str:
    return visible(text, keep="\n\t").replace("\n", " ").replace("\t", " ")


_PUNCTUATION = r"!-/:-@\[-`{-~"
_MARKDOWN = re.compile(
    rf"""
    \\(?=[{_PUNCTUATION}]|$)                # a backslash that would escape something
    | [`\[\]$~]                             # code, links and images, formulas, strikethrough
    | (?<!\s)\* | \*(?!\s)                  # emphasis; a star between spaces is none
    | (?<![^\W_])_ | _(?![^\W_])            # emphasis; an underscore inside a word is none
    | <(?=[A-Za-z/!?])                      # tags, comments, links
    | &(?=\#|[A-Za-z][A-Za-z0-9]*;)         # entities
    | :(?=//)                               # addresses that become links by themselves
    | (?<=www)\.
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BLOCK = re.compile(r"[-+#>=|:]|(?P<number>[0-9]{1,9})(?=[.)])")


def markdown(text: str, *, cell: bool = False) -> str:
    """Escapes text inside a line of GitHub's Markdown.

    Characters without a meaning at their place stay, as in `a_b`. GitHub's site links
    e-mail addresses, `@names` and `#numbers` after it has read the Markdown; no escape
    prevents that.

    Args:
        cell: whether the text is in a cell of a table, which a bar would end.
    """
    flat = _one_line(text)
    # A caller may remove the spaces at the ends. So a character beside them is escaped
    # as one at the end: a backslash there would escape what follows the text.
    bare = flat.strip()
    safe = _MARKDOWN.sub(lambda match: "\\" + match.group(), bare)
    escaped = flat.replace(bare, safe, 1) if bare else flat
    if cell:
        return escaped.replace("|", "\\|")
    return escaped


def markdown_line(text: str) -> str:
    """Escapes text at the beginning of a line of Markdown.

    It starts no heading, list, quotation or table.
    """
    escaped = markdown(text).strip()
    mark = _BLOCK.match(escaped)
    if mark is None:
        return escaped
    if mark["number"]:
        return f"{mark['number']}\\{escaped[mark.end() :]}"
    return f"\\{escaped}"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\symbol{34}",  # babel makes the character a command in several languages
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "\xa0": "~",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "−": "$-$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "µ": r"$\mu$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
}
_LATEX |= {c: "\\" + c for c in "&%$#_{}"}
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho"
    " - sigma tau upsilon phi chi psi omega"
)
_LATEX |= {
    chr(0x3B1 + number): rf"$\{name}$"
    for number, name in enumerate(_GREEK.split())
    if name != "-"
}
_LATEX |= {
    letter: rf"$\{unicodedata.name(letter).split()[-1].title()}$"
    for letter in "ΓΘΞΠΣΦΨΩ"
} | {"Λ": r"$\Lambda$"}
_LIGATURE = re.compile(r"([-',])(?=\1)|[!?](?=`)")
# Characters that LaTeX's kernel has in every font encoding.
_LATIN = frozenset("ßæøœłÆØŒŁ§¶©")
# Accents that LaTeX's kernel has on Latin letters in every font encoding.
_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327")


def _tex(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii() or character in _LATIN or _is_accented(character):
        return character
    # pdfLaTeX has no glyph for the character and would stop. XeLaTeX and LuaLaTeX have
    # the primitive, and print the character.
    return rf"\ifdefined\Umathchar {character}\else U+{ord(character):04X}\fi{{}}"


def _is_accented(character: str) -> bool:
    parts = unicodedata.normalize("NFD", character)
    return (
        "\xc0" <= character <= "\xff"
        and parts[0].isascii()
        and _ACCENTS.issuperset(parts[1:])
    )


def latex(text: str) -> str:
    """Escapes text inside a paragraph or a cell of LaTeX, for any engine.

    It contains no macro, and no ligature of two characters.
    """
    # NUL marks where a ligature must be broken; `_one_line` has removed every NUL of
    # the text itself.
    whole = _LIGATURE.sub(lambda match: match.group() + "\0", _one_line(text))
    escaped = "".join("{}" if c == "\0" else _tex(c) for c in whole)
    # After the end of a row, a star or a bracket would be read as its argument.
    if escaped.startswith(("*", "[")):
        return "{}" + escaped
    return escaped


def latex_comment(text: str) -> str:
    """Returns a LaTeX comment: the whole text on one line after a per cent sign."""
    return f"% {_one_line(text)}"


def html(text: str) -> Markup:
    """Escapes text inside an element or a quoted attribute of HTML."""
    from markupsafe import escape

    return escape(terminal(text))


def html_with_code(text: str) -> Markup:
    """Escapes text as `html` does, and shows words in backticks as code."""
    from markupsafe import Markup

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(html(text))))


def csv(value: object) -> object:
    """Escapes a cell of CSV.

    Text that a spreadsheet would take for a formula gets an apostrophe before it, as
    OWASP recommends. Numbers, and texts that are numbers, do not change. Who removes one
    apostrophe before a formula has the original text.
    """
    if not isinstance(value, str):
        return value
    shown = visible(value, keep="\n\t")
    if _BEGINS_FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{shown}"
    return shown


def json(text: str) -> str:
    """Escapes acting characters in a JSON text as `\\u001b`.

    A parser reads the same value.
    """

    def shown(match: re.Match[str]) -> str:
        # JSON escapes are UTF-16 units, so a character beyond U+FFFF needs two of them.
        units = match.group().encode("utf-16-be", "surrogatepass").hex()
        return "".join(
            f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)
        )

    return re.sub(rf"(?!\n)[{_ACTING}]", shown, text)


def shell(text: str) -> str:
    """Quotes one word of a command that a user may copy into a shell."""
    return shlex.quote(text)


def figure(text: str) -> str:
    """Escapes a text of matplotlib, in which a dollar sign would start a formula."""
    return visible(text, keep="\n").replace("$", r"\$")


def plotly(text: str) -> str:
    """Escapes a text of Plotly, which interprets some HTML tags and entities."""
    from html import escape

    return escape(terminal(text), quote=False)
