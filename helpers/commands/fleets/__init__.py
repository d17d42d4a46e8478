"""What only ``perfgate fleet`` needs."""
