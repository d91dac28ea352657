"""Data sets of scenes: digit scenes, and COCO and ADE20K in their published layouts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ablate.data import describe
from ablate.data.coco import CocoScenes
from ablate.data.digit_scenes import DigitScenes
from ablate.data.files import picture
from ablate.data.scene import IGNORED
from ablate.data.scene_batches import SceneBatch, SceneBatches
from ablate.errors import DataError
from ablate.records import Data, Recipe

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=1, batch_size=4, flip=0.5)
# Two objects of different categories, one of them a crowd, and one with polygons.
SIDE = (48, 64)


def coco(folder: Path) -> Path:
    """A tiny data set in COCO's layout; returns its folder."""
    (folder / "annotations").mkdir(parents=True)
    draw = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        (folder / f"{split}2017").mkdir()
        images = []
        annotations = []
        for number in range(1, count + 1):
            height, width = SIDE if number % 2 else SIDE[::-1]
            pixels = draw.integers(0, 255, (height, width, 3), dtype=np.uint8)
            name = f"{number:012}.jpg"
            Image.fromarray(pixels).save(folder / f"{split}2017" / name)
            images.append(
                {"id": number, "file_name": name, "height": height, "width": width}
            )
            if split == "train" and number == 6:
                # An image without objects, which training leaves out.
                continue
            left = 4 + number
            annotations.append(
                {
                    "id": 10 * number,
                    "image_id": number,
                    "category_id": 1 if number % 2 else 90,
                    "bbox": [left, 8, 20, 16],
                    "area": 320,
                    "iscrowd": 0,
                    "segmentation": [[left, 8, left + 20, 8, left + 20, 24, left, 24]],
                }
            )
            annotations.append(
                {
                    "id": 10 * number + 1,
                    "image_id": number,
                    "category_id": 1,
                    "bbox": [0, 0, 4, 4],
                    "area": 16,
                    "iscrowd": 1,
                    "segmentation": {
                        "size": [height, width],
                        "counts": [0, 4, height * width - 4],
                    },
                }
            )
        (folder / "annotations" / f"instances_{split}2017.json").write_text(
            json.dumps(
                {
                    "images": images,
                    "annotations": annotations,
                    "categories": [{"id": 90, "name": "b"}, {"id": 1, "name": "a"}],
                }
            )
        )
    return folder


