"""Recipes by name."""

from __future__ import annotations

from ablate.records import Recipe

RECIPES: dict[str, Recipe] = {
    # AdamW with a short warm-up, for small networks on small images.
    "small": Recipe(warmup_epochs=2),
    # DeiT (arXiv 2012.12877, table 9). Stochastic depth is the factor drop.path.
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
        repeats=3,
        precision="bfloat16",
    ),
    # ViT as AugReg trains it (arXiv 2106.10270) and MABViT uses it: decoupled weight decay of 1e-4 / 1e-3.
    "augreg": Recipe(
        epochs=300,
        batch_size=4096,
        lr=1e-3,
        weight_decay=0.1,
        warmup_epochs=32,
        clip_grad=1.0,
        mixup=0.2,
        flip=0.5,
        rand_augment="rand-m10-n2",
        precision="bfloat16",
    ),
    # Fine-tuning a trained CaiT for 60 epochs (anti-oversmoothing, appendix G.1; its text copy lost the numbers, these are
    # those of the authors' command line).
    "finetune-60": Recipe(
        epochs=60,
        batch_size=256,
        lr=5e-5,
        weight_decay=5e-4,
        warmup_epochs=1,
        min_lr=1e-6,
        label_smoothing=0.1,
        mixup=0.8,
        cutmix=1.0,
        flip=0.5,
        rand_augment="rand-m9-mstd0.5-inc1",
        random_erasing=0.25,
        precision="bfloat16",
    ),
    # DeiT from 224 to 384 (arXiv 2012.12877, section 6; learning rate and weight decay of its command line).
    "finetune-384": Recipe(
        epochs=30,
        batch_size=512,
        lr=5e-6,
        weight_decay=1e-8,
        schedule="constant",
        label_smoothing=0.1,
        mixup=0.8,
        cutmix=1.0,
        flip=0.5,
        rand_augment="rand-m9-mstd0.5-inc1",
        random_erasing=0.25,
        precision="bfloat16",
    ),
    # DeiT's transfer to CIFAR, Flowers and Pets: SGD, no random erasing. RandAugment, which it also uses, needs image files.
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
        flip=0.5,
        precision="bfloat16",
    ),
    # Small images in memory with crops, flips and mixing, as CIFAR is usually trained.
    "cifar": Recipe(epochs=100, warmup_epochs=5, crop_padding=4, flip=0.5, label_smoothing=0.1, mixup=0.2, clip_grad=1.0),
}
