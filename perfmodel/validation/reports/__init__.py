"""Reports of measured tables that are scored in their own way."""
