"""Which test images a trial classifies correctly."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "correct_images",
        sa.Column("trial_hash", sa.String(20), nullable=False),
        sa.Column("images", sa.Integer(), nullable=False, comment="test images"),
        sa.Column(
            "bits",
            sa.LargeBinary(),
            nullable=False,
            comment="one bit per test image in the order of the data, the first one"
            " highest; 1: top-1 is correct",
        ),
        sa.ForeignKeyConstraint(
            ["trial_hash"], ["trials.hash"], name=op.f("fk_correct_images_trial_hash")
        ),
        sa.PrimaryKeyConstraint("trial_hash", name=op.f("pk_correct_images")),
    )
