"""The PostgreSQL server of the tests: the fault table's."""

from __future__ import annotations

from benchmarks.fault_table.postgres import Server as Server
from benchmarks.fault_table.postgres import running_server as running_server
