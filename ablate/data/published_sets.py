"""torchvision's data sets for classification: their shapes, and how to open them.

Shapes are known without the files, so costs can be counted before a download. This
module imports torchvision only to open a data set.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ablate.errors import DataError, shortened


@dataclass(frozen=True)
class PublishedSet:
    """A data set of torchvision.

    Attributes:
        name: what a space writes.
        loader: the class in `torchvision.datasets`.
        train, test: the arguments that select a split. If they are equal, the set has no
            split, and a fifth of each class, always the same, is the test set.
        labels: the attribute with all labels.
        by_hand: torchvision cannot download it.
    """

    name: str
    loader: str
    kind: Literal["memory", "images"]
    image_size: int
    channels: int
    classes: int
    images: int
    test_images: int
    train: Mapping[str, Any] = field(default_factory=lambda: {"train": True})
    test: Mapping[str, Any] = field(default_factory=lambda: {"train": False})
    labels: str = "targets"
    by_hand: bool = False

    @property
    def has_split(self) -> bool:
        return self.train != self.test


def _split(train: str = "train", test: str = "test") -> dict[str, Any]:
    return {"train": {"split": train}, "test": {"split": test}}


def _in_memory(
    name: str,
    loader: str,
    side: int,
    channels: int,
    classes: int,
    images: int,
    test_images: int,
    **how: Any,
) -> PublishedSet:
    return PublishedSet(
        name=name,
        loader=loader,
        kind="memory",
        image_size=side,
        channels=channels,
        classes=classes,
        images=images,
        test_images=test_images,
        **how,
    )


def _files(
    name: str, loader: str, classes: int, images: int, test_images: int, **how: Any
) -> PublishedSet:
    """A set of pictures of various sizes."""
    return PublishedSet(
        name=name,
        loader=loader,
        kind="images",
        image_size=224,
        channels=3,
        classes=classes,
        images=images,
        test_images=test_images,
        **{**_split(), **how},
    )


_WHOLE: dict[str, Any] = {"train": {}, "test": {}}
_LABELS: dict[str, Any] = {"labels": "labels", **_split()}
_BALANCED: dict[str, Any] = {
    "train": {"split": "balanced", "train": True},
    "test": {"split": "balanced", "train": False},
}

PUBLISHED: dict[str, PublishedSet] = {
    published.name: published
    for published in (
        _in_memory("cifar10", "CIFAR10", 32, 3, 10, 50_000, 10_000),
        _in_memory("cifar100", "CIFAR100", 32, 3, 100, 50_000, 10_000),
        _in_memory("mnist", "MNIST", 28, 1, 10, 60_000, 10_000),
        _in_memory("fashion-mnist", "FashionMNIST", 28, 1, 10, 60_000, 10_000),
        _in_memory("kmnist", "KMNIST", 28, 1, 10, 60_000, 10_000),
        _in_memory("usps", "USPS", 16, 1, 10, 7_291, 2_007),
        _in_memory("emnist", "EMNIST", 28, 1, 47, 112_800, 18_800, **_BALANCED),
        _in_memory("svhn", "SVHN", 32, 3, 10, 73_257, 26_032, **_LABELS),
        _in_memory("stl10", "STL10", 96, 3, 10, 5_000, 8_000, **_LABELS),
        _files("flowers102", "Flowers102", 102, 1_020, 6_149),
        _files("pets", "OxfordIIITPet", 37, 3_680, 3_669, train={"split": "trainval"}),
        _files("food101", "Food101", 101, 75_750, 25_250),
        _files("dtd", "DTD", 47, 1_880, 1_880),
        _files(
            "aircraft", "FGVCAircraft", 100, 6_667, 3_333, train={"split": "trainval"}
        ),
        _files("cars", "StanfordCars", 196, 8_144, 8_041, by_hand=True),
        _files("gtsrb", "GTSRB", 43, 26_640, 12_630),
        _files("country211", "Country211", 211, 31_650, 21_100),
        _files("fer2013", "FER2013", 7, 28_709, 7_178, by_hand=True),
        _files("rendered-sst2", "RenderedSST2", 2, 6_920, 1_821),
        _files("pcam", "PCAM", 2, 262_144, 32_768),
        _files("imagenette", "Imagenette", 10, 9_469, 3_925, test={"split": "val"}),
        _files("eurosat", "EuroSAT", 10, 21_600, 5_400, **_WHOLE),
        _files("caltech101", "Caltech101", 101, 6_941, 1_736, labels="y", **_WHOLE),
        _files("caltech256", "Caltech256", 257, 24_485, 6_122, labels="y", **_WHOLE),
        _files("sun397", "SUN397", 397, 87_003, 21_751, labels="_labels", **_WHOLE),
    )
}


def open_published(name: str, path: str, split: str) -> Any:
    """Returns torchvision's data set of one split, `train` or `test`.

    A set without a split is returned whole.

    Raises:
        DataError: its files are missing or damaged; the message says how to get them.
    """
    from torchvision import datasets

    published = PUBLISHED[name]
    arguments = published.train if split == "train" else published.test
    try:
        return getattr(datasets, published.loader)(path, **arguments)
    # Each class of torchvision reports missing files in its own way.
    except Exception as error:
        raise DataError(
            f"{missing_text(name, path)}; torchvision says: {shortened(str(error))}"
        ) from error


def missing_text(name: str, path: str) -> str:
    """What to do if the files of a data set are missing."""
    published = PUBLISHED[name]
    text = f"data: {name} is not under {path}; "
    if published.by_hand:
        text += (
            "download it as the page of torchvision.datasets."
            f"{published.loader} says (torchvision cannot)"
        )
    else:
        text += f"fetch it with: {download_command(name, path)}"
    if published.kind == "memory":
        text += f"; or put it in Keras' layout at {path}.npz"
    return f"{text}; or set data.path"


def download_command(name: str, path: str) -> str:
    """The line that downloads both splits of a data set."""
    published = PUBLISHED[name]
    calls = []
    for arguments in (published.train, published.test):
        # In double quotes, because the shell's are single ones.
        words = [json.dumps(path)]
        words += [f"{key}={_python(value)}" for key, value in arguments.items()]
        call = f"{published.loader}({', '.join(words)}, download=True)"
        if call not in calls:
            calls.append(call)
    code = f"from torchvision.datasets import {published.loader}; {'; '.join(calls)}"
    return f"python -c {shlex.quote(code)}"


def _python(value: bool | str) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)
