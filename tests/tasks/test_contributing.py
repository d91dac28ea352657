"""The examples of CONTRIBUTING.md: a metric, a task, a column and an executor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ablate.tasks
from ablate import heads, pipeline, space, tasks
from ablate.cli.answers import row_of
from ablate.pipeline import Options
from ablate.report import effect_columns
from ablate.report.effects import effects
from ablate.report.table import tabulate
from ablate.report.units import unit_for
from ablate.results.study import Study
from ablate.tasks import classification

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SPACE = """
question: Does a depthwise convolution help to count?
task: counting
backbone: {family: vit, width: 32, depth: 2, heads: 2, patch_size: 8}
factors:
  ffn.kernel: [none, 3]
data: {name: digit-scenes, train_images: 60, test_images: 20}
recipe: {epochs: 2, batch_size: 8}
diagnostics: [high_frequency]
seeds: 2
"""


def example(heading: str) -> str:
    """The Python code below a heading."""
    text = GUIDE.read_text(encoding="utf-8").split(f"## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_metric_is_one_line() -> None:
    (line,) = example("Add a metric").strip().splitlines()
    measure = eval(line, vars(classification))
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    assert measure.metric.name == "top3"
    assert measure.sum(logits, torch.tensor([2, 0])).item() == 1
    assert measure.metric.direction == "max"


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The task of the guide, as a file among the built-in ones."""
    (tmp_path / "counting.py").write_text(example("Add a task"), encoding="utf-8")
    caches = (tasks.tasks, heads.heads)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(
        ablate.tasks, "__path__", [*ablate.tasks.__path__, str(tmp_path)]
    )
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.proof
@pytest.mark.usefixtures("counting")
def test_a_task_is_one_file(tmp_path: Path) -> None:
    declared = space.load(SPACE, "counting.yaml")
    assert (
        declared.network.head,
        declared.criterion.metric,
        declared.criterion.direction,
    ) == (
        "counter",
        "mae",
        "min",
    )
    options = Options(runs=tmp_path / "runs", executor="inline")
    outcome = pipeline.run(declared, "counting.yaml", options)
    assert not outcome.failed
    table = Study("counting", options.url).table()
    assert "mean error" in table


@pytest.mark.proof
def test_a_column_is_one_declaration_and_an_executor_one_file(
    tmp_path: Path, tiny: str
) -> None:
    names: dict[str, Any] = {}
    exec(example("Add an executor"), names)
    options = Options(runs=tmp_path / "runs")
    declared = space.load(tiny, "tiny.yaml")
    outcome = pipeline.run(
        declared, "tiny.yaml", options, executor=names["OneSlotExecutor"]()
    )
    assert (outcome.trained, outcome.failed) == (8, 0)
    study = Study("tiny", options.url)
    results, _ = study.read()
    column = eval(example("Add a column"), vars(effect_columns))
    columns = effect_columns.effect_columns(results.metric, unit_for([]))
    table = tabulate([*columns, column], effects(results, 1.0))
    assert table.columns[-1] == "seeds"
    assert [row[-1] for row in table.rows] == ["0, 1"] * 3
    model = row_of("Row", "", [*columns, column])
    assert model.model_json_schema()["properties"]["seeds"]["description"] == (
        "the seeds that both rows have"
    )
    assert model.model_validate(table.data[0]).model_dump()["seeds"] == [0, 1]
