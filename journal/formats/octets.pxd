# The functions of octets.py in C, and what other layouts in C stand on: the only code of the compiled modules that handles
# an address. tests/compiled/test_both_builds.py compares it with Python's.
#
# Each access takes the buffer, checks both bounds, and releases it before it returns. That is 12 ns on a memoryview, where
# a typed memoryview of Cython's is 78 ns to begin with; and nothing that happens between two accesses can make one wrong.
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint32_t txbroker_u32(const unsigned char *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
    }
    static inline uint64_t txbroker_u64(const unsigned char *p) {
        return (uint64_t)txbroker_u32(p) << 32 | txbroker_u32(p + 4);
    }
    static inline void txbroker_put_u32(unsigned char *p, uint32_t value) {
        p[0] = (unsigned char)(value >> 24);
        p[1] = (unsigned char)(value >> 16);
        p[2] = (unsigned char)(value >> 8);
        p[3] = (unsigned char)value;
    }
    static inline void txbroker_put_u64(unsigned char *p, uint64_t value) {
        txbroker_put_u32(p, (uint32_t)(value >> 32));
        txbroker_put_u32(p + 4, (uint32_t)value);
    }
    """
    unsigned int u32 "txbroker_u32"(const unsigned char *p)
    unsigned long long u64 "txbroker_u64"(const unsigned char *p)
    void put_u32 "txbroker_put_u32"(unsigned char *p, unsigned int value)
    void put_u64 "txbroker_put_u64"(unsigned char *p, unsigned long long value)


cdef inline const unsigned char *readable(object data, Py_ssize_t place, Py_ssize_t size, Py_buffer *held) except NULL:
    """Return the address of ``size`` bytes at a place; the caller releases ``held``. Raises as ``unpack_from`` does."""
    PyObject_GetBuffer(data, held, PyBUF_SIMPLE)
    if place < 0 or size > held.len - place:
        return outside("unpack_from", "unpacking", place, size, held)
    return <const unsigned char *>held.buf + place


cdef inline unsigned char *writable(object data, Py_ssize_t place, Py_ssize_t size, Py_buffer *held) except NULL:
    """Return the address of ``size`` bytes at a place that may be written, as above. Raises as ``pack_into`` does."""
    try:
        PyObject_GetBuffer(data, held, PyBUF_WRITABLE)
    except BufferError:
        raise TypeError(f"argument must be read-write bytes-like object, not {type(data).__name__}") from None
    if place < 0 or size > held.len - place:
        return outside("pack_into", "packing", place, size, held)
    return <unsigned char *>held.buf + place


cdef inline unsigned char *outside(
    str function, str doing, Py_ssize_t place, Py_ssize_t size, Py_buffer *held
) except NULL:
    """Release the buffer and raise the error of ``struct`` for a place outside of it."""
    cdef Py_ssize_t there = held.len
    PyBuffer_Release(held)
    from struct import error
    raise error(
        f"{function} requires a buffer of at least {size + place} bytes for {doing} {size} bytes at offset {place} "
        f"(actual buffer size is {there})"
    )


cdef inline (long long,) unpack_u32(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 4, &held)
    cdef (long long,) found = (u32(p),)
    PyBuffer_Release(&held)
    return found


cdef inline (long long, long long) unpack_two_u32(object data, Py_ssize_t place) except *:
    cdef Py_buffer held
    cdef const unsigned char *p = readable(data, place, 8, &held)
    cdef (long long, long long) found = (u32(p), u32(p + 4))
    PyBuffer_Release(&held)
    return found


cdef inline bytes pack_u32(long long value):
    if not 0 <= value <= 0xFFFFFFFF:
        from journal.formats.octets import pack_u32 as refuse
        return refuse(value)
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 4)
    put_u32(<unsigned char *>PyBytes_AS_STRING(packed), <unsigned int>value)
    return packed


cdef inline bytes pack_two_u32(long long first, long long second):
    if not (0 <= first <= 0xFFFFFFFF and 0 <= second <= 0xFFFFFFFF):
        from journal.formats.octets import pack_two_u32 as refuse
        return refuse(first, second)
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 8)
    cdef unsigned char *p = <unsigned char *>PyBytes_AS_STRING(packed)
    put_u32(p, <unsigned int>first)
    put_u32(p + 4, <unsigned int>second)
    return packed