def ade20k(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    for split, count in (("training", 6), ("validation", 2)):
        for kind in ("images", "annotations"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 255, (*SIDE, 3), dtype=np.uint8)
            classes = draw.integers(0, 4, SIDE, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / split / f"{number}.jpg")
            Image.fromarray(classes).save(
                folder / "annotations" / split / f"{number}.png"
            )
    return folder


def every(batches: SceneBatches, seed: int = 0) -> list[SceneBatch]:
    return list(batches.train(torch.Generator().manual_seed(seed)))


def box_of(mask: torch.Tensor) -> list[int]:
    rows = mask.any(1).nonzero().flatten()
    columns = mask.any(0).nonzero().flatten()
    return [
        int(columns[0]),
        int(rows[0]),
        int(columns[-1]) + 1,
        int(rows[-1]) + 1,
    ]


@pytest.mark.parametrize("split", ["train", "test"])
def test_digit_scenes_are_exact(split: str) -> None:
    scenes = DigitScenes(split, 64)
    for index in range(50):
        scene = scenes[index]
        assert len(scene.objects["labels"]) >= 1
        for box, label, mask in zip(
            scene.objects["boxes"],
            scene.objects["labels"],
            scene.objects["masks"],
            strict=True,
        ):
            assert box.tolist() == box_of(mask)
            assert (scene.classes[mask.bool()] == label).all()
        # No pixel belongs to two digits.
        assert int(scene.objects["masks"].sum(0).max()) <= 1


def test_digit_scenes_are_the_same_everywhere() -> None:
    digest = hashlib.sha256()
    for split in ("train", "test"):
        for index in range(20):
            scene = DigitScenes(split, 64)[index]
            digest.update(scene.image.numpy().tobytes())
            digest.update(scene.classes.numpy().tobytes())
    assert digest.hexdigest()[:16] == "170e129745da873a"


def test_what_a_batch_shows_moves_with_its_images() -> None:
    """Flipped and resized masks still fill their boxes."""
    data = replace(describe("digit-scenes", train_images=40), image_size=64)
    batches = SceneBatches(data, RECIPE, CPU, "masks")
    flipped = 0
    for batch in every(batches):
        assert batch.images.shape == (4, 1, 64, 64)
        for objects, scene in zip(batch.objects, batch.scenes, strict=True):
            for box, mask in zip(objects["boxes"], objects["masks"], strict=True):
                assert box.tolist() == box_of(mask)
            flipped += not torch.equal(objects["boxes"], scene.objects["boxes"])
    assert 8 < flipped < 32


def test_images_are_normalised_by_the_training_images() -> None:
    batches = SceneBatches(describe("digit-scenes"), RECIPE, CPU, "classes")
    whole = torch.cat([batch.images for batch in every(batches)])
    assert abs(float(whole.mean())) < 0.05
    assert abs(float(whole.std()) - 1) < 0.05


def test_equal_orders_give_equal_epochs_and_others_do_not(tmp_path: Path) -> None:
    data = describe("coco", str(coco(tmp_path / "coco")), image_size=64, image_width=96)
    found = []
    for workers in (0, 0, 2):
        batches = SceneBatches(
            replace(data, workers=workers),
            replace(RECIPE, batch_size=2),
            CPU,
            "objects",
        )
        found.append([batch.images for batch in every(batches)])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
    again = [batch.images for batch in every(batches, seed=1)]
    assert not all(
        one.shape == two.shape and torch.equal(one, two)
        for one, two in zip(found[0], again, strict=True)
    )


def test_coco_is_read_in_its_published_layout(tmp_path: Path) -> None:
    folder = str(coco(tmp_path / "coco"))
    data = describe("coco", folder, image_size=96, image_width=160, workers=0)
    assert (data.classes, data.images) == (2, 5)
    scenes = CocoScenes(folder, "train")
    assert len(scenes) == 5, "an image without objects is left out"
    second = scenes[1]
    assert second.objects["labels"].tolist() == [2], "categories count from 1"
    assert second.objects["boxes"].tolist() == [[6, 8, 26, 24]]
    assert box_of(second.objects["masks"][0]) == [6, 8, 26, 24]
    assert [one["iscrowd"] for one in second.annotations] == [0, 1]
    batches = SceneBatches(data, RECIPE, CPU, "masks")
    (batch,) = batches.test()
    # 48 x 64 becomes 96 x 128, padded to a multiple of 32 on the side of the tallest.
    assert batch.sizes == [(96, 128), (128, 96), (96, 128)]
    assert batch.images.shape == (3, 3, 128, 128)
    assert batch.originals == [SIDE, SIDE[::-1], SIDE]
    assert batch.objects[0]["boxes"].tolist() == [[10, 16, 50, 48]]


def test_ade20k_is_read_in_its_published_layout(tmp_path: Path) -> None:
    folder = str(ade20k(tmp_path / "ade"))
    data = describe(
        "ade20k",
        folder,
        image_size=64,
        image_width=256,
        workers=0,
    )
    assert (data.classes, data.images) == (150, 6)
    batches = SceneBatches(data, RECIPE, CPU, "classes")
    (batch,) = every(batches)
    assert batch.images.shape == (4, 3, 64, 64), "a crop"
    assert set(batch.classes.unique().tolist()) <= {0, 1, 2, IGNORED}
    (tested,) = batches.test()
    assert tested.sizes == [(64, 85)] * 2
    assert (tested.classes[:, :, 85:] == IGNORED).all(), "padding"
    assert tested.scenes[0].classes.shape == SIDE


@pytest.mark.parametrize("name", ["coco", "ade20k"])
def test_data_that_are_not_there_are_said_with_the_layout(
    name: str, tmp_path: Path
) -> None:
    data = describe(name, str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"is missing; .* needs"):
        SceneBatches(data, RECIPE, CPU, "masks")
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError, match=r"is missing; .* needs"):
        describe(name, str(tmp_path / "there"))


@pytest.mark.parametrize("content", ["{", "[]", '{"images": []}'])
def test_annotations_that_are_none_are_said(content: str, tmp_path: Path) -> None:
    folder = coco(tmp_path / "coco")
    (folder / "annotations" / "instances_val2017.json").write_text(content)
    with pytest.raises(DataError, match=r"instances_val2017.json (cannot|must)"):
        describe("coco", str(folder))


def test_a_changed_annotation_is_another_data_set(tmp_path: Path) -> None:
    folder = coco(tmp_path / "coco")
    before = describe("coco", str(folder))
    file = folder / "annotations" / "instances_train2017.json"
    content: dict[str, Any] = json.loads(file.read_text())
    content["annotations"][0]["bbox"][0] += 1
    file.write_text(json.dumps(content))
    assert describe("coco", str(folder)).canonical() != before.canonical()


def test_a_split_for_validation_is_disjoint() -> None:
    data: Data = describe("digit-scenes", train_images=50, validation=0.2)
    batches = SceneBatches(data, replace(RECIPE, flip=0.0), CPU, "classes")
    trained = {
        scene.image.numpy().tobytes() for one in every(batches) for scene in one.scenes
    }
    held = {
        scene.image.numpy().tobytes()
        for one in batches.test(validation=True)
        for scene in one.scenes
    }
    assert len(trained) == 40
    assert len(held) == 10
    assert not trained & held


