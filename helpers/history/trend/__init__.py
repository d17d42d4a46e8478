"""Slow drift and steps over many nights (docs/verdicts.md, "Trend"). Reported, never a gate."""
