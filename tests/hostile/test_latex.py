"""LaTeX that holds hostile text is compiled, and its pages are read."""

from __future__ import annotations

import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest

from ablate.report.table import render
from ablate.text import escape
from tests.hostile.conftest import Hostile
from tests.hostile.test_outputs import ANSWERS, made
from tests.hostile.texts import FORMULAS, KINDS

PDFLATEX, PDFTOTEXT = shutil.which("pdflatex"), shutil.which("pdftotext")
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(
        PDFLATEX is None or PDFTOTEXT is None,
        reason="needs texlive-latex-recommended and poppler-utils",
    ),
]
HEAD = (
    "\\documentclass{article}\n\\usepackage{booktabs}\n\\usepackage[paperwidth=500cm,paperheight=200cm,margin=1cm]{geometry}\n"
    "\\pagestyle{empty}\n\\setlength{\\parindent}{0pt}\n\\begin{document}\n"
)
# What pdftotext calls signs that TeX's fonts draw in their own way. An underscore is a
# line, and no sign at all.
PRINTED = {
    "’": "'",
    "‘": "`",
    "“": '"',
    "”": '"',
    "−": "-",
    "–": "-",
    "—": "-",
    "∗": "*",
    "˜": "~",
    "ˆ": "^",
    "ﬁ": "fi",
}


def pages(body: str, folder: Path) -> str:
    """The text of a compiled document.

    Nothing may be written but the document's own files.
    """
    (folder / "a.tex").write_text(
        f"{HEAD}{body}\n\\end{{document}}\n", encoding="utf-8"
    )
    command = [
        str(PDFLATEX),
        "-no-shell-escape",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "a.tex",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "hostname" not in done.stdout, "no file was read"
    assert {file.name for file in folder.iterdir()} == {
        "a.tex",
        "a.aux",
        "a.log",
        "a.pdf",
    }
    command = [str(PDFTOTEXT), "-raw", "-enc", "UTF-8", "a.pdf", "-"]
    text = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    signs = "".join(PRINTED.get(character, character) for character in text)
    return unicodedata.normalize("NFC", signs)


def test_each_sign_is_printed_as_itself(tmp_path: Path) -> None:
    signs = [chr(code) for code in range(33, 127) if chr(code) != "_"]
    words = [f"a{sign}b{sign}{sign}c" for sign in signs]
    words += [f"{sign}z" for sign in "*[]-`'!?"]
    words += ["é à ü ç Å ñ", "ß æ ø œ Æ Ø Œ § ¶ ©"]
    # The bar of the last two is a sign of its own to pdftotext; that they compile is
    # enough.
    body = "\n\n".join(escape.latex(word) for word in [*words, "ł Ł"])
    assert pages(body, tmp_path).replace("\f", "").split("\n")[: len(words)] == words


def test_a_character_without_a_glyph_is_named(tmp_path: Path) -> None:
    assert (
        pages(escape.latex("x 漢 y 😀 z Þ"), tmp_path).split("\n")[0]
        == "x U+6F22 y U+1F600 z U+00DE"
    )


@pytest.mark.parametrize("text", [*KINDS.values(), *FORMULAS])
def test_hostile_text_is_printed(tmp_path: Path, text: str) -> None:
    printed = pages(f"begin {escape.latex(text)} end", tmp_path)
    wanted = "".join(escape.terminal(text).split())
    for sign, name in {
        "漢": "U+6F22",
        "😀": "U+1F600",
        "\uff1d": "U+FF1D",
        "_": "",
    }.items():
        wanted = wanted.replace(sign, name)
    assert f"begin{wanted}end" in "".join(printed.split())


@pytest.mark.parametrize("name", ANSWERS)
def test_every_table_compiles(hostile: Hostile, tmp_path: Path, name: str) -> None:
    grid = made(hostile, name)
    printed = pages("\\tiny " + render(grid, "latex"), tmp_path)
    assert "row" in printed or name in (
        "studies",
        "review",
        "query",
        "strange",
        "formulas",
        "wide",
        "factors",
    )
    assert len(printed) > 40
