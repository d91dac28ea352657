"""Average precision and the metrics of segmentation against other implementations."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score, recall_score

from ablate.data.digit_scenes import DigitScenes
from ablate.data.masks import decoded, encoded
from ablate.data.scene import IGNORED
from ablate.learning.average_precision import (
    NUMBERS,
    Found,
    average_precision,
    predictions_of,
    truth_of,
)
from ablate.learning.segmentation import confusion, measured

CLASSES = 10


def perfect(count: int) -> list[Found]:
    """What a network without mistakes sees in digit scenes."""
    found = []
    for index in range(count):
        scene = DigitScenes("test", 64)[index]
        found.append(
            Found(
                size=(64, 64),
                annotations=scene.annotations,
                boxes=scene.objects["boxes"].numpy(),
                labels=scene.objects["labels"].numpy(),
                scores=np.ones(len(scene.objects["labels"]), np.float32),
                masks=[encoded(one) for one in scene.objects["masks"].numpy()],
            )
        )
    return found


def noisy(count: int, seed: int = 0) -> list[Found]:
    """Moved boxes and masks, wrong labels, doubled and missing objects, crowds."""
    draw = np.random.default_rng(seed)
    made = []
    for number, one in enumerate(perfect(count)):
        assert one.masks is not None
        chosen = draw.integers(0, len(one.boxes), draw.integers(0, 8))
        if number % 5 == 0:
            chosen = chosen[:0]
        labels = one.labels[chosen].copy()
        wrong = draw.random(len(chosen)) < 0.2
        labels[wrong] = draw.integers(1, CLASSES + 1, wrong.sum())
        moves = draw.integers(-3, 4, len(chosen))
        masks = [
            encoded(np.roll(decoded(one.masks[index], 64, 64), move, axis=1))
            for index, move in zip(chosen, moves, strict=True)
        ]
        boxes = one.boxes[chosen] + draw.normal(0, 2, (len(chosen), 4))
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        annotations = tuple(
            {**told, "iscrowd": int(draw.random() < 0.1)} for told in one.annotations
        )
        made.append(
            Found(
                size=one.size,
                annotations=annotations,
                boxes=boxes.astype(np.float32),
                labels=labels,
                scores=draw.random(len(chosen)).astype(np.float32),
                masks=masks,
            )
        )
    return made


def by_pycocotools(
    found: Sequence[Found], classes: int, kind: str, form: str
) -> dict[str, float]:
    """The numbers of pycocotools, which has -1 for a size that no object has."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = truth_of(found, classes)
        truth.createIndex()
        judged = COCOeval(truth, truth.loadRes(predictions_of(found, form)), form)
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return {
        f"{kind}_{name}": 100 * judged.stats[position]
        for name, position in NUMBERS.items()
        if judged.stats[position] >= 0
    }


def test_the_size_of_a_mask_is_its_own_area() -> None:
    """A false band is large as a box, and of medium size as a mask."""
    thing, band = np.zeros((2, 100, 100), bool)
    thing[5:35, 5:35] = True
    for place in range(60):
        band[place + 40, 39 + place : min(100, 46 + place)] = True
    annotation = {
        "bbox": [5.0, 5.0, 30.0, 30.0],
        "area": 900.0,
        "category_id": 1,
        "iscrowd": 0,
        "segmentation": encoded(thing),
    }
    found = Found(
        size=(100, 100),
        annotations=[annotation],
        boxes=np.array([[5, 5, 35, 35], [39, 40, 100, 100]], np.float32),
        labels=np.array([1, 1]),
        scores=np.array([0.5, 0.9], np.float32),
        masks=[encoded(thing), encoded(band)],
    )
    values = average_precision([found], 1)
    assert values["mask_ap_small"] == pytest.approx(values["mask_ap"])
    # The band is no small object, so it is no mistake among them by boxes.
    assert values["box_ap_small"] == pytest.approx(100)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_that_of_pycocotools(seed: int) -> None:
    found = noisy(40, seed)
    ours = average_precision(found, CLASSES)
    expected = {
        **by_pycocotools(found, CLASSES, "box", "bbox"),
        **by_pycocotools(found, CLASSES, "mask", "segm"),
    }
    assert ours == pytest.approx(expected, abs=1e-9)
    assert 1 < ours["box_ap"] < 90
    assert 1 < ours["mask_ap"] < 90


