"""One training loop: `Training(trial, folder)` continues where its checkpoint ends."""

from ablate.training.loop import Diverged, Training

__all__ = ["Diverged", "Training"]
