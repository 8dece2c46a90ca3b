# The types of what record_cuts.py works with, for the compiled module.
cimport cython
from journal.records cimport record_header

cdef long long HEADER_BYTES


@cython.locals(
    heads=list, data=list, head_size=cython.longlong, end=cython.longlong, count=cython.longlong, length=cython.longlong,
    found=cython.longlong, head_end=cython.longlong,
)
cpdef tuple cut_apart(bytes body, long long start, long long most, long long head_length)
