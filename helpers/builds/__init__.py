"""Builds of a framework: named by a user, made into an environment once, and kept for every session that uses it."""
