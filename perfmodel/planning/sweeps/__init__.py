"""Predictions of millions of configurations: spaces, tasks, result columns, tables and files."""
