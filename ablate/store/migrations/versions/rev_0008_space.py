"""The resolved space of a study, as data."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "the resolved space; NULL where the study was last run by an older version"
    op.add_column("studies", sa.Column("space", sa.JSON(), nullable=True, comment=comment))
