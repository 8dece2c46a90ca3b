"""Read-only walks over a data directory's files: for verification, dumps, repairs, audits and Spark.

Nothing here opens a file for writing, takes the lock, or believes an index. Every checksum is computed by ``crcmod``,
an implementation independent of the one that wrote it, so that a fault of either shows. A directory in use may be
walked; its newest journal file and segments then end where they ended when they were read.
"""
