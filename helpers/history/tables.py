"""The tables of the history, the same on SQLite and on PostgreSQL.

Texts that may come from outside are JSON with ASCII only: a log's tail may hold NUL, which PostgreSQL accepts in no
text. ``created`` and its like are UTC with microseconds and ``+00:00``, 32 characters, so that their order as text is
their order in time whatever the database's collation.
"""

from __future__ import annotations

import sqlalchemy as sa

# 1: the first tables.
TABLES_VERSION = 1

# It has 64 bits on PostgreSQL. SQLite numbers its rows only in a column called INTEGER.
_BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> sa.Column[int]:
    return sa.Column("id", _BigId, primary_key=True, autoincrement=True)


def _reference(name: str, table: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, _BigId, sa.ForeignKey(f"{table}.id"), nullable=nullable)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


# One row: TABLES_VERSION.
history_version = sa.Table("history_version", metadata, sa.Column("version", sa.Integer, primary_key=True))

# The facts within which nights are compared, each distinct one once, by the SHA-256 of its JSON.
segments = sa.Table(
    "segments",
    metadata,
    _id(),
    _text("digest"),
    _text("body"),
    sa.UniqueConstraint("digest"),
)

# One row for each run. Its whole record is in body, a zlib stream of JSON; the columns are what queries need of it.
results = sa.Table(
    "results",
    metadata,
    _id(),
    _text("uuid"),
    _text("session"),
    _text("case_id"),
    _text("target"),
    _text("role"),
    _text("stage"),
    _text("created"),
    # None if the run has no throughput that may be used.
    sa.Column("log_rate", sa.Double),
    # Why nothing is learned from it; empty if something is.
    _text("unlearned"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "session", "case_id"),
    sa.Index(None, "case_id", "created"),
)

# A case of a target in one segment. Nights are compared within it.
series = sa.Table(
    "series",
    metadata,
    _id(),
    _text("case_id"),
    _text("target"),
    _reference("segment_id", "segments"),
    _text("host"),
    sa.Column("cards", sa.Integer, nullable=False),
    # When its newest night was judged.
    _text("last_created"),
    sa.UniqueConstraint("case_id", "target", "segment_id"),
    sa.Index(None, "host", "target", "cards"),
)

# One row for each judged case of a session. learned, first_rate, evidence, starts and compared are the verdict's own
# numbers without excluded runs and runs from which nothing is learned. The record itself is in body.
nights = sa.Table(
    "nights",
    metadata,
    _id(),
    _text("uuid"),
    _text("session"),
    _reference("series_id", "series"),
    _text("created"),
    # The local date on which its session began.
    _text("date"),
    _text("status"),
    _text("build_version"),
    _text("build_commit"),
    sa.Column("accepted", sa.Boolean, nullable=False),
    sa.Column("starts", sa.Boolean, nullable=False),
    sa.Column("first_rate", sa.Double),
    sa.Column("evidence", sa.Double, nullable=False),
    sa.Column("stall_share", sa.Double),
    _text("learned"),
    _text("unlearned"),
    # What is learned from the pairs of both builds, as JSON; empty if nothing is.
    sa.Column("compared", sa.Text, nullable=False, server_default=""),
    _text("body"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "series_id", "created"),
    sa.Index(None, "series_id", "starts", "created"),
    sa.Index(None, "session"),
    sa.Index(None, "created"),
    sa.Index(None, "date"),
    sa.Index(None, "build_commit"),
    sa.Index(None, "build_version"),
)

# The runs behind a night, by uuid. A night may be stored before its runs are (reindex).
night_runs = sa.Table(
    "night_runs",
    metadata,
    sa.Column("night_id", _BigId, sa.ForeignKey("nights.id"), primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _text("run_uuid"),
    sa.Index(None, "run_uuid"),
)

# What people decided, each decision once, by the SHA-256 of its JSON, which is in body.
decisions = sa.Table(
    "decisions",
    metadata,
    _id(),
    _text("digest"),
    _text("kind"),
    # The uuid that is excluded, the case, or the build that is pinned.
    _text("subject"),
    _text("target"),
    _reference("segment_id", "segments", nullable=True),
    _text("created"),
    _text("body"),
    sa.UniqueConstraint("digest"),
    sa.Index(None, "kind", "subject", "target", "segment_id", "created"),
)
