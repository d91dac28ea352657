import ablate

mnist = ablate.command(
    "python backbone_image_classifier.py --seed_everything={seed} --trainer.max_epochs={epochs} --model.backbone=Backbone"
    " --model.backbone.hidden_dim={hidden} --model.learning_rate={recipe.lr} --trainer.limit_train_batches=100"
    " --trainer.limit_val_batches=30 --trainer.logger=CSVLogger --trainer.logger.save_dir={output} --trainer.accelerator=cpu",
    factors={"hidden": [32, 128]}, metrics={"valid_loss_epoch": "min"},
    reads="{output}/lightning_logs/version_*/metrics.csv", first=0)
