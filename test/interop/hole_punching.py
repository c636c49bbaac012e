"""DCUtR between hivemind's daemon (p2pd, go-libp2p 0.32.1) and a peer of ours, each behind a port-restricted router. Above TCP
p2pd plays the part that the specification gives to the other side; a peer that did not know that would wait in vain.

usage: hole_punching.py POTLUCK

    relay  other ... other4      p2pd believes an address of its own that four others have seen
      |      |
      +------+---+----------+
                 |          |
             [router]   [router]     test/nat/rig.sh, links with a delay: without one the two SYNs do not cross
                 |          |
               a: p2pd    b: ours

Without the right to make namespaces, or without nft, a line says so.
"""
import asyncio
import os
import subprocess
import sys
import tempfile
import time

import steps
from steps import step

steps.needs("hivemind")
import hivemind
from hivemind.p2p.p2p_daemon_bindings.datastructures import PeerID
from hivemind.p2p.p2p_daemon_bindings.p2pclient import Client
from hivemind.utils.multiaddr import Multiaddr

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "nat"))
from pairs import NAME, Peer, Skip, long_links, rig  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(hivemind.__file__), "hivemind_cli", "p2pd")
MORE = ("other2", "other3", "other4")
SERVES, PUNCHED = "Starting holepunch protocol", "hole punch successful"  # in p2pd's log
WAIT = 40  # s: p2pd dials an address for 5 s first, and each of three tries takes as long


class Relayed(Multiaddr):
    """An address with a relay's ID in it, which hivemind writes as a CID, and p2pd reads as a multihash only."""

    def to_bytes(self):
        return super().to_bytes().replace(b"\x28\x01\x72\x00\x24", b"\x26\x00\x24")


class Daemon:
    """p2pd, set to believe that nobody reaches it, with a reservation at the relay."""

    def __init__(self, folder, relay, peers):
        self.socket, self.log = os.path.join(folder, "socket"), open(os.path.join(folder, "log"), "w+")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", f"{NAME}-a", PROGRAM, "-listen", f"/unix{self.socket}", "-hostAddrs", f"/ip4/{rig('ip', NAME, 'a')}/tcp/4001", "-autonat",
             "-autoRelay", "-relayDiscovery=false", "-trustedRelays", relay, "-forceReachabilityPrivate", "-dhtClient", "-b", "-bootstrapPeers", ",".join(peers)],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, "GOLOG_LOG_LEVEL": "error,p2p-holepunch=debug", "GOLOG_LOG_FMT": "nocolor"})
        self.id = next(line.split()[-1] for line in self.process.stdout if line.startswith("Peer ID"))

    def says(self, text):
        """Whether it logs that in time."""
        end = time.time() + WAIT * steps.SLOW
        while time.time() < end:
            self.log.seek(0)
            if text in self.log.read():
                return True
            time.sleep(0.1)
        return False

    async def dial(self, peer, address):
        """And whether that leads to a direct connection. p2pd ends with its last client."""
        client = await Client.create(control_maddr=Multiaddr(f"/unix{self.socket}"), listen_maddr=Multiaddr(f"/unix{self.socket}.back"))
        await client.connect(PeerID.from_base58(peer), [Relayed(address)])
        punched = await asyncio.to_thread(self.says, PUNCHED)
        client.close()
        return punched

    def end(self):
        self.process.kill()
        self.process.wait()


def play(build, folder, p2pd_dials):
    began = []

    def begin(what):
        began.append(what)
        return what

    def ours(*options):
        return begin(Peer(build, 4, "b", "--join", at["other"], "--join", at["other2"], *options))
    with long_links(build, "port", "port", more=MORE):
        try:
            at = {p: begin(Peer(build, 4, p, *(["--relay"] if p == "relay" else []))).until("listening")["multiaddr"] for p in ("relay", "other", *MORE)}
            daemon = begin(Daemon(folder, at["relay"], at.values()))
            step("p2pd behind a router offers DCUtR", daemon.says(SERVES))
            if p2pd_dials:
                address = ours("--use-relay", at["relay"]).until("relayed")["multiaddr"]
                punched = asyncio.run(daemon.dial(address.split("/")[-1], address.rsplit("/p2p/", 1)[0]))
                step("p2pd has dialed our peer through the relay: a direct connection, by its log", punched)
            else:
                time.sleep(1)  # its reservation
                peer = ours("--join", at["relay"], "--call", f"{at['relay']}/p2p-circuit/p2p/{daemon.id}", "--direct", str(WAIT))
                found = peer.until("direct")
                step("our peer has dialed p2pd through the relay: a direct connection", found and found["ok"], found)
                step("and by the log of p2pd", daemon.says(PUNCHED))
        finally:
            for one in reversed(began):
                one.end()


def main():
    build = os.path.dirname(os.path.abspath(sys.argv[1]))
    try:
        for p2pd_dials in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                play(build, folder, p2pd_dials)
    except Skip as why:
        steps.skip("hole punching", why)
    sys.exit(steps.closing())


if __name__ == "__main__":
    main()
