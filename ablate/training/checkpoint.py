"""The checkpoint of a trial: atomic, readable with `weights_only=True`, locked against a second writer."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import random
import time
import zipfile
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from ablate.errors import CheckpointError

State = dict[str, Any]
LOCK_SECONDS = 60.0
BEAT_SECONDS = 1.0


class CheckpointFolder:
    """The folder of one trial's checkpoint.

    Whoever holds the object holds the folder: a worker that outlived its driver keeps its successor waiting until it is
    gone, so that no two processes train the same trial. The lock is the kernel's and ends with the process.
    """

    def __init__(self, folder: Path, trial: str) -> None:
        self._file, self._trial = folder / "last.pt", trial
        folder.mkdir(parents=True, exist_ok=True)
        self._lock: TextIO | None = (folder / "lock").open("w")
        self._beaten = 0.0
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self.release()
                    raise CheckpointError(
                        f"another process has been training {trial} for {LOCK_SECONDS:.0f} s; it holds {folder}/lock"
                    ) from None
                time.sleep(0.05)

    def release(self) -> None:
        """Lets others have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def beat(self) -> None:
        """A sign of life: touches the lock, so that whoever waits for this trial can tell a long epoch from a hanging worker."""
        if self._lock is not None and time.monotonic() - self._beaten > BEAT_SECONDS:
            self._beaten = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._lock.fileno())

    def save(self, state: State) -> None:
        """Writes a checkpoint in one step: after a crash or on a full disk there is the old one or the new one, never a part."""
        partial = self._file.with_suffix(".part")
        # First in memory: torch, writing to a full disk itself, speaks of an unexpected position instead.
        content = io.BytesIO()
        torch.save({"trial": self._trial, **state}, content)
        try:
            with partial.open("wb") as stream:
                stream.write(content.getbuffer())
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(self._file)
        except OSError as error:
            # What was written of it would take the little room that is left from the database.
            with contextlib.suppress(OSError):
                partial.unlink()
            raise CheckpointError(
                f"no checkpoint can be written to {partial.parent}: {error.strerror}; the last one stays"
            ) from error

    def load(self) -> State | None:
        """The checkpoint, or None where there is none.

        A file that cannot be read is set aside as `last.pt.unreadable` and the trial starts anew: nothing wrong can come of
        it but time. One of another trial is an error.

        Raises:
            CheckpointError: the checkpoint is of another trial.
        """
        if not self._file.is_file():
            return None
        try:
            # torch does not look at the checksums that it writes: a flipped bit would load, and train on.
            with zipfile.ZipFile(self._file) as archive:
                if archive.testzip() is not None:
                    raise zipfile.BadZipFile("checksum")
            state: State = torch.load(self._file, map_location="cpu", weights_only=True)
        except (OSError, MemoryError):
            # The file may well be whole: it could not be read this time, and must not be set aside.
            raise
        except Exception:
            # Many kinds are raised for a truncated or altered file; none of them may lose the trial.
            with contextlib.suppress(OSError):
                self._file.replace(self._file.with_suffix(".pt.unreadable"))
            return None
        if state.get("trial") != self._trial:
            raise CheckpointError(
                f"{self._file} is a checkpoint of trial {state.get('trial')}, not of {self._trial}; move it away"
            )
        return state


def random_states(order: torch.Generator) -> State:
    """Every random state that training draws from, as tensors and plain numbers."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    assert name == "MT19937"
    version, words, gauss = random.getstate()
    states: State = {
        "torch": torch.get_rng_state(),
        "order": order.get_state(),
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)],
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
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
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
