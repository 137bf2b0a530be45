"""Measured tables that are scored in their own way."""
