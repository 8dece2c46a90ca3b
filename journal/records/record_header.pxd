# The function of record_header.py in C. tests/compiled/test_both_builds.py compares the two.
from cpython.buffer cimport PyBuffer_Release
from journal.formats.octets cimport readable, u32


cdef inline (long long, long long) lengths(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 12, &held)
    cdef (long long, long long) found = (u32(p), u32(p + 8))
    PyBuffer_Release(&held)
    return found
