"""The plan of a drill: what is asked of it, and what its processes are told."""
