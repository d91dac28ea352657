"""The index of a folder: the plan, the identity and the loader see the same files."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ablate.data import describe, index
from ablate.data.images import dataset
from ablate.errors import DataError
from ablate.records import Data

# Pixels of an image of 4 x 2: dark on the left, bright on the right.
DARK, BRIGHT = 51, 204


def pixels() -> np.ndarray:
    grey = np.full((2, 4), DARK, np.uint8)
    grey[:, 2:] = BRIGHT
    return np.repeat(grey[:, :, None], 3, axis=2)


def write(file: Path) -> Path:
    """Writes an image in the format of its ending."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels()).save(file)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes of two images each, in both splits."""
    folder = tmp_path / "set"
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            for number in range(2):
                write(folder / split / label / f"{number}.png")
    return folder


def described(root: Path) -> Data:
    return describe("folder", str(root), image_size=8, workers=0)


def loaded(root: Path, split: str = "train") -> list[tuple[str, int]]:
    """Returns the files that the loader reads, with their labels."""
    images = dataset(described(root), split)
    below = root / index.SPLITS[split]
    return [(str(file.relative_to(below)), label) for file, label in images._files]


def test_the_hash_of_a_plain_folder_is_that_of_older_versions(root: Path) -> None:
    digest = hashlib.sha256()
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            files = sorted(
                (file.name, file.stat().st_size)
                for file in (root / split / label).iterdir()
            )
            digest.update(repr((split, label, files)).encode())
    assert described(root).fingerprint == digest.hexdigest()[:20]


def test_a_nested_file_has_the_class_of_the_first_folder(root: Path) -> None:
    write(root / "train" / "dog" / "cat" / "deep" / "3.png")
    assert loaded(root) == [
        ("cat/0.png", 0),
        ("cat/1.png", 0),
        ("dog/0.png", 1),
        ("dog/1.png", 1),
        ("dog/cat/deep/3.png", 1),
    ]
    assert described(root).images == 5


@pytest.mark.parametrize(
    "path",
    [
        "train/cat/.DS_Store",
        "val/cat/Thumbs.db",
        "train/dog/desktop.ini",
        "train/dog/._0.png",
        "train/.cache/1.png",
        "train/cat/.ipynb_checkpoints/0-checkpoint.png",
        "val/@eaDir/0.png",
        "train/__MACOSX/cat/0.png",
        "train/notes.txt",
        "val/cat/labels.csv",
        "train/cat/0.png~",
        "train/cat/Icon\r",
    ],
)
def test_what_a_viewer_leaves_behind_changes_nothing(root: Path, path: str) -> None:
    before = described(root)
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x")
    assert described(root) == before


@pytest.mark.parametrize(
    "ending",
    ["webp", "bmp", "tif", "tiff", "gif", "ppm", "tga", "jp2", "PNG", "Jpeg", "WEBP"],
)
def test_each_format_of_pillow_is_read(root: Path, ending: str) -> None:
    write(root / "train" / "cat" / f"9.{ending}")
    assert described(root).images == 5
    assert (f"cat/9.{ending}", 0) in loaded(root)
    for image, _ in dataset(described(root), "train"):
        assert image.mode == "RGB"


def test_every_ending_belongs_to_a_format_of_the_installed_pillow() -> None:
    Image.init()
    known = Image.registered_extensions()
    for name, endings in index.FORMATS.items():
        for ending in endings:
            assert known[ending] == name or ending in (".apng", ".jfif")


def link_to_itself(root: Path) -> Path:
    (root / "train" / "cat" / "loop").symlink_to(root / "train" / "cat")
    return root / "train" / "cat" / "loop"


def link_to_its_parent(root: Path) -> Path:
    (root / "train" / "cat" / "sub").mkdir()
    (root / "train" / "cat" / "sub" / "up").symlink_to(root / "train" / "cat")
    return root / "train" / "cat" / "sub" / "up"


def broken_link(root: Path) -> Path:
    (root / "val" / "dog" / "5.png").symlink_to(root / "nowhere.png")
    return root / "val" / "dog" / "5.png"


def links_in_a_circle(root: Path) -> Path:
    (root / "val" / "dog" / "5.png").symlink_to(root / "val" / "dog" / "6.png")
    (root / "val" / "dog" / "6.png").symlink_to(root / "val" / "dog" / "5.png")
    return root / "val" / "dog" / "5.png"


