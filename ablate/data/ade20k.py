"""ADE20K in the layout of its scene parsing challenge (ADEChallengeData2016).

    PATH/images/training/*.jpg           PATH/annotations/training/*.png
    PATH/images/validation/*.jpg         PATH/annotations/validation/*.png

A pixel of an annotation is 0 (no class) or a class from 1 to 150.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from ablate.data.files import picture
from ablate.data.scene import IGNORED, Scene
from ablate.errors import DataError, shortened

CLASSES = 150
SPLITS = {"train": "training", "test": "validation"}


class ADEScenes:
    """The scenes of one split.

    Raises:
        DataError: a folder is missing, or an image has no annotation.
    """

    def __init__(self, path: str, split: str) -> None:
        self._pairs = _pairs(path, split)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Scene:
        image, annotation = self._pairs[index]
        classes = picture(annotation, mode="L")[0]
        largest = int(classes.max())
        if largest > CLASSES:
            raise DataError(
                f"data: {annotation} has a pixel of class {largest}; ade20k has classes"
                f" from 1 to {CLASSES}, and 0 for none"
            )
        pixels = picture(image)
        if pixels.shape[-2:] != classes.shape:
            raise DataError(
                f"data: {annotation} has {tuple(classes.shape)} pixels, and its image"
                f" {tuple(pixels.shape[-2:])}; both must have the same size"
            )
        # Class 0 becomes 255, which is IGNORED.
        return Scene(image=pixels, objects={}, classes=shifted(classes))


def shifted(classes: Tensor) -> Tensor:
    """Returns classes from 0, given classes from 1 and 0 for none."""
    return torch.where(classes == 0, IGNORED, classes.to(torch.int64) - 1).to(
        torch.uint8
    )


def describe_ade20k(path: str) -> tuple[int, str]:
    """Returns the number of training images, and a hash over all names and sizes.

    Raises:
        DataError: a folder is missing, or an image has no annotation.
    """
    digest = hashlib.sha256()
    for split in SPLITS:
        for pair in _pairs(path, split):
            for file in pair:
                digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return len(_pairs(path, "train")), digest.hexdigest()[:20]


def _pairs(path: str, split: str) -> list[tuple[Path, Path]]:
    images = Path(path, "images", SPLITS[split])
    annotations = Path(path, "annotations", SPLITS[split])
    for folder in (images, annotations):
        if not folder.is_dir():
            raise DataError(
                f"data: {folder} is missing; ade20k needs images/ and annotations/, each"
                f" with training/ and validation/, under {shortened(path)}"
            )
    pairs = [(one, annotations / f"{one.stem}.png") for one in sorted(images.iterdir())]
    for image, annotation in pairs:
        if not annotation.is_file():
            raise DataError(
                f"data: the image {image} has no annotation file {annotation}"
            )
    return pairs
