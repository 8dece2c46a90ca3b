"""``make drill-access``: a broker with TLS and every way of logging in, under load, while who may do what changes.

Users send, read, list and decide; meanwhile an administrator removes users, changes passwords and rules, renews
certificates and keys, and the broker is killed. A model of the rules, written apart from the broker, judges each answer
(:mod:`tests.access_drill.judge`): nothing was carried out that was not allowed, nothing refused that was, and nothing
that was acknowledged is lost.
"""
