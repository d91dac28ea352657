"""The network that a trial learns from."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "the network that the trial learns from, and its weights"
    op.add_column("trials", sa.Column("teacher", sa.String(300), nullable=True, comment=comment))
