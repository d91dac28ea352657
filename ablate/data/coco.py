"""COCO in its published layout: folders of images, and one file of annotations each.

PATH/train2017/*.jpg                 PATH/annotations/instances_train2017.json
PATH/val2017/*.jpg                   PATH/annotations/instances_val2017.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ablate.data.files import file_hash, picture
from ablate.data.masks import decoded
from ablate.data.scene import Scene
from ablate.errors import DataError, shortened

# The names of the splits in the files.
SPLITS = {"train": "train2017", "test": "val2017"}


class CocoScenes:
    """The scenes of one split.

    Training leaves out images without objects. Crowds are in the annotations only.
    Labels count from 1 in the order of the categories' numbers.

    Raises:
        DataError: a folder or file is missing or is not in COCO's layout.
    """

    def __init__(self, path: str, split: str) -> None:
        self._folder = Path(path, SPLITS[split])
        if not self._folder.is_dir():
            raise DataError(_missing(path, self._folder))
        content = read_annotations(path, split)
        numbers = category_numbers(content)
        self._by_image: dict[int, list[dict[str, Any]]] = {}
        for annotation in content["annotations"]:
            told = {**annotation, "category_id": numbers[annotation["category_id"]]}
            self._by_image.setdefault(annotation["image_id"], []).append(told)
        self._images = sorted(content["images"], key=lambda image: int(image["id"]))
        if split == "train":
            self._images = [one for one in self._images if self._objects(one)]

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Scene:
        image = self._images[index]
        pixels = picture(self._folder / str(image["file_name"]))
        height, width = pixels.shape[-2:]
        objects = self._objects(image)
        boxes = torch.tensor([one["bbox"] for one in objects], dtype=torch.float32)
        boxes = boxes.reshape(-1, 4)
        # From left, top, width, height.
        boxes[:, 2:] += boxes[:, :2]
        boxes[:, 0::2] = boxes[:, 0::2].clamp(0, width)
        boxes[:, 1::2] = boxes[:, 1::2].clamp(0, height)
        masks = [
            torch.from_numpy(decoded(one["segmentation"], height, width))
            for one in objects
        ]
        return Scene(
            image=pixels,
            objects={
                "boxes": boxes,
                "labels": torch.tensor(
                    [one["category_id"] for one in objects], dtype=torch.int64
                ),
                "masks": torch.stack(masks)
                if masks
                else torch.zeros(0, height, width, dtype=torch.uint8),
            },
            classes=torch.zeros(height, width, dtype=torch.uint8),
            annotations=tuple(self._by_image.get(int(image["id"]), ())),
        )

    def _objects(self, image: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the annotations that are single objects with an area."""
        return [
            one
            for one in self._by_image.get(int(image["id"]), ())
            if not one.get("iscrowd") and one["bbox"][2] >= 1 and one["bbox"][3] >= 1
        ]


def describe_coco(path: str) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash of the content.

    The hash is over both files of annotations.

    Raises:
        DataError: a file is missing or is not in COCO's layout.
    """
    folder = Path(path, SPLITS["train"])
    if not folder.is_dir():
        raise DataError(_missing(path, folder))
    classes = len(category_numbers(read_annotations(path, "test")))
    images = sum(1 for _ in folder.iterdir())
    files = [_annotations_file(path, split) for split in SPLITS]
    return classes, images, "".join(file_hash(file)[:10] for file in files)


def read_annotations(path: str, split: str) -> dict[str, Any]:
    """Returns the content of a file of annotations.

    Raises:
        DataError: it is missing or is not in COCO's layout.
    """
    file = _annotations_file(path, split)
    if not file.is_file():
        raise DataError(_missing(path, file))
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"data: {file} cannot be read: {error}") from None
    wanted = ("images", "annotations", "categories")
    if not isinstance(content, dict) or any(key not in content for key in wanted):
        raise DataError(f"data: {file} must have {', '.join(wanted)}, as COCO's files")
    return content


def category_numbers(content: dict[str, Any]) -> dict[int, int]:
    """Returns the label of each category, from 1 in the order of their numbers."""
    found = sorted(int(one["id"]) for one in content["categories"])
    return {number: label for label, number in enumerate(found, 1)}


def _annotations_file(path: str, split: str) -> Path:
    return Path(path, "annotations", f"instances_{SPLITS[split]}.json")


def _missing(path: str, found: Path) -> str:
    return (
        f"data: {found} is missing; coco needs train2017/, val2017/ and"
        f" annotations/instances_{{train,val}}2017.json under {shortened(path)}"
    )
