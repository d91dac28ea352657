"""Each escaping function alone: what it escapes, a parser of its format reads as the
text; harmless text stays as it is.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.cbook import is_math_text

from ablate.text import escape
from tests.hostile.texts import (
    ACTING,
    FORMULAS,
    HARMLESS,
    KINDS,
    csv_text,
    evil,
    restore,
)

PIECES = [
    *KINDS.values(),
    *FORMULAS,
    *"\\`*_{}[]()<>#+-.!|$~&:;@=\"'^%,?\n\t\r\x1b 0a",
    "\\x1b",
    "www.",
    "://",
    "&#65;",
    "1. ",
]
TEXTS = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.sampled_from([*PIECES, evil("x")]),
)
COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def one_line(text: str) -> str:
    """Text as a format shows it whose lines are filled: control characters visible, all
    white space one space.
    """
    return escape.terminal(text).replace("\n", " ").replace("\t", " ")


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.proof
@given(TEXTS)
def test_control_characters_are_seen_and_can_be_had_back(text: str) -> None:
    assert restore(escape.visible(text)) == text
    assert not ACTING.search(escape.terminal(text))
    assert "\n" not in escape.line(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert escape.terminal(text) == text
    assert escape.latex_comment(text) == f"% {text}"
    assert escape.csv(text) == text
    assert escape.markdown(f"seed by seed; {text}") == f"seed by seed; {text}"
    assert escape.figure(text) == text


@given(TEXTS)
def test_html_is_read_as_the_text(text: str) -> None:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

        def handle_starttag(
            self, tag: str, attrs: list[tuple[str, str | None]]
        ) -> None:
            assert (tag, [name for name, _ in attrs]) == ("p", ["title"])
            assert attrs[0][1] == escape.terminal(text)

        def handle_comment(self, data: str) -> None:
            raise AssertionError(data)

    reader = Reader()
    reader.feed(f'<p title="{escape.html(text)}">{escape.html(text)}</p>')
    reader.close()
    assert "".join(found) == escape.terminal(text)


def words_of(markdown: str, *around: str) -> str:
    """The text of one paragraph, which holds text and nothing else."""
    first, inline, last = COMMONMARK.parse(markdown)
    assert (first.type, last.type) == ("paragraph_open", "paragraph_close"), markdown
    kinds = {
        child.type
        for child in inline.children or ()
        if child.content or child.type != "text"
    }
    assert kinds <= {"text", "text_special", *around}, (markdown, kinds)
    return "".join(child.content for child in inline.children or ())


@given(TEXTS)
@example("\\ ")
@example(" * ")
@example(" *")
@example("a\\\n")
def test_markdown_is_read_as_the_text(text: str) -> None:
    inside = escape.markdown(text)
    assert words_of(f"a {inside} z") == f"a {one_line(text)} z"
    if not inside.strip():
        return
    assert squeezed(
        words_of(f"**{inside.strip()}**", "strong_open", "strong_close")
    ) == squeezed(one_line(text))
    assert squeezed(words_of(escape.markdown_line(text))) == squeezed(one_line(text))
    # No note becomes a heading's line or a table's rule for the one above it.
    two = f"above | it  \n{escape.markdown_line(text)}"
    assert squeezed(words_of(two, "hardbreak", "softbreak")) == squeezed(
        f"above | it{one_line(text).strip()}"
    )


@given(TEXTS, TEXTS)
def test_a_cell_of_a_markdown_table_is_read_as_the_text(text: str, other: str) -> None:
    cells = [escape.markdown(one, cell=True) for one in (text, other)]
    table = f"| a | b |\n|---|---|\n| {cells[0]} | {cells[1]} |\n"
    tokens = COMMONMARK.parse(table)
    inlines = [token for token in tokens if token.type == "inline"]
    found = [
        "".join(child.content for child in token.children or ()) for token in inlines
    ]
    kinds = {
        child.type
        for token in inlines
        for child in token.children or ()
        if child.content or child.type != "text"
    }
    assert kinds <= {"text", "text_special"}, kinds
    assert list(map(squeezed, found)) == [
        "a",
        "b",
        squeezed(one_line(text)),
        squeezed(one_line(other)),
    ]


@given(
    st.lists(
        st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False), st.none()),
        min_size=1,
    )
)
def test_csv_gives_the_text_back_and_begins_no_formula(values: list[object]) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(map(escape.csv, values))
    stream.seek(0)
    (cells,) = csv.reader(stream) if stream.getvalue().strip("\n") else ([""],)
    assert [csv_text(cell) for cell in cells] == [
        "" if value is None else str(value) for value in values
    ]
    assert not ACTING.search(stream.getvalue())
    for cell in cells:
        assert (
            not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
            or float(cell) is not None
        )


def test_csv_numbers_stay_numbers() -> None:
    for value in (-1, -0.5, 1e-9, None, "-5", "+0.25", "-1e-3"):
        assert escape.csv(value) == value
    assert escape.csv("-5-5") == "'-5-5"
    assert escape.csv("'tis") == "'tis", "an apostrophe of the text stays one"


@pytest.mark.proof
@given(
    st.recursive(
        TEXTS | st.integers() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    )
)
def test_json_means_the_same(value: object) -> None:
    text = escape.json(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(text) == json.loads(json.dumps(value))
    assert not ACTING.search(text)


@given(TEXTS)
def test_a_dollar_in_a_figure_begins_no_formula(text: str) -> None:
    shown = escape.figure(text)
    assert not is_math_text(shown) or "$" not in text
    assert shown.replace(r"\$", "$") == escape.visible(text, keep="\n")


@given(TEXTS.filter(lambda text: "\0" not in text))
def test_a_word_of_a_command_is_one_word(text: str) -> None:
    assert shlex.split(f"ablate resume {escape.shell(text)}") == [
        "ablate",
        "resume",
        text,
    ]


@given(TEXTS)
def test_a_latex_comment_is_one_line(text: str) -> None:
    comment = escape.latex_comment(text)
    assert comment.startswith("% ")
    assert len(comment.splitlines()) == 1
    assert not ACTING.search(comment)


SIGNS = {written: character for character, written in escape._LATEX.items()} | {
    "{}": ""
}
TEX = re.compile(
    "|".join(
        [
            r"\\ifdefined\\Umathchar (?P<rare>.)\\else U\+[0-9A-F]{4,6}\\fi\{\}",
            *(re.escape(written) for written in sorted(SIGNS, key=len, reverse=True)),
            r"[^\\{}$&#%^_~\"]",
        ]
    )
)


def read_tex(written: str) -> str:
    """The text that TeX would print: every token is one that the function writes, or a
    character that means itself.
    """
    found, at = [], 0
    while at < len(written):
        token = TEX.match(written, at)
        assert token, written[at:]
        found.append(token["rare"] or SIGNS.get(token.group(), token.group()))
        at = token.end()
    return "".join(found)


@given(TEXTS)
def test_latex_is_read_as_the_text(text: str) -> None:
    written = escape.latex(text)
    # The sign for micro and the Greek letter are one sign to TeX.
    assert read_tex(written).replace("\u00b5", "\u03bc") == one_line(text).replace(
        "\u00b5", "\u03bc"
    )
    assert not ACTING.search(written)
    assert not re.search(r"^[*\[]", written), "no argument of the end of a row"
    assert not re.search("``|''|,,|[?!]`", written), "no ligature"


@given(TEXTS)
def test_plotly_shows_the_text(text: str) -> None:
    written = escape.plotly(text)
    assert not {"<", ">"} & set(written)
    assert html.unescape(written) == escape.terminal(text)
