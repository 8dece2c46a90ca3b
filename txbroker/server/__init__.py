"""The process around the broker: its service, its logs, its tasks, and the command line of twistd."""
