"""A prediction said in words."""
