"""From a run's records to images/s: the publishers' rules, the honest figure, and what is to be doubted."""
