"""The broker of a drill: its process, where and when it dies, and what its disk keeps when the power is cut."""
