"""Builds of a framework: a user names a build, the suite makes an environment of it once, and keeps it for later
sessions."""
