"""PostgreSQL as the history uses it: how a connection is made, and when a silent one is given up."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from typing import Any

import sqlalchemy as sa

# Each address of the server's name is tried for half the time that a call waits for others, within these limits. libpq
# itself takes 2 s for anything less.
_CONNECT_SECONDS = (2, 10)
# The server gives up a connection after 6 s in which the other machine confirmed nothing; its own default is two hours.
# Until then a runner whose network is gone would hold the rows that it was writing, and all others would wait for them.
# A transaction in which nothing happens is ended, too: writing takes milliseconds. Values are PostgreSQL's:
# milliseconds, and seconds for the keepalives.
_SERVER = {"tcp_keepalives_idle": 3, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 3, "tcp_user_timeout": 6_000}
_IDLE_WRITER = {"idle_in_transaction_session_timeout": 3_000}

# What psycopg has to say of a connection that is cut comes back as an error, too: it needs no line on the terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


def engine_of(url: sa.URL, wait_seconds: float, answer_seconds: float, *, writes: bool = True) -> sa.Engine:
    """An engine whose statements wait ``wait_seconds`` for a lock. Without ``writes`` the server refuses to write.

    Each call has a connection of its own, because a night is longer than many servers keep an idle one. It is cut after
    ``answer_seconds``: nothing else ends the wait for a server that is stopped.
    """
    connect_seconds = min(max(_CONNECT_SECONDS[0], round(wait_seconds / 2)), _CONNECT_SECONDS[1])
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"connect_timeout": connect_seconds})
    own = _IDLE_WRITER if writes else {"default_transaction_read_only": "on"}
    settings = {"lock_timeout": round(1000 * wait_seconds), **_SERVER, **own}
    statement = "; ".join(f"SET {name} = {value}" for name, value in settings.items())

    # The first listener: SQLAlchemy's own asks the server on the first connection.
    @sa.event.listens_for(engine, "connect", insert=True)
    def prepare(connection: Any, record: sa.pool.ConnectionPoolEntry) -> None:
        timer = record.info["answer"] = threading.Timer(answer_seconds, _cut, [connection])
        timer.daemon = True
        timer.start()
        connection.execute(statement)
        connection.commit()

    @sa.event.listens_for(engine, "close")
    def closed(_: Any, record: sa.pool.ConnectionPoolEntry) -> None:
        record.info["answer"].cancel()

    return engine


def _cut(connection: Any) -> None:
    """Whoever waits for an answer gets an error."""
    # A connection that is closed meanwhile has no descriptor any more.
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)
