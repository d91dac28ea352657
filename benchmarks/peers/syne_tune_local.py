"""Syne Tune with its local backend, which starts a process for each trial."""

import argparse
import sys

if __name__ == "__main__" and "--number" in sys.argv:
    # The script that the backend starts.
    from syne_tune import Reporter
    from trial import train

    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int)
    given, _ = parser.parse_known_args()
    Reporter()(top1=train(given.number))
elif __name__ == "__main__":
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import randint
    from syne_tune.optimizer.baselines import RandomSearch

    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    tuner = Tuner(
        trial_backend=LocalBackend(entry_point=__file__),
        scheduler=RandomSearch(
            {"number": randint(0, trials - 1)},
            metrics=["top1"],
            do_minimize=False,
            points_to_evaluate=[{"number": number} for number in range(trials)],
        ),
        stop_criterion=StoppingCriterion(max_num_trials_finished=trials),
        n_workers=slots,
        results_update_interval=1,
        sleep_time=0.1,
    )
    tuner.run()
    finished = tuner.tuning_status.num_trials_finished
    assert finished >= trials, finished
