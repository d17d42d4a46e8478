"""Slow drift and steps over many nights (VERDICT.md, "Trend"). Reported, never a gate."""
