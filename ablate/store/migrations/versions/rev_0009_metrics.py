"""Metrics as rows instead of columns; the identity of users' parts."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# The columns of the only task so far, image classification.
COLUMNS = ("train_loss", "loss", "top1", "top5")


def upgrade() -> None:
    op.add_column(
        "architectures",
        sa.Column("code", sa.JSON(), nullable=True, comment="content or revision of the user's parts that build it"),
    )
    op.add_column(
        "trials",
        sa.Column("code", sa.JSON(), nullable=True, comment="content or revision of the user's parts that train it"),
    )
    op.create_table(
        "epoch_metrics",
        sa.Column("trial_hash", sa.String(length=20), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False, comment="from 1"),
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["trial_hash"], ["trials.hash"], name=op.f("fk_epoch_metrics_trial_hash")),
        sa.PrimaryKeyConstraint("trial_hash", "epoch", "name", name=op.f("pk_epoch_metrics")),
    )
    op.create_table(
        "trial_metrics",
        sa.Column("trial_hash", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("value", sa.Float(), nullable=False, comment="after the selected epoch"),
        sa.ForeignKeyConstraint(["trial_hash"], ["trials.hash"], name=op.f("fk_trial_metrics_trial_hash")),
        sa.PrimaryKeyConstraint("trial_hash", "name", name=op.f("pk_trial_metrics")),
    )
    for name in COLUMNS:
        op.execute(
            "INSERT INTO epoch_metrics (trial_hash, epoch, name, value)"
            f" SELECT trial_hash, number, '{name}', {name} FROM epochs"
        )
        op.execute(
            "INSERT INTO trial_metrics (trial_hash, name, value)"
            f" SELECT hash, '{name}', {name} FROM trials WHERE {name} IS NOT NULL"
        )
        op.drop_column("trials", name)
    # SQLite cannot change a column, so the table is copied there. No other table refers
    # to it.
    with op.batch_alter_table("epochs") as epochs:
        for name in COLUMNS:
            epochs.drop_column(name)
        epochs.alter_column("lr", existing_type=sa.Float(), nullable=True)
