"""The augmentation of a user's file, which changes each training batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ablate.errors import AblateError, Infeasible
from ablate.learning.named_parts import named_part
from ablate.own.mistakes import refusal
from ablate.records import Data, Recipe
from ablate.records.own_parts import OwnAugmentation

# Images of a batch on which the plan tries an augmentation.
MOST_TRIED = 64


class Augmentation:
    """A user's augmentation in one epoch.

    Args:
        order: draws the seed of the random numbers of this epoch.
    """

    def __init__(self, own: OwnAugmentation, order: torch.Generator) -> None:
        self._own = own
        seed = int(torch.randint(2**62, (1,), generator=order))
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, images: Tensor) -> Tensor:
        """Returns the changed images of a batch.

        Raises:
            AblateError: the user's function returns something of another shape or type.
        """
        changed = self._own(images, self._generator)
        if (
            not isinstance(changed, Tensor)
            or changed.shape != images.shape
            or changed.dtype != images.dtype
        ):
            raise AblateError(
                f"augmentation {self._own.name} must return images of the shape"
                f" {tuple(images.shape)} and the type {images.dtype}; found"
                f" {type(changed).__name__} {tuple(getattr(changed, 'shape', ()))}"
                f" {getattr(changed, 'dtype', '')}".rstrip()
            )
        return changed


def own_augmentation(recipe: Recipe) -> OwnAugmentation | None:
    """The user's augmentation that a recipe names; None if it names none."""
    own: OwnAugmentation | None = named_part("augmentation", recipe.augmentation)
    return own


def refuse_augmentation(recipe: Recipe, data: Data, processes: int) -> None:
    """Tries the augmentation of a recipe on a batch.

    Raises:
        Infeasible: it cannot be used with these data.
        PartError: it has a mistake.
    """
    own = own_augmentation(recipe)
    if own is None:
        return
    if processes > 1:
        raise Infeasible(
            f"the augmentation {own.name} changes whole batches; set"
            " resources.processes to 1"
        )
    count = min(recipe.batch_size, MOST_TRIED)
    images = torch.zeros(count, data.channels, data.image_size, data.image_size)
    try:
        Augmentation(own, torch.Generator().manual_seed(0))(images)
    except AblateError as error:
        raise Infeasible(str(error)) from error
    except Exception as error:
        raise refusal(f"augmentation {own.name} cannot be used", error) from error
