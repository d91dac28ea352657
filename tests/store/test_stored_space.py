"""A study stays readable when the parts that produced it are renamed or removed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ablate import factors, pipeline, space
from ablate.errors import SpaceError
from ablate.execution.simulated import SimulatedExecutor
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.records.changes import changes
from ablate.records.plain import to_data
from ablate.report.table import render
from ablate.results.html_report import write_report
from ablate.results.review import review
from ablate.results.study import Study
from ablate.store.space_data import from_data
from tests.conftest import Say
from tests.own.test_registry import documented_factor

ROOT = Path(__file__).parents[2]
SPACES = sorted((ROOT / "search_spaces").rglob("*.yaml"))
MINE = """
name: mine
question: Does a smaller residual help?
expect: It does.
backbone: {family: vit, patch_size: 4, width: 16, depth: 2, heads: 2}
factors:
  scale: [1.0, 0.5]
  shortcuts.count: [0, 1]
seeds: 3
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
limits: {flops: "<= 3 * baseline"}
"""


@contextmanager
def own_factor(folder: Path) -> Iterator[None]:
    """The documented factor `scale` is loaded while this lasts."""
    folder.mkdir()
    file = folder / "scale.py"
    file.write_text(documented_factor())
    registry.load_file(file)
    yield
    registry.clear()


def curve(trial: Trial, number: int) -> Epoch:
    """An epoch in which the factor helps."""
    helps = 5.0 if "scale" in trial.architecture.settings else 0.0
    noise = int(trial.hash[:4], 16) / 2**16
    return Epoch(
        number=number,
        metrics={
            "train_loss": 1.0,
            "loss": 1.0,
            "top1": 50.0 + helps + noise + number,
            "top5": 90.0,
        },
        lr=1e-3,
        seconds=0.1,
    )


@pytest.fixture
def removed(tmp_path: Path, options: Options) -> Study:
    """A study of a factor that has been removed since."""
    with own_factor(tmp_path / "parts"):
        pipeline.run(
            space.load(MINE, "mine.yaml"),
            "mine.yaml",
            options,
            executor=SimulatedExecutor(curve),
        )
    assert "scale" not in factors.parameters()
    return Study("mine", options.url)


@pytest.mark.proof
def test_a_study_of_a_removed_factor_is_readable(
    removed: Study, tmp_path: Path
) -> None:
    assert list(removed.declared().factors.levels) == ["scale", "shortcuts.count"]
    assert "| scale |" in re.sub(r" +", " ", removed.table())
    changed = [set(effect.changed) for effect in removed.effects()]
    assert changed == [{"shortcuts.count"}, {"scale"}, {"scale", "shortcuts.count"}]
    assert removed.frame()["scale"].tolist().count(0.5) == 6
    assert "scale" in render(removed.effects_table("factors"), "md")
    assert not [f for f in review("mine", removed.store) if f.name == "unfinished"]
    write_report(removed, tmp_path / "report.html")
    assert "scale" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "command",
    [
        "status mine",
        "table mine",
        "effects mine",
        "review mine",
        "pareto mine",
        "plot mine --of effects --to figure.svg",
        "report mine --to report.html",
        "export mine --to mine.csv",
        'query "SELECT scale, AVG(top1) FROM results_mine GROUP BY scale"',
    ],
)
def test_every_reading_verb_reads_it(removed: Study, command: str, say: Say) -> None:
    code, _, err = say(*shlex.split(command), "--store", removed.store)
    # `review` answers 1 if it has findings.
    assert code in ((0, 1) if command.startswith("review") else (0,)), err
    assert "unknown factor" not in err


def test_running_it_again_names_the_missing_factor(
    removed: Study, options: Options
) -> None:
    with pytest.raises(SpaceError, match="unknown factor 'scale'"):
        pipeline.resume("mine", options)


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_a_space_comes_back_from_its_data_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    declared = space.read(file)
    data = json.loads(json.dumps(to_data(declared)))
    back = from_data(data, declared.document)
    assert back == declared
    assert repr(back) == repr(declared)  # 1 and 1.0 are equal, and differ in print


def test_fields_of_another_version_are_ignored_or_have_their_default() -> None:
    declared = space.load(MINE.replace("  scale: [1.0, 0.5]\n", ""), "mine.yaml")
    data = json.loads(json.dumps(to_data(declared)))
    data["from_the_future"] = 1
    data["recipe"]["gone"] = 2
    del data["keep"]
    del data["recipe"]["momentum"]
    assert from_data(data, declared.document) == declared


DESCRIPTIVE = {
    *("name", "named", "question", "expect", "source", "published"),
    *("resources", "diagnostics", "warmup_fits", "keep", "labels", "parts", "reported"),
    *("removes_parts", "ranges", "metrics"),
    # With one objective, they repeat the metric.
    "objectives",
}


def test_a_change_is_named_by_every_key_that_decides_the_results() -> None:
    declared = space.load(MINE.replace("  scale: [1.0, 0.5]\n", ""), "mine.yaml")
    data = json.loads(json.dumps(to_data(declared)))
    for key in data:
        other = {**data, key: ["something else"]}
        named = {change.split(":")[0].split(" ")[0] for change in changes(data, other)}
        # "the files of the data" is one of the parts of `data`.
        assert named - {"the"} == (set() if key in DESCRIPTIVE else {key}), key
    for key in data["data"]:
        other = {**data, "data": {**data["data"], key: "something else"}}
        assert bool(changes(data, other)) == (
            key not in ("path", "workers", "test_split")
        ), key


def test_a_key_that_an_older_version_did_not_store_is_no_change() -> None:
    declared = space.load(MINE.replace("  scale: [1.0, 0.5]\n", ""), "mine.yaml")
    data = json.loads(json.dumps(to_data(declared)))
    for key in ("together", "exclude", "vary", "final", "adaptive", "looks", "head"):
        assert not changes({k: v for k, v in data.items() if k != key}, data), key
    recipe = {k: v for k, v in data["recipe"].items() if k != "momentum"}
    assert not changes({**data, "recipe": recipe}, data)
