import ablate

timm_script = ablate.command(
    "python train.py --data-dir images --model vit_tiny_patch16_224 --img-size 32 --num-classes 10 --device cpu --workers 1"
    " --model-kwargs img_size=32 patch_size=4 depth=2 --epochs {epochs} --batch-size 50 --opt {opt} --lr {recipe.lr}"
    " --warmup-epochs 0 --drop-path {drop} --seed {seed} --output {output} --experiment run",
    factors={"opt": ["adamw", "lion"], "drop": [0.0, 0.2]}, metrics={"eval_top1": "max", "eval_loss": "min"},
    reads="{output}/run/summary.csv", first=0, resume="--resume {output}/run/last.pth.tar")
