"""Data: every source loads small data of its real layout, and says what is wrong with
others.
"""

from __future__ import annotations

import gzip
import pickle
import struct
from dataclasses import replace
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode

from ablate.data import SETS, describe, refuse_recipe
from ablate.data.arrays import load
from ablate.data.batches import batches
from ablate.data.files import FolderImages
from ablate.data.fitting import settled
from ablate.data.images import evaluation_transform, normalisation, training_transform
from ablate.data.index import read_index
from ablate.data.sets import IMAGENET_MEAN, IMAGENET_STD
from ablate.data.share import Share
from ablate.errors import DataError, Infeasible, UnknownName
from ablate.records import Data, Recipe
from ablate.space.recipes import RECIPES

CPU = torch.device("cpu")
BILINEAR, BICUBIC = InterpolationMode.BILINEAR, InterpolationMode.BICUBIC


def images(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)


def write_npz(path: Path, **changes: np.ndarray) -> Path:
    arrays = {
        "x_train": images(30, 6, 6, 3),
        "y_train": np.arange(30) % 4,
        "x_test": images(8, 6, 6, 3),
        "y_test": np.arange(8) % 4,
    }
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return path


def test_digits_are_embedded_and_split_for_good() -> None:
    found = load(describe("digits"))
    assert found.train.shape == (1437, 1, 8, 8)
    assert found.test.shape == (360, 1, 8, 8)
    assert found.train.dtype == torch.uint8
    assert found.train.max() == 255
    assert found.test_labels.bincount().min() >= 34, "every class in the test set"
    assert SETS["digits"].images == 1437


def test_npz_in_the_keras_layout(tmp_path: Path) -> None:
    data = describe("npz", str(write_npz(tmp_path / "a.npz")))
    assert (data.image_size, data.channels, data.classes, data.images) == (6, 3, 4, 30)
    found = load(data)
    assert found.train.shape == (30, 3, 6, 6)
    assert torch.equal(
        found.train[2, 1], torch.from_numpy(images(30, 6, 6, 3)[2, :, :, 1])
    )
    grey = describe(
        "npz",
        str(
            write_npz(
                tmp_path / "b.npz", x_train=images(30, 6, 6), x_test=images(8, 6, 6)
            )
        ),
    )
    assert grey.channels == 1


def test_moving_a_file_keeps_its_identity_and_editing_it_does_not(
    tmp_path: Path,
) -> None:
    one = describe("npz", str(write_npz(tmp_path / "a.npz")))
    moved = describe("npz", str((tmp_path / "a.npz").rename(tmp_path / "moved.npz")))
    edited = describe(
        "npz", str(write_npz(tmp_path / "c.npz", y_train=(np.arange(30) + 1) % 4))
    )
    assert one.canonical() == moved.canonical() != edited.canonical()


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": images(30, 6, 5, 3)}, "must be uint8"),
        ({"x_train": images(30, 6, 6, 3).astype(np.float32)}, "must be uint8"),
        ({"y_train": np.arange(29)}, "one class number"),
        ({"y_train": np.arange(30) - 1}, "one class number"),
        ({"y_train": np.linspace(0, 1, 30)}, "one class number"),
        ({"y_test": None}, "lacks y_test.* and has x_train, y_train, x_test"),
        ({"y_train": np.arange(30) % 4 + 1}, "starts at class 1, y_test at 0"),
        ({"x_test": images(8, 5, 5, 3)}, "x_train in .* has images of"),
        ({"x_test": images(8, 6, 6)}, "x_train in .* has images of"),
        (
            {"x_test": images(0, 6, 6, 3), "y_test": np.arange(0)},
            "x_test in .* is empty",
        ),
        (
            {"x_train": images(0, 6, 6, 3), "y_train": np.arange(0)},
            "x_train in .* is empty",
        ),
        ({"y_test": np.arange(8)}, "y_test in .* has class 7"),
        ({"y_train": np.array([Evil()] * 30, dtype=object)}, "without pickles"),
    ],
)
def test_malformed_npz(
    changes: dict[str, np.ndarray],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DataError, match=message):
        describe("npz", str(write_npz(tmp_path / "a.npz", **changes)))
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "images"),
    [("digits", {"test_images": 361}), ("cifar10", {"train_images": 50_001})],
)
def test_more_images_than_there_are_is_an_error_before_training(
    name: str, images: dict[str, int]
) -> None:
    (field,) = images
    available = images[field] - 1
    with pytest.raises(DataError, match=f"{field} = .*, but {name} has {available}"):
        describe(name, **images)
    assert describe(name, **{field: available}).test_images in (None, available)


