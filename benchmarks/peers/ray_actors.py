"""Ray's core: an actor for each slot, and a pool that gives them the trials."""

import os
import sys

import ray
from ray.util import ActorPool

if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=1)
    class Worker:
        def __init__(self, folder: str, path: list[str]) -> None:
            os.chdir(folder)
            sys.path[:] = path

        def train(self, number: int) -> float:
            from trial import train

            return train(number)

    pool = ActorPool([Worker.remote(os.getcwd(), sys.path) for _ in range(slots)])
    found = list(
        pool.map(lambda worker, number: worker.train.remote(number), range(trials))
    )
    assert len(found) == trials
