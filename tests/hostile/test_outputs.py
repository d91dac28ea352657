"""Every output in every format of a study with hostile text everywhere, read by a
parser of that format.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from matplotlib.cbook import is_math_text
from matplotlib.text import Text

from ablate.cli import main
from ablate.cli.tables import studies_table, trials_table
from ablate.diagnostics.diagnostic import Diagnostic, Form
from ablate.report.layer_means import Line, layers_table
from ablate.report.matplotlib_charts import drawn, save_chart, save_layers
from ablate.report.table import Table, render
from ablate.results import study_charts
from ablate.results.html_report import write_report
from ablate.results.review import review
from ablate.results.review.findings_table import review_table
from ablate.text import escape
from tests.hostile.conftest import LEVEL, NAME, Hostile
from tests.hostile.texts import ACTING, FORMULAS, HARMLESS, KINDS, csv_text, evil

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# A question of a thousand signs leaves a picture no place; that is said, and is no
# matter of this test.
crowded = pytest.mark.filterwarnings(
    "ignore:Glyph .* missing from font:UserWarning",
    "ignore:constrained_layout:UserWarning",
)
STRANGE = (
    f'SELECT question AS "{evil("column").replace(chr(34), "")[:300]}", -1.5 AS'
    ' "=number", name AS "<b>" FROM studies'
)
ANSWERS = (
    "table",
    "effects",
    "factors",
    "pareto",
    "studies",
    "trials",
    "review",
    "query",
    "strange",
    "layers",
    "formulas",
    "wide",
)


def made(hostile: Hostile, name: str) -> Table:
    """One of the tables that verbs print."""
    study, url = hostile.study, hostile.options.url
    lines = [Line(cell=0, label=LEVEL, seeds=3, layers={0: 1.5, 1: -2.5})]
    texts = [*FORMULAS, *HARMLESS, *KINDS.values()]
    makers: dict[str, Callable[[], Table]] = {
        "table": study.results_table,
        "effects": study.effects_table,
        "factors": lambda: study.effects_table("importance"),
        "pareto": study.pareto,
        "studies": lambda: studies_table(url),
        "trials": lambda: trials_table(NAME, url),
        "review": lambda: review_table(NAME, url, " --runs 'a b'"),
        "query": lambda: hostile.query(
            "SELECT * FROM studies JOIN provenance ON study_id = studies.id"
        ),
        "strange": lambda: hostile.query(STRANGE),
        "layers": lambda: layers_table(evil("diagnostic"), evil("about"), lines),
        "formulas": lambda: Table(
            columns=["text", *texts],
            rows=[[text, *texts] for text in texts],
            data=[{"text": text, **dict.fromkeys(texts, text)} for text in texts],
            right=frozenset(texts[:2]),
            title=evil("title"),
            notes=texts,
            bold=frozenset((row, texts[3]) for row in range(len(texts))),
            groups=frozenset({1}),
        ),
        "wide": lambda: hostile.query("SELECT * FROM results_tiny"),
    }
    return makers[name]()


@pytest.fixture(params=ANSWERS)
def grid(hostile: Hostile, request: pytest.FixtureRequest) -> Table:
    return made(hostile, request.param)


def squeezed(text: str) -> str:
    """What a format that fills lines shows of a text."""
    return " ".join(escape.terminal(text).split())


def filled(text: str) -> str:
    return " ".join(text.split())


class Page(HTMLParser):
    """The elements of a page, its table's cells, and its whole text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.comments: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag in ("tr", "caption"):
            self.rows.append([])
        if tag in ("th", "td", "caption"):
            self.rows[-1].append("")
        if tag == "br":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def test_html_is_a_table_of_the_texts(grid: Table) -> None:
    text = render(grid, "html")
    page = Page(text)
    assert set(page.tags) <= {
        "table",
        "caption",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "th",
        "td",
        "b",
        "br",
    }
    assert {name for name, _ in page.attributes} <= {"class", "colspan"}
    assert not page.comments
    shown = [[cell.rstrip("\n") for cell in row] for row in page.rows]
    wanted = [[grid.title]] if grid.title else []
    wanted += [list(grid.columns), *map(list, grid.rows)]
    wanted += [list(grid.all_notes)] if grid.all_notes else []
    assert shown == [
        [escape.terminal(cell).rstrip("\n") for cell in row] for row in wanted
    ]
    assert not ACTING.search(text)


