"""Run by alembic for each of its commands, on the connection that the caller hands over and in his transaction."""

from alembic import context

from helpers.history.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
