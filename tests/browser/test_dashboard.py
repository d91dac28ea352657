"""The dashboard in a real browser (Debian's Chromium), as a researcher uses it."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.store.notes import notes_file
from ablate.store.reader import Reader
from tests.benchmarks import load
from tests.conftest import TINY, RunText

CHROMIUM = shutil.which("chromium")
# Where pictures of pages are kept for the documents: `UPDATE_SHOTS=1 pytest
# tests/browser` takes them again.
SHOTS = (
    Path(__file__).parents[2] / "docs" / "figures"
    if os.environ.get("UPDATE_SHOTS")
    else None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
]
serving = load("dashboard")
DEMO = (
    TINY.replace("seeds: 2", "seeds: 5")
    .replace("  layout:", "  recipe.weight_decay: [0.05, 0.0]\n  layout:")
    .replace("epochs: 3", "epochs: 8")
)


def curve(trial: Trial, number: int) -> Epoch:
    """A shortcut helps by 1.5 points; one trial fails."""
    settings = trial.architecture.settings
    helps = 1.5 * bool(settings.get("shortcuts.count")) + 0.2 * (
        settings.get("layout") == "parallel"
    )
    noise = random.Random(f"seed {trial.seed}").gauss(0, 0.8) + random.Random(
        trial.hash
    ).gauss(0, 0.3)
    if (
        trial.seed == 4
        and settings.get("layout") == "parallel"
        and not trial.recipe.weight_decay
        and settings.get("shortcuts.count")
    ):
        raise RuntimeError("CUDA out of memory, says the last line")
    top1 = (82 + helps + noise) * (1 - 0.6 ** (number + 2))
    loss = 3 * 0.75**number + 0.3
    return Epoch(
        number=number,
        metrics={
            "train_loss": loss,
            "loss": loss * 1.1,
            "top1": top1,
            "top5": min(100.0, top1 + 12),
        },
        lr=1e-3 * (1 - number / 9),
        seconds=1.0,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A store with a study that is finished but for a failed trial."""
    options = Options(runs=tmp_path_factory.mktemp("finished"), cpus=2)
    pipeline.run(
        space.load(DEMO, "shortcuts.yaml"),
        "shortcuts.yaml",
        options,
        executor=SimulatedExecutor(curve),
    )
    return options


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
    """A page of a laptop's size that has had the token. Requests to other machines fail
    the test, and so does what the policy of the pages forbids.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    serving.sign_in(context, address)
    page = context.new_page()
    asked: list[str] = []
    logged: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: logged.append(message.text))
    page.set_default_timeout(90_000)
    expect.set_options(timeout=90_000)
    yield page
    context.close()
    beyond = [
        url
        for url in asked
        if not re.match(r"(https?|ws)://(127\.0\.0\.1|localhost)[:/]|data:|blob:", url)
    ]
    assert not beyond, "no page asks anything of another machine"
    assert not [text for text in logged if "Content Security Policy" in text]


@pytest.fixture(scope="module")
def address(finished: Options) -> Iterator[str]:
    with serving.served(finished) as (address, _):
        yield address


def settled(page: Page) -> None:
    """Waits until the page has stood still for half a second."""
    page.wait_for_function(
        """() => {
            const busy =
                !document.querySelector('[data-testid=stElementContainer]') ||
                document.querySelector('[data-testid=stStatusWidget]');
            if (busy || !window.quietSince) window.quietSince = performance.now();
            return performance.now() - window.quietSince > 500;
        }"""
    )


def opened(page: Page, press: Callable[[], None], inside: Locator) -> None:
    """Presses until what it opens is there.

    A page that is still being built puts new buttons in the place of the old ones, and a
    press on an old one is lost.
    """
    for _ in range(5):
        settled(page)
        press()
        try:
            expect(inside).to_be_visible(timeout=10_000)
        except AssertionError:
            continue
        return
    expect(inside).to_be_visible()


def shot(page: Page, name: str) -> None:
    """A picture for the documents, if they are to be made again."""
    if SHOTS is not None:
        page.screenshot(path=str(SHOTS / f"{name}.png"))


def test_from_the_overview_to_a_verdict(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.get_by_text("39 of 40 trials")).to_be_visible()
    page.get_by_role("link", name="shortcuts").click()
    expect(
        page.get_by_role("heading", name="Does a shortcut help a very small ViT?")
    ).to_be_visible()
    expect(
        page.get_by_text(re.compile(r"shortcuts\.count = 1 helps: \+1\.\d\d points"))
    ).to_be_visible()
    assert "study=shortcuts" in page.url
    expect(page.get_by_text("Deploy")).to_have_count(0)
    settled(page)
    shot(page, "dashboard-study")


def test_filter_by_factor_and_share_the_address(
    page: Page, browser: Browser, address: str
) -> None:
    page.goto(f"{address}/study?study=shortcuts")
    button = page.get_by_role("button", name="Filter by factor")
    opened(page, button.click, page.get_by_label("layout"))
    page.get_by_label("layout").click()
    page.get_by_role("option", name="parallel").click()
    page.wait_for_url(re.compile(r"f\.layout=parallel"))
    page.keyboard.press("Escape")
    settled(page)
    said = page.locator("p", has_text="seeds").all_inner_texts()
    verdicts = [text for text in said if "points" in text and "verdicts" not in text]
    assert len(verdicts) == 4
    assert all("layout = parallel" in text for text in verdicts)
    page.goto(page.url.replace("view=verdicts", "view=pareto"))
    page.locator(".scatterlayer .point").first.wait_for()
    settled(page)
    assert page.locator(".scatterlayer .point").count() == 4, "charts are filtered too"
    page.goto(page.url.replace("view=pareto", "view=verdicts"))
    other = browser.new_page()
    serving.sign_in(other.context, address)
    other.goto(page.url)
    expect(
        other.get_by_text(
            re.compile("recipe.weight_decay = 0, layout = parallel")
        ).first
    ).to_be_visible(timeout=90_000)
    expect(other.get_by_text(re.compile("^shortcuts.count = 1 helps"))).to_have_count(0)
    other.close()


def test_a_point_of_the_front_leads_to_its_trial(page: Page, address: str) -> None:
    page.goto(f"{address}/study?study=shortcuts&view=pareto")
    points = page.locator(".scatterlayer .trace").last.locator(".point")
    points.last.wait_for()
    settled(page)
    shot(page, "dashboard-pareto")
    box = points.last.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    trial = page.get_by_role("link", name=re.compile("seed 0: completed, top-1"))
    trial.click()
    expect(
        page.get_by_role("heading", name=re.compile("Trial [0-9a-f]{8}"))
    ).to_be_visible()
    expect(page.get_by_text("ablate reproduce")).to_be_visible()
    assert re.search("trial=[0-9a-f]{20}", page.url)
    settled(page)
    shot(page, "dashboard-trial")


def test_a_figure_downloads(page: Page, address: str, tmp_path: Path) -> None:
    page.goto(f"{address}/study?study=shortcuts&view=pareto")
    page.locator(".scatterlayer .point").first.wait_for()
    settled(page)
    page.locator(".js-plotly-plot").first.hover()
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download plot as a PNG").first.click()
    begun.value.save_as(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_trial_shows_the_end_of_its_log(
    page: Page, address: str, finished: Options
) -> None:
    with Reader(finished.url) as reader:
        key = next(
            trial.trial
            for trial in reader.trials.of("shortcuts")
            if trial.status == "failed"
        )
    page.goto(f"{address}/trial?trial={key[:8]}")
    expect(page.get_by_text("says the last line")).to_be_visible()
    expect(page.get_by_text("ablate resume shortcuts")).to_be_visible()


def test_compare_two_rows_at_a_shared_address(page: Page, address: str) -> None:
    page.goto(f"{address}/compare?rows=shortcuts:0,shortcuts:4")
    expect(
        page.get_by_text("Bold on this page: values in which the rows differ.")
    ).to_be_visible()
    expect(page.locator("[data-testid=stMultiSelect]").nth(1)).to_contain_text("row 4")
    expect(page.locator(".scatterlayer .trace").first).to_be_attached()
    # The table is drawn on a canvas; its cells stand beside it for readers that cannot
    # see.
    cells = page.locator("[data-testid=stDataFrame] [role=gridcell]")
    expect(cells.filter(has_text="+1.10 to +1.88")).to_be_attached()


def test_sql_reads_and_is_refused_a_write(
    page: Page, address: str, finished: Options
) -> None:
    page.goto(f"{address}/sql")
    box = page.get_by_label("Statement")
    box.fill("SELECT COUNT(*) AS n FROM study_results")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text(re.compile("^1 rows, "))).to_be_visible()
    before = Path(finished.url).read_bytes()
    for statement in (
        "DELETE FROM trials",
        "UPDATE trials SET epochs_done = 100",
        "ATTACH 'x.db' AS x",
    ):
        box.fill(statement)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("a query can only read")).to_be_visible()
    assert Path(finished.url).read_bytes() == before
    box.fill(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
        " COUNT(*) FROM n"
    )
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("it took longer than 10 s")).to_be_visible()


def test_the_statement_of_an_address_waits_for_a_click(
    page: Page, address: str
) -> None:
    page.goto(f"{address}/sql?sql=SELECT 41 %2B 1 AS answer")
    expect(page.get_by_label("Statement")).to_have_value("SELECT 41 + 1 AS answer")
    settled(page)
    expect(page.get_by_text(re.compile(r"rows, \d+ ms"))).to_have_count(0)
    expect(page.locator("[data-testid=stDataFrame]")).to_have_count(0)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text(re.compile("^1 rows, "))).to_be_visible()
    # A visitor who opens the address of the answer sees the statement, not the answer.
    page.reload()
    expect(page.get_by_label("Statement")).to_have_value("SELECT 41 + 1 AS answer")
    settled(page)
    expect(page.get_by_text(re.compile("^1 rows, "))).to_have_count(0)


def test_every_view_draws(page: Page, address: str) -> None:
    for view, expected in (
        ("table", "mean ± standard deviation"),
        ("effects", "its 95 % interval"),
        ("effects&of=factors", "seeds are blocks"),
        ("effects&of=interactions", "minus the sum of the effects"),
        ("curves", "train_loss"),
        ("parallel", "top-1 (%)"),
        ("layers", "No diagnostics are stored"),
        ("trials", "40 trials. Click a heading to sort"),
        ("scatter", "Each point is a trial"),
        ("review", "no iso-cost control"),
        ("running", "No trial of this study trains now."),
    ):
        page.goto(f"{address}/study?study=shortcuts&view={view}")
        expect(page.get_by_text(expected).first).to_be_attached()
        settled(page)
        expect(page.get_by_text("This page has an error")).to_have_count(0)
        assert "`" not in page.inner_text("body"), "commands are in the font of code"
    page.goto(f"{address}/published?table=augvit/table3")
    expect(page.get_by_text("No study in this store refers to")).to_be_visible()


def test_what_was_seen_inside(page: Page, run_text: RunText, options: Options) -> None:
    run_text(TINY)
    matrix = ((1.0, 0.2), (0.2, 1.0))
    with Reader(options.url) as reader:
        trials = [row.trial for row in reader.trials.of("tiny") if row.row < 2]
    with closing(sqlite3.connect(options.url)) as connection, connection:
        for trial, layer in itertools.product(trials, range(3)):
            for name, value, numbers in (
                ("token_cosine", 0.1 * layer, None),
                ("attention_spectrum", None, (1.0, 0.1)),
                ("token_similarity", None, matrix),
            ):
                connection.execute(
                    "INSERT INTO diagnostics (trial_hash, epoch, name, layer, value,"
                    " numbers) VALUES (?, 3, ?, ?, ?, ?)",
                    (trial, name, layer, value, numbers and json.dumps(numbers)),
                )
    with serving.served(options) as (address, _):
        serving.sign_in(page.context, address)
        # Numbers: a line a row; vectors: a line a row and layer; matrices: an image a
        # row.
        for name, drawn, count in (
            ("token_cosine", ".scatterlayer .trace", 2),
            ("attention_spectrum", ".scatterlayer .trace", 6),
            ("token_similarity", ".hm", 2),
        ):
            page.goto(f"{address}/study?study=tiny&view=layers&diagnostic={name}")
            expect(page.locator(f".js-plotly-plot {drawn}")).to_have_count(count)
        page.get_by_role("slider").press("ArrowLeft")
        page.goto(
            f"{address}/study?study=tiny&view=layers&diagnostic=token_cosine&f.shortcuts.count=1&f.layout=parallel"
        )
        expect(
            page.get_by_text("None of the rows shown has this diagnostic")
        ).to_be_visible()
        page.goto(f"{address}/trial?trial={trials[0]}&diagnostic=token_similarity")
        expect(page.locator(".js-plotly-plot .hm").first).to_be_attached()
        expect(page.get_by_text("This page has an error")).to_have_count(0)


@pytest.fixture(params=itertools.product((1440, 390), ("light", "dark")), ids=str)
def reader(
    request: pytest.FixtureRequest, browser: Browser, address: str
) -> Iterator[Page]:
    """A page of a wide and of a narrow screen, light and dark. Nothing may hang over
    its side.
    """
    width, theme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900 if width == 1440 else 844},
        color_scheme=theme,
    )
    serving.sign_in(context, address)
    page = context.new_page()
    page.set_default_timeout(90_000)
    yield page
    expect(page.get_by_text("This page has an error")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def cells(page: Page) -> list[str]:
    """The texts of a table's cells: the table itself is drawn on a canvas."""
    found = page.locator("[data-testid=stDataFrame] [role=gridcell]")
    found.first.wait_for(state="attached")
    settled(page)
    return found.all_inner_texts()


