"""The epoch whose weights were tested, of trials with a validation split."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "trials",
        sa.Column("selected_epoch", sa.Integer(), nullable=True, comment="epoch whose weights were tested, once completed"),
    )
    op.execute("UPDATE trials SET selected_epoch = epochs WHERE status = 'completed'")
