"""Optuna with a process for each slot, which share a SQLite file."""

import multiprocessing
import sys

import optuna
from trial import train

STORE = "sqlite:///optuna.db"


def share(slots: int, trials: int) -> None:
    study = optuna.load_study(study_name="peers", storage=STORE)
    study.optimize(
        lambda trial: train(trial.suggest_int("number", 0, trials - 1)),
        n_trials=trials // slots,
    )


if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    study = optuna.create_study(study_name="peers", storage=STORE, direction="maximize")
    for number in range(trials):
        study.enqueue_trial({"number": number})
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=share, args=(slots, trials)) for _ in range(slots)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    done = {trial.params["number"] for trial in study.trials if trial.values}
    assert len(done) == trials, done
