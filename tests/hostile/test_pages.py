"""Pages with hostile text in a real browser (Debian's Chromium): nothing runs, nothing
is asked of another machine, and the text is there to be read.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from ablate.errors import shortened
from ablate.pipeline import Options
from ablate.report.charts import Axis, Chart, Coordinates, Series
from ablate.report.layer_means import Line
from ablate.report.matplotlib_charts import save_chart
from ablate.report.plotly_charts import draw_vectors
from ablate.results import study_charts
from ablate.results.html_report import write_report
from ablate.store.notes import STUDY, Note, Notes, notes_file
from ablate.store.reader import Reader
from ablate.text import escape
from tests.benchmarks import load
from tests.hostile.conftest import LEVEL, NAME, Hostile
from tests.hostile.texts import BLOCKS, CONTROL, HTML, MARKDOWN, SQL, TEX, evil

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
    pytest.mark.filterwarnings(
        "ignore:Glyph .* missing from font:UserWarning",
        "ignore:constrained_layout:UserWarning",
    ),
]
serving = load("dashboard")
# In one line: Plotly fills lines.
PLOTLY = f"{HTML} {MARKDOWN} %{{x}} {TEX} {SQL}".replace("\n", " ")
# Addresses of other machines on the page, and such as run or write something; Plotly's
# own mark is a link to its makers.
ELSEWHERE = """
() => [...document.querySelectorAll('a[href], img[src], iframe[src], script[src], form[action]')]
    .map(element => new URL(element.href || element.src || element.action, document.baseURI))
    .filter(url => !['127.0.0.1', 'localhost', ''].includes(url.hostname)
        || /^(javascript|mailto):/.test(url.protocol))
    .map(url => url.href).filter(url => url !== 'https://plotly.com/')
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page. What runs or would run, or asks anything of another machine, fails the
    test.
    """
    context = browser.new_context(viewport={"width": 1600, "height": 1200})
    serving.sign_in(context, address)
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    logged: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: logged.append(message.text))
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    yield page
    inert(page)
    context.close()
    own = re.compile(r"file:|(https?|ws)://(127\.0\.0\.1|localhost)[:/]|data:|blob:")
    assert [url for url in asked if not own.match(url)] == []
    assert said == [], "no script of a text runs"
    # The policy of the pages would hide a script that a page lets in.
    assert [text for text in logged if "Content Security Policy" in text] == []


def inert(page: Page) -> None:
    """Nothing on the page comes of a text: no picture, no link to elsewhere, no
    formula.
    """
    assert page.evaluate(ELSEWHERE) == []
    assert page.locator(".katex").count() == 0


def squeezed(text: str) -> str:
    return " ".join(text.split())


def shown(page: Page) -> str:
    return squeezed(page.locator("body").inner_text())


@pytest.mark.parametrize("interactive", [False, True])
def test_the_report(
    hostile: Hostile, page: Page, tmp_path: Path, interactive: bool
) -> None:
    write_report(hostile.study, tmp_path / "a.html", interactive=interactive)
    page.goto((tmp_path / "a.html").as_uri())
    page.locator(".plotly .main-svg" if interactive else "figure svg").first.wait_for()
    assert squeezed(page.locator("h1").inner_text()) == squeezed(
        escape.terminal(evil("question"))
    )
    for place in ("expect", "source", "command", "note"):
        assert squeezed(escape.terminal(evil(place))) in shown(page), place
    assert page.locator("script").count() == (
        page.locator("figure script").count() + 1 if interactive else 0
    )


def texts(page: Page) -> list[str]:
    page.locator(".main-svg").first.wait_for()
    page.wait_for_timeout(500)
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('svg text, h1, p')].map(text => text.textContent)"
    )
    return list(map(squeezed, found))


def test_every_text_of_a_plotly_chart(page: Page, tmp_path: Path) -> None:
    def text(place: str) -> str:
        return f"{place} {PLOTLY}"

    series = Series(
        name=text("series"),
        x=[1.0, 2.0],
        y=[text("one"), text("two")],
        low=[0.5, 1.5],
        high=[1.5, 2.5],
        keys=[0, 1],
    )
    chart = Chart(
        title=text("title"),
        x=text("x"),
        y=text("y"),
        series=[series, replace(series, name=text("other"))],
        form="points",
        sideways=True,
        zero=True,
        note=text("note"),
    )
    save_chart(tmp_path / "a.html", chart)
    page.goto((tmp_path / "a.html").as_uri())
    found = texts(page)
    for place in ("series", "other", "one", "two", "title", "x", "y", "note"):
        assert found.count(squeezed(text(place))) == 1, place
    bars = Chart(
        title=text("title"),
        x="x",
        y="y",
        series=[replace(series, low=None, high=None)],
        form="bars",
        sideways=True,
    )
    save_chart(tmp_path / "b.html", bars)
    page.goto((tmp_path / "b.html").as_uri())
    assert squeezed(text("one")) in texts(page)
    axes = [
        Axis(text("axis"), [0.0, 1.0], [text("first"), text("second")]),
        Axis("metric", [1.0, 2.0]),
    ]
    save_chart(tmp_path / "c.html", Coordinates(text("title"), axes, [0, 1]))
    page.goto((tmp_path / "c.html").as_uri())
    found = texts(page)
    for place in ("axis", "first", "second", "title"):
        assert squeezed(text(place)) in found, place
    vectors = draw_vectors(
        text("axis"),
        [Line(cell=0, label=text("line"), seeds=1, layers={0: [1.0, 2.0]})],
    )
    vectors.write_html(tmp_path / "d.html")
    page.goto((tmp_path / "d.html").as_uri())
    found = texts(page)
    for place in ("axis", "line"):
        assert squeezed(text(place)) in found, place


def test_what_a_point_says(page: Page, tmp_path: Path) -> None:
    short = "<b>t</b> &amp; <a href='http://evil.invalid/'>l</a> %{y} $x$"
    series = Series("s", [1.0, 2.0], [1.0, 2.0], keys=[0, 1], texts=[short, short])
    save_chart(tmp_path / "a.html", Chart(title="title", x="x", y="y", series=[series]))
    page.goto((tmp_path / "a.html").as_uri())
    texts(page)
    box = page.locator(".scatterlayer .point").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = page.locator(".hoverlayer text").first
    said.wait_for()
    assert said.text_content() == f"{short}1.000, 1.000"


@pytest.mark.parametrize("of", ["effects", "parallel"])
def test_interactive_charts_of_the_study(
    hostile: Hostile, page: Page, tmp_path: Path, of: str
) -> None:
    save_chart(tmp_path / "a.html", study_charts.chart(hostile.study, of))
    page.goto((tmp_path / "a.html").as_uri())
    assert any("end of question" in text for text in texts(page))
    assert any("end of level" in text for text in texts(page))


@pytest.fixture(scope="module")
def address(hostile: Hostile) -> Iterator[str]:
    with serving.served(hostile.options) as (address, _):
        yield address


VIEWS = (
    "verdicts",
    "table",
    "effects",
    "effects&of=factors",
    "pareto",
    "curves",
    "parallel",
    "layers",
    "trials",
    "review",
)
DIAGNOSTIC = evil("diagnostic")
NOTE = Note(tags=(evil("tag"), "=tag"), text=evil("written"))


@pytest.fixture(scope="module")
def renamed(
    hostile: Hostile, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The dashboard of a store whose names of metrics and diagnostics are hostile, with
    hostile notes.
    """
    options = Options(runs=tmp_path_factory.mktemp("renamed"))
    with (
        closing(sqlite3.connect(hostile.options.url)) as source,
        closing(sqlite3.connect(options.url)) as target,
        target,
    ):
        source.backup(target)
        (text,) = target.execute("SELECT space FROM studies").fetchone()
        space = json.loads(text)
        # A name is a column of a view, so the reader leaves this metric out.
        space["metrics"].append({**space["metrics"][0], "name": evil("metric")})
        for metric in space["metrics"]:
            metric |= {"title": evil("metric"), "unit": evil("unit")}
        target.execute("UPDATE studies SET space = ?", (json.dumps(space),))
        target.execute(
            "INSERT INTO diagnostics (trial_hash, epoch, name, layer, value) SELECT"
            " hash, 3, ?, 0, 0.5 FROM trials WHERE status = 'completed'",
            (DIAGNOSTIC,),
        )
    with Reader(options.url) as reader:
        trials = [row.trial for row in reader.trials.of(NAME)]
    notes = Notes(notes_file(options.url, options.runs))
    for trial in (STUDY, *trials):
        notes.put(NAME, trial, NOTE)
    with serving.served(options) as (address, _):
        yield address


