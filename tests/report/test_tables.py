"""Tables: the numbers, and the bytes of every format (golden files; `UPDATE_GOLDEN=1`
writes them again).
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.errors import UnknownName
from ablate.records import CellResult, Cost, Status, StudyResults
from ablate.report.results_table import results_table
from ablate.report.summary import summarise
from ablate.report.table import plain, render, unique
from ablate.report.units import unit_for
from ablate.tasks import classification

GOLDEN = Path(__file__).parents[1] / "golden"
DONE, FAILED, DIVERGED = Status.COMPLETED, Status.FAILED, Status.DIVERGED


def cell(
    index: int, levels: dict[str, object], values: dict[int, float], **more: object
) -> CellResult:
    given = {
        "unread": frozenset({"shortcuts.b"} if levels["shortcuts.count"] == 0 else ()),
        "role": "variant",
        "note": "",
        "same_as": None,
        "cost": Cost(
            params=22_050_664 + index * 1000,
            flops=4_608_338_304,
            flops_paper=4_598_882_304,
            activations=1,
            elementwise=1,
        ),
    }
    statuses = dict.fromkeys(values, DONE)
    return CellResult(
        index=index,
        levels=levels,
        values=values,
        **{**given, "statuses": statuses, **more},
    )


RESULTS = StudyResults(
    name="augvit/table_x & co",
    question="How many shortcuts, 50% | or_more?",
    expect="e",
    source="s",
    metric=classification.METRICS[0],
    direction="max",
    factors=("shortcuts.count", "shortcuts.b"),
    cells=(
        cell(
            0,
            {"shortcuts.count": 0, "shortcuts.b": 1},
            {0: 79.8, 1: 79.6, 2: 80.1},
            role="reference",
        ),
        cell(
            1,
            {"shortcuts.count": 0, "shortcuts.b": 4},
            {},
            same_as=0,
            note="shortcuts.b is not read unless a circulant projection is used",
        ),
        cell(
            2,
            {"shortcuts.count": 2, "shortcuts.b": 1},
            {0: 80.6, 1: 80.8},
            statuses={0: DONE, 1: DONE, 2: FAILED},
        ),
        cell(
            3,
            {"shortcuts.count": 2, "shortcuts.b": 4},
            {1: 80.9},
            statuses={0: DIVERGED, 1: DONE, 2: DIVERGED},
        ),
        cell(
            4,
            {"shortcuts.count": 2, "shortcuts.b": 5},
            {},
            cost=None,
            note="shortcuts.b = 5 does not divide the width 384",
        ),
    ),
)


def test_means_spreads_and_paired_differences() -> None:
    rows = summarise(RESULTS)
    assert rows[0].mean == pytest.approx(79.8333, abs=1e-4)
    assert rows[0].sd == pytest.approx(statistics.stdev([79.8, 79.6, 80.1]))
    assert rows[0].delta is None
    assert (rows[2].n, rows[2].paired) == (2, 2)
    assert rows[2].delta == pytest.approx((80.6 - 79.8 + 80.8 - 79.6) / 2), (
        "the same seeds of the reference, not its mean"
    )
    assert rows[2].delta_sd == pytest.approx(statistics.stdev([0.8, 1.2]))
    assert (rows[3].n, rows[3].sd, rows[3].delta_sd) == (1, None, None)
    assert rows[3].delta == pytest.approx(1.3)
    assert rows[4].mean is None
    assert rows[1].mean == rows[0].mean, "a repeated cell has the other's numbers"
    assert rows[1].delta is None


def test_what_is_missing_is_said() -> None:
    notes = [row.note for row in summarise(RESULTS)]
    assert notes[2] == "1 failed"
    assert notes[3] == "2 diverged"
    assert "does not divide" in notes[4]


@pytest.mark.parametrize(
    ("form", "ending"),
    [
        ("md", "md"),
        ("latex", "tex"),
        ("html", "html"),
        ("csv", "csv"),
        ("json", "json"),
    ],
)
def test_bytes_of_every_format(form: str, ending: str) -> None:
    file = GOLDEN / f"table.{ending}"
    text = render(results_table(RESULTS), form)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_rows_of_equal_levels_stand_together() -> None:
    grid = results_table(RESULTS, group="shortcuts.b")
    assert [row[0] for row in grid.rows] == ["0", "2", "3", "4"]
    assert grid.groups == {1, 2, 3}
    assert render(grid, "latex").count(r"\midrule") == 4
    assert render(grid, "html").count("<tbody>") == 4
    with pytest.raises(UnknownName, match="did you mean 'shortcuts.b'"):
        results_table(RESULTS, group="shortcuts.c")


def test_the_best_mean_is_bold_and_a_sure_difference_has_a_star() -> None:
    better = cell(
        2, {"shortcuts.count": 2, "shortcuts.b": 1}, {0: 80.8, 1: 80.61, 2: 81.1}
    )
    grid = results_table(replace(RESULTS, cells=(RESULTS.cells[0], better)))
    assert grid.rows[1][3] == "80.84 ± 0.25 (+1.00*)"
    assert grid.bold == {(1, "top-1 (%)")}
    # A star that is not escaped would close the bold text for a reader of Markdown.
    assert r"**80.84 ± 0.25 (+1.00\*)**" in render(grid, "md")
    assert r"\textbf{80.84 $\pm$ 0.25 (+1.00*)}" in render(grid, "latex")
    assert "<b>80.84 ± 0.25 (+1.00*)</b>" in render(grid, "html")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="needs Debian's texlive-latex-recommended"
)
def test_latex_compiles(tmp_path: Path) -> None:
    tables = "\\par\\bigskip\n".join(
        render(results_table(RESULTS, group=group), "latex")
        for group in ("", "shortcuts.b")
    )
    text = (
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n"
        "\\usepackage{booktabs}\n\\begin{document}\n"
    )
    (tmp_path / "table.tex").write_text(text + tables + "\\end{document}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").stat().st_size > 5000


def test_machine_formats_have_full_precision_and_every_row() -> None:
    rows = json.loads(render(results_table(RESULTS), "json"))
    assert len(rows) == 5
    assert rows[0]["top1_mean"] == statistics.fmean([79.8, 79.6, 80.1])
    assert rows[4]["top1_mean"] is None
    again = list(csv.DictReader(io.StringIO(render(results_table(RESULTS), "csv"))))
    assert [float(row["top1_mean"]) for row in again[:1]] == [rows[0]["top1_mean"]]
    assert list(again[0]) == list(rows[0])


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.none() | st.integers() | st.floats(allow_nan=False) | st.text(),
        ),
        min_size=1,
    )
)
def test_any_data_render(data: list[dict[str, object]]) -> None:
    grid = plain(data)
    for form in ("md", "latex", "html", "csv", "json"):
        assert render(grid, form).endswith("\n")
    assert len(json.loads(render(grid, "json"))) == len(data)
    widths = {
        len(line.replace("\\|", "")) for line in render(grid, "md").splitlines()[:1]
    }
    assert len(widths) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (22_050_664, "22.051 M"),
        (4.6e9, "4.600 G"),
        (26_762, "26.762 K"),
        (1e8, "0.100 G"),
        (0, "0.000 K"),
    ],
)
def test_units(value: float, text: str) -> None:
    unit = unit_for([value])
    assert f"{unit.text(value)} {unit.letter}" == text


def test_the_note_states_the_level_of_the_star() -> None:
    assert (
        "* p < 0.05 (adjusted for 2 comparisons; variance estimate shared among rows)"
        in (results_table(RESULTS).notes[0])
    )


def test_a_single_comparison_is_not_corrected() -> None:
    two_rows = replace(RESULTS, cells=RESULTS.cells[:2])
    assert "* p < 0.05 (paired t)." in results_table(two_rows).notes[0]


def test_missing_row_numbers_are_explained() -> None:
    last = RESULTS.cells[-1]
    again = replace(
        last, index=last.index + 1, same_as=0, note="proposed again", statuses={}
    )
    grid = results_table(replace(RESULTS, cells=(*RESULTS.cells, again)))
    notes = " ".join(grid.notes)
    assert "Row numbers that are missing: cells that the search proposed again" in notes
    assert "Row numbers that are missing" not in " ".join(results_table(RESULTS).notes)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a (2)", "a (3)"]),
        (["a (2)", "a", "a"], ["a (2)", "a", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (3)", "a (2)"]),
        (["", ""], ["", " (2)"]),
    ],
)
def test_headings_of_a_query_are_unique(names: list[str], expected: list[str]) -> None:
    assert unique(names) == expected
