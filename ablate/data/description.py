"""What a space says of its data: which images, their shape, and a hash of the content."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from ablate.data.index import describe_folder
from ablate.data.sets import DataSet, find, own_sets
from ablate.data.splits import held_out
from ablate.errors import DataError, counted
from ablate.identity import file_hash
from ablate.own import registry
from ablate.records import Data


def describe(
    name: str,
    path: str | None = None,
    test_split: str = "",
    image_size: int | None = None,
    train_images: int | None = None,
    test_images: int | None = None,
    workers: int = 4,
    validation: float = 0.0,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    crop: float = 0.0,
    crop_mode: Literal["", "center", "squash", "border"] = "",
    interpolation: Literal["", "bilinear", "bicubic"] = "",
    image_width: int = 0,
    background: bool = False,
) -> Data:
    """Returns the shape and the fingerprint of a data set.

    Data sets of a fixed shape need no files for this, so costs can be counted without
    them. Small data sets are read from data/NAME (torchvision's files) or data/NAME.npz
    (Keras' layout), or from `path`.

    Args:
        background: in digit scenes, pixels without a digit are a class too.

    Raises:
        UnknownName: no data set has this name.
        DataError: an `.npz` or a folder whose content determines the shape is missing
            or malformed, it has fewer images than asked for, or the images cannot be
            prepared as asked for.
    """
    data_set = find(name)
    where = _location(data_set, path)
    if test_split and name != "huggingface":
        raise DataError(
            f"data: test_split is for huggingface, and {name} has one test set; leave it"
            " out"
        )
    data_set, fingerprint = _described(data_set, path, where, test_split, background)
    images = data_set.images
    # Fewer images than wanted would train on another set than the tables say.
    _refuse_more("train", train_images, images, name)
    _refuse_more("test", test_images, data_set.test_images, name)
    size = data_set.image_size
    if image_size is not None:
        size = image_size
    for_files = {"crop": crop, "crop_mode": crop_mode, "interpolation": interpolation}
    problem = preparation_problem(
        name, data_set.channels, mean, std, for_files, size, image_width
    )
    if problem is not None:
        raise DataError(problem[1])
    count = train_images or images
    if count and validation and not 0 < held_out(count, validation) < count:
        raise DataError(
            f"data: validation = {validation:g} of {count} training images leaves one"
            " split empty; change validation, or use more training images"
        )
    return Data(
        name=name,
        path=_absolute(name, where),
        image_size=size,
        channels=data_set.channels,
        classes=data_set.classes,
        images=count - held_out(count, validation),
        train_images=train_images,
        test_images=test_images,
        fingerprint=fingerprint,
        workers=workers,
        validation=validation,
        mean=tuple(mean),
        std=tuple(std),
        crop=crop,
        crop_mode=crop_mode,
        interpolation=interpolation,
        image_width=image_width,
        test_split=test_split,
    )


def _absolute(name: str, where: str) -> str:
    """The path for workers, which start in other folders."""
    if name == "huggingface":
        from ablate.data.huggingface import is_on_hub

        if is_on_hub(where):
            return where
    return os.path.abspath(where)


def _refuse_more(split: str, number: int | None, available: int, name: str) -> None:
    """Raises DataError if a split has fewer images than asked for.

    `available` is 0 if only the files tell.
    """
    if number and available and number > available:
        raise DataError(f"data: {split}_images = {number}, but {name} has {available}")


def _described(
    data_set: DataSet, path: str | None, where: str, test_split: str, background: bool
) -> tuple[DataSet, str]:
    """Returns the data set with what only its content tells, and a hash of this.

    Files that are missing are an error only when they are read, if the data set has a
    fixed shape.
    """
    name = data_set.name
    if name in own_sets():
        from ablate.data.arrays import own_fingerprint, own_shape

        if path:
            raise DataError(f"data: {name} is a function of your own; leave path out")
        # The code of the function identifies its images as far as anything can.
        (code,) = registry.identity("data set", own_sets()[name]).values()
        shaped = replace(data_set, **asdict(own_shape(name)))
        return shaped, f"{code}, {own_fingerprint(name)}"
    if name == "npz":
        from ablate.data.arrays import described_npz

        if not path:
            raise DataError("data: npz needs a path: data: {name: npz, path: FILE.npz}")
        shaped = replace(data_set, **asdict(described_npz(Path(path))))
        return shaped, file_hash(Path(path))
    if name == "huggingface":
        from ablate.data.huggingface import describe_set

        if not path:
            raise DataError(
                "data: huggingface needs a path: data: {name: huggingface, path:"
                " FOLDER or OWNER/NAME}"
            )
        classes, images, fingerprint = describe_set(path, test_split)
    elif data_set.kind != "memory":
        classes, images, fingerprint = _content_of(data_set, where, background)
    elif where.endswith(".npz"):
        return _npz_of(data_set, Path(where))
    else:
        return data_set, ""
    return replace(data_set, classes=classes, images=images), fingerprint


def _content_of(
    data_set: DataSet, where: str, background: bool
) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash of the content.

    Files that are missing are an error only when they are read, if the data set has a
    fixed shape.
    """
    known = data_set.classes, data_set.images, ""
    if data_set.name == "digit-scenes":
        return data_set.classes + background, data_set.images, ""
    if data_set.name == "folder" or (
        data_set.name == "imagenet" and Path(where, "train").is_dir()
    ):
        return describe_folder(
            Path(where), data_set.classes, published=data_set.name == "imagenet"
        )
    # torchvision's sets are the same everywhere.
    if data_set.kind == "images" or not Path(where).is_dir():
        return known
    if data_set.name == "coco":
        from ablate.data.coco import describe_coco

        return describe_coco(where)
    from ablate.data.ade20k import describe_ade20k

    images, fingerprint = describe_ade20k(where)
    return data_set.classes, images, fingerprint


def _location(data_set: DataSet, path: str | None) -> str:
    """Returns the folder or file of a data set.

    The default is data/NAME or data/NAME.npz.
    """
    if path is not None:
        if data_set.name in ("digits", "digit-scenes"):
            raise DataError(
                f"data: {data_set.name} is embedded in scikit-learn; leave path out"
            )
        return path or os.path.join("data", data_set.name)
    where = os.path.join("data", data_set.name)
    is_file = os.path.isfile(where + ".npz") and not os.path.isdir(where)
    if data_set.kind == "memory" and data_set.name != "digits" and is_file:
        return where + ".npz"
    return where


def preparation_problem(
    name: str,
    channels: int,
    mean: Sequence[float],
    std: Sequence[float],
    for_files: Mapping[str, float | str],
    image_size: int = 0,
    image_width: int = 0,
) -> tuple[str, str] | None:
    """Returns the field of the data that cannot be used, and why; None if all can."""
    kind = find(name).kind
    problem = _width_problem(name, image_size, image_width)
    if problem:
        return "image_width", problem
    if kind != "images":
        for field, value in for_files.items():
            if value:
                if kind == "memory":
                    how = "is in memory"
                else:
                    how = "shows more than one class"
                return field, (
                    f"data.{field} = {value} works only on image files; {name} {how},"
                    " where test images are not cropped; leave it out"
                )
    for field, values, missing, other in (
        ("mean", mean, "std", std),
        ("std", std, "mean", mean),
    ):
        if values and not other:
            return field, (
                f"data.{field} comes with data.{missing}; write both, as mean: [0.5],"
                " std: [0.5]"
            )
        if values and len(values) not in (1, channels):
            allowed = "one"
            if channels > 1:
                allowed = f"one for all channels, or {channels}"
            return field, (
                f"data.{field} has {counted(len(values), 'number')}; {name} has"
                f" {counted(channels, 'channel')}: write {allowed}"
            )
    return None


def _width_problem(name: str, image_size: int, image_width: int) -> str:
    """Returns why the longer side of images cannot be used; empty if it can."""
    if 0 < image_width < image_size:
        return (
            f"data.image_width = {image_width} is less than image_size = {image_size};"
            " image_width is the limit of the longer side, and image_size is the shorter"
            f" side; set image_width to {image_size} or more"
        )
    if image_width and name == "digit-scenes":
        return (
            f"data.image_width = {image_width} is not read: {name} are drawn on squares"
            " of image_size; leave it out"
        )
    if image_width and find(name).kind != "scenes":
        return (
            f"data.image_width = {image_width} is read only for detection and"
            f" segmentation; images of {name} are made square; leave it out"
        )
    return ""


def _npz_of(data_set: DataSet, path: Path) -> tuple[DataSet, str]:
    """Returns a named data set with the images of its file, and the file's hash.

    The file has Keras' layout. Its order of images may differ from the data set's own
    files.

    Raises:
        DataError: it has other content.
    """
    from ablate.data.arrays import npz_shape

    there = replace(data_set, **asdict(npz_shape(path)))
    # Copies of a data set differ in how many test images they keep.
    if replace(there, test_images=data_set.test_images) != data_set:
        shape = (
            "side {0.image_size}, {0.channels} channels, {0.classes} classes,"
            " {0.images} training images"
        )
        raise DataError(
            f"data: {path} has {shape.format(there)}, but {data_set.name} must have"
            f" {shape.format(data_set)}"
        )
    return there, file_hash(path)
