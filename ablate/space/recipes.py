"""Recipes by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ablate.data.sets import FILES_ONLY, SETS
from ablate.records import Recipe

# DeiT (arXiv 2012.12877, table 9, and the command line of its code). Stochastic depth
# is the factor drop.path. Colours are jittered by 0.3, the current default there (0.4
# at the time of the paper); with RandAugment neither is used. For images of 32 pixels
# and below, DeiT has no random resized crops: set crop_padding to 4. Here the averaged
# weights are tested; DeiT also keeps them, but prints the results of the others.
DEIT = Recipe(
    epochs=300,
    batch_size=1024,
    optimizer="adamw",
    lr=1e-3,
    weight_decay=0.05,
    warmup_epochs=5,
    warmup_lr=1e-6,
    min_lr=1e-5,
    label_smoothing=0.1,
    mixup=0.8,
    cutmix=1.0,
    interpolation="bicubic",
    flip=0.5,
    rand_augment="rand-m9-mstd0.5-inc1",
    color_jitter=0.3,
    random_erasing=0.25,
    repeats=3,
    ema=0.99996,
    precision="bfloat16",
)

RECIPES: dict[str, Recipe] = {
    # AdamW with a short warm-up, for small networks on small images.
    "small": Recipe(warmup_epochs=2),
    "deit": DEIT,
    # ViT-S/16 and -B/16 as AugReg trains them (arXiv 2106.10270; google-research/
    # big_vision, configs/vit_i1k.py, augmentation medium2): sigmoid loss, 10,000 warm-up
    # steps, weight decay 1e-4 / 1e-3, as it is decoupled there. ViT-Ti/16 has light1:
    # mixup 0 and magnitude 0, which timm has with the suffix inc1 alone. Not here: a bias
    # of -6.9 at the start of the head, and 99 % of the training images.
    "augreg": Recipe(
        epochs=300,
        batch_size=4096,
        lr=1e-3,
        weight_decay=0.1,
        warmup_epochs=32,
        clip_grad=1.0,
        loss="bce",
        mixup=0.5,
        crop_scale=0.05,
        flip=0.5,
        rand_augment="rand-m15-n2-mmax15",
        precision="bfloat16",
    ),
    # Fine-tuning a trained CaiT for 60 epochs (anti-oversmoothing, appendix G.1). The
    # numbers are those of the authors' command line, where a rate of 5e-5 is for 512
    # images.
    "finetune-60": replace(
        DEIT,
        epochs=60,
        batch_size=256,
        lr=2.5e-5,
        weight_decay=5e-4,
        warmup_epochs=1,
        min_lr=1e-6,
        ema=0.0,
    ),
    # DeiT from 224 to 384 (arXiv 2012.12877, section 6; values of its command line, and
    # its defaults for the rest).
    "finetune-384": replace(
        DEIT,
        epochs=30,
        batch_size=512,
        lr=5e-6,
        weight_decay=1e-8,
        schedule="constant",
        min_lr=0.0,
        ema=0.0,
    ),
    # DeiT's transfer to CIFAR, Flowers and Pets: SGD, no random erasing. RandAugment,
    # which it also uses, needs image files.
    "transfer": Recipe(
        epochs=1000,
        batch_size=768,
        optimizer="sgd",
        lr=0.01,
        weight_decay=1e-4,
        warmup_epochs=5,
        label_smoothing=0.1,
        mixup=0.8,
        cutmix=1.0,
        interpolation="bicubic",
        flip=0.5,
        precision="bfloat16",
    ),
    # Small images in memory with crops, flips and mixing, as CIFAR is usually trained.
    "cifar": Recipe(
        epochs=100,
        warmup_epochs=5,
        crop_padding=4,
        flip=0.5,
        label_smoothing=0.1,
        mixup=0.2,
        clip_grad=1.0,
    ),
}


def preset(name: str, data: str) -> Recipe:
    """Returns a recipe by name, adapted to a data set.

    How files are cropped, resized and coloured does not apply to data in memory, so a
    preset does not ask for it there. RandAugment is a large part of a recipe: a preset
    with it is not changed, and is refused for data in memory unless the space turns it
    off.
    """
    recipe = RECIPES[name]
    if data not in SETS or SETS[data].kind == "images":
        return recipe
    off = {
        field: level for field, level in FILES_ONLY.items() if field != "rand_augment"
    }
    return replace(recipe, **cast("dict[str, Any]", off))