def test_more_images_than_a_file_has_is_an_error_before_training(
    tmp_path: Path,
) -> None:
    file = str(write_npz(tmp_path / "a.npz"))
    with pytest.raises(DataError, match="train_images = 31, but npz has 30"):
        describe("npz", file, train_images=31)
    with pytest.raises(DataError, match="test_images = 9, but npz has 8"):
        describe("npz", file, test_images=9)


def test_a_bare_array_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", images(3, 6, 6))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(DataError, match="not a readable .npz"):
        describe("npz", str(tmp_path / "a.npz"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text"])
def test_files_that_are_no_npz(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match="not a readable .npz"):
        describe("npz", str(tmp_path / "a.npz"))


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}i", *array.shape
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + array.astype(np.uint8).tobytes())
    path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")]
)
def test_mnist_as_torchvision_lays_it_out(
    name: str, folder: str, tmp_path: Path
) -> None:
    for split, count in (("train", 12), ("t10k", 5)):
        write_idx(
            tmp_path / folder / "raw" / f"{split}-images-idx3-ubyte",
            images(count, 28, 28),
        )
        write_idx(
            tmp_path / folder / "raw" / f"{split}-labels-idx1-ubyte",
            np.arange(count) % 10,
        )
    found = load(describe(name, str(tmp_path)))
    assert found.train.shape == (12, 1, 28, 28)
    assert found.test_labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "key"), [("cifar10", b"labels"), ("cifar100", b"fine_labels")]
)
def test_cifar_as_torchvision_lays_it_out(
    name: str, key: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision import datasets

    made = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    monkeypatch.setattr(made, "_check_integrity", lambda self: True)
    monkeypatch.setattr(made, "_load_meta", lambda self: None)
    root = tmp_path / made.base_folder
    root.mkdir()
    for file, _ in [*made.train_list, *made.test_list]:
        (root / file).write_bytes(
            pickle.dumps({"data": images(4, 3072), key.decode(): [0, 1, 2, 3]})
        )
    found = load(describe(name, str(tmp_path)))
    assert found.train.shape == (4 * len(made.train_list), 3, 32, 32)
    assert found.test.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
def test_missing_sets_say_how_to_get_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{name} is not under .*download=True"):
        load(describe(name, str(tmp_path)))


@pytest.mark.parametrize("name", ["flowers102", "pets", "imagenet"])
def test_missing_files_are_reported(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{name}"):
        batches(describe(name, str(tmp_path)), Recipe(), CPU)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of small JPEG files."""
    for split, count in (("train", 6), ("val", 2)):
        for label in "abc":
            where = tmp_path / "set" / split / label
            where.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(images(1, 20, 30, 3)[0] + i).save(where / f"{i}.jpg")
    return tmp_path / "set"


# After an error, torch waits five seconds for each loading process.
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.proof)])
@pytest.mark.parametrize("split", ["train", "val"])
def test_an_unreadable_image_is_an_error_that_names_it(
    folder: Path, split: str, workers: int
) -> None:
    """timm's data set would take the next image instead, and the metric be wrong."""
    bad = folder / split / "b" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:-60])
    data = describe("folder", str(folder), image_size=16, workers=workers)
    found = batches(data, Recipe(batch_size=4), CPU)
    with pytest.raises(DataError) as raised:
        if split == "train":
            list(found.train(torch.Generator().manual_seed(1)))
        else:
            list(found.test())
    assert str(raised.value).startswith(f"data: {bad} cannot be read as an image: ")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_image_is_not_counted(folder: Path) -> None:
    (folder / "train" / "a" / "notes.txt").write_text("mine")
    assert describe("folder", str(folder), image_size=16).images == 18


# timm's ImageDataset leaves closing its files to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_a_folder_has_the_images_of_timms_data_set(folder: Path) -> None:
    from timm.data import ImageDataset

    numbers = {"a": 0, "b": 1, "c": 2}
    theirs = ImageDataset(str(folder / "train"), class_map=numbers)
    ours = FolderImages(read_index(folder), "train")
    assert len(ours) == len(theirs) == 18
    for (image, label), (other, number) in zip(ours, theirs, strict=True):
        assert (image.tobytes(), label) == (other.tobytes(), number)


