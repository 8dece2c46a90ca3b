# The types of what record_bytes.py works with, for the compiled module.
cimport cython
from journal.formats cimport octets

cdef long long CRC_END


@cython.locals(head=bytes, body=bytes)
cpdef bytes pack(record, data, crc_seed)
