"""The data sets and their shapes.

`data.arrays` and `data.images` read the images.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from ablate.data.published_sets import PUBLISHED
from ablate.errors import (
    UnknownName,
    unknown,
)
from ablate.own import registry
from ablate.records import Recipe
from ablate.records.own_parts import OwnData

# Image files are normalised with these values unless the data specify others.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# The central crop of a test image takes this share of the shorter side unless the data
# specify another.
CROP = 0.875
# Fields of a recipe that apply only to image files, with the values at which they do
# nothing.
FILES_ONLY = {
    "rand_augment": "",
    "three_augment": False,
    "color_jitter": 0.0,
    "interpolation": "bilinear",
    "crop_scale": Recipe().crop_scale,
    "crop_ratio": Recipe().crop_ratio,
}


@dataclass(frozen=True)
class DataSet:
    """A data set by name.

    `kind` says how it reaches the network: `memory` as uint8 tensors that are augmented
    in batches, `images` as files through timm's loader, `scenes` one by one with what
    they show. `images` is the number of
    training images, and `test_images` that of test images; 0 if only the files tell.
    Side and channels are those of the images; files of various sizes have the side that
    they are resized to.
    """

    name: str
    kind: Literal["memory", "images", "scenes"]
    image_size: int
    channels: int
    classes: int
    images: int
    source: str
    test_images: int = 0


SETS: dict[str, DataSet] = {
    s.name: s
    for s in (
        DataSet(
            name="digits",
            kind="memory",
            image_size=8,
            channels=1,
            classes=10,
            images=1437,
            source="scikit-learn, embedded: 1,437 training and 360 test images",
            test_images=360,
        ),
        *(
            DataSet(
                name=published.name,
                kind=published.kind,
                image_size=published.image_size,
                channels=published.channels,
                classes=published.classes,
                images=published.images,
                source=f"torchvision {published.loader}",
                test_images=published.test_images,
            )
            for published in PUBLISHED.values()
        ),
        DataSet(
            name="imagenet",
            kind="images",
            image_size=224,
            channels=3,
            classes=1000,
            images=1_281_167,
            source="folders train/ and val/ of one folder a class",
        ),
        DataSet(
            name="folder",
            kind="images",
            image_size=224,
            channels=3,
            classes=0,
            images=0,
            source="folders train/ and val/ of one folder a class",
        ),
        DataSet(
            name="huggingface",
            kind="images",
            image_size=224,
            channels=3,
            classes=0,
            images=0,
            source="a folder or a cached data set of the package datasets",
        ),
        DataSet(
            name="digit-scenes",
            kind="scenes",
            image_size=64,
            channels=1,
            classes=10,
            images=1000,
            source="digits of scikit-learn on canvases, drawn; 200 test images",
        ),
        DataSet(
            name="coco",
            kind="scenes",
            image_size=800,
            channels=3,
            classes=80,
            images=118_287,
            source="folders train2017/, val2017/ and annotations/ of COCO",
        ),
        DataSet(
            name="ade20k",
            kind="scenes",
            image_size=512,
            channels=3,
            classes=150,
            images=20_210,
            source="folders images/ and annotations/ of ADEChallengeData2016",
        ),
        DataSet(
            name="npz",
            kind="memory",
            image_size=0,
            channels=0,
            classes=0,
            images=0,
            source="a file with x_train, y_train, x_test, y_test (Keras layout)",
        ),
    )
}


def find(name: str) -> DataSet:
    """Returns the data set of that name. Raises UnknownName."""
    if name in SETS:
        return SETS[name]
    if name in own_sets():
        return DataSet(
            name=name,
            kind="memory",
            image_size=0,
            channels=0,
            classes=0,
            images=0,
            source="your own file",
        )
    # Unlike Path.is_dir, this is False for names that no folder can have.
    if os.path.isdir(name):
        raise UnknownName(
            f"data: {name} is a folder; write data: {{name: folder, path: {name}}}, with"
            f" {name}/train/CLASS/* and {name}/val/CLASS/*"
        )
    raise UnknownName(unknown("data set", name, [*SETS, *own_sets()]))


def own_sets() -> dict[str, OwnData]:
    """Returns the data sets of users' files by name."""
    return registry.besides("data set", SETS)
