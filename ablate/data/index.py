"""The index of a folder of images: every file with its class and its split.

ROOT/train/CLASS/...                  ROOT/val/CLASS/...

The plan counts this index, the identity of a trial hashes it, and the loader reads its
files, so all three see the same data. The class of a file is the folder directly below
the split, however deep the file lies. An entry is an image, is left out by one of the
rules below, or is an error that names it: no other file is left out.

Images look as in a viewer: pixels of 16 bits are scaled to 8, and the EXIF orientation
is applied. Older versions did neither, so `describe_folder` gives a folder with such
images another hash.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablate.errors import DataError, counted, shortened

# The formats of Pillow that are read, with the endings of their files in any case. Not
# among them: vector graphics, which need programs, and containers that Pillow only
# recognises.
FORMATS = {
    "PNG": (".png", ".apng"),
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "MPO": (),
    "WEBP": (".webp",),
    "AVIF": (".avif",),
    "BMP": (".bmp",),
    "DIB": (".dib",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "JPEG2000": (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
    "PPM": (".pbm", ".pgm", ".ppm", ".pnm"),
    "TGA": (".tga", ".icb", ".vda", ".vst"),
    "ICO": (".ico",),
    "PCX": (".pcx",),
    "SGI": (".sgi", ".bw", ".rgb", ".rgba"),
    "QOI": (".qoi",),
    "DDS": (".dds",),
    "PSD": (".psd",),
}
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
# The endings that versions before the index read.
FIRST_ENDINGS = (".png", ".jpg", ".jpeg")
# Endings of files that stand beside images and are left out.
OTHER_ENDINGS = (
    ".txt",
    ".md",
    ".rst",
    ".json",
    ".jsonl",
    ".csv",
    ".tsv",
    ".xml",
    ".yaml",
    ".yml",
    ".html",
    ".log",
    ".ini",
    ".db",
    ".lnk",
    ".url",
    ".xmp",
    ".bak",
    ".tmp",
)
# Names that systems and file viewers leave behind. Names that begin with a dot are left
# out, too: .DS_Store, ._photo.jpg, .ipynb_checkpoints.
SYSTEM_NAMES = {
    "__macosx",
    "@eadir",
    "#recycle",
    "$recycle.bin",
    "system volume information",
    "lost+found",
    "icon\r",
}
SPLITS = {"train": "train", "test": "val"}
# The EXIF tag of the orientation.
ORIENTATION = 0x0112
# Marks the hash of a folder with images that older versions read in another way.
SECOND_READING = "-2"
# The modes of Pillow for one channel of 16 bits.
DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N")
# Modes that have no scale of their own.
UNSCALED_MODES = ("F", "I")
THREADS = 8


@dataclass(frozen=True)
class Image:
    """One image file: its path below the split, its class, its size in bytes."""

    path: str
    label: int
    size: int
    changed: int


@dataclass(frozen=True)
class Index:
    """The images of a folder.

    Attributes:
        root: the folder.
        classes: names of the classes; the label of an image is an index into them.
        images: by split, `train` or `test`, in the order of the loader.
    """

    root: Path
    classes: tuple[str, ...]
    images: dict[str, tuple[Image, ...]]

    def file(self, split: str, image: Image) -> Path:
        return self.root / SPLITS[split] / image.path

    def fingerprint(self) -> str:
        """Returns a hash of the paths and sizes of all files."""
        digest = hashlib.sha256()
        for split, folder in SPLITS.items():
            files: list[list[tuple[str, int]]] = [[] for _ in self.classes]
            for image in self.images[split]:
                _, _, name = _composed(image.path).partition("/")
                files[image.label].append((name, image.size))
            for label, name in enumerate(self.classes):
                digest.update(repr((folder, name, sorted(files[label]))).encode())
        return digest.hexdigest()[:20]


def read_index(root: Path) -> Index:
    """Lists the images of a folder.

    Raises:
        DataError: it has another layout, or an entry cannot be used; the message names
            it.
    """
    by_split = {}
    for split in SPLITS:
        by_split[split] = _class_folders(root, split)
    names = {split: set(folders) for split, folders in by_split.items()}
    only = sorted(names["train"] ^ names["test"])
    if only:
        raise DataError(
            f"data: {root}/train and {root}/val must have the same class folders; only"
            f" one has {shortened(', '.join(only))}"
        )
    classes = tuple(sorted(names["train"]))
    if not classes:
        raise DataError(
            f"data: {root}/train has no class folders; put the images of each class into"
            " one folder"
        )
    if len(classes) == 1:
        raise DataError(
            f"data: {root}/train has one class, {classes[0]!r}; a network can only learn"
            " to tell two or more apart"
        )
    images = {}
    for split, folders in by_split.items():
        files: list[Image] = []
        for label, name in enumerate(classes):
            below = _images_below(root / SPLITS[split], folders[name], label)
            if not below:
                raise DataError(
                    f"data: the class folder {root / SPLITS[split] / folders[name]} has"
                    f" no images; allowed endings: {', '.join(ENDINGS)}"
                )
            files += below
        images[split] = tuple(sorted(files, key=_natural_order))
    return Index(root=root, classes=classes, images=images)


def describe_folder(
    root: Path, classes: int, *, published: bool
) -> tuple[int, int, str]:
    """Returns the number of classes and of training images, and a hash of the content.

    The hash is over the paths and sizes of the files.

    Args:
        classes: how many the folder must have; 0: any number.
        published: the files are those of a published data set, so they are not opened.

    Raises:
        DataError: as `read_index`; a file is no image, or has a mode without a scale.
    """
    try:
        index = read_index(root)
    except OSError as error:
        raise DataError(
            f"data: {shortened(str(error.filename))} cannot be read: {error.strerror}"
        ) from None
    if classes and len(index.classes) != classes:
        raise DataError(
            f"data: {root} has {counted(len(index.classes), 'class')}, expected {classes}"
        )
    fingerprint = index.fingerprint()
    if not published and _read_in_another_way(index):
        fingerprint += SECOND_READING
    return len(index.classes), len(index.images["train"]), fingerprint


def is_left_out(name: str) -> bool:
    """Whether a file or folder belongs to a system or a file viewer, by its name."""
    return name.startswith(".") or name.endswith("~") or name.lower() in SYSTEM_NAMES


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """Returns the entries of a folder that are not left out, by name."""
    with os.scandir(folder) as entries:
        kept = [entry for entry in entries if not is_left_out(entry.name)]
    return sorted(kept, key=lambda entry: entry.name)


def _class_folders(root: Path, split: str) -> dict[str, str]:
    """Returns the folder of each class by the name of the class.

    A name of a class has composed characters: file systems differ in how they store
    accents, and one class may come from two of them.
    """
    folder = root / SPLITS[split]
    if not folder.is_dir():
        raise DataError(
            f"data: no folder {folder}; expected {root}/train and {root}/val with one"
            " folder a class"
        )
    folders: dict[str, str] = {}
    for entry in listed(folder):
        if not _is_folder(entry):
            _refuse_image_outside(entry)
            continue
        name = _composed(entry.name)
        if name in folders:
            raise DataError(
                f"data: {folder} has two folders of the name {name!r}, which differ in"
                " how an accent is stored; merge them"
            )
        folders[name] = entry.name
    return folders


def _refuse_image_outside(entry: os.DirEntry[str]) -> None:
    if entry.name.lower().endswith(ENDINGS):
        raise DataError(
            f"data: {_shown(entry.path)} is in no class folder; move it into one, or"
            " remove it"
        )


def _images_below(split: Path, name: str, label: int) -> list[Image]:
    """Returns the images of a class, at any depth."""
    images: list[Image] = []
    # Folders still to list, each with the folders that it lies in, as device and number.
    status = os.stat(split / name)
    folders = [(name, frozenset({(status.st_dev, status.st_ino)}))]
    while folders:
        folder, above = folders.pop()
        for entry in listed(split / folder):
            path = f"{folder}/{entry.name}"
            if not _is_folder(entry):
                image = _image(entry, path, label)
                if image is not None:
                    images.append(image)
                continue
            status = entry.stat()
            number = (status.st_dev, status.st_ino)
            if number in above:
                raise DataError(
                    f"data: {_shown(entry.path)} is a link to a folder that it lies in;"
                    " remove it"
                )
            folders.append((path, above | {number}))
    return images


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A loop of links.
        return False


def _image(entry: os.DirEntry[str], path: str, label: int) -> Image | None:
    """Returns the image of a file; None for a file that is left out.

    Raises DataError for any other.
    """
    name = entry.name.lower()
    if name.endswith(OTHER_ENDINGS):
        return None
    if not name.endswith(ENDINGS):
        raise DataError(
            f"data: {_shown(entry.path)} has no ending of an image; allowed:"
            f" {', '.join(ENDINGS)}; convert it, or remove it"
        )
    try:
        status = entry.stat()
    except OSError as error:
        raise DataError(
            f"data: {_shown(entry.path)} is a link that leads to no file"
            f" ({error.strerror}); remove it"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"data: {_shown(entry.path)} is no file; remove it")
    if not status.st_size:
        raise DataError(
            f"data: {_shown(entry.path)} is empty (0 bytes); copy it again, or remove it"
        )
    return Image(path, label, status.st_size, status.st_mtime_ns)


def _read_in_another_way(index: Index) -> bool:
    """Whether older versions read an image in another way.

    All files are opened once; the answer is kept in the cache until a file changes.
    """
    pairs = [
        (index.file(split, image), image)
        for split, images in index.images.items()
        for image in images
    ]
    import numpy as np

    from ablate.machine import cache

    key = hashlib.sha256()
    for file, image in pairs:
        key.update(repr((str(file), image.size, image.changed)).encode())
    return bool(
        cache.array(
            f"reading of images 1 {os.path.abspath(index.root)} {key.hexdigest()}",
            lambda: np.array(_any_read_in_another_way([file for file, _ in pairs])),
        )
    )


def _any_read_in_another_way(files: list[Path]) -> bool:
    with ThreadPoolExecutor(THREADS) as pool:
        return any(list(pool.map(_is_read_in_another_way, files)))


def _is_read_in_another_way(file: Path) -> bool:
    """Raises DataError if the file is no image, or has a mode without a scale."""
    with opened(file) as image:
        if not file.name.lower().endswith(FIRST_ENDINGS) or _is_deep(image):
            return True
        return bool(image.getexif().get(ORIENTATION, 1) != 1)


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """Opens an image with Pillow.

    Raises:
        DataError: the file is no image of the formats above, cannot be read, or has a
            mode without a scale; also for errors while it is open.
    """
    from PIL import Image as Pillow

    try:
        # Without the list, a file of any name could be a program for Ghostscript.
        with Pillow.open(file, formats=_formats()) as image:
            if image.mode in UNSCALED_MODES and not _is_deep(image):
                raise DataError(
                    f"data: {_shown(file)} has the mode {image.mode} of Pillow, whose"
                    " values have no scale; save it with 8 or 16 bits"
                )
            yield image
    except DataError:
        raise
    # Pillow raises many types of errors for broken files.
    except Exception as error:
        raise DataError(
            f"data: {_shown(file)} cannot be read as an image:"
            f" {shortened(str(error), 300)}; replace the file, or remove it"
        ) from None


@lru_cache(maxsize=1)
def _formats() -> list[str]:
    """Returns the formats that the installed Pillow can open."""
    from PIL import Image as Pillow

    Pillow.init()
    return [name for name in FORMATS if name in Pillow.OPEN]


def rgb(image: Any) -> Any:
    """Returns an image of Pillow as RGB with 8 bits.

    Pixels of 16 bits are divided by 256. Of an animation, the first frame counts.
    Transparency is dropped.
    """
    import numpy as np
    from PIL import Image as Pillow

    if _is_deep(image):
        pixels = np.asarray(image).astype(np.int64) // 256
        return Pillow.fromarray(pixels.astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        # Pillow warns if this step is left out.
        image = image.convert("RGBA")
    return image.convert("RGB")


def upright(image: Any) -> Any:
    """Returns an image of Pillow turned as its EXIF orientation says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _is_deep(image: Any) -> bool:
    # Pillow reads a netpbm file of 16 bits in the mode of 32.
    return image.mode in DEEP_MODES or (image.mode == "I" and image.format == "PPM")


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _natural_order(image: Image) -> tuple[list[Any], str]:
    """Sorts as timm's reader of folders does: 2.png comes before 10.png."""
    parts = re.split(r"(\d+)", image.path.lower())
    return [int(part) if part.isdigit() else part for part in parts], image.path


def _shown(file: Path | str) -> str:
    return shortened(os.fspath(file), 300)
