"""Django's commands, one in each file."""