def test_the_first_screen_has_the_answer(reader: Page, address: str) -> None:
    reader.goto(f"{address}/study?study=shortcuts")
    settled(reader)
    expect(
        reader.get_by_text(re.compile(r"shortcuts\.count = 1 helps")).first
    ).to_be_visible()
    forest = reader.locator(".scatterlayer .point").first
    box = forest.bounding_box()
    size = reader.viewport_size
    assert box is not None
    assert size is not None
    # The question and the ways through the page are above it.
    for above in (reader.get_by_role("heading"), reader.get_by_text("scatter")):
        place = above.first.bounding_box()
        assert place is not None
        assert place["y"] < box["y"]
    assert box["y"] < 0.65 * size["height"]


def test_trials_are_a_table_of_chosen_columns(reader: Page, address: str) -> None:
    reader.goto(f"{address}/study?study=shortcuts&view=trials")
    settled(reader)
    headings = reader.locator("[data-testid=stDataFrame] [role=columnheader]")
    headings.first.wait_for(state="attached")
    assert headings.all_inner_texts()[:3] == ["trial", "row", "seed"]
    columns = "seed,top1,shortcuts.count"
    reader.goto(f"{address}/study?study=shortcuts&view=trials&columns={columns}")
    expect(headings).to_have_count(3)
    titles = ["seed", "top-1 (%)", "shortcuts.count"]
    assert headings.all_inner_texts() == titles
    texts = cells(reader)
    # Whole levels are whole.
    assert texts[2] == "0"
    assert texts[1].startswith("80.7")


