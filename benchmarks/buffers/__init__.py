"""The benchmark of the buffer pool beside plain memory: time, what an hour leaves, and where it is used."""