def test_names_of_metrics_and_notes(hostile: Hostile, page: Page, renamed: str) -> None:
    serving.sign_in(page.context, renamed)
    study = f"{renamed}/study?study={quote(NAME)}"
    for view in (*VIEWS, "scatter"):
        page.goto(f"{study}&view={view}")
        page.get_by_text("end of written").first.wait_for()
        settled(page)
        assert squeezed(escape.terminal(NOTE.text)) in shown(page), view
    page.goto(f"{study}&view=layers")
    page.get_by_text("end of diagnostic").first.wait_for()
    page.goto(f"{study}&view=curves")
    page.get_by_text("end of metric").first.wait_for()
    page.goto(f"{study}&view=trials&columns=trial,@tags,@note")
    settled(page)
    with Reader(hostile.options.url) as reader:
        trial = reader.trials.of(NAME)[0].trial
    page.goto(f"{renamed}/trial?trial={trial}")
    page.get_by_text("end of written").first.wait_for()
    settled(page)
    metrics = page.locator("[data-testid=stMetric]")
    metrics.filter(has_text="end of metric").first.wait_for()
    page.goto(f"{renamed}/compare")
    page.get_by_text("Bold on this page: values in which the rows differ.").wait_for()
    settled(page)
    page.goto(renamed)
    page.get_by_text("end of tag").first.wait_for()
    settled(page)