def device(root: Path) -> Path:
    (root / "val" / "dog" / "5.png").symlink_to("/dev/zero")
    return root / "val" / "dog" / "5.png"


def pipe(root: Path) -> Path:
    os.mkfifo(root / "val" / "dog" / "5.png")
    return root / "val" / "dog" / "5.png"


def no_bytes(root: Path) -> Path:
    (root / "train" / "cat" / "5.png").touch()
    return root / "train" / "cat" / "5.png"


def text_as_image(root: Path) -> Path:
    (root / "train" / "cat" / "5.png").write_text("no image")
    return root / "train" / "cat" / "5.png"


def postscript_as_image(root: Path) -> Path:
    file = root / "train" / "cat" / "5.png"
    Image.fromarray(pixels()).save(file, format="EPS")
    return file


def other_format(root: Path) -> Path:
    (root / "train" / "cat" / "5.heic").write_bytes(b"x")
    return root / "train" / "cat" / "5.heic"


def no_ending(root: Path) -> Path:
    (root / "train" / "cat" / "5").write_bytes(b"x")
    return root / "train" / "cat" / "5"


def outside_a_class(root: Path) -> Path:
    return write(root / "train" / "5.png")


def floating_point(root: Path) -> Path:
    file = root / "train" / "cat" / "5.tif"
    Image.fromarray(np.ones((2, 4), np.float32)).save(file)
    return file


def class_without_images(root: Path) -> Path:
    for file in (root / "val" / "dog").iterdir():
        file.unlink()
    (root / "val" / "dog" / "notes.txt").write_text("x")
    return root / "val" / "dog"


@pytest.mark.parametrize(
    "spoil",
    [
        link_to_itself,
        link_to_its_parent,
        broken_link,
        links_in_a_circle,
        device,
        pipe,
        no_bytes,
        text_as_image,
        postscript_as_image,
        other_format,
        no_ending,
        outside_a_class,
        floating_point,
        class_without_images,
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_by_name(
    root: Path, spoil: Callable[[Path], Path]
) -> None:
    file = spoil(root)
    with pytest.raises(DataError) as raised:
        described(root)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_links_to_files_and_folders_are_followed(root: Path, tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere" / "7.png")
    (root / "train" / "cat" / "7.png").symlink_to(elsewhere)
    (root / "train" / "dog" / "more").symlink_to(elsewhere.parent)
    assert loaded(root)[2] == ("cat/7.png", 0)
    assert loaded(root)[-1] == ("dog/more/7.png", 1)


def test_one_class_is_refused(root: Path) -> None:
    for split in ("train", "val"):
        (root / split / "dog").rename(root / f"{split}-dog")
    with pytest.raises(DataError, match="has one class, 'cat'"):
        described(root)


def test_a_class_in_two_unicode_forms_is_one_class(root: Path) -> None:
    composed = unicodedata.normalize("NFC", "Zoë")
    split_up = unicodedata.normalize("NFD", "Zoë")
    (root / "train" / "dog").rename(root / "train" / composed)
    (root / "val" / "dog").rename(root / "val" / split_up)
    assert described(root).classes == 2
    assert [label for _, label in loaded(root, "test")] == [0, 0, 1, 1] or [
        label for _, label in loaded(root, "test")
    ] == [1, 1, 0, 0]
    (root / "train" / "cat").rename(root / "train" / split_up)
    with pytest.raises(DataError, match="two folders of the name"):
        described(root)


def test_a_name_that_is_no_text_is_read_or_refused(root: Path) -> None:
    file = os.fsencode(root / "train" / "cat") + b"/\xff.png"
    Path(os.fsdecode(file)).write_bytes((root / "train/cat/0.png").read_bytes())
    assert described(root).images == 5
    assert len(list(dataset(described(root), "train"))) == 5
    Path(os.fsdecode(file)).write_bytes(b"")
    with pytest.raises(DataError, match=r"udcff\.png is empty"):
        described(root)


def deep_png(file: Path) -> None:
    Image.fromarray(pixels()[:, :, 0].astype(np.uint16) * 256 + 7).save(file)


def deep_tiff(file: Path) -> None:
    deep_png(file.with_suffix(".tif"))
    file.with_suffix(".tif").rename(file)


def deep_pgm(file: Path) -> None:
    values = pixels()[:, :, 0].astype(">u2") * 256
    file.write_bytes(b"P5 4 2 65535\n" + values.tobytes())


def palette(file: Path) -> None:
    Image.fromarray(pixels()).convert("P").save(file, format="PNG")


def clear_palette(file: Path) -> None:
    image = Image.fromarray(pixels()).convert("P")
    image.save(file, format="PNG", transparency=bytes(range(256)))


def alpha(file: Path) -> None:
    Image.fromarray(pixels()).convert("RGBA").save(file, format="PNG")


def grey_alpha(file: Path) -> None:
    Image.fromarray(pixels()).convert("LA").save(file, format="PNG")


def grey(file: Path) -> None:
    Image.fromarray(pixels()[:, :, 0]).save(file, format="PNG")


def cmyk(file: Path) -> None:
    Image.fromarray(pixels()).convert("CMYK").save(file, format="TIFF")


def turned(file: Path) -> None:
    exif = Image.Exif()
    # Stored upside down.
    exif[index.ORIENTATION] = 3
    Image.fromarray(pixels()[::-1, ::-1].copy()).save(file, format="PNG", exif=exif)


FORMS = {
    "16 bit PNG": deep_png,
    "16 bit TIFF": deep_tiff,
    "16 bit PGM": deep_pgm,
    "palette": palette,
    "palette with transparency": clear_palette,
    "alpha": alpha,
    "grey with alpha": grey_alpha,
    "grey": grey,
    "CMYK": cmyk,
    "EXIF orientation": turned,
}


@pytest.mark.parametrize("form", FORMS)
def test_an_image_looks_as_in_a_viewer(root: Path, form: str) -> None:
    file = root / "train" / "cat" / "0.png"
    before = described(root).fingerprint
    FORMS[form](file)
    image, _ = dataset(described(root), "train")[0]
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).astype(int) - pixels()).max() <= 2
    changed = form.startswith(("16", "EXIF"))
    assert described(root).fingerprint != before
    assert described(root).fingerprint.endswith(index.SECOND_READING) == changed


def test_files_that_change_after_the_plan_are_not_trained_on(root: Path) -> None:
    data = described(root)
    write(root / "train" / "cat" / "later.png")
    with pytest.raises(DataError, match="not those that this trial was planned with"):
        dataset(data, "train")


@dataclass
class Expected:
    """What a random folder has, as the rules of docs/data.md say."""

    labels: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"train": {}, "val": {}}
    )


