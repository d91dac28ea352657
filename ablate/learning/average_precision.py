"""Average precision of boxes and masks by COCO's rules, by faster-coco-eval.

See COCO, arXiv 1405.0312: the mean of the precision over recall, over classes, and over
ten thresholds of the intersection over union from 0.5 to 0.95.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Positions in COCO's summary: AP, AP at 0.5, AP at 0.75, AP by size of objects.
NUMBERS = {"ap": 0, "ap50": 1, "ap75": 2, "ap_small": 3, "ap_medium": 4, "ap_large": 5}
# Areas in pixels of the original image, both limits included.
AREAS = {
    "ap_small": (0, 32**2),
    "ap_medium": (32**2, 96**2),
    "ap_large": (96**2, math.inf),
}


@dataclass(frozen=True)
class Found:
    """What a network saw in one image, and what there is.

    Attributes:
        size: height and width of the image.
        annotations: the objects as COCO's files describe them; labels count from 1.
        boxes: (n, 4) as left, top, right, bottom in pixels.
        labels: (n).
        scores: (n); a larger one is surer.
        masks: the run-length code of each mask; None if the network has none.
    """

    size: tuple[int, int]
    annotations: Sequence[dict[str, Any]]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    masks: Sequence[dict[str, Any]] | None = None


def average_precision(scenes: Sequence[Found], classes: int) -> dict[str, float]:
    """Returns `box_` and each name of `NUMBERS`, in per cent, and those of masks if any.

    A network that sees nothing has 0. A size that no object has is left out.
    """
    kinds = {"box": "bbox"}
    if all(scene.masks is not None for scene in scenes):
        kinds["mask"] = "segm"
    truth = truth_of(scenes, classes)
    names = [name for name in NUMBERS if _occurs(name, truth)]
    values = {}
    for kind, by in kinds.items():
        summary = _summary(truth, predictions_of(scenes, by), by)
        for name in names:
            values[f"{kind}_{name}"] = 100 * max(0.0, float(summary[NUMBERS[name]]))
    return values


def _occurs(name: str, truth: dict[str, Any]) -> bool:
    """Whether there is an object that this number is about."""
    if name not in AREAS:
        return True
    low, high = AREAS[name]
    return any(
        low <= annotation["area"] <= high
        for annotation in truth["annotations"]
        if not annotation.get("iscrowd")
    )


def truth_of(scenes: Sequence[Found], classes: int) -> dict[str, Any]:
    """Returns what there is, as a file of COCO's annotations."""
    images = []
    annotations: list[dict[str, Any]] = []
    for number, scene in enumerate(scenes, 1):
        height, width = scene.size
        images.append({"id": number, "height": height, "width": width})
        for annotation in scene.annotations:
            width_of_box, height_of_box = annotation["bbox"][2:]
            annotations.append(
                {
                    # An annotation may have no area.
                    "area": width_of_box * height_of_box,
                    **annotation,
                    "id": len(annotations) + 1,
                    "image_id": number,
                }
            )
    categories = [{"id": label, "name": str(label)} for label in range(1, classes + 1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def predictions_of(scenes: Sequence[Found], by: str) -> list[dict[str, Any]]:
    """Returns what a network saw, as a file of COCO's results.

    Args:
        by: `bbox` or `segm`. With both, COCO takes the area of the box for the size of a
            mask, so a mask has no box here.
    """
    predicted = []
    for number, scene in enumerate(scenes, 1):
        for index in range(len(scene.boxes)):
            left, top, right, bottom = (float(side) for side in scene.boxes[index])
            prediction: dict[str, Any] = {
                "image_id": number,
                "category_id": int(scene.labels[index]),
                "score": float(scene.scores[index]),
            }
            if by == "bbox":
                prediction["bbox"] = [left, top, right - left, bottom - top]
            elif scene.masks is not None:
                prediction["segmentation"] = scene.masks[index]
            predicted.append(prediction)
    return predicted


def _summary(
    truth: dict[str, Any], predicted: list[dict[str, Any]], by: str
) -> NDArray[np.float64]:
    from faster_coco_eval import COCO, COCOeval_faster

    if not predicted:
        return np.zeros(len(NUMBERS))
    # It prints what it does.
    with contextlib.redirect_stdout(io.StringIO()):
        truths = COCO(truth)
        evaluated = COCOeval_faster(truths, truths.loadRes(predicted), by)
        evaluated.evaluate()
        evaluated.accumulate()
        evaluated.summarize()
    stats: NDArray[np.float64] = evaluated.stats
    return stats
