"""The broker of a drill: its process, the points where it is killed, and what its disk keeps after a power cut."""
