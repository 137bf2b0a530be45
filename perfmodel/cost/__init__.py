"""How long things take: one formula per function, on plain numbers, arrays or symbols; no spec objects."""
