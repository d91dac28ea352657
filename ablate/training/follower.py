"""The main program of a process that trains a trial together with its leader."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import torch

from ablate.own import registry
from ablate.training.errors import Diverged
from ablate.training.loop import Training
from ablate.training.parallel import UNMENDABLE, Follower, Task


def follow(descriptor: int) -> None:
    """Runs a follower: it trains a trial, one epoch each time the leader asks.

    The pipe ends with the leader.
    """
    pipe = Connection(descriptor)
    commands = queue.SimpleQueue[Any]()

    def listen() -> None:
        # A thread of its own, because the main thread may wait long for a dead leader
        # within a step.
        try:
            while True:
                commands.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    warnings.filterwarnings("ignore", message=UNMENDABLE)
    try:
        task: Task = commands.get()
        if task.device != "cpu":
            torch.cuda.set_device(task.device)
        registry.load_sources(task.sources)
        group = Follower(task, pipe, commands)
        training = Training(
            task.trial, None, device=task.device, threads=task.threads, group=group
        )
        while commands.get() == "epoch":
            # The leader sees the same loss and reports the divergence.
            with contextlib.suppress(Diverged):
                training.epoch()
        training.close()
    except BaseException:
        pipe.send(traceback.format_exc(limit=-8))
        sys.exit(1)
