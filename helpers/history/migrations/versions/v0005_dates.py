"""The date of the night. Before this version it was the date on which the night was judged, in UTC."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nights", sa.Column("date", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE nights SET date = substr(created, 1, 10)")
    op.create_index("ix_nights_date", "nights", ["date"])
