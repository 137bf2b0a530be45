"""Element-wise arithmetic with broadcasting."""
