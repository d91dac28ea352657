"""Which test images a network classifies correctly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class CorrectImages:
    """Which test images a trial classifies correctly (top-1).

    Attributes:
        images: the number of test images.
        bits: one bit per image in the order of the data, the first one highest.
    """

    images: int
    bits: bytes

    @classmethod
    def of(cls, correct: np.ndarray[Any, Any]) -> CorrectImages:
        """Packs booleans, shape (images,)."""
        import numpy as np

        return cls(images=len(correct), bits=np.packbits(correct).tobytes())

    def array(self) -> np.ndarray[Any, Any]:
        """Returns booleans, shape (images,)."""
        import numpy as np

        packed = np.frombuffer(self.bits, dtype=np.uint8)
        return np.unpackbits(packed, count=self.images).astype(bool)
