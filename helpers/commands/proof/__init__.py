"""What ``perfgate prove-gpu`` does: its steps as data, how each is run, and the summary."""