def test_trials_are_filtered_by_a_value(reader: Page, address: str) -> None:
    reader.goto(f"{address}/study?study=shortcuts&view=trials&where=status")
    button = reader.get_by_role("button", name="Filter by value")
    opened(reader, button.click, reader.get_by_label("Values"))
    reader.get_by_label("Values").click()
    reader.get_by_role("option", name="failed").click()
    expect(reader.get_by_text("1 trial. Click a heading")).to_be_visible()
    assert "where=status" in reader.url


def test_a_quantity_against_another(
    reader: Page, address: str, finished: Options
) -> None:
    reader.goto(f"{address}/study?study=shortcuts&view=scatter&x=loss&colour=layout")
    traces = reader.locator(".scatterlayer .trace")
    expect(traces).to_have_count(2)
    settled(reader)
    expect(reader.locator(".scatterlayer .point")).to_have_count(39)
    reader.get_by_role("button", name="y", exact=True).click()
    reader.wait_for_url(re.compile("log=y"))

    def press_a_point() -> None:
        # On a phone, the figure begins below the screen.
        point_of_row = traces.first.locator(".point").first
        point_of_row.scroll_into_view_if_needed()
        point = point_of_row.bounding_box()
        assert point is not None
        reader.mouse.click(
            point["x"] + point["width"] / 2, point["y"] + point["height"] / 2
        )

    heading = reader.get_by_role("heading", name=re.compile("Trial [0-9a-f]{8}"))
    opened(reader, press_a_point, heading)


