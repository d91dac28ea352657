"""Writes files/ with the tools themselves: python tests/elsewhere/make_files.py FOLDER [PART]...

It needs lightning, mlflow, optuna, tensorboardX and timm. `wandb.csv` is written by hand,
in the format of Weights & Biases' export.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

# The score of row 0 by seed, and that of the other row minus it.
LAYER = (70.0, 71.0, 72.0, 73.0, 74.0)
GAIN = (1.8, 2.1, 2.0, 2.1, 2.0)
EPOCHS = 3


def scores() -> list[tuple[str, int, float]]:
    """Norm, seed and score of ten runs."""
    return [
        *(("layer", seed, score) for seed, score in enumerate(LAYER)),
        *(
            ("rms", seed, round(score + gain, 1))
            for seed, (score, gain) in enumerate(zip(LAYER, GAIN, strict=True))
        ),
    ]


def curve(score: float) -> list[float]:
    """A score after each epoch; the last one counts."""
    return [round(score - 10 * (EPOCHS - epoch), 1) for epoch in range(1, EPOCHS + 1)]


def tables(folder: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(scores(), columns=["norm", "seed", "accuracy"])
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_parquet(folder / "pandas.parquet")
    frame.to_json(folder / "pandas.jsonl", orient="records", lines=True)
    frame.drop(columns="seed").to_csv(folder / "unpaired.csv", index=False, sep=";")
    long = [
        {
            "norm": norm,
            "seed": seed,
            "epoch": epoch,
            "accuracy": value,
            "lr": 0.1 / epoch,
        }
        for norm, seed, score in scores()
        for epoch, value in enumerate(curve(score), start=1)
    ]
    random.Random(0).shuffle(long)
    pd.DataFrame(long).to_csv(folder / "curves.csv", index=False)


def tensorboard(folder: Path) -> None:
    from tensorboardX import SummaryWriter

    for norm, seed, score in scores():
        with SummaryWriter(str(folder / f"{norm}-{seed}")) as writer:
            for epoch, value in enumerate(curve(score)):
                writer.add_scalar("val/acc", value, epoch)
                writer.add_scalar("train/loss", 1 / (epoch + 1), epoch)


def lightning(folder: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    for norm, seed, score in scores():
        logger = CSVLogger(str(folder))
        logger.log_hyperparams({"norm": norm, "seed": seed, "lr": 0.1})
        for epoch, value in enumerate(curve(score)):
            logger.log_metrics(
                {"train_loss": 1 / (epoch + 1), "epoch": epoch}, step=10 * epoch
            )
            logger.log_metrics({"val_acc": value, "epoch": epoch}, step=10 * epoch + 9)
        logger.save()


def timm(folder: Path) -> None:
    from collections import OrderedDict

    import yaml
    from timm.utils import update_summary

    for norm, seed, score in scores():
        place = folder / f"20261128-{norm}-{seed}"
        place.mkdir(parents=True)
        arguments = {"model": "vit", "norm": norm, "seed": seed, "lr": 0.1}
        (place / "args.yaml").write_text(yaml.safe_dump(arguments))
        for epoch, value in enumerate(curve(score)):
            update_summary(
                epoch,
                OrderedDict(loss=1 / (epoch + 1)),
                OrderedDict(loss=2 / (epoch + 1), top1=value, top5=99.0),
                str(place / "summary.csv"),
                lr=0.1 / (epoch + 1),
                write_header=epoch == 0,
            )


def mlflow_db(file: Path) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{file}")
    mlflow.set_experiment("norms")
    for norm, seed, score in scores():
        with mlflow.start_run(run_name=f"{norm}-{seed}"):
            mlflow.log_params({"norm": norm, "seed": seed, "lr": 0.1})
            for epoch, value in enumerate(curve(score)):
                mlflow.log_metric("val_acc", value, step=epoch)


def optuna_db(file: Path) -> None:
    import optuna

    by_setting = {(norm, seed): score for norm, seed, score in scores()}
    grid = {"norm": ["layer", "rms"], "seed": list(range(len(LAYER)))}
    study = optuna.create_study(
        study_name="norms",
        storage=f"sqlite:///{file}",
        sampler=optuna.samplers.GridSampler(grid, seed=0),
        direction="maximize",
    )

    def objective(trial: optuna.Trial) -> float:
        norm = trial.suggest_categorical("norm", grid["norm"])
        return by_setting[norm, trial.suggest_int("seed", 0, len(LAYER) - 1)]

    study.optimize(objective, n_trials=len(by_setting))


def keras_history(folder: Path) -> None:
    """JSON lines of each run, as many scripts write them."""
    for norm, seed, score in scores():
        place = folder / f"norm={norm}" / f"seed{seed}"
        place.mkdir(parents=True)
        lines = [
            json.dumps({"epoch": epoch, "val_acc": value})
            for epoch, value in enumerate(curve(score))
        ]
        (place / "log.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    parts = {
        "tables": lambda: tables(folder),
        "tensorboard": lambda: tensorboard(folder / "tensorboard"),
        "lightning": lambda: lightning(folder / "lightning"),
        "timm": lambda: timm(folder / "timm"),
        "mlflow": lambda: mlflow_db(folder / "mlflow.db"),
        "optuna": lambda: optuna_db(folder / "optuna.db"),
        "lines": lambda: keras_history(folder / "lines"),
    }
    for part in sys.argv[2:] or parts:
        parts[part]()


if __name__ == "__main__":
    main()
