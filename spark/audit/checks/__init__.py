"""The checks of an audit compare slices of logs with the claims on them, windows with reports, and topics with
tables.
"""
