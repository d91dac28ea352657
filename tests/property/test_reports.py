"""Reports: whatever a study declares, and whatever comes out, each report answers.

An answer is a table or a figure, or one message that says why there is none.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.errors import AblateError
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.results import project
from ablate.results.html_report import write_report
from ablate.results.review import review
from ablate.results.study import Study
from tests.store.desk import Curve, Desk

# Each example trains, reads and draws a study, which takes about two seconds.
EXAMPLES = 100 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 4
HEAD = """
question: Which part helps?
backbone: {family: vit, patch_size: 4, width: 8, depth: 2, heads: 2}
factors:
  layout: [serial, parallel]
  shortcuts.count: [0, 1]
data: digits
recipe: {epochs: 1, warmup_epochs: 0}
"""
FACTOR = st.sampled_from(["", "  ffn.kernel: [none, 3]\n"])
DESIGNS = (
    st.sampled_from(["grid", "one-at-a-time", "leave-one-out", "add-one-in"]),
    st.sampled_from(
        ["1", "2", "4", "{final: 3}", "{final: [3, 7]}", "{until_decided: 4}"]
    ),
    st.sampled_from(["", "control: iso-flops\n"]),
)
SEARCHES = (
    st.sampled_from(["cells: 2", "cells: 4, confirm: 2", "cells: 4, confirm: 3"]),
    st.sampled_from(["1", "3", "{adaptive: 3}", "{final: 2}"]),
)
PRIMARY = st.sampled_from(
    ["", "[1]", "[{layout: parallel}, {shortcuts.count: 1}]", "[layout]", "[controls]"]
)
METRIC = st.sampled_from(["", "metric: {loss: min}\n"])
KINDS = (
    "noise",
    "constant",
    "seeds",
    "rows",
    "some rows",
    "chance",
    "largest",
    "huge",
)
TABLES = (
    "rows",
    "factors",
    "interactions",
    "contributions",
    "controls",
    "importance",
    "images",
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Spaces of few cells: designs and searches, with any kind of seeds."""
    text = HEAD.replace("data:", draw(FACTOR) + "data:")
    if draw(st.booleans()):
        design, seeds, control = (draw(one) for one in DESIGNS)
        text += f"design: {design}\nseeds: {seeds}\n{control}"
    else:
        cells, seeds = (draw(one) for one in SEARCHES)
        text += f"strategy: {{name: random, {cells}}}\nseeds: {seeds}\n"
    primary = draw(PRIMARY)
    if primary:
        text += f"primary: {primary}\n"
    return text + draw(METRIC)


def curve_of(kind: str) -> Curve:
    """Returns what training measures: with noise, without, or with noise in some rows."""

    def top1(trial: Trial) -> float:
        noise = random.Random(trial.hash).gauss(0, 1)
        levels = trial.architecture.settings
        parallel = levels.get("layout") == "parallel"
        found = {
            "noise": 70 + noise + 3 * parallel,
            "constant": 55.0,
            "seeds": 50.0 + trial.seed,
            "rows": 60.0 + 5 * parallel,
            # Without noise in row 0 and one other.
            "some rows": 60.0 + noise * bool(levels.get("shortcuts.count")),
            "chance": 10 + 0.001 * noise,
            # As tools store infinity, and numbers whose squares have no float.
            "largest": 1.7976931348623157e308 if parallel else 60.0 + noise,
            "huge": (1e200 + 1e199 * noise) * (-1) ** trial.seed,
        }
        return found[kind]

    def epoch(trial: Trial, number: int) -> Epoch:
        value = top1(trial)
        metrics = {
            "train_loss": 1.0,
            "loss": value / 100,
            "top1": value,
            "top5": 99.0,
        }
        return Epoch(number=number, metrics=metrics, lr=1e-3, seconds=1.0)

    return epoch


def reports(study: Study, folder: Path) -> list[Callable[[], object]]:
    tables = [lambda of=of: study.effects_table(of) for of in TABLES]
    return [
        *tables,
        study.table,
        study.frame,
        study.wide,
        study.pareto,
        lambda: study.plot("effects"),
        lambda: review(study.name, study.store),
        lambda: project.budget_table(project.budget_of(study.store)),
        lambda: write_report(study, folder / "report.html"),
    ]


@pytest.mark.proof
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            documents(), st.sampled_from(KINDS), st.sampled_from([None, None, 2, 7])
        ),
        min_size=1,
        max_size=2,
    )
)
def test_every_report_answers(declared: list[tuple[str, str, int | None]]) -> None:
    """One store, in which a study is declared once or twice."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        desk = Desk(Options(runs=folder / "runs", executor="inline", cpus=2))
        for text, kind, most in declared:
            try:
                study = desk.run(text, most=most, curve=curve_of(kind))
            except AblateError:
                # Such as a primary row that the design lacks.
                continue
            for report in reports(study, folder):
                try:
                    report()
                except AblateError as error:
                    assert str(error)
