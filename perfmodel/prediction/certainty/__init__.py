"""How sure a prediction is, and where its constants come from."""
