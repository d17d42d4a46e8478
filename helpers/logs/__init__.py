"""Reading training logs of other programs: from a file to throughput by its publisher's rule and by the honest one.

sources (files, archives, encodings) -> reading (which format, which runs, which records) with formats (a table each) ->
figures (samples/s by every applicable rule, what was used, what is to be doubted); importer joins them. replay judges
logs in the place of runs.
"""
