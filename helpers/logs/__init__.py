"""Reads training logs of other programs, and computes their throughput by the publisher's rule and by the honest rule.

source (files, pipes) -> detect, reader (which format, which runs, which records) with formats (one table for
each) -> figures (samples/s by every rule that applies, what was used for it, warnings); importer joins them.
"""
