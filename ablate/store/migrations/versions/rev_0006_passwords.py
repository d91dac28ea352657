"""Stored commands hold no password."""

import sqlalchemy as sa
from alembic import op

from ablate.masking import masked

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

provenance = sa.table("provenance", sa.column("id", sa.Integer), sa.column("command", sa.Text))


def upgrade() -> None:
    connection = op.get_bind()
    for key, command in connection.execute(sa.select(provenance.c.id, provenance.c.command)).all():
        hidden = masked(command)
        if hidden != command:
            changed = sa.update(provenance).where(provenance.c.id == key).values(command=hidden)
            connection.execute(changed)
