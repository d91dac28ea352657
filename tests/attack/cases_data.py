"""Data files: `.npz` with headers that lie, arrays of the wrong kind, folders that hold
no images.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.attack.case import PLAN, SPACE, Case, Content
from tests.attack.cases_documents import changed

NPZ = "images.npz"
DOCUMENT = changed("digits", NPZ)
IMAGES = np.zeros((8, 8, 8), np.uint8)
LABELS = np.arange(8) % 4
Arrays = Mapping[str, Any]
GOOD: Arrays = {
    "x_train": IMAGES,
    "y_train": LABELS,
    "x_test": IMAGES,
    "y_test": LABELS,
}


def npz(arrays: Arrays) -> bytes:
    """An `.npz` of arrays; a value of bytes is taken as the whole member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(
                f"{name}.npy", array if isinstance(array, bytes) else npy(array)
            )
    return stream.getvalue()


def npy(array: Any) -> bytes:
    """One array in numpy's format; of Python objects with a pickle."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def claiming(
    header: str,
    *,
    version: bytes = b"\x01\x00",
    data: bytes = b"",
    length: int | None = None,
) -> bytes:
    """A member in numpy's format whose header says what it likes."""
    text = header.encode("latin-1")
    size = struct.pack(
        "<H" if version[0] == 1 else "<I", len(text) if length is None else length
    )
    return b"\x93NUMPY" + version + size + text + data


def shaped(shape: str, descr: str = "'|u1'") -> bytes:
    """A member that claims a shape and has eight bytes."""
    return claiming(
        f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n",
        data=bytes(8),
    )


