"""The other nodes of a job: how the suite starts its program there, and what the two exchange."""
