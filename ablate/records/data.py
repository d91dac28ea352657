"""Which images a trial sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ablate.identity import canonical_json
from ablate.records.base import DESCRIPTIVE

# Data sets of image files that versions before the correction of repeats had.
IMAGE_FILES = frozenset({"imagenet", "folder", "flowers102", "pets"})


@dataclass(frozen=True)
class Data:
    """Which images a trial sees, and how they are prepared."""

    name: str
    # Folder or file of the images.
    path: str = field(metadata={DESCRIPTIVE: True})
    # Side of the images when the network sees them, in pixels.
    # If `image_width` is not 0, images keep their proportions: this is their shorter
    # side.
    image_size: int
    channels: int
    classes: int
    # Number of training images without those held out; 0 if unknown.
    images: int = 0
    # Only so many training images are used; None: all.
    train_images: int | None = None
    # Only so many test images are used; None: all.
    test_images: int | None = None
    # Hash of the content of the user's own files, so that moving a file keeps the
    # identity of a trial and editing it does not. Named sets are the same everywhere
    # and need none.
    fingerprint: str = ""
    # Loading processes, for image files.
    workers: int = field(default=4, metadata={DESCRIPTIVE: True})
    # Share of the training images that is held out. Each epoch is then measured on
    # them, and the test set once, at the end.
    validation: float = 0.0
    # Mean and standard deviation that normalise the images, for values from 0 to 1: one
    # number for all channels, or one each. Empty: ImageNet's for image files, the
    # training images' own in memory.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    # Share of a test image's shorter side that the central crop takes, for image files;
    # 0 is 0.875.
    crop: float = 0.0
    # What the test crop does with a rectangular image file: keep its proportions
    # (center, the default), make it square (squash), or pad it to a square (border).
    crop_mode: Literal["", "center", "squash", "border"] = ""
    # Resizes test images, for image files; empty: as the recipe says.
    interpolation: Literal["", "bilinear", "bicubic"] = ""
    # The longer side of images that keep their proportions, at most; 0: they are
    # square.
    image_width: int = 0
    # Which training images are held out, and which are used if not all are. 0: the split
    # of trials whose seed does not decide it; otherwise the seed plus 1.
    split: int = 0
    # The split of a data set of Hugging Face that is the test set; empty: a usual one.
    # The fingerprint is that of its content.
    test_split: str = field(default="", metadata={DESCRIPTIVE: True})

    def of_seed(self, seed: int) -> Data:
        """Returns the data with the split that a seed decides."""
        return replace(self, split=seed + 1)

    def canonical(self) -> dict[str, Any]:
        """What decides the numbers: not the path, not the number of loading workers."""
        # Values that are not set are left out, so that a new field keeps old hashes.
        subset = {
            "train_images": self.train_images,
            "test_images": self.test_images,
            "fingerprint": self.fingerprint,
            "validation": self.validation,
            "mean": list(self.mean),
            "std": list(self.std),
            "crop": self.crop,
            "crop_mode": self.crop_mode,
            "interpolation": self.interpolation,
            "image_width": self.image_width,
            "split": self.split,
        }
        return {"name": self.name, "image_size": self.image_size} | {
            k: v for k, v in subset.items() if v
        }

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(self.canonical())
