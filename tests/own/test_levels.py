"""Levels: names of columns, numbers of numpy, levels that look alike, advice to type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ablate
from ablate import space
from ablate.contracts.trainer import trainer_checks
from ablate.errors import AblateError, SpaceError, did_you_mean
from ablate.own import registry
from ablate.pipeline import Options
from ablate.store.reader import Reader
from tests.own.conftest import Run, Use

NAMES = ("lr", "seed", "Status", "trial", "delta", "n", "p")
FILE = f"""
import ablate
import numpy as np


@ablate.trainer(
    factors={{name: [1, 2] for name in {NAMES}}}
    | {{"clip": [False, 0, 0.1, 1, True], "rate": ablate.Real(0), "depth": np.arange(1, 4)}},
    metrics=[ablate.Metric("acc", direction="max")],
)
def free(trial):
    for _ in trial.epochs():
        trial.report(acc=10.0 * trial.levels["lr"] + trial.levels["depth"] + trial.seed)
"""


@pytest.fixture(autouse=True)
def own_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    registry.load_file(file)


def declared(factors: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "free",
        "question": "Q?",
        "trainer": "free",
        "factors": factors,
        "fixed": {} if "rate" in factors else {"rate": 0.5},
        "seeds": 2,
        "recipe": {"epochs": 1},
        **more,
    }


def problems(factors: Mapping[str, Any], **more: Any) -> str:
    with pytest.raises(SpaceError) as raised:
        space.load(yaml.safe_dump(declared(factors, **more), sort_keys=False), "s.yaml")
    return str(raised.value)


def test_a_factor_may_have_the_name_of_a_column(tmp_path: Path) -> None:
    study = ablate.run(
        declared({name: [1, 2] for name in NAMES}, design="one-at-a-time"),
        executor="inline",
    )
    frame = study.frame()
    assert sorted(frame["factor.lr"]) == [1] * 14 + [2] * 2
    assert sorted(set(frame["seed"])) == [0, 1]
    assert sorted(set(frame["factor.seed"])) == [1, 2]
    row = study.results_table().data[1]
    assert (row["factor.lr"], row["factor.delta"], row["delta"]) == (2, 1, 10.0)
    with Reader(str(tmp_path / "runs" / "ablate.db")) as reader:
        columns, _ = reader.query("SELECT * FROM results_free")
    assert len({column.lower() for column in columns}) == len(columns)


def test_numbers_of_numpy_are_levels() -> None:
    study = ablate.run(declared({"depth": np.arange(1, 3)}), executor="inline")
    assert [row["depth"] for row in study.results_table().data] == [1, 2]
    rates = ablate.preview(declared({"rate": (np.float32(0.5), np.float64(0.25))}))
    assert [cell.levels["rate"] for cell in rates.plan.cells] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({"clip": [False, 0, 0.1]}, "clip: the levels false and 0 are equal numbers"),
        ({"clip": [1, 0.1, True]}, "clip: the levels 1 and true are equal numbers"),
        ({"clip": [0, 0.1, 0]}, "clip: the level 0 is a duplicate"),
        ({"rate": [0.3, 0.1 + 0.2]}, "0.3 and 0.30000000000000004 both print as 0.3"),
        ({"rate": [0.12345671, 0.12345672]}, "both print as 0.123457"),
        ({"lr": [1, "1"]}, "both print as 1"),
        ({"rate": [True, "true"]}, "both print as true"),
    ],
)
def test_levels_that_no_table_could_tell_apart_are_refused(
    factors: dict[str, Any], message: str
) -> None:
    assert message in problems(factors)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("value.activation", ["value", "ffn.activation"], "value"),
        ("valu.activation", ["value", "ffn.activation"], "value"),
        ("ffn.activaton", ["value", "ffn.activation", "ffn.kernel"], "ffn.activation"),
        ("lr", ["recipe.lr", "value"], "recipe.lr"),
        ("other.activation", ["value", "ffn.activation"], ""),
        ("recipe.kernel", ["ffn.kernel", "recipe.lr"], "recipe.lr"),
    ],
)
def test_a_suggestion_is_about_the_same_thing(
    name: str, known: list[str], meant: str
) -> None:
    expected = f"; did you mean '{meant}'?" if meant else ""
    assert did_you_mean(name, known) == expected


@pytest.mark.parametrize(
    "factor",
    ["recipe.lr", "ffn.kernel", "pretrained", "data.image_size", "size.depth"],
)
def test_advice_for_a_factor_with_one_level_is_accepted(factor: str) -> None:
    level: Any = {"recipe.lr": 0.01, "ffn.kernel": 3, "pretrained": False}.get(
        factor, 8
    )
    document = {
        "question": "Q?",
        "backbone": {"family": "vit", "patch_size": 2, "width": 16, "heads": 2},
        "factors": {"drop.dropout": [0, 0.1], factor: level},
        "seeds": 1,
        "data": "digits",
    }
    if factor != "size.depth":
        document["backbone"]["depth"] = 1
    with pytest.raises(SpaceError) as raised:
        space.load(yaml.safe_dump(document), "s.yaml")
    advice = re.search(r"to give all cells this level, `(.*?)`", str(raised.value))
    assert advice is not None
    del document["factors"][factor]
    for section, value in yaml.safe_load(advice[1]).items():
        if section == "data":
            value = {"name": "digits", **value}
        document[section] = value
    space.load(yaml.safe_dump(document), "s.yaml")


@pytest.mark.proof
def test_a_tag_of_timm_names_weights_as_backbone_and_as_level() -> None:
    tags = ["augreg_in21k", "augreg_in21k_ft_in1k"]
    names = [f"vit_tiny_patch16_224.{tag}" for tag in tags]
    document = {
        "name": "tags",
        "question": "Which weights?",
        "factors": {"backbone": names},
        "pretrained": True,
        "seeds": 1,
        "data": "cifar10",
        "recipe": {"epochs": 1, "warmup_epochs": 0},
    }
    cells = ablate.preview({**document, "data": {"name": "cifar10", "image_size": 224}})
    starts = [cell.trials[0].start for cell in cells.plan.cells]
    assert [start.identity for start in starts if start] == [f"timm {n}" for n in names]
    backbones = {cell.architecture.backbone for cell in cells.plan.cells}
    assert backbones == {"vit_tiny_patch16_224"}
    with pytest.raises(SpaceError, match="did you mean 'augreg_in21k'"):
        ablate.preview(
            document | {"factors": {"backbone": ["vit_tiny_patch16_224.augreg_in21"]}}
        )
    alone = document | {"backbone": names[0], "factors": {"recipe.lr": [1e-3, 2e-3]}}
    alone["data"] = {"name": "cifar10", "image_size": 224}
    assert ablate.preview(alone).plan.cells[0].trials[0].start == starts[0]
    with pytest.raises(AblateError, match="names weights of timm, but pretrained"):
        ablate.preview(alone | {"pretrained": False})


def test_one_bad_part_does_not_block_the_others(tmp_path: Path) -> None:
    text = (
        "import ablate\n"
        "@ablate.trainer(metrics={'a': 'max'}, factors={'a': [1, 2]})\ndef bad(t): ...\n"
        "script = ablate.command('python x.py', metrics={'a': 'max'}, revision=1)\n"
    )
    good = (
        "@ablate.trainer(metrics={'a': 'max'}, factors={'b': [1, 2]})\ndef good(t):\n"
        "    for _ in t.epochs():\n        t.report(a=t.levels['b'] + t.seed)\n"
    )
    registry.clear()
    file = tmp_path / "several.py"
    file.write_text(text + good)
    registry.load_file(file)
    study = ablate.run(
        {
            "name": "good",
            "question": "Q?",
            "trainer": "good",
            "factors": {"b": [1, 2]},
            "seeds": 2,
            "recipe": {"epochs": 1},
        },
        executor="inline",
    )
    assert len(study.frame()) == 4
    for name, message in (
        ("bad", "trainer 'bad': 'a' is the name of a metric"),
        ("script", "without {seed} all seeds would train the same"),
    ):
        with pytest.raises(AblateError, match=re.escape(message)):
            ablate.preview(declared({"b": [1, 2]}) | {"trainer": name, "fixed": {}})
        (check,) = trainer_checks(registry.of_kind("trainer")[name])
        assert message in check.outcome().why
    file.write_text(text)
    with pytest.raises(AblateError, match="is the name of a metric"):
        registry.load_file(file)


def test_equal_numbers_are_one_level(use: Use, run: Run, options: Options) -> None:
    """A declaration has 0.0, a space 0: the function gets 0.0, and the trial is one."""
    use(
        "import ablate\n"
        '@ablate.trainer(factors={"scale": [0.0, 1e-6], "kernel": [3, 5]}, metrics={"a": "max"})\n'
        "def train(trial):\n"
        "    assert type(trial.levels['scale']) is float, trial.levels\n"
        "    assert type(trial.levels['kernel']) is int, trial.levels\n"
        "    for epoch in trial.epochs():\n"
        "        trial.report(a=trial.levels['scale'])\n"
    )
    text = (
        "question: q?\nname: own\ntrainer: train\nseeds: 1\nrecipe: {epochs: 1}\n"
        "factors: {scale: [0, 1.0e-6], kernel: [3.0, 5]}\n"
    )
    assert run(text).trained == 4
    other = text.replace("[0,", "[0.0,").replace("[3.0,", "[3,")
    assert run(other).trained == 0, "the same trials"
    with pytest.raises(SpaceError, match="scale: False is not a level"):
        run(text.replace("[0,", "[false,"))
