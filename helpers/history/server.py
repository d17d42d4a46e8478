"""PostgreSQL as the history uses it: how a connection is made, when a silent one is given up, and which errors pass."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import weakref

import sqlalchemy as sa

from helpers.history.waiting import Waiting

# Each address of the server's name is tried for half the time that a call waits for others, within these limits. libpq
# itself takes 2 s for anything less.
_CONNECT_SECONDS = (2, 10)
# A connection is cut if the other machine confirmed nothing for 6 s. After 3 s in silence it is asked every second.
_CLIENT = {
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 6_000,
}
# The same for the server, whose own default is two hours: until then a runner whose network is gone would hold the rows
# that it was writing, and all others would wait for them. A transaction between two statements of which nothing happens
# is ended where writing takes milliseconds. Values are PostgreSQL's: milliseconds, and seconds for the keepalives.
_SERVER = {"tcp_keepalives_idle": 3, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 3, "tcp_user_timeout": 6_000}
_IDLE_WRITER = {"idle_in_transaction_session_timeout": 3_000}
# PostgreSQL's codes of a transaction that others hindered: it could not be serialised (a replica says so of a query
# that is in the way of what it takes over), or there was a deadlock.
HINDERED = ("40001", "40P01")
# The code of a wait for a lock that took too long.
LOCKED = "55P03"


# What psycopg has to say of a connection that is cut comes back as an error, too: it needs no line on the terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Connections:
    """The connections to one server, so that one thread can end what another one waits for."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[sa.engine.interfaces.DBAPIConnection] = weakref.WeakSet()

    def add(self, connection: sa.engine.interfaces.DBAPIConnection) -> None:
        self._open.add(connection)

    def cut(self) -> None:
        """Whoever waits for an answer over one of them gets an OperationalError at once."""
        for each in list(self._open):
            # One that is closed meanwhile has no descriptor any more.
            with contextlib.suppress(Exception), socket.socket(fileno=os.dup(each.fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)


def engine_of(
    url: sa.URL,
    wait_seconds: float,
    waiting: Waiting,
    connections: Connections | None = None,
    *,
    writes: bool = True,
) -> sa.Engine:
    """An engine whose statements wait ``wait_seconds`` for a lock. Without ``writes`` the server refuses to write."""
    # A night is longer than many servers keep an idle connection.
    connect_seconds = min(max(_CONNECT_SECONDS[0], round(wait_seconds / 2)), _CONNECT_SECONDS[1])
    patience = {"connect_timeout": connect_seconds, **_CLIENT}
    engine = sa.create_engine(url, pool_pre_ping=True, connect_args=patience)
    own = _IDLE_WRITER if writes else {"default_transaction_read_only": "on"}
    settings = {"lock_timeout": round(1000 * wait_seconds), **_SERVER, **own}
    statement = "; ".join(f"SET {name} = {value}" for name, value in settings.items())

    # The first listener: SQLAlchemy's own asks the server on the first connection, which must be known by then to be
    # cut.
    @sa.event.listens_for(engine, "connect", insert=True)
    def prepare(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        if connections is not None:
            connections.add(connection)
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.commit()

    # Only the server knows which statement waits for another one's lock.
    sa.event.listen(engine, "before_cursor_execute", lambda *_: waiting.begin())
    sa.event.listen(engine, "after_cursor_execute", lambda *_: waiting.end())
    sa.event.listen(engine, "handle_error", lambda _: waiting.end())
    return engine
