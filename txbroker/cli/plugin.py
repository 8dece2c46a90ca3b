"""The plugin of twistd, without which nothing serves."""

from __future__ import annotations

from txbroker.cli.exits import Exit, Failure


def look_for_plugin() -> None:
    """Raise unless twistd has the plugin of txbroker.

    Twisted notes what plugins there are beside them, if it may write there. So whoever has installed them should look
    once, or each start looks through all again, and logs that it cannot note them.
    """
    from twisted.application.service import IServiceMaker
    from twisted.plugin import getPlugins

    if not any(maker.tapname == "txbroker" for maker in getPlugins(IServiceMaker)):
        raise Failure(
            "the plugin of twistd is not installed; nothing was done. Install it with: pip install 'txbroker[server]'",
            Exit.USAGE,
        )