def test_markdown_is_a_table_of_the_texts(grid: Table) -> None:
    text = render(grid, "md")
    tokens = COMMONMARK.parse(text)
    blocks = {
        token.type.removesuffix("_open").removesuffix("_close") for token in tokens
    }
    assert blocks <= {
        "paragraph",
        "inline",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    inlines = [token for token in tokens if token.type == "inline"]
    kinds = {
        child.type
        for token in inlines
        for child in token.children or ()
        if child.content or child.type != "text"
    }
    assert kinds <= {
        "text",
        "text_special",
        "strong_open",
        "strong_close",
        "softbreak",
        "hardbreak",
    }
    found = [
        "".join(
            child.content or "\n" * (child.tag == "br")
            for child in token.children or ()
        )
        for token in inlines
    ]
    wanted = [squeezed(grid.title)] if squeezed(grid.title) else []
    wanted += [squeezed(cell) for row in [grid.columns, *grid.rows] for cell in row]
    assert [filled(cell) for cell in found[: len(wanted)]] == wanted
    assert filled(" ".join(found[len(wanted) :])) == squeezed(" ".join(grid.all_notes))
    strong = sum(
        child.type == "strong_open"
        for token in inlines
        for child in token.children or ()
    )
    columns = list(grid.columns)
    bold = [grid.rows[row][columns.index(column)] for row, column in grid.bold]
    assert strong == sum(bool(cell.strip()) for cell in bold) + bool(
        squeezed(grid.title)
    )
    assert not ACTING.search(text)


def written(value: object) -> str:
    """A value of the data as CSV shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def test_csv_gives_every_text_back_and_begins_no_formula(grid: Table) -> None:
    text = render(grid, "csv")
    rows = list(csv.reader(io.StringIO(text)))
    keys = list(dict.fromkeys(key for row in grid.data for key in row)) or list(
        grid.columns
    )
    assert [csv_text(cell) for cell in rows[0]] == keys
    for row, data in zip(rows[1:], grid.data, strict=True):
        assert [csv_text(cell) for cell in row] == [
            written(data.get(key)) for key in keys
        ]
        for cell, key in zip(row, keys, strict=True):
            if isinstance(data.get(key), int | float):
                assert cell == written(data[key]), "a number stays one"
            assert (
                not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
                or float(cell) is not None
            )
    assert not ACTING.search(text)


def test_json_is_exact(grid: Table) -> None:
    text = render(grid, "json")
    assert json.loads(text) == json.loads(json.dumps(list(grid.data), default=str))
    assert not ACTING.search(text)


def test_latex_stays_inside_its_table(grid: Table) -> None:
    lines = render(grid, "latex").splitlines()
    comments = [line for line in lines if line.startswith("%")]
    assert comments == [
        escape.latex_comment(text) for text in [grid.title, *grid.all_notes] if text
    ]
    rules = [
        line
        for line in lines
        if line.startswith("\\")
        and not line.startswith((r"\text", r"\symbol", r"\$", r"\%", r"\#"))
    ]
    rules = [line for line in rules if not line.endswith(r" \\")]
    assert rules[:2] == [lines[len(comments)], r"\toprule"]
    assert rules[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert set(rules[2:-2]) == {r"\midrule"}
    rows = [line for line in lines if line.endswith(r" \\")]
    assert len(rows) == 1 + len(grid.rows)
    assert len(rows) + len(rules) + len(comments) == len(lines)
    assert not ACTING.search("\n".join(lines))


Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def verb(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hostile: Hostile,
    tmp_path: Path,
) -> Verb:
    """Runs `ablate WORDS` on the hostile store in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["ablate", *words, "--runs", str(hostile.options.runs)]
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


VERBS: dict[str, Sequence[str]] = {
    "table": ("table", NAME),
    "effects": ("effects", NAME),
    "review": ("review", NAME),
    "pareto": ("pareto", NAME),
    "status": ("status",),
    "trials": ("status", NAME),
    "query": ("query", STRANGE),
}


@pytest.mark.parametrize("form", ["table", "md", "latex", "html", "csv", "json"])
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_prints_text_as_text(verb: Verb, name: str, form: str) -> None:
    code, out, err = verb(*VERBS[name], "--format", form)
    assert code == (name == "review"), err
    assert not ACTING.search(out + err)
    # Of the table of a terminal nothing is lost but white space.
    if form == "table" and name in ("table", "effects", "pareto", "trials"):
        assert (
            out.replace(" ", "")
            .replace("\n", "")
            .count(squeezed(evil("question")).replace(" ", ""))
            == 1
        )


@pytest.mark.proof
def test_the_plan_shows_hostile_levels_as_text(hostile: Hostile, verb: Verb) -> None:
    text = hostile.study.results().document.replace(
        "question: Does a shortcut help a very small ViT?", ""
    )
    # A character beyond the first 65,536 is two escapes of JSON, and none of YAML. A
    # document with NUL is refused.
    question = json.dumps("".join(c for c in evil("question") if 0 < ord(c) < 0x10000))
    Path("tiny.yaml").write_text(f"question: {question}\n{text}")
    for form in ("table", "md", "latex", "html", "csv", "json"):
        code, out, err = verb("plan", "tiny.yaml", "--format", form)
        assert code == 0, err
        assert not ACTING.search(out + err)


@pytest.mark.parametrize(
    "words",
    [
        ("table", evil("unknown").replace("\0", "")),
        ("status", "\x1b[31mred\x9b"),
        ("plot", NAME, "--to", "\x1b[2J.jpg"),
        ("plot", NAME, "--of", "curves", "--to", "x.svg", "--metric", "\x1b[2J"),
        ("plot", NAME, "--to", "x.svg", "--diagnostic", "\x1b[2J"),
        ("report", NAME, "--to", "\u202egpj.exe"),
        ("export", NAME, "--to", "\x1b[2J.xyz"),
        ("query", "SELECT \x1b[2J FROM \x9b"),
        ("query", "SELECT 1 AS '\x1b', 2 AS '\x1b'"),
        ("plan", "\x1b[2J.yaml"),
        ("pareto", NAME, "--objective", "\x1b[2J=max"),
        ("reproduce", NAME),
        ("reproduce", "\x1b[2J"),
        ("factors", "\x1b[2J"),
        ("table", NAME, "--format", "\x1b[2J"),
        ("table", NAME, "--store", "\x1b[2J.db"),
    ],
    ids=lambda words: words[0],
)
def test_errors_show_control_characters(verb: Verb, words: Sequence[str]) -> None:
    code, out, err = verb(*words)
    assert code == 2
    assert not ACTING.search(out + err)
    assert err.startswith("error: ")


@crowded
def test_what_was_written_is_said_visibly(verb: Verb) -> None:
    for words in (
        ("plot", NAME, "--to", "\x1b[2J\x9b.svg"),
        ("export", NAME, "--to", "\x1b[2J\x9b.csv"),
    ):
        code, out, err = verb(*words)
        assert (code, out) == (0, "")
        assert "\\x1b[2J\\x9b." in err
        assert not ACTING.search(err)


def test_a_mistake_of_the_program_cannot_act_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hostile: Hostile,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(evil("mistake"))

    monkeypatch.setattr("ablate.cli.tables.studies_table", broken)
    monkeypatch.setattr(sys, "argv", ["ablate", "status"])
    with pytest.raises(SystemExit, match="1"):
        main()
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "end of mistake" in err
    assert not ACTING.search(err)


def test_proposed_commands_name_the_study_in_one_word(hostile: Hostile) -> None:
    found = review(NAME, hostile.options.url)
    commands = [shlex.split(finding.command) for finding in found]
    assert ["ablate", "resume", NAME] in commands
    assert all(words[2] == evil("file") for words in commands if words[1] == "run")
    assert any(words[1] == "run" for words in commands)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_exports_give_the_texts_back(
    hostile: Hostile, tmp_path: Path, ending: str
) -> None:
    columns, rows = hostile.study.wide()
    file = tmp_path / f"out.{ending}"
    hostile.study.export(file)
    if ending == "parquet":
        found = pd.read_parquet(file)
        assert list(found.columns) == columns
        assert LEVEL in set(found["layout"]), "exact"
        return
    if ending == "json":
        assert json.loads(file.read_text())[0].keys() == dict.fromkeys(columns).keys()
        assert LEVEL in {row["layout"] for row in json.loads(file.read_text())}, "exact"
        assert not ACTING.search(file.read_text())
        return
    cells = list(csv.reader(io.StringIO(file.read_text())))
    assert [csv_text(cell) for cell in cells[0]] == columns
    place = columns.index("layout")
    assert [csv_text(row[place]) for row in cells[1:]] == [row[place] for row in rows]
    assert not any(cell.startswith(("=", "+", "@")) for row in cells for cell in row)
    numbers = [
        [float(row[columns.index("top1")] or "nan") for row in table]
        for table in (cells[1:],)
    ]
    assert numbers[0] == pytest.approx(
        [row[columns.index("top1")] or float("nan") for row in rows], nan_ok=True
    )
    assert not ACTING.search(file.read_text())


CHARTS = ("effects", "pareto", "curves", "importance", "parallel")


@pytest.mark.proof
@crowded
@pytest.mark.parametrize("of", CHARTS)
def test_pictures_show_text_as_text(hostile: Hostile, tmp_path: Path, of: str) -> None:
    chart = study_charts.chart(hostile.study, of)
    for text in drawn(chart).findobj(Text):
        assert isinstance(text, Text)
        assert not is_math_text(text.get_text()) or "mathdefault" in text.get_text()
    for ending in ("svg", "png", "pdf"):
        save_chart(tmp_path / f"a.{ending}", chart)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    allowed = (
        "svg metadata RDF Work type format creator Agent title defs style g path use"
        " clipPath rect text tspan image"
    )
    assert names <= set(allowed.split())
    for element in root.iter():
        links = [
            value
            for key, value in element.attrib.items()
            if key.rpartition("}")[2] in ("href", "src")
        ]
        assert all(link.startswith("#") for link in links)
        assert not any(key.startswith("on") for key in element.attrib)
    content = (tmp_path / "a.pdf").read_bytes()
    assert not any(
        action in content
        for action in (b"/URI", b"/JavaScript", b"/Launch", b"/OpenAction")
    )


@crowded
@pytest.mark.parametrize(
    ("form", "value"),
    [("number", 1.5), ("vector", [1.0, 2.0]), ("matrix", [[1.0, 0.5], [0.5, 1.0]])],
)
def test_pictures_of_layers_show_text_as_text(
    tmp_path: Path, form: Form, value: object
) -> None:
    """A formula that is none would end in an error of the parser of formulas."""
    line = Line(cell=0, label="cell $\\foo{$ <b>", seeds=2, layers={0: value, 1: value})
    save_layers(
        tmp_path / "a.svg",
        "title $\\bar{$",
        Diagnostic(
            name="some",
            about="",
            source="",
            axis="axis $\\baz{$",
            form=form,
            measure=lambda layer: {},
        ),
        [("some $x{$", [line]), ("some.bound", [line])],
    )
    comments = (tmp_path / "a.svg").read_text()
    assert "cell $\\foo{$" in comments
    assert "axis $\\baz{$" in comments
    ElementTree.parse(tmp_path / "a.svg")


@pytest.mark.proof
@crowded
@pytest.mark.parametrize("interactive", [False, True])
def test_the_report_shows_text_as_text(
    hostile: Hostile, tmp_path: Path, interactive: bool
) -> None:
    write_report(
        hostile.study,
        tmp_path / "a.html",
        interactive=interactive,
        where=" --runs 'a b'",
    )
    text = (tmp_path / "a.html").read_text()
    page = Page(text)
    assert page.tags.count("img") == 0
    assert page.tags.count("h1") == 1
    assert not any(name.startswith("on") for name, _ in page.attributes)
    links = [
        value
        for name, value in page.attributes
        if name in ("href", "src", "xlink:href")
    ]
    assert all((link or "").startswith("#") for link in links)
    shown = "".join(page.text)
    for place in ("expect", "source", "command", "platform", "note", "device"):
        assert escape.terminal(evil(place)) in shown, place
    assert shown.count(escape.terminal(evil("expect"))) == 1
    if not interactive:
        assert "script" not in page.tags
        assert not ACTING.search(text)
