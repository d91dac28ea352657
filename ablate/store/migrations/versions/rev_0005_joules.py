"""The energy that each epoch drew."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "epochs", sa.Column("joules", sa.Float(), nullable=True, comment="drawn by the device that trained, where it counts them")
    )
