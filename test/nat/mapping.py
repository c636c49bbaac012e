"""A peer behind a router that forwards a port on request: others connect to it without a relay.

usage: mapping.py BUILD

    relay (a bootstrap peer)   other     public
      |                          |
      +------------+-------------+
                   |
               [router] miniupnpd answers NAT-PMP, UPnP or neither (rig.sh, kind igd)
                   |
                   b   potluck peer

`potluck doctor`, run on b, says what came of it. Without the right to make namespaces, nft or miniupnpd a line says so.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from pairs import NAME, Skip, rig

CONFIG = """ext_ifname=wan
listening_ip=lan
port=5555
enable_natpmp={natpmp}
enable_upnp={upnp}
lease_file={folder}/leases
uuid=8a5d3f0e-6c1f-4b0e-9c5b-0d1f6b1a2c3d
upnp_table_name=filter
upnp_nat_table_name=filter
allow 1024-65535 {allowed} 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
"""
# The chains that miniupnpd fills.
CHAINS = """table inet filter {
    chain miniupnpd { }
    chain prerouting_miniupnpd { }
    chain postrouting_miniupnpd { }
    chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }
    chain postrouting { type nat hook postrouting priority 99; jump postrouting_miniupnpd; }
}
"""
# Answers NAT-PMP in the router's place: that address, that port.
BYZANTINE = """import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("192.168.1.1", 5351))
while True:
    question, asker = s.recvfrom(64)
    if question[1] == 0:
        s.sendto(struct.pack(">BBHI4s", 0, 128, 0, 1, socket.inet_aton(sys.argv[1])), asker)
    else:
        s.sendto(struct.pack(">BBHIHHI", 0, 128 + question[1], 0, 1, int.from_bytes(question[4:6], "big"), int(sys.argv[2]), 600), asker)
"""
PATIENCE = 40  # s: the router's answer, then AutoNAT's check
passed = failed = 0


def check(good, what):
    global passed, failed
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
    passed, failed = passed + bool(good), failed + (not good)


def inside(place, *command):
    return ["ip", "netns", "exec", f"{NAME}-{place}", *command]


def start(place, *command):
    return subprocess.Popen(inside(place, *command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def end(process):
    process.terminate()
    process.wait(20)


def event(process, wanted):
    for line in process.stdout:
        found = json.loads(line)
        if found["event"] == wanted:
            return found
    return None


def forwarded():
    """The rules by which the router forwards ports now."""
    rules = subprocess.run(inside("router-b", "nft", "list", "chain", "inet", "filter", "prerouting_miniupnpd"), capture_output=True, text=True)
    return rules.stdout.count("dnat")


def until(condition, seconds=PATIENCE):
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.2)
    return condition()


def doctor(build, join, *options):
    done = subprocess.run(inside("b", os.path.join(build, "potluck"), "doctor", "--json", "--quick", "--join", join, *options),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
    return {f["what"]: f for f in map(json.loads, done.stdout.splitlines())}


def play(build, folder, natpmp, upnp, allowed="0.0.0.0/0", kind="igd"):
    """A router with these protocols: yields the bootstrap peer's address while both are there."""
    rig("up", NAME, "none", kind)
    config = os.path.join(folder, "miniupnpd.conf")
    with open(config, "w") as f:
        f.write(CONFIG.format(natpmp=natpmp, upnp=upnp, folder=folder, allowed=allowed))
    subprocess.run(inside("router-b", "nft", "-f", "-"), input=CHAINS, text=True, check=True)
    daemon = start("router-b", "miniupnpd", "-d", "-f", config, "-P", os.path.join(folder, "pid"))
    entry = start("relay", os.path.join(build, "potluck"), "peer", "--json", "--listen", "/ip4/11.1.1.2/tcp/4001")
    try:
        time.sleep(1)  # the daemon's sockets
        yield event(entry, "listening")["multiaddr"]
    finally:
        end(entry)
        end(daemon)
        rig("down", NAME)


def mapped_by(build, folder, protocol, natpmp, upnp):
    for join in play(build, folder, natpmp, upnp):
        found = doctor(build, join)
        check(found["reachability"]["level"] == "ok" and "/ip4/11.4.4.2/tcp/" in found["reachability"]["text"], f"{protocol}: the bootstrap peer connects to the router's address")
        check(f"({protocol})" in found["mapping"]["text"], f"doctor: {found['mapping']['text']}")
        check(until(lambda: not forwarded(), 5), f"{protocol}: the port is not forwarded any more once the program has ended")
        b = start("b", os.path.join(build, "potluck"), "peer", "--json", "--listen", "/ip4/0.0.0.0/tcp/4001", "--join", join)
        check(until(forwarded), f"{protocol}: a peer has its port forwarded")
        peer = event(b, "listening")["multiaddr"].split("/p2p/")[1]
        ok = until(lambda: subprocess.run(inside("other", os.path.join(build, "potluck"), "doctor", "--quick", "--no-port-mapping", "--join", f"/ip4/11.4.4.2/tcp/4001/p2p/{peer}"),
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)
        check(ok, f"{protocol}: another peer connects to it there")
        end(b)
        check(until(lambda: not forwarded(), 5), f"{protocol}: it takes the port back at its end")


def not_mapped(build, folder):
    for join in play(build, folder, "no", "yes", allowed="10.9.9.9/32"):
        found = doctor(build, join)
        check(found["mapping"]["level"] == "warning" and "UPnP: the router refuses" in found["mapping"]["text"], f"doctor: {found['mapping']['text']}")
        check(found["reachability"]["level"] == "bad", "not reachable then")
    for join in play(build, folder, "yes", "yes", kind="cgnat"):
        found = doctor(build, join)
        check("address" in found["mapping"]["text"] and found["mapping"]["level"] == "warning", f"doctor behind two routers: {found['mapping']['text']}")
    for join in play(build, folder, "no", "no"):
        found = doctor(build, join)
        check(found["mapping"]["text"].count("no router answers") == 2, f"doctor: {found['mapping']['text']}")
        found = doctor(build, join, "--no-port-mapping")
        check("--no-port-mapping" in found["mapping"]["text"], f"doctor: {found['mapping']['text']}")
    for join in play(build, folder, "yes", "yes"):
        b = start("b", os.path.join(build, "potluck"), "peer", "--json", "--join", join, "--no-port-mapping")
        time.sleep(3)
        check(not forwarded(), "--no-port-mapping: the router is not asked")
        end(b)


def byzantine(build, folder):
    for join in play(build, folder, "no", "no"):
        for outside, port, expected in (("127.0.0.1", 4001, "is private"), ("10.1.2.3", 4001, "is private"), ("8.8.8.8", 0, "names no port")):
            router = start("router-b", "python3", "-c", BYZANTINE, outside, str(port))
            time.sleep(0.5)
            found = doctor(build, join)
            check(expected in found["mapping"]["text"] and found["mapping"]["level"] == "warning", f"a router that claims {outside}:{port}: {found['mapping']['text']}")
            router.kill()
            router.wait()


def main():
    build = os.path.abspath(sys.argv[1])
    try:
        if not shutil.which("miniupnpd"):
            raise Skip("no miniupnpd found (make test-deps)")
        with tempfile.TemporaryDirectory() as folder:
            mapped_by(build, folder, "NAT-PMP", "yes", "no")
            mapped_by(build, folder, "UPnP", "no", "yes")
            not_mapped(build, folder)
            byzantine(build, folder)
    except Skip as why:
        print(f"skip port mapping: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
