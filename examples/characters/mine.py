"""What train.py needs to be studied: fifteen lines."""

import train

import ablate

TRAIN, TEST, CHARACTERS = train.read_text()


@ablate.trainer(
    factors={"norm": ["layer", "rms"], "activation": ["gelu", "relu2"]},
    metrics=[ablate.Metric("bits", digits=3, margin=0.02, direction="min")],
    recipe=["lr"],
    model=lambda levels: train.CharacterModel(CHARACTERS, **levels),
    inputs=lambda levels: TEST[None, : train.CONTEXT],
)
def characters(trial):
    learner = train.Learner(trial.model(), trial.recipe["lr"])
    for _ in trial.epochs(resume=learner.load):
        learner.fit(TRAIN)
        trial.report(bits=learner.evaluate(TEST), save=learner.save)
