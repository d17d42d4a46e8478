"""The pairs of both builds that a night made. Nights judged before this version have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nights", sa.Column("compared", sa.Text(), nullable=False, server_default=""))
