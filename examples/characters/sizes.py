"""Five switches of the model of train.py, at any width.

The text is the language reference that comes with Python, so it depends on the version of
Python. One epoch has train.STEPS updates.
"""

from pydoc_data.topics import topics

import train

import ablate

TEXT = "".join(topics[name] for name in sorted(topics))[:200_000]
TOKENS, CHARACTERS = train.tokenized(TEXT)
TRAIN, VALIDATION, TEST = TOKENS.split([160_000, 20_000, 20_000])


@ablate.trainer(
    factors={
        "norm": ["layer", "rms"],
        "activation": ["gelu", "relu2"],
        "positions": ["learned", "rotary"],
        "qk_norm": [False, True],
        "tied": [False, True],
        "width": ablate.Whole(8),
    },
    metrics=[
        ablate.Metric("bits", digits=3, margin=0.02, direction="min"),
        ablate.Metric("val_bits", digits=3, direction="min"),
    ],
    recipe=["lr"],
    model=lambda levels: train.CharacterModel(CHARACTERS, **levels),
    inputs=lambda levels: TEST[None, : train.CONTEXT],
)
def switches(trial):
    learner = train.Learner(trial.model(), trial.recipe["lr"])
    for _ in trial.epochs(resume=learner.load):
        learner.fit(TRAIN)
        trial.report(
            bits=learner.evaluate(TEST),
            val_bits=learner.evaluate(VALIDATION),
            save=learner.save,
        )
