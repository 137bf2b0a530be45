"""Plans with money: candidates, bills and verdicts."""
