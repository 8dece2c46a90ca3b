# The functions and sizes of frame_header.py in C. tests/compiled/test_both_builds.py compares the two.
from cpython.buffer cimport PyBuffer_Release
from journal.formats.octets cimport put_u64, readable, u32, u64, writable

ctypedef (long long, unsigned int, unsigned long long, long long, long long, long long, long long, long long) Header
ctypedef (long long, unsigned int, unsigned long long, long long, long long, long long, long long) Inner


cdef inline Header unpack_header(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 44, &held)
    cdef Header found = (
        u32(p), u32(p + 4), u64(p + 8), <long long>u64(p + 16), <long long>u64(p + 24), u32(p + 32), u32(p + 36),
        u32(p + 40),
    )
    PyBuffer_Release(&held)
    return found


cdef inline Inner unpack_inner(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 36, &held)
    cdef Inner found = (
        u32(p), u32(p + 4), u64(p + 8), <long long>u64(p + 16), u32(p + 24), u32(p + 28), u32(p + 32)
    )
    PyBuffer_Release(&held)
    return found


cdef inline (long long, long long) unpack_length_and_count(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 36, &held)
    cdef (long long, long long) found = (u32(p), u32(p + 32))
    PyBuffer_Release(&held)
    return found


cdef inline int pack_stamp(object data, Py_ssize_t place, object offset, object appended) except -1:
    cdef Py_buffer held
    cdef unsigned long long id
    cdef long long time
    try:
        id, time = offset, appended
    except OverflowError:
        from journal.formats.frame_header import pack_stamp as refuse
        refuse(data, place, offset, appended)
        raise
    cdef unsigned char *p = writable(data, place, 16, &held)
    put_u64(p, id)
    put_u64(p + 8, <unsigned long long>time)
    PyBuffer_Release(&held)
    return 0
