"""How text becomes part of an output: one function for each format, and no other place
escapes.

Somebody else may have written a question, a level, a file's name or the message of an
exception. An output shows such text as it is. The text never acts: it begins no tag, no
link, no macro, no formula and no control sequence.

terminal, line    what a terminal shows; control characters are written as `\\x1b`
markdown          inside a line of GitHub's Markdown; `markdown_line` where the text
begins the line latex             inside a paragraph or a cell of LaTeX; `latex_comment`
after a per cent sign html              inside an element or a quoted attribute of HTML
csv               a cell of CSV that a spreadsheet may open json              a JSON
text figure            a text of matplotlib plotly            a text of Plotly shell
a word of a command that the tool proposes

Functions make control characters visible, because these formats cannot hold them, and
because a terminal may show any output. `restore` undoes that, and `csv_text` undoes
`csv`. JSON has an escape of its own for these characters, so it stays exact.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

# Characters that do something instead of being seen. The joiners U+200C and U+200D are
# not here: scripts and emoji need them.
_ACTING = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: cursor, colours, titles, bells
    "\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # unseen, turned
    "\u2028\u2029"  # ends of lines for some readers
    "\ud800-\udfff\ufffe\uffff"  # no characters: neither UTF-8 nor XML has them
)
_HIDDEN = re.compile(rf"[{_ACTING}]|\\(?=x[0-9a-f]{{2}}|u[0-9a-f]{{4}}|U[0-9a-f]{{8}})")
_SHOWN = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
# Beginnings of a formula, by OWASP's page on CSV injection, and the wide forms of the
# first four.
_FORMULA = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_BEGINS_FORMULA = re.compile(f"'*[{_FORMULA}]")
_IS_MARKED = re.compile(rf"''*(?:[{_FORMULA}]|\\x0d)")


def visible(text: str, keep: str = "") -> str:
    """The text with each character that acts written as Python does, as `\\x1b`.

    A backslash that would read like such an escape is written as `\\x5c`, so that
    `restore` gives the text back.

    Args:
        keep: characters that stay, as line feeds where there may be several lines.
    """

    def shown(found: re.Match[str]) -> str:
        character = found.group()
        code = ord(character)
        if character in keep:
            return character
        if code < 0x100:
            return f"\\x{code:02x}"
        if code < 0x10000:
            return f"\\u{code:04x}"
        return f"\\U{code:08x}"

    return _HIDDEN.sub(shown, text)


def restore(text: str) -> str:
    """The text that `visible` was given."""
    return _SHOWN.sub(
        lambda found: chr(int(found[1] or found[2] or found[3], 16)), text
    )


def terminal(text: str) -> str:
    """Text of one line or of several on a terminal."""
    return visible(text, keep="\n\t")


def line(text: str) -> str:
    """Text of one line on a terminal: a line feed in it begins no other line."""
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
    """Text inside a line of GitHub's Markdown.

    What means nothing there stays as it is, as `a_b`.

    GitHub's site links e-mail addresses, `@names` and `#numbers` after it has read the
    Markdown. No escape prevents that.

    Args:
        cell: whether the text stands in a table's cell, which a bar ends.
    """
    escaped = _MARKDOWN.sub(lambda found: "\\" + found.group(), _one_line(text))
    if cell:
        return escaped.replace("|", "\\|")
    return escaped


def markdown_line(text: str) -> str:
    """Text that begins a line of Markdown: it begins no heading, list, quotation or
    table.
    """
    escaped = markdown(text).strip()
    found = _BLOCK.match(escaped)
    if found is None:
        return escaped
    if found["number"]:
        return f"{found['number']}\\{escaped[found.end() :]}"
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
    chr(0x3B1 + place): rf"$\{name}$"
    for place, name in enumerate(_GREEK.split())
    if name != "-"
}
_LATEX |= {
    letter: rf"$\{unicodedata.name(letter).split()[-1].title()}$"
    for letter in "ΓΘΞΠΣΦΨΩ"
} | {"Λ": r"$\Lambda$"}
_LIGATURE = re.compile(r"([-',])(?=\1)|[!?](?=`)")
# Characters that LaTeX's kernel has in every encoding of fonts.
_LATIN = frozenset("ßæøœłÆØŒŁ§¶©")
# Accents that LaTeX's kernel has on Latin letters in every encoding of fonts.
_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327")


def _tex(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    if character.isascii() or character in _LATIN or _is_accented(character):
        return character
    # pdfLaTeX has no glyph for it and would stop; XeLaTeX and LuaLaTeX know the
    # primitive, and print it.
    return rf"\ifdefined\Umathchar {character}\else U+{ord(character):04X}\fi{{}}"


def _is_accented(character: str) -> bool:
    parts = unicodedata.normalize("NFD", character)
    return (
        "\xc0" <= character <= "\xff"
        and parts[0].isascii()
        and _ACCENTS.issuperset(parts[1:])
    )


def latex(text: str) -> str:
    """Text inside a paragraph or a cell of LaTeX, for any engine: no macro, no ligature
    of two signs.
    """
    whole = _LIGATURE.sub(lambda found: found.group() + "\0", _one_line(text))
    escaped = "".join("{}" if c == "\0" else _tex(c) for c in whole)
    # After the end of a row, a star or a bracket would be an argument of it.
    if escaped.startswith(("*", "[")):
        return "{}" + escaped
    return escaped


def latex_comment(text: str) -> str:
    """A comment of LaTeX: the whole text on one line after a per cent sign."""
    return f"% {_one_line(text)}"


def html(text: str) -> Markup:
    """Text inside an element or a quoted attribute of HTML."""
    from markupsafe import escape

    return escape(terminal(text))


def csv(value: object) -> object:
    """A cell of CSV.

    Text that a spreadsheet would take for a formula gets an apostrophe before it.

    OWASP recommends that. Numbers, and texts that are numbers, stay as they are.
    `csv_text` gives the text back: it takes away one apostrophe where some stand before
    a formula.
    """
    if not isinstance(value, str):
        return value
    shown = visible(value, keep="\n\t")
    if _BEGINS_FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{shown}"
    return shown


def csv_text(cell: str) -> str:
    """The text of a cell that `csv` wrote."""
    return restore(cell[1:] if _IS_MARKED.match(cell) else cell)


def json(text: str) -> str:
    """A JSON text with every character that acts as `\\u001b`, which means the same to
    a parser.
    """

    def shown(found: re.Match[str]) -> str:
        units = found.group().encode("utf-16-be", "surrogatepass").hex()
        return "".join(
            f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)
        )

    return re.sub(rf"(?!\n)[{_ACTING}]", shown, text)


def shell(text: str) -> str:
    """One word of a command that somebody may copy into a shell."""
    return shlex.quote(text)


def figure(text: str) -> str:
    """A text of matplotlib in which a dollar sign begins no formula."""
    return visible(text, keep="\n").replace("$", r"\$")


def plotly(text: str) -> str:
    """A text of Plotly, which reads some tags of HTML and its entities."""
    from html import escape

    return escape(terminal(text), quote=False)