def deflated(path: Path) -> None:
    """A few hundred kilobytes that unpack to a hundred megabytes of labels, each of its
    own image.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for split in ("train", "test"):
            header = (
                f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({101 * 10**6}, 1,"
                " 1), }\n"
            )
            labels = (
                f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({101 * 10**6},),"
                " }\n"
            )
            for name, said in (("x", header), ("y", labels)):
                with archive.open(
                    f"{name}_{split}.npy", "w", force_zip64=True
                ) as stream:
                    stream.write(claiming(said))
                    for _ in range(101):
                        stream.write(bytes(10**6))


def lying(path: Path) -> None:
    """An archive whose directory claims a terabyte for a member of a few bytes."""
    content = bytearray(npz({**GOOD, "x_train": shaped("(1000000000000, 1, 1)")}))
    at = content.index(b"PK\x01\x02")
    struct.pack_into("<I", content, at + 24, 0xFFFFFFFE)
    path.write_bytes(content)


def encrypted(path: Path) -> None:
    """An archive whose members say that they are encrypted."""
    content = bytearray(npz(GOOD))
    at = 0
    while (at := content.find(b"PK\x01\x02", at)) >= 0:
        struct.pack_into("<H", content, at + 8, 1)
        at += 4
    path.write_bytes(content)


def methods(method: int) -> Callable[[Path], None]:
    """Makes an archive whose members say that they are compressed in some way."""

    def make(path: Path) -> None:
        content = bytearray(npz(GOOD))
        for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            at = 0
            while (at := content.find(mark, at)) >= 0:
                struct.pack_into("<H", content, at + place, method)
                at += 4
        path.write_bytes(content)

    return make


def archives() -> Iterator[Case]:
    """Files that are no `.npz`."""
    good = npz(GOOD)
    flipped = bytearray(good)
    flipped[good.index(b"NUMPY") + 200] ^= 0xFF
    for name, content in {
        "empty": b"",
        "text": b"x_train",
        "zeros": bytes(100_000),
        "a single array": npy(IMAGES),
        "a pickle": b"\x80\x04]\x94.",
        "an empty archive": b"PK\x05\x06" + bytes(18),
        "cut in half": good[: len(good) // 2],
        "without its directory": good[: good.index(b"PK\x01\x02")],
        "only its directory": good[good.index(b"PK\x01\x02") :],
        "with a flipped bit": bytes(flipped),
        "a zip of text": npz({"readme": b"hello"}),
        "with a lying directory": lying,
        "encrypted": encrypted,
        "of an unknown compression": methods(99),
        "stored that says deflated": methods(zipfile.ZIP_DEFLATED),
        "stored that says bzip2": methods(zipfile.ZIP_BZIP2),
        "stored that says LZMA": methods(zipfile.ZIP_LZMA),
        "101 million images in a few kilobytes": deflated,
    }.items():
        yield from one(name, content, NPZ)


def one(name: str, content: Content, says: str) -> Iterator[Case]:
    """A case of one file of images."""
    yield Case(
        name=f"npz: {name}", says=says, argv=PLAN, files={SPACE: DOCUMENT, NPZ: content}
    )


def headers() -> Iterator[Case]:
    """Headers that lie, or are none."""
    for key in ("x_train", "y_train", "x_test", "y_test"):
        huge = shaped("(1000000000000, 8, 8)" if key[0] == "x" else "(1000000000000,)")
        yield from one(
            f"10^12 entries of {key}",
            npz({**GOOD, key: huge}),
            f"{key} in {NPZ} claims",
        )
        yield from one(
            f"without {key}",
            npz({k: v for k, v in GOOD.items() if k != key}),
            f"lacks {key}",
        )
        yield from one(
            f"pickled objects as {key}",
            npz({**GOOD, key: np.array([{}] * 8, object)}),
            NPZ,
        )
    for name, member in {
        "a shape beyond 64 bits": shaped(f"({2**70}, 8, 8)"),
        "a negative shape": shaped("(-1, 8, 8)"),
        "two negative sides": shaped("(8, -8, -8)"),
        "a shape of truths": shaped("(True, True, True)"),
        "a shape of floats": shaped("(8.0, 1, 1)"),
        "a shape that is a number": shaped("8"),
        "a shape of 100 sides": shaped("(" + "1, " * 100 + ")"),
        "an endless shape": shaped("(" * 5000),
        "a shape that is code": shaped("(__import__('os').getpid(),)"),
        "a type that is none": shaped("(8, 1, 1)", "'|q9'"),
        "a type beyond memory": shaped("(8, 1, 1)", "'|V2000000000'"),
        "a type of objects": shaped("(8, 1, 1)", "'|O'"),
        "a type of records": shaped("(8, 1, 1)", "[('a', '|u1')]"),
        "a type of arrays": shaped("(8, 1, 1)", "('|u1', (1000000, 1000000))"),
        "a type that is null": shaped("(8, 1, 1)", "None"),
        "no keys": claiming("{}\n"),
        "other keys": claiming("{'a': 1}\n"),
        "no mapping": claiming("[]\n"),
        "no Python": claiming("{'descr': \n"),
        "a header longer than the file": claiming("{}\n", length=60_000),
        "a header of 4 GB": claiming("{}\n", version=b"\x02\x00", length=2**32 - 1),
        "version 3": claiming("{}\n", version=b"\x03\x00"),
        "version 9": claiming("{}\n", version=b"\x09\x00"),
        "no magic": b"NUMPY" + bytes(100),
        "nothing": b"",
        "only magic": b"\x93NUMPY",
        "less than it says": npy(IMAGES)[:-1],
        "more than it says": npy(IMAGES) + b"\0",
    }.items():
        yield from one(f"x_train has {name}", npz({**GOOD, "x_train": member}), NPZ)


def arrays() -> Iterator[Case]:
    """Arrays of the wrong kind."""
    for name, changes, says in (
        (
            "images of floats",
            {"x_train": IMAGES.astype(np.float32)},
            "it must be uint8",
        ),
        (
            "images of 16 bits",
            {"x_train": IMAGES.astype(np.uint16)},
            "it must be uint8",
        ),
        (
            "images that are oblong",
            {"x_train": IMAGES[:, :4]},
            "it must be uint8 (n, side, side",
        ),
        (
            "images in a row",
            {"x_train": IMAGES.reshape(8, 64)},
            "it must be uint8 (n, side, side",
        ),
        ("one number for images", {"x_train": np.uint8(3)}, "it must be uint8"),
        (
            "images of five dimensions",
            {"x_train": IMAGES.reshape(8, 8, 8, 1, 1)},
            "it must be uint8",
        ),
        ("no images", {"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "is empty"),
        ("images without pixels", {"x_train": IMAGES[:, :0, :0]}, "is empty"),
        (
            "images without channels",
            {"x_train": np.zeros((8, 8, 8, 0), np.uint8)},
            "is empty",
        ),
        (
            "images of 5,000 channels",
            {"x_train": np.zeros((8, 1, 1, 5000), np.uint8)},
            "at most",
        ),
        (
            "images of 5,000 pixels a side",
            {"x_train": np.zeros((1, 5000, 5000), np.uint8), "y_train": [0]},
            "at most",
        ),
        ("images of text", {"x_train": np.full((8, 8, 8), "a")}, "it must be uint8"),
        ("images of truths", {"x_train": IMAGES.astype(bool)}, "it must be uint8"),
        (
            "images of dates",
            {"x_train": IMAGES.astype("datetime64[s]")},
            "it must be uint8",
        ),
        (
            "tests of another side",
            {"x_test": np.zeros((8, 4, 4), np.uint8)},
            "x_test of [4, 4]",
        ),
        (
            "tests in colour",
            {"x_test": np.zeros((8, 8, 8, 3), np.uint8)},
            "x_test of [8, 8, 3]",
        ),
        ("no tests", {"x_test": IMAGES[:0], "y_test": LABELS[:0]}, "is empty"),
        (
            "a label too few",
            {"y_train": LABELS[:-1]},
            "one class number from 0 up for each of 8 images",
        ),
        (
            "a label too many",
            {"y_test": np.zeros(9, int)},
            "one class number from 0 up for each of 8 images",
        ),
        (
            "labels one-hot",
            {"y_train": np.eye(8, dtype=int)},
            "one class number from 0 up for each of 8 images",
        ),
        *(
            (f"labels {kind}", {"y_train": LABELS.astype(kind)}, "class number from 0")
            for kind in ("bool", "float", "str", "complex", "timedelta64[s]")
        ),
        (
            "a negative label",
            {"y_train": LABELS - 1},
            "y_train in images.npz has class -1",
        ),
        (
            "a negative label of a test",
            {"y_test": LABELS - 1},
            "y_test in images.npz has class -1",
        ),
        (
            "a label beyond 2^63",
            {"y_train": LABELS.astype(np.uint64) + 2**63},
            "has class 9223372036854775811",
        ),
        (
            "a label of 2^63 - 1",
            {"y_train": np.full(8, 2**63 - 1)},
            "has class 9223372036854775807",
        ),
        ("a label of 2^40", {"y_train": np.full(8, 2**40)}, "has class 1099511627776"),
        ("a label of a million", {"y_train": np.full(8, 10**6)}, "has class 1000000"),
        (
            "a class that is only tested",
            {"y_test": np.full(8, 9)},
            "has class 9, but the highest class in y_train is 3",
        ),
    ):
        yield from one(name, npz({**GOOD, **changes}), says)


def fifo(path: Path) -> None:
    """A FIFO that no process writes to."""
    os.mkfifo(path)


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def places() -> Iterator[Case]:
    """Paths of data where there are none."""
    for name, content in (
        ("a folder", Path.mkdir),
        ("a FIFO", fifo),
        ("a link to itself", loop),
    ):
        yield from one(name, content, f"{SPACE}:7: data: no file {NPZ}")
    yield Case(
        name="npz: /dev/zero",
        says="no file /dev/zero",
        argv=PLAN,
        files={SPACE: changed("digits", "{name: npz, path: /dev/zero}")},
    )
    yield Case(
        name="npz: a device as a set",
        says="no folder",
        argv=PLAN,
        files={SPACE: changed("digits", "{name: folder, path: /dev/null}")},
    )
    for name, said, says in (
        (
            "a name of 5,000 characters",
            "x" * 5000 + ".npz",
            f"{SPACE}:7: data: no file",
        ),
        ("a path of 5,000 folders", "x/" * 5000 + "x.npz", f"{SPACE}:7: data: no file"),
        ("a NUL in a path", '"a\\0b.npz"', f"{SPACE}:7: "),
        ("half of a surrogate in a path", '"a\\ud800.npz"', f"{SPACE}:7: "),
        (
            "an empty path",
            "{name: npz, path: ''}",
            f"{SPACE}:7: data: npz needs a path",
        ),
        ("a blank path", "{name: npz, path: ' '}", f"{SPACE}:7: data: no file"),
        (
            "a URL",
            "{name: npz, path: 'https://example.org/x.npz'}",
            f"{SPACE}:7: data: no file",
        ),
        ("only an ending", ".npz", f"{SPACE}:7: data: no file .npz"),
        (
            "a named set from a missing file",
            "{name: mnist, path: missing.npz}",
            f"{SPACE}:7: data: no file missing.npz",
        ),
        (
            "a folder that is missing",
            "{name: folder, path: missing}",
            f"{SPACE}:7: data: no folder",
        ),
        (
            "a folder of a name too long",
            f"{{name: folder, path: {'x' * 5000}}}",
            f"{SPACE}:7: ",
        ),
        (
            "more images than beyond 32 bits",
            "{name: digits, train_images: 4294967296}",
            f"{SPACE}:7: ",
        ),
        ("a split of nothing", "{name: digits, validation: 0}", f"{SPACE}:7: "),
        ("a split of all", "{name: digits, validation: 1.0}", f"{SPACE}:7: "),
        (
            "a split of less than an image",
            "{name: digits, validation: 1e-9}",
            f"{SPACE}:7: ",
        ),
        ("a million workers", "{name: digits, workers: 1000000}", f"{SPACE}:7: "),
        ("a side of 10^9", "{name: digits, image_size: 1000000000}", f"{SPACE}:7: "),
    ):
        yield Case(
            name=f"data: {name}",
            says=says,
            argv=PLAN,
            files={SPACE: changed("digits", said)},
        )
    folder = changed("digits", "{name: folder, path: images}")
    for name, files, says in (
        (
            "without classes",
            {"images/train/.keep": "", "images/val/.keep": ""},
            "has no class folders",
        ),
        ("without val", {"images/train/cat/1.png": "x"}, "no folder images/val"),
        (
            "whose train is a file",
            {"images/train": "x", "images/val": "x"},
            "no folder images/train",
        ),
        (
            "with an empty class",
            {
                "images/train/cat": Path.mkdir,
                "images/val/cat": Path.mkdir,
                "images/train/dog": Path.mkdir,
                "images/val/dog": Path.mkdir,
            },
            "has no images",
        ),
        (
            "with another class in val",
            {"images/train/cat/1": "x", "images/val/dog/1": "x"},
            "only one has cat, dog",
        ),
        (
            "with a class less in val",
            {"images/train/a/1": "x", "images/train/b/1": "x", "images/val/a/1": "x"},
            "only one has b",
        ),
        (
            "with a broken link",
            {"images/train/a/1": "x", "images/val/a/1": loop},
            f"{SPACE}:7: ",
        ),
    ):
        yield Case(
            name=f"folder {name}", says=says, argv=PLAN, files={SPACE: folder, **files}
        )
    others = npz(GOOD)
    for name in ("mnist", "cifar10", "cifar100", "fashion-mnist"):
        said = changed("digits", f"{{name: {name}, path: {NPZ}}}")
        yield Case(
            name=f"{name} that is something else",
            says=f"{SPACE}:7: data: ",
            argv=PLAN,
            files={SPACE: said, NPZ: others},
        )


CASES = [*archives(), *headers(), *arrays(), *places()]
