"""Makes train.py a trainer, without importing it."""

import ablate

digits = ablate.command(
    "python train.py --hidden {hidden} --activation {activation} --lr {recipe.lr}"
    " --seed {seed} --epochs {epochs} --resume {checkpoint}",
    factors={"hidden": ablate.Whole(1), "activation": ["relu", "tanh", "logistic"]},
    metrics=[ablate.Metric("accuracy", digits=4, margin=0.005, direction="max")],
)
