"""Recipes by name."""

from __future__ import annotations

from ablate.records import Recipe

RECIPES: dict[str, Recipe] = {
    # AdamW with a short warm-up, for small networks on small images.
    "small": Recipe(warmup_epochs=2),
    # DeiT (arXiv 2012.12877, table 9), without repeated augmentation. Stochastic depth is the factor drop.path.
    "deit": Recipe(
        epochs=300,
        batch_size=1024,
        optimizer="adamw",
        lr=1e-3,
        weight_decay=0.05,
        warmup_epochs=5,
        min_lr=1e-5,
        label_smoothing=0.1,
        mixup=0.8,
        cutmix=1.0,
        flip=0.5,
        rand_augment="rand-m9-mstd0.5-inc1",
        random_erasing=0.25,
        precision="bfloat16",
    ),
    # Small images in memory with crops, flips and mixing, as CIFAR is usually trained.
    "cifar": Recipe(epochs=100, warmup_epochs=5, crop_padding=4, flip=0.5, label_smoothing=0.1, mixup=0.2, clip_grad=1.0),
}
