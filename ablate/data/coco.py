"""COCO in its published layout: folders of images, and one file of annotations each.

PATH/train2017/*.jpg                 PATH/annotations/instances_train2017.json
PATH/val2017/*.jpg                   PATH/annotations/instances_val2017.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor

from ablate.data.files import picture
from ablate.data.masks import decoded
from ablate.data.scene import LEAST, Scene
from ablate.errors import DataError, shortened
from ablate.identity import file_hash

# What is read of each item of a file.
FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "images": {"id": int, "file_name": str, "height": int, "width": int},
    "annotations": {"image_id": int, "category_id": int, "bbox": list},
    "categories": {"id": int},
}
# Coordinates beyond this are mistakes. It also refuses NaN and infinity.
MOST_COORDINATE = 1e9
# The names of the splits in the files.
SPLITS = {"train": "train2017", "test": "val2017"}


class CocoScenes:
    """The scenes of one split.

    Training leaves out images without objects. Crowds are in the annotations only.
    Labels count from 1 in the order of the categories' numbers.

    Args:
        masks: whether the objects have masks; without, they need no segmentation.

    Raises:
        DataError: a folder or file is missing or is not in COCO's layout.
    """

    def __init__(self, path: str, split: str, *, masks: bool = True) -> None:
        self._masks = masks
        self._folder = Path(path, SPLITS[split])
        if not self._folder.is_dir():
            raise DataError(_missing(path, self._folder))
        content = read_annotations(path, split)
        numbers = category_numbers(content)
        self._by_image: dict[int, list[dict[str, Any]]] = {}
        for annotation in content["annotations"]:
            numbered = {**annotation, "category_id": numbers[annotation["category_id"]]}
            self._by_image.setdefault(annotation["image_id"], []).append(numbered)
        images = _images_with_objects(content)
        if not images:
            raise DataError(_no_objects(self._folder))
        if split != "train":
            images = content["images"]
        self._images = sorted(images, key=lambda image: int(image["id"]))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Scene:
        image = self._images[index]
        pixels = picture(_file(self._folder, image))
        height, width = pixels.shape[-2:]
        if (height, width) != (image["height"], image["width"]):
            raise DataError(
                f"data: {image['file_name']} of {self._folder} has {height} x {width}"
                f" pixels (height x width), and {image['height']} x {image['width']} in"
                " the annotations"
            )
        objects = self._objects(image)
        boxes = torch.tensor(
            [annotation["bbox"] for annotation in objects], dtype=torch.float32
        )
        boxes = boxes.reshape(-1, 4)
        # From left, top, width, height.
        boxes[:, 2:] += boxes[:, :2]
        boxes[:, 0::2] = boxes[:, 0::2].clamp(0, width)
        boxes[:, 1::2] = boxes[:, 1::2].clamp(0, height)
        empty = torch.zeros(height, width, dtype=torch.uint8)
        masks = [self._mask(annotation, height, width) for annotation in objects]
        return Scene(
            image=pixels,
            objects={
                "boxes": boxes,
                "labels": torch.tensor(
                    [annotation["category_id"] for annotation in objects],
                    dtype=torch.int64,
                ),
                "masks": torch.stack([empty, *masks])[1:],
            },
            classes=torch.zeros(height, width, dtype=torch.uint8),
            annotations=tuple(self._by_image.get(int(image["id"]), ())),
        )

    def _mask(self, annotation: dict[str, Any], height: int, width: int) -> Tensor:
        if not self._masks:
            return torch.zeros(height, width, dtype=torch.uint8)
        segmentation = annotation.get("segmentation")
        if not segmentation:
            raise DataError(
                f"data: annotation {annotation.get('id')} of {self._folder} has no"
                " segmentation, and a head with masks needs one for each object; use"
                " head: detr"
            )
        try:
            return torch.from_numpy(decoded(segmentation, height, width))
        except DataError:
            raise
        # The decoder raises what it happens to meet.
        except Exception as error:
            raise DataError(
                f"data: annotation {annotation.get('id')} of {self._folder} has a"
                f" segmentation that is neither polygons nor a code of COCO:"
                f" {type(error).__name__}: {shortened(str(error))}"
            ) from None

    def _objects(self, image: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the annotations that are single objects and visible in the image."""
        annotations = self._by_image.get(int(image["id"]), ())
        return [
            annotation for annotation in annotations if _is_object(annotation, image)
        ]


def _file(folder: Path, image: Mapping[str, Any]) -> Path:
    """Returns the file of an image. Raises DataError if it is not below the folder."""
    name = PurePath(image["file_name"])
    if name.is_absolute() or ".." in name.parts:
        raise DataError(
            f"data: {shortened(str(name))} in the annotations is not a file below"
            f" {folder}"
        )
    return folder / name


def _refuse_missing_files(folder: Path, content: dict[str, Any]) -> None:
    """Raises DataError if an image of the annotations has no file."""
    if not folder.is_dir():
        raise DataError(_missing(str(folder.parent), folder))
    for image in content["images"]:
        file = _file(folder, image)
        if not os.path.isfile(file):
            raise DataError(
                f"data: {shortened(str(file), 300)} is in the annotations, but is no"
                " file; copy it there, or remove its image from the annotations"
            )


