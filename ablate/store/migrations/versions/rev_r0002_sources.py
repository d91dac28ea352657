"""The table `sources`: which texts of a user's files mean the same."""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sources",
        sa.Column("syntax", sa.String(20), primary_key=True),
        sa.Column("identity", sa.String(20), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
    )