def rewritten(
    folder: Path, split: str, change: Callable[[dict[str, Any]], object]
) -> str:
    """Changes the annotations of a split; returns the folder."""
    file = folder / "annotations" / f"instances_{split}2017.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda content: content["annotations"][0].update(category_id=99),
            r"annotations\[0\] has the category_id 99, which is not in categories",
        ),
        (
            lambda content: content["categories"][0].pop("id"),
            r"categories\[0\] has no id",
        ),
        (
            lambda content: content["images"][1].pop("width"),
            r"images\[1\] has no width",
        ),
        (
            lambda content: content["annotations"][1].update(bbox=[1, 2, "3", 4]),
            r"annotations\[1\] must have a bbox of four finite numbers",
        ),
        (
            lambda content: content["annotations"][1].update(area=None),
            r"annotations\[1\] has the area None; it must be a number from 0 up",
        ),
        (
            lambda content: content["annotations"][1].update(area=-1),
            r"annotations\[1\] has the area -1; it must be a number from 0 up, or",
        ),
        (
            lambda content: content["annotations"][0].update(image_id=1234),
            r"annotations\[0\] has the image_id 1234, which is not in images",
        ),
        (
            lambda content: content["categories"][0].update(name="other"),
            "category 90 is 'other' in the training annotations and 'b' in the test annotations",
        ),
        (
            lambda content: content["categories"].append({"id": 7, "name": "c"}),
            "different categories: 7 are in only one of the splits",
        ),
    ],
)
def test_annotations_that_are_wrong_are_said(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    folder = rewritten(coco(tmp_path / "coco"), "train", change)
    with pytest.raises(DataError, match=said):
        describe("coco", folder)


def test_a_box_outside_its_image_is_left_out(tmp_path: Path) -> None:
    def move(content: dict[str, Any]) -> None:
        for annotation in content["annotations"]:
            if annotation["image_id"] == 1:
                annotation["bbox"] = [SIDE[1], 8, 20, 16]

    folder = rewritten(coco(tmp_path / "coco"), "train", move)
    assert len(CocoScenes(folder, "train")) == 4


def test_an_object_that_resizing_makes_too_small_is_left_out(tmp_path: Path) -> None:
    def shrink(content: dict[str, Any]) -> None:
        for annotation in content["annotations"]:
            annotation["bbox"][2:] = [1.5, 1.5]

    folder = rewritten(coco(tmp_path / "coco"), "train", shrink)
    data = describe("coco", folder, image_size=32, workers=0)
    for batch in every(SceneBatches(data, RECIPE, CPU, "masks")):
        assert all(len(one["boxes"]) == 0 for one in batch.objects)


def test_boxes_without_masks_are_enough_for_a_head_without_masks(
    tmp_path: Path,
) -> None:
    def drop(content: dict[str, Any]) -> None:
        for annotation in content["annotations"]:
            del annotation["segmentation"]

    folder = rewritten(coco(tmp_path / "coco"), "train", drop)
    data = describe("coco", folder, image_size=64, workers=0)
    assert every(SceneBatches(data, RECIPE, CPU, "boxes"))
    with pytest.raises(DataError, match=r"has no segmentation, .* use head: detr"):
        every(SceneBatches(data, RECIPE, CPU, "masks"))


def test_data_without_objects_are_said(tmp_path: Path) -> None:
    folder = rewritten(
        coco(tmp_path / "coco"), "train", lambda content: content["annotations"].clear()
    )
    with pytest.raises(DataError, match=r"no image of .*train2017 has an object"):
        SceneBatches(describe("coco", folder, image_size=64), RECIPE, CPU, "boxes")


def test_images_of_several_sizes_are_normalised_as_the_data_say(tmp_path: Path) -> None:
    folder = str(coco(tmp_path / "coco"))
    data = describe("coco", folder, image_size=64, workers=0, mean=[0.5], std=[0.5])
    batch = every(SceneBatches(data, RECIPE, CPU, "boxes"))[0]
    assert -1.01 < float(batch.images.min()) < -0.8
    assert 0.8 < float(batch.images.max()) < 1.01


def test_a_palette_keeps_its_colours_in_an_image(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[..., 0] = 200
    Image.fromarray(pixels).convert("P", palette=Image.Palette.ADAPTIVE).save(
        tmp_path / "a.png"
    )
    assert picture(tmp_path / "a.png")[:, 0, 0].tolist() == [200, 0, 0]
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "b.png")
    with pytest.raises(DataError, match="an annotation has one channel of 8 bits"):
        picture(tmp_path / "b.png", mode="L")


def test_an_image_of_another_size_than_reported_is_said(tmp_path: Path) -> None:
    def swap(content: dict[str, Any]) -> None:
        for image in content["images"]:
            image["height"], image["width"] = image["width"], image["height"]

    folder = rewritten(coco(tmp_path / "coco"), "val", swap)
    scenes = CocoScenes(folder, "test")
    with pytest.raises(DataError, match=r"has 48 x 64 pixels .* and 64 x 48 in the"):
        scenes[0]


def test_an_annotation_of_another_size_than_its_image_is_said(tmp_path: Path) -> None:
    folder = ade20k(tmp_path / "ade")
    file = folder / "annotations" / "training" / "0.png"
    Image.fromarray(np.zeros((40, 64), np.uint8)).save(file)
    data = describe("ade20k", str(folder), image_size=64, workers=0)
    with pytest.raises(DataError, match=r"0.png has \(40, 64\) pixels, and its image"):
        every(SceneBatches(data, RECIPE, CPU, "classes"))


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/secret.jpg"])
def test_annotations_name_no_file_outside_their_folder(
    name: str, tmp_path: Path
) -> None:
    folder = rewritten(
        coco(tmp_path / "coco"),
        "val",
        lambda content: content["images"][0].update(file_name=name),
    )
    with pytest.raises(DataError, match="secret.jpg in the annotations is not a file"):
        CocoScenes(folder, "test")[0]


def test_a_width_of_squares_is_said() -> None:
    with pytest.raises(DataError, match="are drawn on squares"):
        describe("digit-scenes", image_width=96)


def twice(key: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content[key].append({**content[key][0], "name": "again"})

    return change


def box(*sides: float) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["annotations"][0]["bbox"] = list(sides)

    return change


def tall(content: dict[str, Any]) -> None:
    content["images"][0]["height"] = 0


def elsewhere(content: dict[str, Any]) -> None:
    content["images"][0]["file_name"] = "nowhere.jpg"


def is_true(content: dict[str, Any]) -> None:
    content["annotations"][0]["category_id"] = True


def only_points(content: dict[str, Any]) -> None:
    for annotation in content["annotations"]:
        annotation["bbox"] = [3, 3, 0, 0]


def no_list(content: dict[str, Any]) -> None:
    content["categories"] = 5


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            twice("categories"),
            r"categories\[0\] and categories\[\d+\] have the same id",
        ),
        (twice("images"), r"images\[0\] and images\[\d+\] have the same id"),
        (
            twice("annotations"),
            r"annotations\[0\] and annotations\[\d+\] have the same",
        ),
        (box(1, 1, -2, 4), "bbox of negative size"),
        (box(float("nan"), 1, 2, 4), "four finite numbers"),
        (box(1, float("inf"), 2, 4), "four finite numbers"),
        (box(True, 1, 2, 4), "four finite numbers"),
        (tall, "has the height 0"),
        (elsewhere, "nowhere.jpg is in the annotations, but is no file"),
        (is_true, "no category_id, or one of the wrong type"),
        (only_points, "no image of .* has an object"),
        (no_list, "must have the lists images, annotations, categories"),
    ],
)
def test_annotations_that_would_fail_in_every_trial_are_refused_at_once(
    split: str,
    change: Callable[[dict[str, Any]], None],
    message: str,
    tmp_path: Path,
) -> None:
    folder = rewritten(coco(tmp_path / "coco"), split, change)
    with pytest.raises(DataError, match=message):
        describe("coco", folder)


