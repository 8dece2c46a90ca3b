"""The client's side of a login: its credentials, and what it answers to the broker in each mechanism."""
