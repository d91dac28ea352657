"""The command that trains the papers' small twins, on two batches of made images."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ablate.pipeline import Options
from tests.benchmarks import load


@pytest.fixture(scope="module")
def twins() -> ModuleType:
    return load("twins")


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made images in CIFAR-10's shape, in Keras' layout, where the space looks for
    them.
    """
    random = np.random.default_rng(0)
    made = {
        "x_train": np.tile(
            random.integers(0, 256, (500, 32, 32, 3), dtype=np.uint8), (100, 1, 1, 1)
        ),
        "y_train": np.tile(np.arange(10, dtype=np.uint8), 5000),
        "x_test": random.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8),
        "y_test": np.tile(np.arange(10, dtype=np.uint8), 40),
    }
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "cifar10.npz", **made)
    monkeypatch.chdir(tmp_path)


@pytest.mark.proof
@pytest.mark.usefixtures("cifar")
def test_twins_train_two_batches(twins: ModuleType, tmp_path: Path) -> None:
    options = Options(tmp_path / "runs", executor="inline")
    for name in ("augvit/table3-small", "iffn/table6-small", "iffn/table8-small"):
        assert name in twins.TWINS
        study = twins.train(name, twins.document(name, 0, None, 2), options)
        table = twins.tables(study)
        assert table.count("| ") > 10
        assert " failed" not in table


def test_options_change_what_they_say(twins: ModuleType) -> None:
    import yaml

    plain = yaml.safe_load(twins.document("augvit/table3-small", 0, None, None))
    long = yaml.safe_load(twins.document("augvit/table3-small", 1, 60, None))
    assert plain["recipe"]["epochs"] == 3
    assert (long["recipe"]["epochs"], long["recipe"]["warmup_epochs"]) == (60, 5)
    assert long["resources"] == {"cpus": 2, "gpus": 0.25}
    assert long["factors"] == plain["factors"]
