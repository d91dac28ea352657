"""The data sets and their shapes.

`data.arrays` and `data.images` read the images.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ablate import registry
from ablate.data.splits import held_out
from ablate.errors import (
    DataError,
    Infeasible,
    UnknownName,
    counted,
    shortened,
    unknown,
)
from ablate.parts import OwnData
from ablate.records import Data, Recipe

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
    training images. Side and channels are those of the images; files of various sizes
    have the side that they are resized to.
    """

    name: str
    kind: Literal["memory", "images", "scenes"]
    image_size: int
    channels: int
    classes: int
    images: int
    source: str


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
        ),
        DataSet(
            name="cifar10",
            kind="memory",
            image_size=32,
            channels=3,
            classes=10,
            images=50_000,
            source="torchvision CIFAR10",
        ),
        DataSet(
            name="cifar100",
            kind="memory",
            image_size=32,
            channels=3,
            classes=100,
            images=50_000,
            source="torchvision CIFAR100",
        ),
        DataSet(
            name="mnist",
            kind="memory",
            image_size=28,
            channels=1,
            classes=10,
            images=60_000,
            source="torchvision MNIST",
        ),
        DataSet(
            name="fashion-mnist",
            kind="memory",
            image_size=28,
            channels=1,
            classes=10,
            images=60_000,
            source="torchvision FashionMNIST",
        ),
        DataSet(
            name="flowers102",
            kind="images",
            image_size=224,
            channels=3,
            classes=102,
            images=1020,
            source="torchvision Flowers102",
        ),
        DataSet(
            name="pets",
            kind="images",
            image_size=224,
            channels=3,
            classes=37,
            images=3680,
            source="torchvision OxfordIIITPet",
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
    raise UnknownName(unknown("data set", name, [*SETS, *own_sets()]))


def own_sets() -> dict[str, OwnData]:
    """Returns the data sets of users' files by name."""
    found: dict[str, OwnData] = registry.of_kind("data set")
    for name in found:
        if name in SETS:
            raise DataError(
                f"a data set '{name}' is built in; give your own another name"
            )
    return found


def describe(
    name: str,
    path: str | None = None,
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
            or malformed, or the images cannot be prepared as asked for.
    """
    data_set = find(name)
    size = data_set.image_size
    channels = data_set.channels
    classes = data_set.classes
    images = data_set.images
    fingerprint = ""
    where = _location(data_set, path)
    if name in own_sets():
        from ablate.data.arrays import own_fingerprint, own_shape

        if path:
            raise DataError(f"data: {name} is a function of your own; leave path out")
        size, channels, classes, images = own_shape(name)
        (code,) = registry.identity("data set", own_sets()[name]).values()
        fingerprint = f"{code}, {own_fingerprint(name)}"
    elif name == "npz":
        from ablate.data.arrays import npz_shape

        if not path:
            raise DataError("data: npz needs a path: data: {name: npz, path: FILE.npz}")
        size, channels, classes, images = npz_shape(Path(path))
        fingerprint = _file_hash(Path(path))
    elif data_set.kind == "memory" and where.endswith(".npz"):
        fingerprint = _npz_of(data_set, Path(where))
    elif data_set.kind != "memory":
        classes, images, fingerprint = _content_of(data_set, where, background)
    if image_size is not None:
        size = image_size
    for_files = {"crop": crop, "crop_mode": crop_mode, "interpolation": interpolation}
    problem = preparation_problem(
        name, channels, mean, std, for_files, size, image_width
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
        path=os.path.abspath(where),
        image_size=size,
        channels=channels,
        classes=classes,
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
    )


def _content_of(
    data_set: DataSet, where: str, background: bool
) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash of the content.

    Files that are missing are an error only when they are read, if the data set has a
    fixed shape.
    """
    if data_set.kind == "images":
        if data_set.name == "folder" or Path(where, "train").is_dir():
            return _folder_content(Path(where), data_set.classes)
        return data_set.classes, data_set.images, ""
    if data_set.name == "digit-scenes":
        return data_set.classes + background, data_set.images, ""
    if not Path(where).is_dir():
        return data_set.classes, data_set.images, ""
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
            f"data.image_width = {image_width} is the longer side at most, and"
            f" image_size = {image_size} the shorter one; set image_width to"
            f" {image_size} or more"
        )
    if image_width and find(name).kind != "scenes":
        return (
            f"data.image_width = {image_width} is read only for detection and"
            f" segmentation; images of {name} are made square; leave it out"
        )
    return ""


def settled(data: Data, recipe: Recipe) -> Data:
    """Returns the same data without values that equal the defaults.

    Equal preparations then have the same identity.
    """
    data = replace(
        data, mean=spread(data.mean, data.channels), std=spread(data.std, data.channels)
    )
    if find(data.name).kind != "images":
        return data
    if (data.mean, data.std) == (IMAGENET_MEAN, IMAGENET_STD):
        data = replace(data, mean=(), std=())
    if data.crop == CROP:
        data = replace(data, crop=0.0)
    if data.crop_mode == "center":
        data = replace(data, crop_mode="")
    if data.interpolation == recipe.test_interpolation:
        data = replace(data, interpolation="")
    return data


def spread(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Returns one number per channel, given one for all or one for each."""
    if len(values) == 1:
        return values * channels
    return values


def refuse_recipe(data: Data, recipe: Recipe) -> None:
    """Raises Infeasible if the data do not fit the recipe's augmentations."""
    if recipe.select == "best" and not data.validation:
        raise Infeasible(
            "recipe.select = best chooses an epoch on a validation split; set"
            " data.validation, as to 0.1"
        )
    if recipe.accumulate > recipe.batch_size:
        raise Infeasible(
            f"recipe.accumulate = {recipe.accumulate} is more than the"
            f" {recipe.batch_size} images of a batch; set it to {recipe.batch_size} or"
            " less"
        )
    if find(data.name).kind == "scenes":
        return
    if recipe.mixes and recipe.batch_size < 2:
        raise Infeasible(
            "recipe.mixup and recipe.cutmix mix pairs, but recipe.batch_size ="
            f" {recipe.batch_size} holds none; set it to 2 or more"
        )
    if find(data.name).kind == "memory":
        _refuse_file_augmentations(data, recipe)
    if recipe.crop_padding:
        _refuse_test_preparation(data)
    _refuse_rand_augment(recipe)


def _refuse_file_augmentations(data: Data, recipe: Recipe) -> None:
    unread = recipe.unread()
    for name, off in FILES_ONLY.items():
        if getattr(recipe, name) != off and name not in unread:
            raise Infeasible(
                f"recipe.{name} works only on image files; {data.name} is augmented in"
                " memory (crop_padding, flip, random_erasing); set"
                f" recipe.{name} to {off!r}"
            )


def _refuse_test_preparation(data: Data) -> None:
    for name in ("crop", "crop_mode", "interpolation"):
        value = getattr(data, name)
        if value:
            raise Infeasible(
                f"data.{name} = {value} is not read: recipe.crop_padding uses test"
                " images without resizing or cropping them; leave one of the two out"
            )


def _refuse_rand_augment(recipe: Recipe) -> None:
    if not recipe.rand_augment:
        return
    if recipe.three_augment:
        raise Infeasible(
            "recipe.three_augment takes the place of recipe.rand_augment; leave one of"
            " them out"
        )
    from timm.data.auto_augment import rand_augment_transform

    try:
        rand_augment_transform(recipe.rand_augment, {})
    except (AssertionError, ValueError, KeyError) as error:
        raise Infeasible(
            f"recipe.rand_augment = '{recipe.rand_augment}' is not a policy; write like"
            " rand-m9-mstd0.5-inc1"
        ) from error


def _npz_of(data_set: DataSet, path: Path) -> str:
    """Returns the hash of a file with a named data set in Keras' layout.

    Its order of images may differ from the data set's own files.

    Raises:
        DataError: it has other content.
    """
    from ablate.data.arrays import npz_shape

    shape = npz_shape(path)
    expected = (
        data_set.image_size,
        data_set.channels,
        data_set.classes,
        data_set.images,
    )
    if shape != expected:
        told = "side {}, {} channels, {} classes, {} training images"
        raise DataError(
            f"data: {path} has {told.format(*shape)}; {data_set.name} has"
            f" {told.format(*expected)}"
        )
    return _file_hash(path)


def _file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:20]


def _folder_content(root: Path, classes: int) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash.

    The hash is over split, class and file names with their sizes.

    Raises:
        DataError: it is not such a folder, or cannot be read.
    """
    try:
        return _content(root, classes)
    except OSError as error:
        raise DataError(
            f"data: {shortened(str(error.filename))} cannot be read: {error.strerror}"
        ) from None


def _content(root: Path, classes: int) -> tuple[int, int, str]:
    digest = hashlib.sha256()
    names: dict[str, list[str]] = {}
    images = 0
    for split in ("train", "val"):
        folder = root / split
        if not folder.is_dir():
            raise DataError(
                f"data: no folder {folder}; expected {root}/train and {root}/val with"
                " one folder a class"
            )
        names[split] = sorted(
            entry.name for entry in os.scandir(folder) if entry.is_dir()
        )
        for found in names[split]:
            files = sorted(
                (entry.name, entry.stat().st_size)
                for entry in os.scandir(folder / found)
            )
            images += len(files) if split == "train" else 0
            digest.update(repr((split, found, files)).encode())
            if not files:
                raise DataError(f"data: the class folder {folder / found} is empty")
    differ = set(names["train"]) ^ set(names["val"])
    if differ:
        raise DataError(
            f"data: {root}/train and {root}/val must hold the same class folders; only"
            f" one has {', '.join(sorted(differ))}"
        )
    if classes and len(names["train"]) != classes:
        raise DataError(
            f"data: {root} holds {len(names['train'])} classes, expected {classes}"
        )
    if not names["train"]:
        raise DataError(
            f"data: {root}/train holds no class folders; put the images of each class"
            " into one folder"
        )
    return len(names["train"]), images, digest.hexdigest()[:20]
