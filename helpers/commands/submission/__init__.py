"""The jobs of ``perfgate submit``: what they need, the script that Slurm runs, and the wait for its end."""
