# The types of what framing.py works with, for the compiled module. Lengths of 32 bits are long long: none overflows.
cimport cython
from journal.formats cimport octets

cdef long long LENGTH_BYTES, OVERHEAD


@cython.locals(size=cython.longlong, packed=bytes)
cpdef bytes encode(head, data=*)

@cython.locals(
    end=cython.longlong, stop=cython.double, max_total=cython.longlong, total=cython.longlong,
    head_length=cython.longlong, after=cython.longlong, head_end=cython.longlong, data_length=cython.longlong,
)
cpdef tuple cut(
    view, long long position, double work, long long each, long long max_head, long long max_data, decode, unread,
    list found
)
