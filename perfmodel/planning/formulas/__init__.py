"""Times in closed form: symbols, definitions, solutions and words."""
