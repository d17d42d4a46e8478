"""Reading training logs of other programs: from a file to throughput by its publisher's rule and by the honest one.

source (files, archives, encodings) -> detect, reading (which format, which runs, which records) -> rules, analysis
(images/s by every applicable rule, what was used, what is to be doubted). A format is a table: ``formats_*.py``.
"""
