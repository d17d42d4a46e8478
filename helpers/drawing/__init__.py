"""The parts of which all drawings of the suite are made."""
