"""The benchmark of the buffer pool compares it with plain memory: time, memory left after an hour, and possible
uses.
"""
