"""Labels of a space, in tables and figures; keys, SQL and JSON keep the real names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.errors import AblateError, SpaceError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.report.charts import coordinates, effects_chart
from ablate.report.table import render
from ablate.report.wording import sentence
from ablate.results.html_report import write_report
from ablate.results.study import Study
from tests.store.desk import TEXT, epoch

LABELS = """
labels:
  layout: arrangement
  ffn.kernel: kernel & co
  "ffn.kernel:none": no kernel
"""


@pytest.fixture
def study(options: Options) -> Study:
    pipeline.run(
        space.load(TEXT + LABELS, "parts.yaml"),
        "parts.yaml",
        options,
        executor=SimulatedExecutor(epoch),
    )
    return Study("parts", options.url)


@pytest.mark.proof
def test_tables_show_labels(study: Study) -> None:
    table = study.table()
    header = table.splitlines()[2]
    assert "| arrangement |" in header
    assert "| kernel & co |" in header
    assert "| shortcuts.count |" in header
    assert "no kernel" in table
    effects = render(study.effects_table(), "md")
    assert "arrangement = parallel, shortcuts.count = 1, kernel & co = 3" in effects
    assert "kernel & co" in render(study.effects_table("factors"), "md")
    assert "kernel & co" in render(study.pareto(), "md")
    tex = study.table("latex")
    assert r"kernel \& co" in tex
    assert "no kernel" in tex
    assert "shortcuts count" in tex


def test_programs_get_the_real_names(study: Study) -> None:
    for text in (
        study.table("json"),
        render(study.effects_table(), "json"),
        render(study.effects_table("factors"), "json"),
        render(study.pareto(), "json"),
    ):
        assert "kernel & co" not in text
        assert "layout" in text
    assert json.loads(study.table("json"))[0]["ffn.kernel"] == "none"


def test_lines_of_one_row_are_no_figure(study: Study) -> None:
    results = study.results()
    with pytest.raises(AblateError, match="has 1 completed cell, and this figure"):
        coordinates(replace(results, cells=results.cells[:1]))


@pytest.mark.proof
def test_figures_sentences_and_the_report_show_labels(
    study: Study, tmp_path: Path
) -> None:
    results, declared = study.read()
    effects = study.effects()
    texts = [
        sentence(effect, results.metric, declared.criterion.margin)
        for effect in effects
    ]
    assert any(text.startswith("arrangement = parallel helps: ") for text in texts)
    chart = effects_chart(results, effects)
    names = [name for series in chart.series for name in series.y]
    assert any("kernel & co = 3" in str(name) for name in names)
    axes = coordinates(results).axes
    assert [axis.name for axis in axes][:3] == [
        "arrangement",
        "shortcuts.count",
        "kernel & co",
    ]
    page = tmp_path / "report.html"
    write_report(study, page)
    assert "kernel &amp; co" in page.read_text()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            "{ffn.kernle: kernel}",
            "unknown label 'ffn.kernle'; did you mean 'ffn.kernel'?",
        ),
        ('{"ffn.kernel:7": seven}', "unknown label 'ffn.kernel:7'"),
        ('{ffn.kernel: ""}', "a label is one line with 1 to 80 characters"),
        ('{ffn.kernel: "two\\nlines"}', "a label is one line"),
        ("{ffn.kernel: layout}", "two factors are called 'layout'"),
        ("[kernel]", "labels"),
    ],
)
def test_wrong_labels_are_refused(labels: str, message: str) -> None:
    with pytest.raises(SpaceError) as refused:
        space.load(f"{TEXT}labels: {labels}\n", "parts.yaml")
    assert message in str(refused.value)


def test_labels_change_no_identity() -> None:
    """They are for people; results are reused whatever rows are called."""
    from ablate.plan import make_plan
    from ablate.scheduling.cost_cache import CostCache

    plans = [
        make_plan(space.load(text, "parts.yaml"), CostCache({}))
        for text in (TEXT, TEXT + LABELS)
    ]
    first, second = ([trial.hash for trial in plan.trials] for plan in plans)
    assert first == second