def test_a_metric_over_the_levels_of_a_factor(reader: Page, address: str) -> None:
    reader.goto(f"{address}/study?study=shortcuts&view=levels&by=layout")
    expect(reader.locator(".scatterlayer .trace")).to_have_count(1)
    expect(reader.locator(".scatterlayer .point")).to_have_count(2)
    reader.goto(
        f"{address}/study?study=shortcuts&view=levels&by=layout&group=shortcuts.count"
    )
    expect(reader.locator(".scatterlayer .trace")).to_have_count(2)
    expect(reader.get_by_text("95 % intervals of Student's t")).to_be_visible()


def test_what_a_trial_printed(reader: Page, address: str, finished: Options) -> None:
    with Reader(finished.url) as store:
        key = store.trials.of("shortcuts")[0].trial
        folder = finished.logs_of(store.store_id())
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"line {number} <b>\x1b[31mred" for number in range(100)]
    (folder / f"{key}.txt").write_text("\n".join(lines) + "\n")
    reader.goto(f"{address}/trial?trial={key}")
    expect(reader.get_by_role("heading", name="Output")).to_be_visible()
    expect(reader.get_by_text("line 99 <b>red")).to_be_visible()
    expect(reader.get_by_text("line 59 <b>red")).to_have_count(0)
    expect(reader.get_by_text(f"ablate logs {key[:8]}")).to_be_visible()


