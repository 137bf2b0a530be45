"""A job: its arguments, the agreement of its workers, and the one composition of its step."""
