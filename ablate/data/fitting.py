"""Which recipes fit which data, and which preparations of images are equal."""

from __future__ import annotations

from dataclasses import replace

from ablate.data.sets import CROP, FILES_ONLY, IMAGENET_MEAN, IMAGENET_STD, find
from ablate.errors import Infeasible
from ablate.records import Data, Recipe


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
            " data.validation, for example to 0.1"
        )
    if recipe.ends_early and not data.validation:
        name = "patience" if recipe.patience else "target"
        raise Infeasible(
            f"recipe.{name} ends a training by a validation split; set data.validation,"
            " for example to 0.1"
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
            "recipe.mixup and recipe.cutmix mix pairs of images, but a batch of"
            f" {recipe.batch_size} contains no pair; set recipe.batch_size to 2 or more"
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
                f"data.{name} = {value} has no effect: with recipe.crop_padding, test"
                " images are neither resized nor cropped; leave out one of the two"
            )


def _refuse_rand_augment(recipe: Recipe) -> None:
    if not recipe.rand_augment:
        return
    if recipe.three_augment:
        raise Infeasible(
            "recipe.three_augment takes the place of recipe.rand_augment; leave one of"
            " them out"
        )
    from PIL import Image
    from timm.data.auto_augment import rand_augment_transform

    try:
        policy = rand_augment_transform(recipe.rand_augment, {})
    except (AssertionError, ValueError, KeyError) as error:
        raise Infeasible(
            f"recipe.rand_augment = '{recipe.rand_augment}' is not a policy; write like"
            " rand-m9-mstd0.5-inc1"
        ) from error
    image = Image.new("RGB", (8, 8))
    for operation in policy.ops:
        operation.prob = 1.0
        # The least magnitude that the noise is likely to give.
        operation.magnitude = max(
            0.0, operation.magnitude - 3 * operation.magnitude_std
        )
        operation.magnitude_std = 0.0
        try:
            operation(image)
        except ValueError as error:
            raise Infeasible(
                f"recipe.rand_augment = '{recipe.rand_augment}' fails in training"
                f" ({operation.name}: {error}); take a larger magnitude, or add -inc1"
            ) from error
