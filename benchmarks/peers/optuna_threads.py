"""Optuna in one process, with a thread for each slot."""

import sys

import optuna
from trial import train

if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    numbers = {"number": list(range(trials))}
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.GridSampler(numbers)
    )
    study.optimize(
        lambda trial: train(trial.suggest_int("number", 0, trials - 1)),
        n_trials=trials,
        n_jobs=slots,
    )
    done = {trial.params["number"] for trial in study.trials if trial.values}
    assert len(done) == trials, done
