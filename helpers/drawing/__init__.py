"""What every drawing of the suite is made of."""
