"""From raw input to an answer object: each task joins data, model, search and loss."""