def settled(page: Page) -> None:
    page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')")
    page.wait_for_timeout(700)
    expect(page.get_by_text("This page has an error")).to_have_count(0)
    inert(page)


def test_the_overview(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name=NAME).wait_for()
    settled(page)
    assert squeezed(escape.terminal(evil("question"))) in shown(page)
    assert squeezed(escape.line(NAME)) in shown(page)


def test_every_view_of_the_study(page: Page, address: str) -> None:
    for view in VIEWS:
        page.goto(f"{address}/study?study={quote(NAME)}&view={view}")
        heading = page.get_by_role("heading", level=1)
        heading.first.wait_for()
        settled(page)
        assert squeezed(heading.first.inner_text()) == squeezed(
            escape.terminal(evil("question"))
        ), view
        assert f"Expected: {squeezed(escape.terminal(evil('expect')))}" in shown(page)
        if view == "verdicts":
            assert squeezed(escape.terminal(LEVEL)) in shown(page)
        if view == "review":
            assert squeezed(escape.terminal(escape.shell(evil("file")))) in shown(page)


def test_a_trial(hostile: Hostile, page: Page, address: str) -> None:
    with Reader(hostile.options.url) as reader:
        failed = next(
            row.trial for row in reader.trials.of(NAME) if row.status == "failed"
        )
    page.goto(f"{address}/trial?trial={failed}")
    page.get_by_text("Continue the study").wait_for()
    settled(page)
    page.get_by_text("end of error").wait_for()
    inert(page)
    page.goto(f"{address}/trial")
    page.get_by_text("Or choose a trial of a study").wait_for()
    settled(page)


def test_compare(page: Page, address: str) -> None:
    page.goto(f"{address}/compare")
    page.get_by_text("Bold on this page: values in which the rows differ.").wait_for()
    settled(page)
    page.locator("[data-testid=stMultiSelect] input").nth(1).click()
    page.wait_for_timeout(500)
    inert(page)


def test_published_tables(page: Page, address: str) -> None:
    page.goto(f"{address}/published?table=![i](http://evil.invalid/p.png)")
    page.get_by_text("Published tables").wait_for()
    settled(page)


def test_names_of_an_address_are_text(page: Page, address: str) -> None:
    for text in (MARKDOWN, HTML, BLOCKS, CONTROL.replace("\0", "")):
        page.goto(f"{address}/study?study={quote(text)}")
        page.get_by_text("The store has no study").wait_for()
        settled(page)


def test_errors_are_text(page: Page, address: str) -> None:
    page.goto(f"{address}/trial?trial={quote(MARKDOWN)}")
    page.get_by_role("alert").first.wait_for()
    settled(page)
    # A message repeats the beginning and the end of a long name.
    assert squeezed(shortened(MARKDOWN)) in shown(page)
    page.goto(f"{address}/sql")
    box = page.get_by_label("Statement")
    box.fill('SELECT "![i](http://evil.invalid/s.png) [l](http://evil.invalid/l)".x')
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").first.wait_for()
    settled(page)


def test_an_answer_in_sql_is_text_and_a_file_without_formulas(
    page: Page, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}/sql")
    page.get_by_label("Statement").fill(
        'SELECT question AS "=1 ![i](http://evil.invalid/c.png)", -1.5 AS n FROM'
        " studies"
    )
    page.get_by_role("button", name="Run").click()
    page.get_by_text(re.compile("^1 rows, ")).wait_for()
    settled(page)
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download as CSV").click()
    begun.value.save_as(tmp_path / "query.csv")
    heading, text = (tmp_path / "query.csv").read_text().split("\n", 1)
    assert heading == "'=1 ![i](http://evil.invalid/c.png),n"
    assert text.startswith("\"'=question ")
    assert text.endswith(",-1.5\n")


def test_tables_have_no_export_but_ours(
    page: Page, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}/study?study={quote(NAME)}&view=table")
    table = page.locator("[data-testid=stDataFrame]").first
    table.wait_for()
    settled(page)
    table.hover()
    expect(page.get_by_role("button", name="Search")).to_be_visible()
    expect(page.get_by_role("button", name="Download as CSV")).to_have_count(1)
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download as CSV").click()
    begun.value.save_as(tmp_path / "table.csv")
    content = (tmp_path / "table.csv").read_text()
    assert "'=level" in content
    assert ",=level" not in content