def test_curves_are_grouped_and_smoothed(reader: Page, address: str) -> None:
    reader.goto(
        f"{address}/study?study=shortcuts&view=curves&metric=loss&by=layout&smooth=0.5"
        "&log=metric"
    )
    expect(reader.get_by_text("Smoothed with weight 0.5")).to_be_visible()
    expect(reader.get_by_text("layout = parallel").first).to_be_attached()
    settled(reader)
    # A line and a band for each level.
    assert reader.locator(".scatterlayer .trace").count() == 4
    reader.get_by_role("slider").press("Home")
    expect(reader.get_by_text("Smoothed with weight")).to_have_count(0)
    # The address follows the page.
    expect(reader).not_to_have_url(re.compile("smooth"))


@pytest.mark.parametrize(
    "query",
    [
        "view=curves&smooth=abc&by=nothing&log=all&metric=no",
        "view=curves&smooth=7",
        "view=curves&smooth=nan",
        "view=scatter&x=no&y=layout&colour=trial",
        "view=trials&columns=no,,trial&where=no",
        "view=no&of=no&f.layout=no",
        "view=pareto&cost=no",
    ],
)
def test_a_wrong_address_shows_what_is_usual(
    page: Page, address: str, query: str
) -> None:
    page.goto(f"{address}/study?study=shortcuts&{query}")
    expect(page.get_by_role("heading", name="Does a shortcut help")).to_be_visible()
    settled(page)
    expect(page.get_by_text("This page has an error")).to_have_count(0)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def test_the_front_is_labelled(reader: Page, address: str) -> None:
    reader.goto(f"{address}/study?study=shortcuts&view=pareto")
    labels = reader.locator(".scatterlayer .textpoint")
    labels.first.wait_for()
    assert all(re.fullmatch(r"row \d", text) for text in labels.all_text_contents())


