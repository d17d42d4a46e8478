"""The PostgreSQL server of the tests: the fault table's."""

from __future__ import annotations

from tests.faults.postgres import Server as Server
from tests.faults.postgres import running_replica as running_replica
from tests.faults.postgres import running_server as running_server
