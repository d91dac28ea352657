"""Bare processes: each trains its share of the trials, one after another."""

import multiprocessing
import sys

from trial import train


def share(mine: int, slots: int, trials: int) -> None:
    for number in range(mine, trials, slots):
        train(number)


if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=share, args=(mine, slots, trials))
        for mine in range(slots)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))
