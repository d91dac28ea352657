"""The checkpoint of a trial.

It is written atomically, can be read with `weights_only=True`, and lies in a folder
that is locked against a second writer.
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
from ablate.machine.storage import storage
from ablate.records import CorrectImages, Epoch, Tested

State = dict[str, Any]
# This is longer than the 90 s after which an NFS server drops the lock of a machine
# that died.
LOCK_SECONDS = 120.0
BEAT_SECONDS = 1.0


class CheckpointFolder:
    """The folder or URL of one trial's checkpoint.

    An object of this class holds the lock of a folder. A worker that outlived its
    driver keeps its successor waiting until it ends, so that two processes never train
    the same trial. The kernel holds the lock and frees it when the process ends. A URL
    has no lock.
    """

    def __init__(self, folder: str | Path, trial: str) -> None:
        self._storage = storage(folder)
        self._trial = trial
        self._beaten = 0.0
        self._storage.hold(trial, LOCK_SECONDS)

    def release(self) -> None:
        """Lets other processes use the folder."""
        self._storage.release()

    def beat(self) -> None:
        """Gives a sign of life by touching the lock.

        From it the monitor can tell a long epoch from a hanging worker.
        """
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            self._storage.beat()

    def save(self, state: State) -> None:
        """Writes a checkpoint in one step.

        After a crash or on a full disk there is the old one or the new one, never a
        part.

        Raises:
            CheckpointError: it cannot be written.
        """
        # Serialised in memory first: if torch writes to a full disk, its error message
        # is about an unexpected position.
        content = io.BytesIO()
        torch.save({"trial": self._trial, **state}, content)
        with self._storage.writing() as path:
            path.write_bytes(content.getbuffer())

    def load(self) -> State | None:
        """Returns the checkpoint, or None if there is none.

        An unreadable file is set aside as `last.pt.unreadable`, and the trial starts
        again: that costs time but no correctness. A checkpoint of another trial is an
        error.

        Raises:
            CheckpointError: the checkpoint belongs to another trial.
        """
        with self._storage.reading() as path:
            if path is None:
                return None
            try:
                state = _whole(path)
            except (OSError, MemoryError):
                # The file may be intact although it could not be read this time, so it
                # must not be set aside.
                raise
            except Exception:
                # A truncated or altered file raises many types of errors. None of them
                # may end the trial.
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
    # torch does not verify the checksums that it writes: a flipped bit would be loaded
    # and trained with.
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise zipfile.BadZipFile("checksum")
    state: State = torch.load(path, map_location="cpu", weights_only=True)
    return state


def read_checkpoint(location: str, trial: str) -> State | None:
    """Returns the checkpoint of another trial, without changing it.

    Returns None if there is none or it is damaged.
    """
    with contextlib.suppress(Exception), storage(location).reading() as path:
        state = None if path is None else _whole(path)
        if state is not None and state.get("trial") == trial:
            return state
        return None
    return None


def has_checkpoint(folder: str | Path) -> bool:
    """Whether there is a checkpoint. Creates nothing."""
    return storage(folder).exists()


def epoch_of(state: State) -> Epoch:
    """An epoch as a checkpoint describes it."""
    return Epoch(**state)


def tested_of(state: State) -> Tested:
    """The result on the test set as a checkpoint describes it."""
    return Tested(**state)


def correct_state(correct: CorrectImages | None) -> State:
    """What a checkpoint holds of the images that are classified correctly."""
    if correct is None:
        return {}
    bits = np.frombuffer(correct.bits, dtype=np.uint8)
    return {"images": correct.images, "bits": torch.from_numpy(bits.copy())}


def correct_of(state: State) -> CorrectImages | None:
    """The images that are classified correctly, as a checkpoint describes them."""
    if not state:
        return None
    return CorrectImages(images=state["images"], bits=state["bits"].numpy().tobytes())


def random_states(order: torch.Generator) -> State:
    """Returns every random state that training uses, as tensors and plain numbers."""
    # Only tensors and plain numbers can be loaded with `weights_only=True`.
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
    """Restores what `random_states` returned."""
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
    """Seeds Python's and numpy's random states, which imports may have used."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_everything(seed: int) -> torch.Generator:
    """Seeds every random state; returns the generator of the data order."""
    reseed_python(seed)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
