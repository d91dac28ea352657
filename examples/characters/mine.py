"""What train.py needs to be studied: fifteen lines."""

import torch
from train import CONTEXT, CharacterModel, evaluate, fit_epoch, load, read_text, save

import ablate

TRAIN, TEST, CHARACTERS = read_text()


@ablate.trainer(
    factors={
        "norm": ["layer", "rms"],
        "activation": ["gelu", "relu2"],
        "depth": [2, 1, 3],
    },
    metrics=[ablate.Metric("bits", digits=3, margin=0.02, direction="min")],
    recipe=["lr"],
    model=lambda levels: CharacterModel(CHARACTERS, **levels),
    inputs=lambda levels: torch.zeros(1, CONTEXT, dtype=torch.long),
)
def characters(trial):
    model = trial.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.recipe["lr"])
    for _ in trial.epochs(resume=lambda path: load(path, model, optimizer)):
        fit_epoch(model, optimizer, TRAIN)
        trial.report(
            bits=evaluate(model, TEST),
            save=lambda path: save(path, model, optimizer),
        )
