"""What is fitted on what before the rest is scored, cell by cell."""