def test_tags_and_notes_leave_the_results_as_they_are(
    reader: Page, address: str, finished: Options
) -> None:
    before = Path(finished.url).read_bytes()
    reader.goto(f"{address}/study?study=shortcuts")
    button = reader.get_by_role("button", name="Your notes")
    opened(reader, button.click, reader.get_by_label("Tags"))
    reader.get_by_label("Tags").fill("paper, <b>bold</b>")
    reader.get_by_label("Note", exact=True).fill("see *Monday's* run")
    reader.get_by_role("button", name="Save").click()
    # The field of the note may still be open, with the same text.
    expect(reader.locator("p", has_text="see *Monday's* run")).to_be_visible()
    expect(reader.get_by_text("<b>bold</b>", exact=True)).to_be_visible()
    # The overview shows them, and finds the study by a tag.
    reader.goto(f"{address}/?filter=PAPER")
    expect(reader.get_by_text("see *Monday's* run", exact=True)).to_be_visible()
    with Reader(finished.url) as store:
        key = store.trials.of("shortcuts")[0].trial
    reader.goto(f"{address}/trial?trial={key}")
    button = reader.get_by_role("button", name="Your notes")
    opened(reader, button.click, reader.get_by_label("Tags"))
    reader.get_by_label("Tags").fill("odd")
    reader.get_by_role("button", name="Save").click()
    expect(reader.get_by_text("odd", exact=True)).to_be_visible()
    reader.goto(
        f"{address}/study?study=shortcuts&view=trials&columns=trial,@tags,@note"
    )
    assert "odd" in cells(reader)
    assert Path(finished.url).read_bytes() == before
    notes_file(finished.url, finished.runs).unlink()


def test_notes_that_cannot_be_read_do_not_hide_the_verdicts(
    page: Page, address: str, finished: Options
) -> None:
    file = notes_file(finished.url, finished.runs)
    file.write_text("a diary")
    try:
        page.goto(f"{address}/study?study=shortcuts")
        expect(page.get_by_text("results are not affected")).to_be_visible()
        expect(
            page.get_by_text(re.compile("shortcuts.count = 1 helps")).first
        ).to_be_visible()
        page.goto(address)
        expect(page.get_by_text("39 of 40 trials")).to_be_visible()
    finally:
        file.unlink()


def test_it_is_readable_on_a_phone_and_in_the_dark(
    browser: Browser, address: str
) -> None:
    phone = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme="dark"
    )
    serving.sign_in(phone, address)
    page = phone.new_page()
    page.goto(f"{address}/study?study=shortcuts")
    expect(
        page.get_by_text(re.compile(r"shortcuts\.count = 1 helps")).first
    ).to_be_visible(timeout=90_000)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, (
        "nothing hangs over the side"
    )
    shot(page, "dashboard-phone")
    phone.close()


def test_a_running_study_moves_by_itself(page: Page, tmp_path: Path) -> None:
    options = Options(runs=tmp_path, cpus=2)

    def slowly(trial: Trial, number: int) -> Epoch:
        time.sleep(0.15)
        return curve(trial, number)

    declared = space.load(DEMO, "live.yaml")
    stop = threading.Event()
    hooks = pipeline.Hooks(stop=stop.is_set)
    run = threading.Thread(
        target=pipeline.run,
        args=(declared, "live.yaml", options, hooks, SimulatedExecutor(slowly)),
    )
    run.start()
    try:
        while not (tmp_path / "ablate.db").exists():
            time.sleep(0.1)
        with serving.served(options) as (address, _):
            serving.sign_in(page.context, address)
            page.goto(f"{address}/study?study=live")
            progress = page.get_by_text(re.compile(r"\d+ of 40 trials completed")).first
            progress.wait_for()
            before = int(progress.inner_text().split()[0])
            page.wait_for_function(
                "before => Number((document.body.innerText.match(/(\\d+) of 40 trials"
                " completed/) || [0, 0])[1]) > before + 3",
                arg=before,
            )
    finally:
        stop.set()
        run.join()


