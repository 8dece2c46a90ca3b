"""A member of a group that is no client of ours, so that a test decides what it says and when."""

from tests.wire.stranger import Stranger


class StrangerMember:
    """A member that reads these topics. ``owned`` are the partitions that it was given, with generations."""

    def __init__(self, url, group, topics, client="worker", **named):
        self._stranger = Stranger(int(url.rpartition(":")[2]))
        self._stranger.log_in(client)
        nonce = named.pop("nonce", client.encode().ljust(16, b"."))
        joined = self._stranger.ask("JoinGroup", group=group, nonce=nonce, topics=topics, **named)
        self._who = {"group": group, "member": joined["member"], "secret": joined["secret"]}
        self.number = joined["member"]
        self.owned = {}
        self.releasing = []
        self.attend()

    def attend(self):
        """Say what it has, without waiting for an answer."""
        self._stranger.say("Attend", **self._who, owned=list(self.owned.items()), releasing=self.releasing)

    def take(self):
        """Wait for the answer, and attend with what that says; return the answer."""
        told, _ = self._stranger.hear()
        self.owned |= {each["partition"]: each["generation"] for each in told["assigned"]}
        self.releasing += told["revoked"]
        self.attend()
        return told

    def close(self):
        self._stranger.close()
