"""A job: what is asked, how workers agree, and the one composition of its step."""
