"""One training loop: `Training(trial, folder)` resumes from its checkpoint."""

from ablate.training.loop import Diverged, Training

__all__ = ["Diverged", "Training"]
