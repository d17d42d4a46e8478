"""Writes all nights of a history as a folder of static pages."""