def test_a_category_that_nothing_uses_is_a_class(tmp_path: Path) -> None:
    folder = str(coco(tmp_path / "coco"))
    for split in ("train", "val"):
        folder = rewritten(
            Path(folder),
            split,
            lambda content: content["categories"].append({"id": 91, "name": "rare"}),
        )
    assert describe("coco", folder).classes == 3


def test_annotations_that_are_nested_too_deeply(tmp_path: Path) -> None:
    folder = coco(tmp_path / "coco")
    file = folder / "annotations" / "instances_train2017.json"
    file.write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deeply"):
        describe("coco", str(folder))


def test_ade20k_leaves_out_what_a_viewer_leaves_behind(tmp_path: Path) -> None:
    folder = ade20k(tmp_path / "ade")
    before = describe("ade20k", str(folder))
    (folder / "images" / "training" / ".DS_Store").write_text("x")
    (folder / "images" / "validation" / "Thumbs.db").write_text("x")
    assert describe("ade20k", str(folder)) == before


def test_ade20k_with_a_class_beyond_the_last_is_refused_at_once(tmp_path: Path) -> None:
    folder = ade20k(tmp_path / "ade")
    annotation = sorted((folder / "annotations" / "validation").iterdir())[0]
    classes = np.asarray(Image.open(annotation)).copy()
    classes[0, 0] = 151
    Image.fromarray(classes).save(annotation)
    with pytest.raises(DataError, match=f"{annotation} has a pixel of class 151"):
        describe("ade20k", str(folder))
