# The function of force_calls.py in C. It holds the area's buffer for as long as it runs, and nothing of Python's but that:
# from the first line of its loop to the last it has no interpreter's lock, so a busy interpreter delays no force.
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/types.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t txbroker_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void txbroker_force(int64_t *job, const unsigned char *data) {
        int descriptor = (int)job[0];
        off_t position = (off_t)job[1];
        size_t left = (size_t)job[2];
        job[3] = 0; job[4] = 1; job[5] = txbroker_now();
        while (left) {
            ssize_t written = pwrite(descriptor, data, left, position);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) { job[3] = written < 0 ? errno : EIO; return; }
            data += written; position += written; left -= (size_t)written;
        }
        job[4] = 2; job[6] = txbroker_now();
        while (fdatasync(descriptor) < 0) {
            if (errno == EINTR) continue;
            job[3] = errno;
            return;
        }
        job[7] = txbroker_now();
    }

    /* Waits for the next job; 0 for the end, or the number of an error. */
    static int txbroker_serve(int64_t *job, const unsigned char *data, size_t room, int asked, int done) {
        uint64_t count;
        for (;;) {
            ssize_t got = read(asked, &count, sizeof count);
            if (got < 0 && errno == EINTR) continue;
            if (got != sizeof count) return got < 0 ? errno : EIO;
            if (job[0] == -1) return 0;
            if (job[2] < 0 || (size_t)job[2] > room) { job[3] = EINVAL; job[4] = 1; }
            else txbroker_force(job, data);
            count = 1;
            while ((got = write(done, &count, sizeof count)) < 0 && errno == EINTR);
            if (got != sizeof count) return got < 0 ? errno : EIO;
        }
    }
    """
    int in_c "txbroker_serve"(int64_t *job, const unsigned char *data, size_t room, int asked, int done) nogil


cdef inline object serve(object area, int asked, int done):
    cdef Py_buffer held
    cdef int error
    PyObject_GetBuffer(area, &held, PyBUF_WRITABLE)
    if held.len < 64:
        PyBuffer_Release(&held)
        raise ValueError("the area is too small")
    with nogil:
        error = in_c(<int64_t *>held.buf, <const unsigned char *>held.buf + 64, held.len - 64, asked, done)
    PyBuffer_Release(&held)
    if error:
        raise OSError(error, "the thread that forces")
    return None