NAMES = st.sampled_from(["a", "Ä", "b 2", "b 10", "ñ"])
DEPTHS = st.sampled_from(["", "sub/", "cat/", "a/b/"])
KINDS = st.sampled_from(
    [*(f"x.{ending}" for ending in ("png", "JPG", "webp", "bmp", "gif")), *FORMS]
)
NOISE = st.sampled_from(
    [".hidden.png", "Thumbs.db", "._x.jpg", "readme.md", ".d/x.png"]
)


@pytest.mark.proof
@given(data=st.data())
def test_plan_identity_and_loader_agree_on_random_folders(data: st.DataObject) -> None:
    classes = data.draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    expected = Expected()
    with TemporaryDirectory() as folder:
        root = Path(folder, "set")
        for split, files in expected.labels.items():
            for label in classes:
                for number in range(data.draw(st.integers(1, 3))):
                    kind = data.draw(KINDS)
                    name = f"{number}.png" if kind in FORMS else f"{number}{kind}"
                    path = f"{label}/{data.draw(DEPTHS)}{name}"
                    (root / split / path).parent.mkdir(parents=True, exist_ok=True)
                    FORMS.get(kind, write)(root / split / path)
                    files[path] = label
                left_out = root / split / label / data.draw(NOISE)
                left_out.parent.mkdir(exist_ok=True)
                left_out.write_text("x")
        planned = described(root)
        assert planned.classes == len(classes)
        assert planned.images == len(expected.labels["train"])
        for split, folder_name in index.SPLITS.items():
            read = dict(loaded(root, split))
            files = expected.labels[folder_name]
            order = sorted(classes)
            assert read == {path: order.index(label) for path, label in files.items()}
            assert len(dataset(planned, split)) == len(files)
            for image, _ in dataset(planned, split):
                assert np.asarray(image).min() < 90
                assert np.asarray(image).max() > 150
        # Each file that is read counts in the identity, and no other file does.
        some = root / "train" / data.draw(st.sampled_from([*expected.labels["train"]]))
        with some.open("ab") as stream:
            stream.write(b"\0")
        assert described(root).fingerprint != planned.fingerprint
