"""Orders, and what is done for them."""
