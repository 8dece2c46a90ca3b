"""The settings of the process: their names, forms and defaults, and how a file and the command line are read."""
