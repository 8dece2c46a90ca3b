# The types of what forcing.py works with, for the compiled module.
from journal.vfs cimport force_calls


cpdef object serve(area, int asked, int done)
