"""The part of each batch that one process of a trial trains."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.errors import DataError


@dataclass(frozen=True)
class Share:
    """The part of every batch that one of several processes takes.

    A single process takes all of it.
    """

    rank: int = 0
    of: int = 1

    def training(self, batch: int, mixes: bool) -> slice | list[int]:
        """Returns positions in a training batch, equally many for each process.

        Mixing pairs the first image with the last, the second with the last but one,
        and so on. Both images of a pair go to the same process, which can then mix its
        share as the whole batch would be mixed.

        Raises:
            DataError: the batch cannot be shared evenly.
        """
        if self.of == 1:
            return slice(None)
        parts = self.of * (2 if mixes else 1)
        if batch % parts:
            raise DataError(
                f"recipe: a batch of {batch} images cannot be shared by {self.of}"
                f" processes{' that mix pairs' if mixes else ''}; set recipe.batch_size"
                f" to a multiple of {parts}"
            )
        if not mixes:
            # Every n-th image rather than a block, so that neighbours, such as the
            # copies of repeated augmentation, are spread over the processes.
            return slice(self.rank, None, self.of)
        first = list(range(self.rank, batch // 2, self.of))
        # First the left images, then their partners in reverse: flipping the share
        # pairs the same images as flipping the whole batch.
        return first + [batch - 1 - position for position in reversed(first)]

    def test(self) -> slice:
        """Returns positions in a batch of test images; there may be none."""
        return slice(self.rank, None, self.of)


WHOLE = Share()
