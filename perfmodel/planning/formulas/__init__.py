"""Times in closed form: symbols, named expressions, solutions and printed text."""
