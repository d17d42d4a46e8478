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

# Environments, system tables, settings, builds and segments; each distinct one once, by the SHA-256 of its JSON.
documents = sa.Table(
    "documents",
    metadata,
    _id(),
    _text("digest"),
    _text("body"),
    sa.UniqueConstraint("digest"),
)

# One row for each run. Values that no query needs are in body.
results = sa.Table(
    "results",
    metadata,
    _id(),
    _text("uuid"),
    _text("session"),
    _text("host"),
    _text("case_id"),
    _text("target"),
    _text("role"),
    _text("stage"),
    sa.Column("replicate", sa.Integer, nullable=False),
    _text("created"),
    _reference("build_id", "documents"),
    _reference("environment_id", "documents"),
    _reference("system_id", "documents"),
    _reference("setup_id", "documents"),
    # None if the environment is not complete (an imported result): such a run has no segment.
    _reference("segment_id", "documents", nullable=True),
    # None if the run has no throughput that may be used.
    sa.Column("log_rate", sa.Double),
    # Why nothing is learned from it; empty if something is.
    _text("unlearned"),
    _text("body"),
    sa.UniqueConstraint("uuid"),
    sa.Index(None, "session", "case_id"),
    sa.Index(None, "case_id", "created"),
)

# The raw steps of a run, each column a zlib stream of little-endian 8-byte numbers.
steps = sa.Table(
    "steps",
    metadata,
    sa.Column("result_id", _BigId, sa.ForeignKey("results.id"), primary_key=True, autoincrement=False),
    sa.Column("step_seconds", sa.LargeBinary, nullable=False),
    sa.Column("samples_per_step", sa.LargeBinary, nullable=False),
    sa.Column("losses", sa.LargeBinary, nullable=False),
)

# A case of a target in one segment. Nights are compared within it.
series = sa.Table(
    "series",
    metadata,
    _id(),
    _text("case_id"),
    _text("target"),
    _reference("segment_id", "documents"),
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

exclusions = sa.Table(
    "exclusions",
    metadata,
    _id(),
    _text("subject"),
    _text("uuid"),
    _text("who"),
    _text("created"),
    _text("reason"),
    # Empty while the exclusion holds.
    _text("restored"),
    _text("restored_by"),
    _text("restored_reason"),
    sa.Index(None, "uuid"),
)

# Who set the good build of perf.yaml.
pins = sa.Table(
    "pins",
    metadata,
    _id(),
    # The build's name in perf.yaml from then on.
    _text("build"),
    _text("name"),
    _text("version"),
    _text("commit"),
    _text("digest"),
    # What was pinned until then; empty if nothing was.
    _text("before"),
    _text("reason"),
    _text("who"),
    _text("created"),
)

segment_starts = sa.Table(
    "segment_starts",
    metadata,
    _id(),
    _text("case_id"),
    _text("target"),
    _reference("segment_id", "documents"),
    _text("created"),
    _text("reason"),
    _text("commit"),
    sa.Index(None, "case_id", "target", "segment_id", "created"),
)

calibrations = sa.Table(
    "calibrations",
    metadata,
    _id(),
    _text("case_id"),
    _text("target"),
    _reference("segment_id", "documents"),
    _text("session"),
    _text("created"),
    sa.Column("runs", sa.Integer, nullable=False),
    sa.Column("sigma_run", sa.Double, nullable=False),
    sa.Column("sigma_run_low", sa.Double, nullable=False),
    sa.Column("sigma_run_high", sa.Double, nullable=False),
    sa.Column("degrees_of_freedom", sa.Double, nullable=False),
    sa.Column("sigma_night", sa.Double),
    sa.Column("sigma_night_low", sa.Double),
    sa.Column("sigma_night_high", sa.Double),
    sa.Column("smallest_drop", sa.Double, nullable=False),
    sa.Column("tolerance", sa.Double),
    sa.Index(None, "case_id", "target", "segment_id", "created"),
)
