"""One training loop: `Training(trial, folder)` resumes from its checkpoint."""

from ablate.training.errors import Diverged
from ablate.training.loop import Training

__all__ = ["Diverged", "Training"]
