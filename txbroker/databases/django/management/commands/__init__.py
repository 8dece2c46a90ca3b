"""Django's commands, one a file."""
