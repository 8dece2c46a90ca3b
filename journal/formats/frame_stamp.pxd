# The types of what frame_stamp.py works with, for the compiled module. Offsets and times are Python's ints: the bytes of a
# damaged directory may hold any number.
cimport cython
from journal.formats cimport frame_header as header

cdef long long STAMP_START


@cython.locals(position=cython.longlong, end=cython.longlong, length=cython.longlong, count=cython.longlong)
cpdef stamp(view, base_offset, appended)

@cython.locals(length=cython.longlong, count=cython.longlong)
cpdef tuple stamp_some(view, long long position, long long until, base_offset, appended)