def test_folders_go_through_timms_loader(folder: Path) -> None:
    data = describe("folder", str(folder), image_size=16, workers=0)
    assert (data.classes, data.images) == (3, 18)
    recipe = Recipe(
        batch_size=4, flip=0.5, rand_augment="rand-m5-n1", random_erasing=0.2
    )
    found = batches(data, recipe, CPU)
    assert found.updates == 4
    first = [x for x, _ in found.train(torch.Generator().manual_seed(1))]
    again = [
        x for x, _ in batches(data, recipe, CPU).train(torch.Generator().manual_seed(1))
    ]
    other = [x for x, _ in found.train(torch.Generator().manual_seed(2))]
    assert [x.shape for x in first] == [(4, 3, 16, 16)] * 4
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))
    assert sorted(y for _, ys in found.test() for y in ys.tolist()) == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_a_subset_of_a_folder(folder: Path) -> None:
    data = describe(
        "folder", str(folder), image_size=16, train_images=7, test_images=3, workers=0
    )
    found = batches(data, Recipe(batch_size=3), CPU)
    assert found.updates == 2
    assert (
        len(
            {
                y
                for _, ys in found.train(torch.Generator().manual_seed(0))
                for y in ys.tolist()
            }
        )
        > 1
    ), "not the first class alone"
    assert sum(len(y) for _, y in found.test()) == 3
    with pytest.raises(DataError, match="train_images = 99, but the data set has 18"):
        batches(replace(data, train_images=99), Recipe(), CPU)


def test_the_content_of_a_folder_is_its_identity(folder: Path) -> None:
    before = describe("folder", str(folder)).fingerprint
    (folder / "train" / "a" / "0.jpg").rename(folder / "train" / "b" / "9.jpg")
    assert describe("folder", str(folder)).fingerprint != before


@pytest.mark.parametrize("missing", ["train", "val"])
def test_a_folder_without_a_split(folder: Path, missing: str) -> None:
    (folder / missing).rename(folder / "elsewhere")
    with pytest.raises(DataError, match=f"no folder .*{missing}"):
        describe("folder", str(folder))


def memory(recipe: Recipe, **changes: object) -> tuple[torch.Tensor, torch.Tensor]:
    data: Data = replace(describe("digits", train_images=64), **changes)
    return next(
        iter(batches(data, recipe, CPU).train(torch.Generator().manual_seed(0)))
    )


def test_batches_in_memory_are_normalised_and_seeded() -> None:
    x, y = memory(Recipe(batch_size=64))
    assert x.shape == (64, 1, 8, 8)
    assert abs(x.mean()) < 1e-4
    assert abs(x.std() - 1) < 0.01
    assert torch.equal(y, memory(Recipe(batch_size=64))[1])


