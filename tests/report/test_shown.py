"""In a notebook, studies, tables, effects and figures show themselves."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest

from ablate.errors import UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.results.study import Study
from tests.conftest import TINY, RunText


@pytest.fixture
def shown(run_text: RunText, options: Options) -> Study:
    run_text(TINY.replace("seeds: 2", "seeds: 3"), SimulatedExecutor())
    return Study("tiny", options.url)


def test_tables_and_effects_show_themselves(shown: Study) -> None:
    text = shown.table()
    assert str(text).startswith("**")
    for thing in (text, shown.results_table(), shown.effects()):
        page = thing._repr_html_()  # type: ignore[attr-defined]
        assert page.startswith("<table>")
    page = shown._repr_html_()
    assert page.startswith("<svg")
    assert "row minus row 0" in page
    assert page.rstrip().endswith("</table>")
    assert "verdict" in shown.effects()._repr_html_()  # type: ignore[attr-defined]
    assert len(shown.effects()) == len(shown.effects_table().data)


@pytest.mark.proof
def test_a_figure_shows_itself_and_leaves_the_settings_of_the_user(
    shown: Study, tmp_path: Path
) -> None:
    with matplotlib.rc_context({"svg.fonttype": "path", "pdf.fonttype": 3}):
        before = dict(matplotlib.rcParams)
        figure = shown.plot("effects")
        picture = figure._repr_svg_()
        figure.savefig(tmp_path / "effects.pdf")
        assert dict(matplotlib.rcParams) == before
    assert picture.startswith("<svg")
    assert "<text" in picture, "text stays text"
    assert b"/Type3" not in (tmp_path / "effects.pdf").read_bytes()
    assert "plotly" in type(shown.plot("pareto", interactive=True)).__module__
    with pytest.raises(UnknownName, match="unknown chart 'efects'"):
        shown.plot("efects")


def test_whole_numbers_stay_whole_beside_missing_ones(
    shown: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(0, 1.5, True, "a"), (None, None, None, None)]
    monkeypatch.setattr(
        Study, "wide", lambda _: (["whole", "part", "flag", "word"], rows)
    )
    frame = shown.frame()
    assert str(frame["whole"].dtype) == "Int64"
    assert frame["whole"].isna().tolist() == [False, True]
    assert str(frame["whole"][0]) == "0"
    assert frame["part"].dtype == "float64"


def test_whole_levels_are_whole(shown: Study) -> None:
    """SQL has them as 0.0."""
    frame = shown.frame()
    assert frame["shortcuts.count"].dtype == "Int64"
    assert set(frame["shortcuts.count"]) == {0, 1}
    assert frame["top1"].dtype == "float64"
