"""Charts and the report: every one is drawn, equal data give equal bytes, and the
report asks nothing of the network.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.errors import AblateError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.charts import Chart
from ablate.report.matplotlib_charts import save_chart, svg
from ablate.report.plotly_charts import draw
from ablate.results import study_charts
from ablate.results.html_report import write_report
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import TINY, RunText, Say
from tests.test_review import curve

FULL = TINY.replace("seeds: 2", "seeds: 3")
# A study of which every chart can be drawn.
TUNED = (
    FULL.replace("digits,", "digits, validation: 0.2,")
    + "tune: {recipe.weight_decay: {low: 0.01, high: 0.3, scale: log}, settings: 3}\n"
)


@pytest.fixture
def study(run_text: RunText, options: Options) -> Study:
    run_text(FULL, SimulatedExecutor(curve))
    return Study("tiny", options.url)


@pytest.mark.proof
def test_every_chart_is_drawn_still_and_interactive(
    run_text: RunText, options: Options, tmp_path: Path
) -> None:
    run_text(TUNED, SimulatedExecutor(curve))
    study = Study("tiny", options.url)
    found = study_charts.drawable(study)
    # The chart of a metric needs a factor, and those of sizes more than one.
    kinds = set(study_charts.KINDS) - {"metric", *study_charts.OF_SIZES}
    assert {*found, "differences"} == kinds
    for name in sorted(kinds):
        chart = study_charts.chart(study, name)
        if name in found:
            assert svg(chart) == svg(found[name]), "equal bytes"
        figure = draw(chart)
        assert figure.data, name
    for ending in ("svg", "pdf", "png", "html"):
        save_chart(tmp_path / f"effects.{ending}", found["effects"])
        assert (tmp_path / f"effects.{ending}").stat().st_size > 5000
    with pytest.raises(
        AblateError, match="the name of a figure ends in svg, png, pdf, html"
    ):
        save_chart(tmp_path / "effects.jpg", found["effects"])


def test_a_row_without_a_verdict_is_not_drawn_as_inconclusive(
    run_text: RunText, options: Options
) -> None:
    def failing(trial: Trial, number: int) -> Epoch:
        if trial.architecture.settings.get("layout") == "parallel" and trial.seed == 2:
            raise RuntimeError("no luck")
        return curve(trial, number)

    run_text(FULL, SimulatedExecutor(failing))
    study = Study("tiny", options.url)
    chart = study_charts.chart(study, "effects")
    assert isinstance(chart, Chart)
    rows = {key: series.name for series in chart.series for key in series.keys}
    assert rows[1] == rows[3] == "no verdict"
    assert rows[2] != "no verdict"
    notes = " ".join(study.effects_table().notes)
    assert "Rows 1, 3 have no verdict; the interval and p come from their own" in notes


def test_a_point_says_which_row_it_is(study: Study) -> None:
    figure = draw(study_charts.chart(study, "pareto"))
    keys = [key for trace in figure.data for key in trace.customdata or ()]
    assert sorted(keys) == [0, 1, 2, 3]
    forest = draw(study_charts.chart(study, "effects"))
    assert {trace.name for trace in forest.data} <= {
        "helps",
        "hurts",
        "no difference",
        "inconclusive",
    }


def test_what_cannot_be_drawn_is_said(
    run_text: RunText, options: Options, say: Say
) -> None:
    run_text(
        FULL.replace("seeds: 3", "seeds: 1").replace(
            "design: grid", "design: one-at-a-time"
        ),
        SimulatedExecutor(curve),
    )
    where = ("--runs", str(options.runs))
    for of, words in (
        ("factors", "spread cannot be measured"),
        ("importance", "four completed cells"),
    ):
        code, _, err = say("plot", "tiny", "--of", of, "--to", "x.svg", *where)
        assert (code, words in err) == (2, True)
    code, _, err = say("plot", "tiny", "--to", "x.svg", "--row", "1", *where)
    assert (code, "--row goes with --of curves" in err) == (2, True)
    code, _, err = say("plot", "tiny", "--to", "x.svg", "--published", *where)
    assert (code, "--published goes with --of pareto" in err) == (2, True)
    for option in (("--published",), ("--metric", "top1"), ("--cost", "params")):
        code, _, err = say(
            "plot",
            "tiny",
            "--to",
            "x.svg",
            "--diagnostic",
            "diversity",
            *option,
            *where,
        )
        assert (code, "are for --of, not for --diagnostic" in err) == (2, True)
    study = Study("tiny", options.url)
    for argument in ({"rows": [0]}, {"metric": "top1"}, {"cost": "params"}):
        with pytest.raises(AblateError, match="not for effects; leave it out"):
            study.plot("effects", **argument)
    code, _, err = say(
        "plot", "tiny", "--of", "curves", "--row", "17", "--to", "x.svg", *where
    )
    assert (code, "tiny has no row 17" in err) == (2, True)
    for words in (
        ("--to", "x.html", "--width", "3"),
        ("--to", "x.svg", "--diagnostic", "token_cosine", "--no-title"),
    ):
        code, _, err = say("plot", "tiny", *words, *where)
        assert (code, "are for charts in .svg, .png and .pdf" in err) == (2, True)


@pytest.mark.proof
def test_the_report_says_it_all(
    run_text: RunText, options: Options, tmp_path: Path, say: Say
) -> None:
    run_text(TINY.replace("seeds: 2", "seeds: 5"), SimulatedExecutor(curve))
    study = Study("tiny", options.url)
    assert (
        say(
            "report",
            "tiny",
            "--runs",
            str(options.runs),
            "--to",
            str(tmp_path / "a.html"),
        )[0]
        == 0
    )
    text = (tmp_path / "a.html").read_text()
    for words in (
        "Does a shortcut help a very small ViT?",
        "shortcuts.count = 1 helps: +",
        "Main effects",
        "shapley: the gain from adding this factor",
        "main: the share that comes from the differences between its",
        "no iso-cost control",
        "CPU-seconds of training and testing",
        "ablate reproduce",
        "recipe: {epochs: 3",
    ):
        assert words in text
    write_report(study, tmp_path / "b.html", where=f" --runs {options.runs}")
    assert (tmp_path / "b.html").read_text() == text, "equal data, equal bytes"
    assert "<script>alert" not in text


@pytest.mark.proof
@pytest.mark.parametrize(
    "text",
    [
        FULL.replace("seeds: 3", "seeds: 3\ncontrol: iso-flops"),
        FULL.replace(
            "question: Does a shortcut help a very small ViT?",
            "question: 'Is $L_1$ or $\\foo$ better?'",
        ),
        FULL.replace("seeds: 3", "seeds: 1"),
        FULL.replace("design: grid", "design: leave-one-out"),
        FULL.replace("design: grid", "strategy: {name: random, cells: 3}"),
        FULL.replace("seeds: 3", "seeds: 3\nmetric: {loss: min}"),
    ],
    ids=["controls", "dollars", "one seed", "leave-one-out", "search", "loss"],
)
def test_every_kind_of_study_has_a_report(
    run_text: RunText, options: Options, tmp_path: Path, text: str
) -> None:
    run_text(text, SimulatedExecutor(curve))
    study = Study("tiny", options.url)
    write_report(study, tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_size > 10_000


@pytest.mark.proof
def test_a_study_without_a_spread_has_a_report(
    run_text: RunText, options: Options, tmp_path: Path
) -> None:
    def equal(trial: Trial, number: int) -> Epoch:
        epoch = curve(trial, number)
        return replace(epoch, metrics={**epoch.metrics, "top1": 0.0})

    run_text(FULL, SimulatedExecutor(equal))
    write_report(Study("tiny", options.url), tmp_path / "a.html")
    assert "no information about noise" in (tmp_path / "a.html").read_text()


@pytest.mark.proof
def test_a_hostile_name_cannot_run(
    run_text: RunText, options: Options, tmp_path: Path
) -> None:
    run_text(
        FULL.replace("question: Does", "question: <script>alert(1)</script> Does"),
        SimulatedExecutor(curve),
    )
    for interactive in (False, True):
        write_report(
            Study("tiny", options.url), tmp_path / "a.html", interactive=interactive
        )
        text = (tmp_path / "a.html").read_text()
        assert "<script>alert(1)" not in text
        assert "&lt;script&gt;alert(1)" in text


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("interactive", [False, True])
def test_the_report_opens_from_disk_and_asks_nothing_of_the_network(
    study: Study, tmp_path: Path, interactive: bool
) -> None:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    write_report(study, file, interactive=interactive)
    asked: list[str] = []
    mistakes: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto(file.as_uri())
        page.locator(
            ".plotly .main-svg" if interactive else "figure svg"
        ).first.wait_for()
        browser.close()
    assert not mistakes
    assert [
        url for url in asked if not url.startswith(("file:", "data:", "blob:"))
    ] == []


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_is_readable_on_a_phone(
    study: Study, tmp_path: Path, interactive: bool, theme: Any
) -> None:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    write_report(study, file, interactive=interactive)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": 390, "height": 844}, color_scheme=theme
        )
        page.goto(file.as_uri())
        page.locator(
            ".plotly .main-svg" if interactive else "figure svg"
        ).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        text = page.locator("body").inner_text()
        assert text.count("Does a shortcut help a very small ViT?") == 2, (
            "once as the heading, and once in the declaration"
        )
        assert "`" not in text
        # The first column of a table stays while the others scroll.
        first = page.locator(".scroll:visible td").first
        before = first.bounding_box()
        page.locator(".scroll:visible").first.evaluate("box => box.scrollLeft = 200")
        assert first.bounding_box() == before
        # Words of a figure are dark on a light page, and light on a dark one.
        label = page.locator("figure text").first
        fill = label.evaluate("text => getComputedStyle(text).fill")
        browser.close()
    shade = max(map(int, re.findall(r"\d+", fill)[:3]))
    if interactive:
        assert 100 < shade < 180, "one grey for both"
    else:
        assert (shade > 200) == (theme == "dark")


@pytest.mark.proof
def test_the_theme_changes_no_word(
    run_text: RunText, options: Options, tmp_path: Path
) -> None:
    labels = 'labels: {layout: "stroke: #000000", "layout:parallel": "#ffffff"}'
    run_text(f"{FULL}{labels}\n", SimulatedExecutor(curve))
    write_report(Study("tiny", options.url), tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "stroke: #000000 = #ffffff" in text
    assert "stroke: currentColor = " not in text


@pytest.mark.proof
def test_a_report_tells_a_commit_and_a_platform_in_short(
    study: Study, tmp_path: Path
) -> None:
    write_report(study, tmp_path / "tiny.html")
    text = (tmp_path / "tiny.html").read_text()
    (one, *_) = Reader(study.store).trials.circumstances("tiny")
    assert len(one.commit) > 10
    assert f"<td>{one.commit[:10]}</td>" in text
    assert "-with-glibc" not in text


@pytest.mark.proof
@pytest.mark.parametrize(
    ("metered", "told"),
    [
        (0, None),
        (3, ", 0.5 kWh measured on the CPUs in 3 of 36 epochs"),
        (36, ", 0.5 kWh measured on the CPUs</"),
    ],
)
def test_energy_is_reported_where_it_was_read(
    study: Study, options: Options, tmp_path: Path, metered: int, told: str | None
) -> None:
    with closing(sqlite3.connect(options.url)) as connection, connection:
        some = "SELECT rowid FROM epochs ORDER BY rowid LIMIT ?"
        connection.execute(
            f"UPDATE epochs SET joules = 1.8e6 / ? WHERE rowid IN ({some})",
            (metered, metered),
        )
    write_report(study, tmp_path / "tiny.html")
    text = (tmp_path / "tiny.html").read_text()
    assert ("kWh" in text) == (told is not None)
    assert told is None or told in text


def test_epochs_of_a_shorter_trial_are_not_spent_again(
    study: Study, options: Options
) -> None:
    with closing(sqlite3.connect(options.url)) as connection, connection:
        connection.execute("UPDATE epochs SET joules = 100")
        connection.execute("UPDATE attempts SET first_epoch = 2 WHERE id = 1")
    with Reader(options.url) as reader:
        (spent,) = reader.costs.by_device("tiny")
    assert (spent.trials, spent.epochs, spent.seconds) == (12, 34, 34)
    assert spent.joules == 3400