def test_crops_move_and_flips_mirror() -> None:
    plain = memory(Recipe(batch_size=64))[0]
    flipped = memory(Recipe(batch_size=64, flip=1.0))[0]
    assert torch.equal(flipped, plain.flip(-1))
    cropped = memory(Recipe(batch_size=64, crop_padding=1))[0]
    border = plain.min()
    for image, moved in zip(plain, cropped, strict=True):
        padded = torch.nn.functional.pad(image, (1, 1, 1, 1), value=float(border))
        crops = [padded[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
        assert any(torch.allclose(crop, moved, atol=1e-5) for crop in crops)


def test_images_are_resized_on_the_way() -> None:
    assert memory(Recipe(batch_size=8), image_size=16)[0].shape == (8, 1, 16, 16)


def test_names_and_recipes_that_do_not_fit() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cifar10'"):
        describe("cifar11")
    with pytest.raises(
        Infeasible, match="data.crop = 0.9 has no effect: with recipe.crop_padding"
    ):
        refuse_recipe(describe("imagenet", crop=0.9), Recipe(crop_padding=4))
    with pytest.raises(Infeasible, match="leave one of them out"):
        refuse_recipe(
            describe("imagenet"), Recipe(three_augment=True, rand_augment="rand-m9")
        )
    with pytest.raises(DataError, match="train_images = 9999, but digits has 1437"):
        load(describe("digits", train_images=9999))


def test_imagenet_needs_no_files_to_be_costed() -> None:
    data = describe("imagenet")
    assert (data.image_size, data.channels, data.classes) == (224, 3, 1000)


def test_both_splits_number_their_classes_alike(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder / "val" / "b")
    with pytest.raises(
        DataError, match="must have the same class folders; only one has b"
    ):
        describe("folder", str(folder))
    (folder / "val" / "b").mkdir()
    with pytest.raises(DataError, match="has no images"):
        describe("folder", str(folder))


def test_a_subset_is_an_even_draw_that_is_always_the_same() -> None:
    found = load(describe("digits", train_images=300))
    assert found.train_labels.bincount(minlength=10).min() > 15
    assert torch.equal(
        found.train, load(describe("digits", train_images=300, test_images=5)).train
    )


def test_pairs_need_two_images() -> None:
    with pytest.raises(Infeasible, match="a batch of 1 contains no pair"):
        refuse_recipe(describe("digits"), Recipe(batch_size=1, mixup=0.5))


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """A folder of 96 training images in two classes, each of one grey value that no
    other image has.
    """
    for split, count in (("train", 96), ("val", 4)):
        for number in range(count):
            where = tmp_path / "numbered" / split / "ab"[number % 2]
            where.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (2 * number,) * 3).save(where / f"{number:03}.png")
    return tmp_path / "numbered"


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("processes", [1, 2])
def test_repeats_of_an_image_stand_in_one_batch(
    numbered: Path, processes: int, mixes: bool
) -> None:
    """Three repeats: a batch of 48 files holds 16 images, as a batch in memory and one
    of DeiT's RASampler.
    """
    data = describe("folder", str(numbered), image_size=8, workers=0)
    recipe = Recipe(batch_size=48, repeats=3, cutmix=1.0 if mixes else 0.0)
    shares = [
        batches(data, recipe, CPU, Share(rank, processes)) for rank in range(processes)
    ]
    epochs = [list(share.train(torch.Generator().manual_seed(3))) for share in shares]
    seen: list[list[float]] = []
    for parts in zip(*epochs, strict=True):
        grey = torch.cat([images.mean((1, 2, 3)) for images, _ in parts])
        values, counts = grey.unique(return_counts=True)
        assert counts.tolist() == [3] * 16
        seen.append(values.tolist())
    assert len(seen) == 2
    assert not set(seen[0]) & set(seen[1]), "another batch has other images"
    assert len(epochs[0][0][0]) == 48 // processes


def test_repeats_are_drawn_again_each_epoch(numbered: Path) -> None:
    found = batches(
        describe("folder", str(numbered), image_size=8, workers=0),
        Recipe(batch_size=48, repeats=3),
        CPU,
    )
    order = torch.Generator().manual_seed(0)
    one, other = (
        set(next(iter(found.train(order)))[0].mean((1, 2, 3)).tolist())
        for _ in range(2)
    )
    assert one != other


@pytest.mark.parametrize(
    "change",
    [
        {"rand_augment": "rand-m9"},
        {"three_augment": True},
        {"color_jitter": 0.3},
        {"interpolation": "bicubic"},
        {"crop_scale": 0.05},
        {"crop_ratio": 2.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_only_files_go_through_is_refused_in_memory(
    change: dict[str, object],
) -> None:
    with pytest.raises(
        Infeasible,
        match=(
            f"recipe.{next(iter(change))} works only on image files; digits is"
            " augmented in memory"
        ),
    ):
        refuse_recipe(describe("digits"), Recipe(**change))
    refuse_recipe(describe("imagenet"), Recipe(**change))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"name": "digits", "crop": 0.9},
            "data.crop = 0.9 works only on image files; digits is in memory",
        ),
        (
            {"name": "digits", "crop_mode": "squash"},
            "data.crop_mode = squash works only on image files",
        ),
        (
            {"name": "digits", "interpolation": "bicubic"},
            "data.interpolation = bicubic works only on image files",
        ),
        ({"name": "imagenet", "mean": [0.5]}, "data.mean comes with data.std"),
        ({"name": "imagenet", "std": [0.5]}, "data.std comes with data.mean"),
        (
            {"name": "imagenet", "mean": [0.5, 0.5], "std": [0.5]},
            "data.mean has 2 numbers; imagenet has 3 channels: write one",
        ),
        (
            {"name": "digits", "mean": [0.5], "std": [0.5] * 3},
            "data.std has 3 numbers; digits has 1 channel: write one",
        ),
    ],
)
def test_preparations_that_cannot_be(said: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        describe(**said)


def test_images_in_memory_take_the_mean_that_is_said() -> None:
    own = memory(Recipe(batch_size=64))[0]
    said = memory(Recipe(batch_size=64), mean=(0.5,), std=(0.25,))[0]
    raw = load(describe("digits", train_images=64)).train.double()
    in_values = (own * raw.std() + raw.mean()) / 255
    torch.testing.assert_close(
        said, ((in_values - 0.5) / 0.25).float(), atol=1e-5, rtol=1e-5
    )


def steps(transform: object) -> list[dict[str, object]]:
    """Every step of a pipeline, class and parameters."""
    return [plain(step) for step in transform.transforms]


def plain(found: object) -> object:
    """An object as classes and values, to be compared and printed."""
    if isinstance(found, torch.Tensor):
        return [round(float(x), 6) for x in found]
    if isinstance(found, (list, tuple)):
        return [plain(x) for x in found]
    if isinstance(found, dict):
        return {str(key): plain(value) for key, value in found.items()}
    if callable(found) and hasattr(found, "__name__"):
        return found.__name__
    if isinstance(found, (str, int, float, bool, type(None), Enum)):
        return found
    inside = {
        key: plain(value)
        for key, value in vars(found).items()
        if not (key.startswith("_") or key == "training")
    }
    return {"class": type(found).__name__, **inside}


def named(transform: object) -> list[str]:
    return [type(step).__name__ for step in transform.transforms]


def test_a_recipe_and_its_data_decide_how_files_are_cut_and_resized() -> None:
    data = describe("imagenet")
    crop = plain(training_transform(data, Recipe()).transforms[0])
    resize, cut, _, normalise = steps(evaluation_transform(data, Recipe()))
    assert (crop["interpolation"], crop["scale"]) == (BILINEAR, [0.08, 1.0])
    assert crop["ratio"] == [3 / 4, 4 / 3]
    assert (resize["size"], resize["interpolation"], cut["size"]) == (
        256,
        BILINEAR,
        [224, 224],
    )
    assert normalise["mean"] == [0.485, 0.456, 0.406]
    wanted = Recipe(interpolation="bicubic", crop_scale=0.05, crop_ratio=2.0)
    crop = plain(training_transform(data, wanted).transforms[0])
    assert (crop["interpolation"], crop["scale"], crop["ratio"]) == (
        BICUBIC,
        [0.05, 1.0],
        [0.5, 2.0],
    )
    assert steps(evaluation_transform(data, wanted))[0]["interpolation"] == BICUBIC, (
        "as in training"
    )
    weights = replace(
        data, crop=0.9, interpolation="bilinear", mean=(0.5,), std=(0.25,)
    )
    resize, cut, _, normalise = steps(evaluation_transform(weights, wanted))
    assert (resize["size"], resize["interpolation"]) == (248, BILINEAR)
    assert (normalise["mean"], normalise["std"]) == ([0.5] * 3, [0.25] * 3)
    squashed = steps(evaluation_transform(replace(weights, crop_mode="squash"), wanted))
    assert squashed[0]["size"] == [248, 248], "not the shorter side alone"
    both = plain(training_transform(data, Recipe(interpolation="random")).transforms[0])
    assert both["interpolation"] == [BILINEAR, BICUBIC]
    assert (
        steps(evaluation_transform(data, Recipe(interpolation="random")))[0][
            "interpolation"
        ]
        == BICUBIC
    )


def test_files_go_through_what_the_data_and_the_recipe_say(folder: Path) -> None:
    """Through the loaders: test images are resized and normalised as said, and the
    pipeline is the one that was made.
    """
    data = describe(
        "folder",
        str(folder),
        image_size=16,
        workers=0,
        mean=[0.5],
        std=[0.25],
        crop=1.0,
        interpolation="bicubic",
    )
    files = sorted((folder / "val").glob("*/*.jpg"))
    expected = torch.stack(
        [evaluation_transform(data, Recipe())(Image.open(file)) for file in files]
    )
    found = torch.cat([x for x, _ in batches(data, Recipe(batch_size=4), CPU).test()])
    torch.testing.assert_close(found, expected)
    other = torch.cat(
        [
            x
            for x, _ in batches(
                replace(data, interpolation="bilinear"), Recipe(), CPU
            ).test()
        ]
    )
    assert not torch.equal(found, other)
    plain_ones = torch.cat(
        [x for x, _ in batches(replace(data, mean=(), std=()), Recipe(), CPU).test()]
    )
    mean, std = (
        torch.tensor(x).reshape(3, 1, 1)
        for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    torch.testing.assert_close(
        (plain_ones * std + mean - 0.5) / 0.25, found, atol=1e-5, rtol=1e-5
    )


def test_equal_preparations_have_one_identity() -> None:
    unsaid = describe("imagenet")
    said = describe(
        "imagenet",
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        crop=0.875,
        crop_mode="center",
        interpolation="bilinear",
    )
    assert settled(said, Recipe()) == unsaid
    assert settled(said, Recipe()).canonical() == {
        "name": "imagenet",
        "image_size": 224,
    }
    assert (
        settled(said, Recipe(interpolation="bicubic")).canonical()["interpolation"]
        == "bilinear"
    )
    changes: list[dict[str, object]] = [
        {"mean": (0.5,), "std": (0.5,)},
        {"crop": 0.9},
        {"crop_mode": "squash"},
        {"interpolation": "bicubic"},
    ]
    for change in changes:
        assert (
            settled(replace(unsaid, **change), Recipe()).canonical()
            != unsaid.canonical()
        )


def test_small_files_are_taken_as_they_are(numbered: Path) -> None:
    data = describe("folder", str(numbered), image_size=8, workers=0)
    recipe = Recipe(batch_size=48, crop_padding=2)
    images, _ = next(
        iter(batches(data, recipe, CPU).train(torch.Generator().manual_seed(0)))
    )
    assert images.shape == (48, 3, 8, 8)
    assert (images.amax((1, 2, 3)) > images.amin((1, 2, 3))).any(), (
        "some hold a part of the padding"
    )
    assert sum(len(labels) for _, labels in batches(data, recipe, CPU).test()) == 4
    with pytest.raises(
        DataError,
        match=(
            "the first image has 8 x 8 pixels. With recipe.crop_padding, images are not"
            " resized"
        ),
    ):
        batches(replace(data, image_size=16), recipe, CPU)


def deits_training(side: int) -> list[object]:
    """The steps of DeiT's `datasets.build_transform` for training, by the defaults of
    its `main.py`.
    """
    from timm.data import create_transform
    from torchvision.transforms import RandomCrop

    made = create_transform(
        input_size=side,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )
    return (
        [RandomCrop(side, padding=4), *made.transforms[1:]]
        if side <= 32
        else made.transforms
    )


def deits_test(side: int) -> list[object]:
    """The same for test images: none is resized where the side is 32 or less."""
    from torchvision import transforms

    resized = [
        transforms.Resize(int(side / 0.875), interpolation=BICUBIC),
        transforms.CenterCrop(side),
    ]
    last = [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return [*(resized if side > 32 else []), *last]


@pytest.mark.parametrize("side", [224, 32])
@pytest.mark.parametrize("split", ["train", "test"])
def test_files_of_the_recipe_deit_go_through_deits_pipeline(
    split: str, side: int
) -> None:
    """Step by step, class and parameters; pytest shows both lists where they differ, or
    with -s.
    """
    data = describe("imagenet", image_size=side)
    recipe = RECIPES["deit"] if side > 32 else replace(RECIPES["deit"], crop_padding=4)
    made = (
        training_transform(data, recipe)
        if split == "train"
        else evaluation_transform(data, recipe)
    )
    theirs = deits_training(side) if split == "train" else deits_test(side)
    pairs = list(zip(steps(made), map(plain, theirs), strict=True))
    for own, published in pairs:
        # timm's class is torchvision's, but for tensors, which it leaves alone.
        own["class"] = str(own["class"]).replace("MaybeToTensor", "ToTensor")
        published["class"] = str(published["class"]).replace(
            "MaybeToTensor", "ToTensor"
        )
        for step in (own, published):
            step |= {
                key: [round(x, 6) for x in step[key]]
                for key in ("mean", "std")
                if key in step
            }
        print(f"ablate: {own}\nDeiT:   {published}\n")
        assert own == published
    expected = {
        ("train", 224): (
            "RandomResizedCropAndInterpolation RandomHorizontalFlip RandAugment"
            " ToTensor Normalize RandomErasing"
        ),
        ("train", 32): (
            "RandomCrop RandomHorizontalFlip RandAugment ToTensor Normalize"
            " RandomErasing"
        ),
        ("test", 224): "Resize CenterCrop ToTensor Normalize",
        ("test", 32): "ToTensor Normalize",
    }
    assert " ".join(str(own["class"]) for own, _ in pairs) == expected[split, side]


def test_three_augment_is_deit_iiis() -> None:
    """A choice of grey, solarised above 128, and blurred, then jitter: the order of
    DeiT III's `augment.py`.
    """
    recipe = Recipe(
        interpolation="bicubic", flip=0.5, three_augment=True, color_jitter=0.3
    )
    pipeline = training_transform(describe("imagenet"), recipe)
    assert named(pipeline) == [
        "RandomResizedCropAndInterpolation",
        "RandomHorizontalFlip",
        "AutoAugment",
        "ColorJitter",
        "MaybeToTensor",
        "Normalize",
    ]
    jitter = plain(pipeline.transforms[3])
    assert [jitter[key] for key in ("brightness", "contrast", "saturation", "hue")] == [
        [0.7, 1.3]
    ] * 3 + [None]
    picture = Image.fromarray(images(1, 20, 20, 3)[0])
    solarised, grey, blurred = (
        policy[0](picture) for policy in pipeline.transforms[2].policy
    )
    assert np.ptp(np.asarray(grey), axis=2).max() <= 1
    raw = np.asarray(picture)
    assert np.array_equal(np.asarray(solarised), np.where(raw < 128, raw, 255 - raw))
    assert np.asarray(blurred).std() < raw.std()


def test_what_timms_loader_does_on_a_gpu_is_the_rest_of_the_pipeline() -> None:
    """There the transform leaves whole numbers, which the loader normalises and erases
    by the same numbers.
    """
    data = describe("imagenet", mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4])
    picture = Image.fromarray(images(1, 300, 400, 3)[0])
    whole, left = (
        evaluation_transform(data, Recipe(), prefetch=prefetch)(picture)
        for prefetch in (False, True)
    )
    assert left.dtype == torch.uint8
    mean, std = (torch.tensor(x).reshape(3, 1, 1) for x in normalisation(data))
    torch.testing.assert_close(
        (left.float() - 255 * mean) / (255 * std), whole, atol=1e-5, rtol=1e-5
    )
    recipe = Recipe(flip=0.5, rand_augment="rand-m9", random_erasing=0.25)
    assert (
        named(training_transform(data, recipe, prefetch=True))[:3]
        == named(training_transform(data, recipe))[:3]
    )
    assert "RandomErasing" not in named(training_transform(data, recipe, prefetch=True))


def npz(file: Path, train: list[int], test: list[int]) -> str:
    np.savez(
        file,
        x_train=images(len(train), 8, 8),
        y_train=np.array(train),
        x_test=images(len(test), 8, 8),
        y_test=np.array(test),
    )
    return str(file)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 1, 3], [0, 1], "no image of class 2, but of class 3; number the classes"),
        ([0, 0, 0], [0], "has class 0 only"),
        ([0, 2, 4], [1], "no image of class 1"),
    ],
)
def test_classes_without_training_images_are_refused(
    train: list[int], test: list[int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        describe("npz", npz(tmp_path / "some.npz", train, test))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("rand-m0-n2", r"fails in training \(Posterize: .*add -inc1"),
        ("rand-m9-mstd101", r"fails in training \(Posterize: .*add -inc1"),
        ("rand-m3-mstd0.5", r"fails in training \(Posterize: .*add -inc1"),
        ("augmix-m9", "is not a policy"),
        ("rand-m0-n2-inc1", ""),
        ("rand-m9-mstd0.5-inc1", ""),
        ("rand-m15-n2-mmax15", ""),
    ],
)
def test_policies_that_fail_in_training_are_refused(policy: str, message: str) -> None:
    """Posterising to 0 bits is an error in Pillow."""
    data = replace(describe("digits"), name="imagenet")
    recipe = Recipe(rand_augment=policy)
    if not message:
        refuse_recipe(data, recipe)
        return
    with pytest.raises(Infeasible, match=message):
        refuse_recipe(data, recipe)
