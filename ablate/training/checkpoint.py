"""The checkpoint of a trial: atomic, readable with `weights_only=True`, in a folder
locked against a second writer.
"""

from __future__ import annotations

import contextlib
import io
import random
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.errors import CheckpointError
from ablate.training.storage import storage

State = dict[str, Any]
# Longer than the 90 s after which an NFS server forgets a machine that died with the
# lock.
LOCK_SECONDS = 120.0
BEAT_SECONDS = 1.0


class CheckpointFolder:
    """The folder, or the URL, of one trial's checkpoint.

    Whoever holds the object holds a folder: a worker that outlived its driver keeps its
    successor waiting until it is gone, so that no two processes train the same trial.
    The lock is the kernel's and ends with the process. A URL has no lock.
    """

    def __init__(self, folder: str | Path, trial: str) -> None:
        self._storage = storage(folder)
        self._trial = trial
        self._beaten = 0.0
        self._storage.hold(trial, LOCK_SECONDS)

    def release(self) -> None:
        """Lets others have the folder."""
        self._storage.release()

    def beat(self) -> None:
        """A sign of life: touches the lock, so that whoever waits for this trial can
        tell a long epoch from a hanging worker.
        """
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._storage.beat()

    def save(self, state: State) -> None:
        """Writes a checkpoint in one step: after a crash or on a full disk there is the
        old one or the new one, never a part.

        Raises:
            CheckpointError: it cannot be written.
        """
        # First in memory: torch, writing to a full disk itself, speaks of an unexpected
        # position instead.
        content = io.BytesIO()
        torch.save({"trial": self._trial, **state}, content)
        with self._storage.writing() as path:
            path.write_bytes(content.getbuffer())

    def load(self) -> State | None:
        """The checkpoint, or None where there is none.

        A file that cannot be read is set aside as `last.pt.unreadable` and the trial
        starts anew: nothing wrong can come of it but time. One of another trial is an
        error.

        Raises:
            CheckpointError: the checkpoint is of another trial.
        """
        with self._storage.reading() as path:
            if path is None:
                return None
            try:
                state = _whole(path)
            except (OSError, MemoryError):
                # The file may well be whole: it could not be read this time, and must
                # not be set aside.
                raise
            except Exception:
                # Many kinds are raised for a truncated or altered file; none of them
                # may lose the trial.
                with contextlib.suppress(OSError):
                    self._storage.set_aside()
                return None
        if state.get("trial") != self._trial:
            raise CheckpointError(
                f"{self._storage.name} is a checkpoint of trial {state.get('trial')},"
                f" not of {self._trial}; move it away"
            )
        return state


def _whole(path: Path) -> State:
    # torch does not look at the checksums that it writes: a flipped bit would load, and
    # train on.
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise zipfile.BadZipFile("checksum")
    state: State = torch.load(path, map_location="cpu", weights_only=True)
    return state


def read_checkpoint(place: str, trial: str) -> State | None:
    """The checkpoint of another trial, which it keeps; None where it has none, or none
    that is whole.
    """
    with contextlib.suppress(Exception), storage(place).reading() as path:
        state = None if path is None else _whole(path)
        if state is not None and state.get("trial") == trial:
            return state
        return None
    return None


def has_checkpoint(folder: str | Path) -> bool:
    """Whether anything lies there; makes nothing."""
    return storage(folder).exists()


def random_states(order: torch.Generator) -> State:
    """Every random state that training draws from, as tensors and plain numbers."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    assert name == "MT19937"
    version, words, gauss = random.getstate()
    states: State = {
        "torch": torch.get_rng_state(),
        "order": order.get_state(),
        "numpy": [
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ],
        "python": [version, torch.tensor(words), gauss],
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: State, order: torch.Generator) -> None:
    """Puts back what `random_states` took."""
    torch.set_rng_state(states["torch"])
    order.set_state(states["order"])
    keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state(
        ("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached)
    )
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def reseed_python(seed: int) -> None:
    """Seeds Python's and numpy's random states, from which imports may draw."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_everything(seed: int) -> torch.Generator:
    """Seeds every random state, and gives the generator of the data order."""
    reseed_python(seed)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
