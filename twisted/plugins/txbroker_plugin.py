"""Makes ``twistd txbroker`` known; loads nothing of it until it is asked for."""

from twisted.application.service import ServiceMaker

txbroker = ServiceMaker("txbroker", "txbroker.server.tap", "A transactional message broker", "txbroker")
