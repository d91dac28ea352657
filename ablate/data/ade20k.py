"""ADE20K in the layout of its scene parsing challenge (ADEChallengeData2016).

    PATH/images/training/*.jpg           PATH/annotations/training/*.png
    PATH/images/validation/*.jpg         PATH/annotations/validation/*.png

A pixel of an annotation is 0 (no class) or a class from 1 to 150.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.files import picture
from ablate.data.index import ENDINGS, OTHER_ENDINGS, THREADS, listed
from ablate.data.scene import IGNORED, Scene
from ablate.errors import DataError, shortened
from ablate.machine import cache

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
        classes = _classes_of(annotation)
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
        DataError: a folder or an annotation is missing, a file is no image, or an
            annotation has a class beyond the last.
    """
    digest = hashlib.sha256()
    annotations = []
    for split in SPLITS:
        for image, annotation in _pairs(path, split):
            annotations.append(annotation)
            for file in (image, annotation):
                digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    _check_classes(annotations)
    return len(_pairs(path, "train")), digest.hexdigest()[:20]


def _check_classes(annotations: list[Path]) -> None:
    """Refuses annotations of other classes.

    All are read once; the cache knows them until one changes.
    """
    key = hashlib.sha256()
    for file in annotations:
        status = file.stat()
        key.update(repr((str(file), status.st_size, status.st_mtime_ns)).encode())

    def check() -> NDArray[np.bool_]:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(_classes_of, annotations))
        return np.array(True)

    cache.array(f"classes of ade20k 1 {key.hexdigest()}", check)


def _classes_of(annotation: Path) -> Tensor:
    """Returns the class of each pixel (height, width); 0 is none.

    Raises DataError if one is beyond the last class.
    """
    classes = picture(annotation, mode="L")[0]
    largest = int(classes.max())
    if largest > CLASSES:
        raise DataError(
            f"data: {annotation} has a pixel of class {largest}; ade20k has classes from"
            f" 1 to {CLASSES}, and 0 for none"
        )
    return classes


def _pairs(path: str, split: str) -> list[tuple[Path, Path]]:
    """Returns each image with its annotation."""
    images = Path(path, "images", SPLITS[split])
    annotations = Path(path, "annotations", SPLITS[split])
    for folder in (images, annotations):
        if not folder.is_dir():
            raise DataError(
                f"data: {folder} is missing; ade20k needs images/ and annotations/, each"
                f" with training/ and validation/, under {shortened(path)}"
            )
    pairs = []
    for entry in listed(images):
        image = images / entry.name
        if entry.name.lower().endswith(OTHER_ENDINGS):
            continue
        if not entry.name.lower().endswith(ENDINGS):
            raise DataError(
                f"data: {image} has no ending of an image; convert it, or remove it"
            )
        annotation = annotations / f"{image.stem}.png"
        if not annotation.is_file():
            raise DataError(
                f"data: the image {image} has no annotation file {annotation}"
            )
        pairs.append((image, annotation))
    if not pairs:
        raise DataError(f"data: {images} has no images")
    return pairs
