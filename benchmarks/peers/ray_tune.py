"""Ray Tune with a function, as its documentation begins."""

import os
import sys

import ray
from ray import tune

if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    folder, path = os.getcwd(), sys.path

    def objective(config: dict[str, int]) -> None:
        os.chdir(folder)
        sys.path[:] = path
        from trial import train

        tune.report({"top1": train(config["number"])})

    tuner = tune.Tuner(
        objective,
        param_space={"number": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(metric="top1", mode="max"),
        run_config=tune.RunConfig(storage_path=folder),
    )
    results = tuner.fit()
    assert len(results) == trials
    assert not results.errors
