"""Digit scenes: canvases with scikit-learn's digits, with exact boxes and masks.

They stand in for COCO and ADE20K where neither is at hand. Each scene is drawn from its
split and number alone, with integers only, so that it is the same on every machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.data.scene import Scene

# Scenes of each split; the digits of the two splits are different ones.
TRAIN = 1000
TEST = 200
# Digits in a scene, at most, and by how much they are enlarged.
MOST_DIGITS = 5
SCALES = (1, 2, 3)
SIDE = 8
# scikit-learn's digits have values from 0 to 16; those above are part of the digit.
INK = 4
# A digit of which less is visible is taken off the scene.
VISIBLE = 0.5
# The largest value of the noise behind the digits.
NOISE = 48


class DigitScenes:
    """The scenes of one split.

    Args:
        split: `train` or `test`.
        side: of the canvas, in pixels; the digits do not grow with it.
    """

    def __init__(self, split: str, side: int) -> None:
        self._split = split
        self._side = side
        self._images, self._labels = _digits(split)

    def __len__(self) -> int:
        return TRAIN if self._split == "train" else TEST

    def __getitem__(self, index: int) -> Scene:
        draw = np.random.default_rng([self._split == "train", index])
        canvas = draw.integers(0, NOISE, (self._side, self._side), dtype=np.uint8)
        owner = np.zeros((self._side, self._side), np.int64)
        labels = []
        whole = []
        for number in range(1, int(draw.integers(1, MOST_DIGITS + 1)) + 1):
            chosen = int(draw.integers(len(self._images)))
            scale = int(draw.choice(SCALES))
            digit = self._images[chosen].repeat(scale, 0).repeat(scale, 1)
            length = SIDE * scale
            top, left = draw.integers(0, self._side - length + 1, 2)
            region = (slice(top, top + length), slice(left, left + length))
            ink = digit > INK
            canvas[region][ink] = digit[ink] * 15
            owner[region][ink] = number
            labels.append(int(self._labels[chosen]) + 1)
            whole.append(int(ink.sum()))
        return _scene(canvas, owner, labels, whole)


def _scene(
    canvas: NDArray[np.uint8],
    owner: NDArray[np.int64],
    labels: list[int],
    whole: list[int],
) -> Scene:
    """Returns a scene from the number of the digit that each pixel belongs to."""
    masks = []
    boxes = []
    kept = []
    classes = np.zeros(canvas.shape, np.uint8)
    for number, (label, pixels) in enumerate(zip(labels, whole, strict=True), 1):
        mask = owner == number
        classes[mask] = label
        if mask.sum() < VISIBLE * pixels:
            continue
        rows = np.flatnonzero(mask.any(1))
        columns = np.flatnonzero(mask.any(0))
        boxes.append([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
        masks.append(mask)
        kept.append(label)
    objects = {
        "boxes": torch.tensor(np.array(boxes), dtype=torch.float32).reshape(-1, 4),
        "labels": torch.tensor(kept, dtype=torch.int64),
        "masks": torch.tensor(np.array(masks), dtype=torch.uint8).reshape(
            -1, *canvas.shape
        ),
    }
    return Scene(
        image=torch.from_numpy(canvas)[None],
        objects=objects,
        classes=torch.from_numpy(classes),
        annotations=tuple(_annotations(objects)),
    )


def _annotations(objects: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """Returns objects in the form of COCO's files."""
    from ablate.data.masks import encoded

    described = []
    for box, label, mask in zip(
        objects["boxes"].tolist(),
        objects["labels"].tolist(),
        objects["masks"],
        strict=True,
    ):
        left, top, right, bottom = box
        described.append(
            {
                "bbox": [left, top, right - left, bottom - top],
                "area": int(mask.sum()),
                "category_id": label,
                "iscrowd": 0,
                "segmentation": encoded(mask.numpy()),
            }
        )
    return described


@cache
def _digits(split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the digits of a split, (n, 8, 8), and their classes."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits: Any = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    if split == "train":
        return train, train_labels
    return test, test_labels
