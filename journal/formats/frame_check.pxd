# The types of what frame_check.py works with, for the compiled module. Numbers of 32 bits are long long: none overflows.
cimport cython
from journal.formats cimport frame_header as header

cdef long long COMPRESSION, COMPRESSION_SHIFT, CRC_START, HEADER_BYTES, INNER_HEADER_BYTES, KNOWN_FLAGS, TOMBSTONE
cdef long long VERSION, VERSION_MASK, WRAPPER, MAX_ATTRIBUTE
cdef long long _ANY


@cython.locals(
    end=cython.longlong, position=cython.longlong, messages=cython.longlong, length=cython.longlong, crc=cython.uint,
    offset=cython.ulonglong, appended=cython.longlong, count=cython.longlong, flag=cython.longlong,
    attribute_length=cython.longlong, after=cython.longlong,
)
cpdef long long check_run(data, long long limit=*, bint opens=*, long long most=*, list left=*) except -1

@cython.locals(inner=cython.longlong, payload=cython.longlong)
cdef object _check_content(
    frame, long long count, long long flag, long long attribute_length, long long position
)

@cython.locals(
    position=cython.longlong, messages=cython.longlong, attributes=cython.longlong, end=cython.longlong,
    length=cython.longlong, crc=cython.uint, number=cython.ulonglong, count=cython.longlong, flag=cython.longlong,
    attribute_length=cython.longlong, bare=cython.longlong, start=cython.longlong,
)
cdef (long long, long long) _count_inner(payload, long long at, long long most, long long room) except *
