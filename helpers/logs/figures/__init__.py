"""Computes images/s from the records of a run: by the publishers' rules and by the honest rule, with warnings."""