def _images_with_objects(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the images that training uses."""
    by_number = {image["id"]: image for image in content["images"]}
    used = set()
    for annotation in content["annotations"]:
        image = by_number.get(annotation["image_id"])
        if image is not None and _is_object(annotation, image):
            used.add(image["id"])
    return [image for image in content["images"] if image["id"] in used]


def _is_object(annotation: Mapping[str, Any], image: Mapping[str, Any]) -> bool:
    """Whether an annotation is a single object that covers a pixel of its image."""
    if annotation.get("iscrowd"):
        return False
    left, top, width, height = annotation["bbox"]
    right = min(left + width, image["width"])
    bottom = min(top + height, image["height"])
    return bool(right - max(left, 0) >= LEAST and bottom - max(top, 0) >= LEAST)


def describe_coco(path: str) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash of the content.

    The hash is over both files of annotations.

    Raises:
        DataError: a file is missing or is not in COCO's layout, or the two files have
            different categories.
    """
    folder = Path(path, SPLITS["train"])
    if not folder.is_dir():
        raise DataError(_missing(path, folder))
    contents = [read_annotations(path, split) for split in SPLITS]
    numbers = [category_numbers(content) for content in contents]
    # A class is the place of its category in the file. Splits with different categories
    # would give one number two meanings.
    if numbers[0] != numbers[1]:
        other = sorted(set(numbers[0]) ^ set(numbers[1]))
        raise DataError(
            f"data: the annotations of the two splits in {shortened(path)} have"
            f" different categories: {', '.join(map(str, other))} are in only one of"
            " the splits"
        )
    for split, content in zip(SPLITS, contents, strict=True):
        _refuse_missing_files(Path(path, SPLITS[split]), content)
    names = [_category_names(content) for content in contents]
    for number in names[0].keys() & names[1].keys():
        if names[0][number] != names[1][number]:
            raise DataError(
                f"data: category {number} is {names[0][number]!r} in the training"
                f" annotations and {names[1][number]!r} in the test annotations"
            )
    classes = len(numbers[0])
    images = len(_images_with_objects(contents[0]))
    for split, content in zip(SPLITS, contents, strict=True):
        if not _images_with_objects(content):
            raise DataError(_no_objects(Path(path, SPLITS[split])))
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
    except RecursionError:
        raise DataError(f"data: {file} is nested too deeply for JSON of COCO") from None
    if not isinstance(content, dict) or any(
        not isinstance(content.get(key), list) for key in FIELDS
    ):
        raise DataError(
            f"data: {file} must have the lists {', '.join(FIELDS)}, as COCO's files"
        )
    _check_items(file, content)
    # A reference to nothing would fail at the first batch that needs it, hours later.
    for field, key in (("category_id", "categories"), ("image_id", "images")):
        ids = {item["id"] for item in content[key]}
        for number, annotation in enumerate(content["annotations"]):
            if annotation[field] not in ids:
                raise DataError(
                    f"data: {file}: annotations[{number}] has the {field}"
                    f" {annotation[field]}, which is not in {key}"
                )
    return content


def _check_items(file: Path, content: dict[str, Any]) -> None:
    """Raises DataError for an item without its fields, or with the id of another."""
    for key, fields in FIELDS.items():
        for number, item in enumerate(content[key]):
            problem = _problem(item, fields)
            if problem:
                raise DataError(f"data: {file}: {key}[{number}] {problem}")
        _refuse_duplicates(file, key, content[key])


def _refuse_duplicates(file: Path, key: str, items: list[dict[str, Any]]) -> None:
    """Raises DataError if two items of a list have the same id."""
    places: dict[Any, int] = {}
    for number, item in enumerate(items):
        if "id" not in item:
            continue
        # An annotation needs no id, so its type has not been checked.
        identifier = str(item["id"])
        if identifier in places:
            raise DataError(
                f"data: {file}: {key}[{places[identifier]}] and {key}[{number}] have the"
                f" same id {shortened(identifier)}; give each an id of its own"
            )
        places[identifier] = number


def _problem(item: Any, fields: Mapping[str, type | tuple[type, ...]]) -> str:
    """Returns what is wrong with an item of a file; empty if nothing is."""
    if not isinstance(item, dict):
        return "is no mapping"
    for field, kind in fields.items():
        value = item.get(field)
        # True is an int in Python.
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"has no {field}, or one of the wrong type"
    for side in ("height", "width"):
        if side in fields and item[side] < 1:
            return f"has the {side} {item[side]}; it must be 1 or more"
    if "bbox" in fields:
        return _box_problem(item["bbox"]) or _area_problem(item)
    return ""


def _box_problem(box: list[Any]) -> str:
    if len(box) != 4 or not all(map(_is_finite, box)):
        return "must have a bbox of four finite numbers"
    if box[2] < 0 or box[3] < 0:
        return f"has a bbox of negative size: {box}; it is left, top, width, height"
    return ""


def _area_problem(item: Mapping[str, Any]) -> str:
    area = item.get("area", 0)
    if _is_finite(area) and area >= 0:
        return ""
    return (
        f"has the area {shortened(str(area))}; it must be a number from 0 up, or left"
        " out: then it is that of the bbox"
    )


def _is_finite(number: Any) -> bool:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and abs(number) < MOST_COORDINATE


def category_numbers(content: dict[str, Any]) -> dict[int, int]:
    """Returns the label of each category, from 1 in the order of their numbers."""
    ids = sorted(int(category["id"]) for category in content["categories"])
    return {number: label for label, number in enumerate(ids, 1)}


def _category_names(content: dict[str, Any]) -> dict[int, str]:
    """Returns the names of the categories that have one."""
    return {
        int(category["id"]): str(category["name"])
        for category in content["categories"]
        if "name" in category
    }


def _annotations_file(path: str, split: str) -> Path:
    return Path(path, "annotations", f"instances_{SPLITS[split]}.json")


def _no_objects(folder: Path) -> str:
    return (
        f"data: no image of {folder} has an object in the annotations; boxes of less"
        " than a pixel and crowds are left out"
    )


def _missing(path: str, file: Path) -> str:
    return (
        f"data: {file} is missing; coco needs train2017/, val2017/ and"
        f" annotations/instances_{{train,val}}2017.json under {shortened(path)}"
    )