SCRIPT = """
import sys
import time
import ablate

@ablate.trainer(factors={"width": [16, 32]}, metrics={"score": "max"})
def slow(trial):
    for epoch in trial.epochs():
        print(f"loss of epoch {epoch}: <b>", 1 / epoch, flush=True)
        time.sleep(0.5)
        trial.report(score=trial.levels["width"] + epoch)
"""
SLOW = """
question: Which width?
trainer: slow
factors: {width: [16, 32]}
recipe: {epochs: 500}
seeds: 1
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Options]:
    """A run in a process of its own."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "slow.yaml").write_text(SLOW)
    words = ["run", "slow.yaml", "--with", "mine.py", "--executor", "local"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ablate", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield Options(runs=tmp_path / "runs", cpus=2)
    process.send_signal(signal.SIGINT)
    process.wait(60)


@pytest.mark.parametrize("width", [1280, 390])
def test_what_trains_now(browser: Browser, training: Options, width: int) -> None:
    while not (training.runs / "ablate.db").exists():
        time.sleep(0.1)
    with serving.served(training) as (address, _):
        context = browser.new_context(viewport={"width": width, "height": 860})
        serving.sign_in(context, address)
        page = context.new_page()
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        page.goto(f"{address}/study?study=slow&view=running")
        machine = re.compile(r"CPU \d+ % of \d+ cores · memory [\d.]+ .B of")
        expect(page.get_by_text(machine)).to_be_visible()
        expect(
            page.get_by_role("link", name=re.compile("row 0, seed 0"))
        ).to_be_visible()
        expect(page.locator(".scatterlayer .trace").first).to_be_visible()
        expect(
            page.get_by_text(re.compile(r"loss of epoch \d+: <b>")).first
        ).to_be_visible()
        expect(
            page.get_by_text(re.compile(r"process: \d+ % of a core")).first
        ).to_be_visible()
        epoch = page.get_by_text(re.compile(r"epoch \d+ of 500")).first
        before = epoch.inner_text()
        expect(epoch).not_to_have_text(before)
        expect(page.get_by_text("This page has an error")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        context.close()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A store with a study whose rows chose their learning rates."""
    text = DEMO.replace("  recipe.weight_decay: [0.05, 0.0]\n", "").replace(
        "digits,", "digits, validation: 0.2,"
    )
    text += (
        "tune: {recipe.weight_decay: {low: 0.01, high: 0.3, scale: log}, settings: 4}\n"
    )
    options = Options(runs=tmp_path_factory.mktemp("tuned"), cpus=2)
    declared = space.load(text, "tuned.yaml")
    executor = SimulatedExecutor()
    pipeline.run(declared, "tuned.yaml", options, executor=executor)
    return options


@pytest.mark.parametrize("width", [1280, 390])
def test_what_tuning_changed(browser: Browser, tuned: Options, width: int) -> None:
    with serving.served(tuned) as (address, _):
        context = browser.new_context(viewport={"width": width, "height": 1400})
        serving.sign_in(context, address)
        page = context.new_page()
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        page.goto(f"{address}/study?study=tuned&view=effects&of=tuning")
        expect(page.get_by_text("at its own best of 4 settings")).to_be_visible()
        # The settings that rows tried, and the expected best one.
        expect(page.locator(".js-plotly-plot")).to_have_count(2)
        settled(page)
        expect(page.get_by_text("This page has an error")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shot(page, f"dashboard-tuning-{width}")
        context.close()


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A study at two sizes."""
    options = Options(runs=tmp_path_factory.mktemp("ladder"), executor="inline")
    text = TINY.replace("width: 16, ", "").replace("seeds: 2", "seeds: 3")
    text += "across: {size.width: [8, 16]}\n"
    declared = space.load(text, "ladder.yaml")
    pipeline.run(declared, "ladder.yaml", options, executor=SimulatedExecutor())
    return options


@pytest.mark.parametrize("width", [1280, 390])
def test_effects_across_sizes(browser: Browser, ladder: Options, width: int) -> None:
    with serving.served(ladder) as (address, _):
        context = browser.new_context(viewport={"width": width, "height": 1400})
        serving.sign_in(context, address)
        page = context.new_page()
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        page.goto(f"{address}/study?study=ladder%2Fwidth-8&view=effects&of=sizes")
        # The effects, and the metric.
        expect(page.locator(".js-plotly-plot")).to_have_count(2)
        settled(page)
        expect(page.get_by_text("helps at every size: each size")).to_be_visible()
        expect(page.get_by_text("This page has an error")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shot(page, f"dashboard-sizes-{width}")
        context.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("empty", "There is no store yet"),
        ("broken", "ablate doctor"),
    ],
)
def test_stores_that_cannot_be_read_have_a_helpful_page(
    page: Page, tmp_path: Path, how: str, words: str
) -> None:
    file = tmp_path / "ablate.db"
    if how == "broken":
        file.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with serving.served(Options(runs=tmp_path)) as (address, _):
        serving.sign_in(page.context, address)
        page.goto(address)
        expect(page.get_by_text(words)).to_be_visible()
        expect(page.get_by_text("Traceback")).to_have_count(0)
