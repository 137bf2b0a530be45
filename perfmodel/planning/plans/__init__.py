"""Plans with money: candidates, rows, bills and verdicts."""
