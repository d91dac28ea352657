import ablate

gpt = ablate.command(
    "python seeded.py {seed} config/train_shakespeare_char.py --device=cpu --compile=False --out_dir={output} --dropout={dropout}"
    " --bias={bias!r} --n_layer=2 --n_head=2 --n_embd=64 --block_size=64 --batch_size=16 --eval_iters=20 --eval_interval=100"
    " --max_iters={last} --always_save_checkpoint=True",
    factors={"dropout": [0.0, 0.2], "bias": [False, True]}, metrics={"val_loss": "min"}, first=0, every=100,
    pattern=r"step (?P<epoch>\d+): .*val loss (?P<val_loss>[\d.]+)", resume="--init_from=resume {output}/ckpt.pt")