def test_a_network_without_mistakes_has_all_and_one_that_sees_nothing_none() -> None:
    found = perfect(20)
    assert set(average_precision(found, CLASSES).values()) == {100.0}
    blind = [
        replace(
            one,
            boxes=one.boxes[:0],
            labels=one.labels[:0],
            scores=one.scores[:0],
            masks=[],
        )
        for one in found
    ]
    assert set(average_precision(blind, CLASSES).values()) == {0.0}


def test_a_network_without_masks_has_no_value_for_them() -> None:
    found = [replace(one, masks=None) for one in perfect(5)]
    assert set(average_precision(found, CLASSES)) == {
        "box_ap",
        "box_ap50",
        "box_ap75",
        "box_ap_small",
    }


def of_sizes(sides: Sequence[int], seed: int) -> list[Found]:
    """Squares of these sides in images of their own, each seen twice, with errors."""
    draw = np.random.default_rng(seed)
    found = []
    for side in sides:
        boxes = np.array([[10, 10, side, side]] * 2, np.float32)
        boxes += draw.normal(0, side / 20, boxes.shape).astype(np.float32)
        boxes[:, 2:] += boxes[:, :2]
        square = {
            "category_id": 1,
            "bbox": [10, 10, side, side],
            "area": side * side,
            "iscrowd": 0,
        }
        found.append(
            Found(
                size=(300, 300),
                annotations=[square],
                boxes=boxes,
                labels=np.array([1, 1 + int(draw.random() < 0.3)]),
                scores=draw.random(2).astype(np.float32),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_sizes_are_those_of_pycocotools(seed: int) -> None:
    found = of_sizes([8, 20, 31, 32, 33, 60, 95, 96, 97, 150, 200] * 3, seed)
    ours = average_precision(found, 2)
    assert ours == pytest.approx(by_pycocotools(found, 2, "box", "bbox"))
    assert len({round(value, 3) for value in ours.values()}) == len(NUMBERS)


def test_an_object_without_area_has_that_of_its_box() -> None:
    found = of_sizes([20, 40, 100], seed=0)
    expected = average_precision(found, 2)
    for image in found:
        del image.annotations[0]["area"]
    assert average_precision(found, 2) == expected


def test_a_size_has_a_value_where_objects_have_it() -> None:
    found = of_sizes([20, 40], seed=0)
    assert "box_ap_large" not in average_precision(found, 2)
    blind = [
        replace(
            image,
            boxes=image.boxes[:0],
            labels=image.labels[:0],
            scores=image.scores[:0],
        )
        for image in found
    ]
    assert average_precision(blind, 2) == {
        "box_ap": 0,
        "box_ap50": 0,
        "box_ap75": 0,
        "box_ap_small": 0,
        "box_ap_medium": 0,
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_metrics_of_segmentation_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 6, (40, 40), generator=generator).to(torch.uint8)
    seen = torch.where(
        torch.rand(40, 40, generator=generator) < 0.6,
        classes.long(),
        torch.randint(0, 6, (40, 40), generator=generator),
    )
    # Class 5 is only seen, class 6 is nowhere, and some pixels have no class.
    classes[classes == 5] = 4
    classes[:5] = IGNORED
    found = measured(confusion(seen, classes, 7).double())
    known = classes != IGNORED
    truth, said = classes[known].numpy(), seen[known].numpy()
    there = sorted(set(truth) | set(said))
    assert found["miou"] == pytest.approx(
        100 * jaccard_score(truth, said, labels=there, average="macro")
    )
    assert found["macc"] == pytest.approx(
        100 * recall_score(truth, said, labels=sorted(set(truth)), average="macro")
    )
    assert found["pixel_acc"] == pytest.approx(100 * (truth == said).mean())
