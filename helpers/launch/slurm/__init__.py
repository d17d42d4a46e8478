"""Jobs of Slurm that ``perfgate submit`` and ``perfgate fleet`` make."""
