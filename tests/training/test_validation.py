"""A validation split: held out of training, told by each epoch, and the test set looked
at once, at the end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ablate import pipeline, space
from ablate.data import describe
from ablate.data.arrays import load, parted
from ablate.data.batches import batches
from ablate.errors import DataError, SpaceError
from ablate.families import resolve
from ablate.pipeline import Options
from ablate.records import Recipe, Trial
from ablate.results.study import Study
from ablate.store.reader import Reader
from ablate.training import Training
from tests.conftest import TINY

DATA = describe("digits", train_images=200, test_images=60, validation=0.2)
CPU = torch.device("cpu")


def trial(**recipe: object) -> Trial:
    sizes = {
        "size.patch_size": 4,
        "size.width": 16,
        "size.depth": 1,
        "size.heads": 2,
        "size.mlp_ratio": 2.0,
    }
    made = replace(Recipe(epochs=5, batch_size=40, lr=5e-3), **recipe)
    return Trial(
        architecture=resolve("vit", 8, 1, 10, sizes), recipe=made, data=DATA, seed=0
    )


def test_what_is_held_out_is_in_no_training_batch() -> None:
    whole, found = load(replace(DATA, validation=0.0)), load(DATA)
    assert (len(found.train), len(found.validation), len(found.test)) == (160, 40, 60)
    assert DATA.images == 160
    both = {
        image.numpy().tobytes() for image in torch.cat([found.train, found.validation])
    }
    assert both == {image.numpy().tobytes() for image in whole.train}
    assert torch.equal(found.test, whole.test)
    stays, held = parted(torch.arange(1000), 0.1)
    assert sorted([*stays.tolist(), *held.tolist()]) == list(range(1000))
    assert torch.equal(parted(torch.arange(1000), 0.1)[1], held), "always the same"
    labels = torch.cat(
        [labels for _, labels in batches(DATA, Recipe(), CPU).test(validation=True)]
    )
    assert torch.equal(labels, found.validation_labels)


def test_image_files_are_held_out_too(tmp_path: Path) -> None:
    from PIL import Image

    for split, count in (("train", 10), ("val", 3)):
        for number in range(2 * count):
            file = tmp_path / split / f"class{number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(file)
    data = replace(
        describe("folder", str(tmp_path), image_size=8, validation=0.2), workers=0
    )
    found = batches(data, Recipe(batch_size=4), CPU)
    assert data.images == 16
    assert found.updates == 4
    assert sum(len(labels) for _, labels in found.test(validation=True)) == 4
    assert sum(len(labels) for _, labels in found.test()) == 6


def test_the_last_epoch_is_tested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, looks = Training(trial(), tmp_path), []
    test = training._work.batches.test
    monkeypatch.setattr(
        training._work.batches,
        "test",
        lambda **how: looks.append(how.get("validation")) or test(**how),
    )
    while not training.finished:
        assert training.tested is None
        training.epoch()
    assert looks == [True] * 5 + [False]
    assert training.tested is not None
    assert training.tested.epoch == 5
    training.close()
    plain = Training(replace(trial(), data=replace(DATA, validation=0.0)), None)
    assert plain.tested is None


def test_the_best_epoch_is_tested_with_its_own_weights(tmp_path: Path) -> None:
    wanted = trial(select="best", lr=0.05, schedule="constant", epochs=8, ema=0.5)
    training = Training(wanted, tmp_path / "one")
    weights = {}
    while not training.finished:
        epoch = training.epoch()
        assert training._ema is not None
        weights[epoch.number] = {
            name: tensor.clone()
            for name, tensor in training._ema.module.state_dict().items()
        }
    tops = [epoch.metrics["top1"] for epoch in training.epochs]
    best = tops.index(max(tops)) + 1
    assert best < 8, "the test is of no use where the last epoch is the best"
    assert training.tested is not None
    assert training.tested.epoch == best
    after = training._ema.module.state_dict() if training._ema else {}
    assert all(torch.equal(after[name], weights[8][name]) for name in after), (
        "the last weights are what training goes on from"
    )
    training._ema.module.load_state_dict(weights[best])
    assert training._test() == training.tested.metrics
    training.close()

    # Killed after each epoch, it comes to the same.
    for _ in range(8):
        again = Training(wanted, tmp_path / "two")
        again.epoch()
        again.save()
        again.close()
    again = Training(wanted, tmp_path / "two")
    assert again.tested == training.tested
    again.close()


@pytest.mark.proof
def test_the_store_has_the_tested_numbers(options: Options) -> None:
    text = TINY.replace("test_images: 50", "test_images: 50, validation: 0.2").replace(
        "epochs: 3", "epochs: 3, select: best"
    )
    declared = space.load(text, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options)
    study = Study("tiny", options.url)
    with Reader(options.url) as reader:
        for row in reader.trials.of("tiny"):
            known = reader.trials.known([row.trial])[row.trial]
            told = [epoch.metrics["top1"] for epoch in known.epochs]
            (chosen,) = reader.query(
                f"SELECT selected_epoch FROM trials WHERE hash = '{row.trial}'"
            )[1]
            assert chosen[0] == told.index(max(told)) + 1
            assert known.final["top1"] == row.metrics["top1"]
            assert row.metrics["top1"] * 50 / 100 == pytest.approx(
                round(row.metrics["top1"] * 50 / 100)
            ), "a share of the 50 test images"
    assert (
        "weights of the epoch that is best on 20 % held-out training images"
        in study.results_table().notes[0]
    )


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leaves one split empty"):
        describe("digits", train_images=10, validation=0.01)
    best = TINY.replace("epochs: 3", "epochs: 3, select: best")
    declared = space.load(best, "tiny.yaml")
    with pytest.raises(
        Exception, match=r"recipe\.select = best chooses an epoch on a validation split"
    ):
        pipeline.preview(declared, str(tmp_path / "none.db"))
    with pytest.raises(SpaceError, match="less than 1"):
        space.load(
            TINY.replace("test_images: 50", "test_images: 50, validation: 1.0"),
            "tiny.yaml",
        )
