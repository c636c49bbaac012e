"""adversary.py - a libp2p and hivemind peer from scratch, for attacks on a living peer of ours.

It implements the protocols and follows their rules only where a test needs it: frames can be
sent raw, streams left half open, windows exceeded, answers never read. Nothing here is shared with
the program under test. It is one long file, so that a test imports one name. Python's standard
library, and Debian's python3-cryptography for Noise and the signatures.

    from adversary import *
    victim = start("peer", "--listen", "/ip4/127.0.0.1/tcp/0")
    stranger = Peer(source="127.0.0.2")
    connection = stranger.dial(victim.address)
    print(find(connection, [b"key"]))
    check("the victim still lives", victim.alive())
    finish()

From bottom to top: varints and protobuf, keys, Noise XX, yamux, multistream-select, unary and
streaming calls, msgpack, hivemind's messages and signed records, then processes of ours and what
they cost, and the count at the end."""
import atexit
import base64
import hashlib
import hmac
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from retries import retried  # noqa: E402, F401 - for the attacks

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa, x25519
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
except ImportError:
    print("skip attack: no python3-cryptography found")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


class Closed(Exception):
    """The other side has closed the connection or the stream."""


class CallError(Exception):
    """The other side has answered a call with an error."""


# --- varints and protobuf ------------------------------------------------------------------------


def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data, at=0):
    """The number and where it ends."""
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return n, at


def delimited(data):
    return varint(len(data)) + data


def pb(*fields):
    """Protobuf from (number, value): int and bool a varint, float a double, bytes and str with a
    length. None is left out."""
    out = b""
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            out += varint(number << 3 | 2) + delimited(value.encode() if isinstance(value, str) else bytes(value))
    return out


def pb_read(data):
    """{number: [values]}: int, bytes, or the 8 or 4 raw bytes of a fixed-width field."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = read_varint(data, at)
        else:
            if kind == 2:
                n, at = read_varint(data, at)
            elif kind in (1, 5):
                n = 8 if kind == 1 else 4
            else:
                raise ValueError(f"protobuf: wire type {kind}")
            value, at = data[at:at + n], at + n
            if len(value) != n:
                raise ValueError("protobuf: cut")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


# --- keys, peer IDs, addresses -------------------------------------------------------------------

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(data):
    n, text = int.from_bytes(data, "big"), ""
    while n:
        n, digit = divmod(n, 58)
        text = BASE58[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def base58_decode(text):
    n = 0
    for c in text:
        n = n * 58 + BASE58.index(c)
    return b"\0" * (len(text) - len(text.lstrip("1"))) + n.to_bytes((n.bit_length() + 7) // 8, "big")


class Identity:
    """An Ed25519 key and its peer ID: .id raw, .text in base58. The seed makes it the same each
    time."""

    def __init__(self, seed=None):
        self.seed = seed or os.urandom(32)
        self.key = ed25519.Ed25519PrivateKey.from_private_bytes(self.seed)
        self.raw_public = self.key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public = pb((1, 1), (2, self.raw_public))
        self.id = b"\x00" + delimited(self.public)
        self.text = base58(self.id)

    def sign(self, message):
        return self.key.sign(message)


def multiaddr_ip4(host, port):
    return b"\x04" + socket.inet_aton(host) + b"\x06" + struct.pack(">H", port)


def parse_address(text):
    """(host, port, raw peer ID or None) of /ip4/A/tcp/P[/p2p/ID]."""
    parts = text.split("/")
    return parts[2], int(parts[4]), base58_decode(parts[6]) if len(parts) > 6 else None


# --- Noise XX ------------------------------------------------------------------------------------


class Cipher:
    """One direction of a Noise connection: ChaCha20-Poly1305 with a counter for a nonce."""

    def __init__(self, key):
        self.aead, self.n = ChaCha20Poly1305(key), 0

    def _nonce(self):
        self.n += 1
        return struct.pack("<IQ", 0, self.n - 1)

    def seal(self, plain, ad=b""):
        return self.aead.encrypt(self._nonce(), plain, ad)

    def open(self, sealed, ad=b""):
        return self.aead.decrypt(self._nonce(), sealed, ad)


class Handshake:
    """Noise's symmetric state: h, ck and the key of the moment."""

    def __init__(self):
        self.h = self.ck = b"Noise_XX_25519_ChaChaPoly_SHA256"
        self.cipher = None
        self.mix_hash(b"")

    def mix_hash(self, data):
        self.h = hashlib.sha256(self.h + data).digest()

    def mix_key(self, shared):
        t = hmac.digest(self.ck, shared, "sha256")
        self.ck = hmac.digest(t, b"\1", "sha256")
        self.cipher = Cipher(hmac.digest(t, self.ck + b"\2", "sha256"))

    def seal(self, plain):
        sealed = self.cipher.seal(plain, self.h) if self.cipher else plain
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed):
        plain = self.cipher.open(sealed, self.h) if self.cipher else sealed
        self.mix_hash(sealed)
        return plain

    def split(self):
        t = hmac.digest(self.ck, b"", "sha256")
        k1 = hmac.digest(t, b"\1", "sha256")
        return Cipher(k1), Cipher(hmac.digest(t, k1 + b"\2", "sha256"))


def raw_x25519(key):
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class Wire:
    """A TCP connection in the clear, then with Noise: exact reads, one writer at a time."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, bytearray()
        self.sending = self.receiving = None
        self.lock = threading.Lock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _exact(self, n):
        parts = bytearray()
        while len(parts) < n:
            try:
                part = self.sock.recv(min(n - len(parts), 1 << 20))
            except socket.timeout:
                raise
            except OSError as e:
                raise Closed(str(e))
            if not part:
                raise Closed("end of the connection")
            parts += part
        return bytes(parts)

    def read(self, n):
        while self.receiving and len(self.buffer) < n:
            self.buffer += self.receiving.open(self._exact(struct.unpack(">H", self._exact(2))[0]))
        if not self.receiving:
            return self._exact(n)
        out = bytes(self.buffer[:n])
        del self.buffer[:n]
        return out

    def write(self, data):
        with self.lock:
            if self.sending:
                sealed = bytearray()
                for at in range(0, len(data), 65519):
                    part = self.sending.seal(bytes(data[at:at + 65519]))
                    sealed += struct.pack(">H", len(part)) + part
                data = sealed
            try:
                self.sock.sendall(data)
            except socket.timeout:
                raise
            except OSError as e:
                raise Closed(str(e))

    def write_message(self, data):
        """A message of the Noise handshake."""
        self.write(struct.pack(">H", len(data)) + data)

    def read_message(self):
        return self._exact(struct.unpack(">H", self._exact(2))[0])


def noise_payload(identity, static, muxers):
    return pb((1, identity.public), (2, identity.sign(b"noise-libp2p-static-key:" + raw_x25519(static))),
              (4, pb(*((2, m) for m in muxers))))


def check_payload(payload, static):
    """The peer ID that the payload proves, and the muxers it offers."""
    fields = pb_read(payload)
    public, signature = fields[1][0], fields[2][0]
    key = pb_read(public)
    message = b"noise-libp2p-static-key:" + static
    if key[1] == [1]:
        ed25519.Ed25519PublicKey.from_public_bytes(key[2][0]).verify(signature, message)
    elif key[1] == [0]:
        serialization.load_der_public_key(key[2][0]).verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    else:
        raise ValueError("a key of an unknown type")
    peer = b"\x00" + delimited(public) if len(public) <= 42 else b"\x12\x20" + hashlib.sha256(public).digest()
    extensions = pb_read(fields[4][0]) if 4 in fields else {}
    return peer, extensions.get(2, [])


YAMUX = "/yamux/1.0.0"


def noise(wire, identity, dialer, muxers=(YAMUX,)):
    """The whole handshake. Returns the other side's peer ID and 1 if it has agreed on yamux,
    too."""
    state, static, ephemeral = Handshake(), x25519.X25519PrivateKey.generate(), x25519.X25519PrivateKey.generate()

    def dh(key, public):
        return key.exchange(x25519.X25519PublicKey.from_public_bytes(public))

    if dialer:
        state.mix_hash(raw_x25519(ephemeral))
        state.mix_hash(b"")
        wire.write_message(raw_x25519(ephemeral))
        message = wire.read_message()
        theirs = message[:32]
        state.mix_hash(theirs)
        state.mix_key(dh(ephemeral, theirs))
        their_static = state.open(message[32:80])
        state.mix_key(dh(ephemeral, their_static))
        peer, offered = check_payload(state.open(message[80:]), their_static)
        last = state.seal(raw_x25519(static))
        state.mix_key(dh(static, theirs))
        wire.write_message(last + state.seal(noise_payload(identity, static, muxers)))
        wire.sending, wire.receiving = state.split()
    else:
        theirs = wire.read_message()
        state.mix_hash(theirs)
        state.mix_hash(b"")
        message = raw_x25519(ephemeral)
        state.mix_hash(message)
        state.mix_key(dh(ephemeral, theirs))
        message += state.seal(raw_x25519(static))
        state.mix_key(dh(static, theirs))
        wire.write_message(message + state.seal(noise_payload(identity, static, muxers)))
        message = wire.read_message()
        their_static = state.open(message[:48])
        state.mix_key(dh(ephemeral, their_static))
        peer, offered = check_payload(state.open(message[48:]), their_static)
        wire.receiving, wire.sending = state.split()
    return peer, YAMUX in muxers and YAMUX.encode() in offered


# --- multistream-select --------------------------------------------------------------------------

MULTISTREAM = "/multistream/1.0.0"


def token(text):
    return varint(len(text) + 1) + text.encode() + b"\n"


def read_token(channel):
    n, shift = 0, 0
    while True:
        b = channel.read(1)[0]
        n |= (b & 127) << shift
        shift += 7
        if b < 128:
            break
    return channel.read(n)[:-1].decode(errors="replace")


def select_protocol(channel, protocol):
    """The dialer's side. Raises CallError if the other side does not speak it."""
    channel.write(token(MULTISTREAM) + token(protocol))
    read_token(channel)
    answer = read_token(channel)
    if answer != protocol:
        raise CallError(f"{protocol}: {answer}")


def answer_protocol(channel, known):
    """The listener's side: the protocol agreed on."""
    channel.write(token(MULTISTREAM))
    read_token(channel)
    while True:
        protocol = read_token(channel)
        if known(protocol):
            channel.write(token(protocol))
            return protocol
        channel.write(token("na"))


# --- yamux ---------------------------------------------------------------------------------------

DATA, WINDOW, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
WINDOW_BYTES = 262144


class Stream:
    """A yamux stream. What read() takes is given back as credit; what nobody reads is not."""

    def __init__(self, connection, number):
        self.connection, self.number = connection, number
        self.arrived, self.ended, self.reset = bytearray(), False, False
        self.credit, self.taken = WINDOW_BYTES, 0
        self.protocol = None

    def read(self, n, timeout=10):
        """Exactly n bytes."""
        self.connection.wait(lambda: len(self.arrived) >= n or self.ended or self.reset, timeout)
        with self.connection.news:
            if len(self.arrived) < n:
                raise Closed("stream reset" if self.reset else "stream ended")
            out = bytes(self.arrived[:n])
            del self.arrived[:n]
            self.taken += n
            give, self.taken = (self.taken, 0) if self.taken >= WINDOW_BYTES // 2 or not self.arrived else (0, self.taken)
        if give and not self.ended and not self.reset:
            try:
                self.connection.frame(WINDOW, 0, self.number, give)
            except (Closed, socket.timeout):
                pass
        return out

    def read_all(self, timeout=10):
        """Until FIN or RST."""
        out = b""
        while True:
            self.connection.wait(lambda: self.arrived or self.ended or self.reset, timeout)
            if not self.arrived:
                return out
            out += self.read(len(self.arrived), timeout)

    def read_delimited(self, timeout=10):
        n = shift = 0
        while True:
            b = self.read(1, timeout)[0]
            n |= (b & 127) << shift
            shift += 7
            if b < 128:  # in pieces that the window allows
                return b"".join(self.read(min(WINDOW_BYTES // 2, n - at), timeout) for at in range(0, n, WINDOW_BYTES // 2))

    def write(self, data, timeout=10, obey=True):
        """obey=False: whatever the window says."""
        at = 0
        while at < len(data):
            if obey:
                self.connection.wait(lambda: self.credit or self.reset, timeout)
                if self.reset:
                    raise Closed("stream reset")
            with self.connection.news:
                n = min(len(data) - at, 65524, self.credit if obey else 65524)
                self.credit -= n
            self.connection.frame(DATA, 0, self.number, body=data[at:at + n])
            at += n

    def write_delimited(self, data, **how):
        self.write(delimited(data), **how)

    def finish(self):
        """FIN: we have written everything."""
        self.connection.frame(WINDOW, FIN, self.number)

    def abort(self):
        self.connection.frame(WINDOW, RST, self.number)
        self.connection.forget(self)


class Connection:
    """An authenticated connection of a Peer. A thread reads frames, unless reading is stopped."""

    def __init__(self, owner, wire, peer, dialer):
        self.owner, self.wire, self.peer, self.dialer = owner, wire, peer, dialer
        self.streams, self.next_number = {}, 1 if dialer else 2
        self.news = threading.Condition()
        self.lost, self.frames_read = None, 0
        self._read_on = threading.Event()
        self._read_on.set()
        threading.Thread(target=self._read, daemon=True).start()

    # frames

    def frame(self, kind, flags, number, length=None, body=b""):
        """Any frame at all; length says the body's unless given."""
        self.wire.write(struct.pack(">BBHII", 0, kind, flags, number, len(body) if length is None else length) + body)

    def raw(self, data):
        """Bytes inside the encryption, frame or not."""
        self.wire.write(data)

    def stop_reading(self):
        """Nothing is taken off the socket from the next frame on."""
        self._read_on.clear()

    def resume_reading(self):
        self._read_on.set()

    def wait(self, ready, timeout):
        end = time.monotonic() + timeout
        with self.news:
            while not ready():
                if self.lost:
                    raise Closed(self.lost)
                left = end - time.monotonic()
                if left <= 0:
                    raise socket.timeout("no answer")
                self.news.wait(left)

    def _read(self):
        try:
            while True:
                self._read_on.wait()
                head = self.wire.read(12)
                _, kind, flags, number, length = struct.unpack(">BBHII", head)
                body = self.wire.read(length) if kind == DATA else b""
                self._take(kind, flags, number, length, body)
        except (Closed, OSError, ValueError) as e:
            self._lose(str(e))
        except Exception as e:  # a tag that does not verify, for one
            self._lose(repr(e))

    def _lose(self, why):
        with self.news:
            self.lost = self.lost or why or "closed"
            self.news.notify_all()

    def _take(self, kind, flags, number, length, body):
        self.frames_read += 1
        if kind == PING:
            if flags & SYN:
                self.frame(PING, ACK, 0, length)
            return
        if kind == GO_AWAY:
            return
        fresh = None
        with self.news:
            if flags & SYN and number not in self.streams:
                fresh = self.streams[number] = Stream(self, number)
            s = self.streams.get(number)
            if s:
                if kind == DATA:
                    s.arrived += body
                else:
                    s.credit += length
                s.ended |= bool(flags & FIN)
                s.reset |= bool(flags & RST)
            self.news.notify_all()
        if fresh:
            self.frame(WINDOW, ACK, number, 0)
            threading.Thread(target=self.owner.serve, args=(fresh,), daemon=True).start()

    # streams

    def open(self, protocol=None, timeout=10):
        """A new stream, agreed on the protocol; without one nothing but SYN is sent."""
        with self.news:
            number, self.next_number = self.next_number, self.next_number + 2
            s = self.streams[number] = Stream(self, number)
        self.frame(WINDOW, SYN, number, 0)
        s.protocol = protocol
        if protocol:
            select_protocol(s, protocol)
        return s

    def open_with(self, protocol, data=b""):
        """SYN, the negotiation and data in one piece; nothing is waited for, but credit for more
        than a window."""
        with self.news:
            number, self.next_number = self.next_number, self.next_number + 2
            s = self.streams[number] = Stream(self, number)
        body = token(MULTISTREAM) + token(protocol) + data
        first = body[:65524]
        s.protocol, s.credit = protocol, s.credit - len(first)
        self.frame(DATA, SYN, number, body=first)
        s.write(body[len(first):])
        return s

    def forget(self, stream):
        with self.news:
            self.streams.pop(stream.number, None)

    # hivemind's calls

    def call(self, protocol, request, timeout=10):
        """A unary call: the answer's bytes, or CallError."""
        s = self.open_with(protocol, unary_request(protocol, request))
        try:
            read_token(s)
            answer = read_token(s)
            if answer != protocol:
                raise CallError(f"{protocol}: {answer}")
            answer = pb_read(pb_read(s.read_delimited(timeout))[4][0])
            if 2 in answer:
                raise CallError(answer[2][0].decode(errors="replace"))
            return answer[1][0]
        finally:
            try:
                s.finish()
            except (Closed, OSError):
                pass
            self.forget(s)

    def stream_call(self, protocol, *requests, end=True, timeout=10):
        """A streaming call: a Call, after these requests and, if so, the end mark."""
        c = Call(self.open(protocol, timeout))
        for r in requests:
            c.send(r)
        if end:
            c.end()
        return c

    def ping(self, timeout=10):
        """Seconds until libp2p's ping comes back."""
        data, begin = os.urandom(32), time.monotonic()
        s = self.open("/ipfs/ping/1.0.0", timeout)
        s.write(data)
        if s.read(32, timeout) != data:
            raise ValueError("ping: other bytes")
        s.finish()
        self.forget(s)
        return time.monotonic() - begin

    def identify(self, timeout=10):
        """{"addresses", "protocols", "observed", "agent"} of the other side."""
        s, fields = self.open("/ipfs/id/1.0.0", timeout), {}
        data, at = s.read_all(timeout), 0
        while at < len(data):
            n, at = read_varint(data, at)
            for number, values in pb_read(data[at:at + n]).items():
                fields.setdefault(number, []).extend(values)
            at += n
        return {"addresses": fields.get(2, []), "protocols": [p.decode() for p in fields.get(3, [])],
                "observed": fields.get(4, [None])[-1], "agent": fields.get(6, [b""])[-1].decode()}

    def alive(self):
        return not self.lost

    def close(self):
        try:
            self.wire.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._read_on.set()
        self.wire.sock.close()
        self._lose("closed by us")


class Call:
    """Either side of a streaming call: frames of marker, length, body."""

    def __init__(self, stream):
        self.stream, self.connection = stream, stream.connection

    def send(self, message, **how):
        self.stream.write(b"\0" + struct.pack(">Q", len(message)) + message, **how)

    def end(self):
        """The caller's end mark."""
        self.stream.write(b"\1" + bytes(8))

    def fail(self, text=""):
        body = pb((1, text))
        self.stream.write(b"\1" + struct.pack(">Q", len(body)) + body)
        self.stream.finish()

    def receive(self, timeout=10):
        """The next message; None at the end."""
        try:
            marker, length = struct.unpack(">BQ", self.stream.read(9, timeout))
        except Closed:
            if self.stream.reset:
                raise
            return None
        body = self.stream.read(length, timeout)
        if marker:
            if not body:
                return None
            raise CallError(pb_read(body).get(1, [b""])[0].decode(errors="replace"))
        return body

    def finish(self):
        self.stream.finish()


def unary_request(protocol, request, peer=b"", call_id=None):
    return delimited(pb((1, call_id or os.urandom(16)), (3, pb((1, peer), (2, protocol), (3, request)))))


class Peer:
    """An identity, what it serves, and its connections. `unary[name] = f(request, connection) ->
    bytes`, `streaming[name] = f(call, connection)`, `protocols[name] = f(stream)`: called in a
    thread for each stream that the other side opens. Identify and ping are served; `del
    peer.protocols[...]` if they shall not be."""

    def __init__(self, source=None, identity=None):
        self.identity = identity or Identity()
        self.id, self.text = self.identity.id, self.identity.text
        self.source = source
        self.unary, self.streaming = {}, {}
        self.protocols = {"/ipfs/id/1.0.0": self._identify, "/ipfs/id/push/1.0.0": lambda s: s.read_all(),
                          "/ipfs/ping/1.0.0": self._ping}
        self.announced = []        # binary multiaddrs that identify tells
        self.connections = []
        self.errors = []           # what handlers have raised

    def connect_tcp(self, address, timeout=10):
        """TCP alone."""
        host, port, _ = parse_address(address)
        s = socket.socket()
        s.settimeout(timeout)
        if self.source:
            s.bind((self.source, 0))
        s.connect((host, port))
        return s

    def handshake(self, address, timeout=10, expect=True):
        """TCP, Noise, yamux, and then nothing: (Wire, peer ID)."""
        sock = self.connect_tcp(address, timeout)
        wire = Wire(sock)
        try:
            select_protocol(wire, "/noise")
            peer, agreed = noise(wire, self.identity, True)
            wanted = parse_address(address)[2]
            if expect and wanted and peer != wanted:
                raise ValueError("another peer answers")
            if not agreed:
                select_protocol(wire, YAMUX)
        except BaseException:
            sock.close()
            raise
        return wire, peer

    def dial(self, address, timeout=10, expect=True):
        """A Connection, which reads and answers."""
        wire, peer = self.handshake(address, timeout, expect)
        wire.sock.settimeout(None)
        return self._keep(Connection(self, wire, peer, True))

    def listen(self, host="127.0.0.1"):
        """Accepts connections; returns the address with our peer ID, and identify tells it."""
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, 0))
        server.listen(64)
        port = server.getsockname()[1]
        self.announced.append(multiaddr_ip4(host, port))
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return f"/ip4/{host}/tcp/{port}/p2p/{self.text}"

    def _accept(self, server):
        while True:
            sock, _ = server.accept()
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock):
        wire = Wire(sock)
        try:
            answer_protocol(wire, lambda name: name == "/noise")
            peer, agreed = noise(wire, self.identity, False)
            if not agreed:
                answer_protocol(wire, lambda name: name == YAMUX)
        except Exception as e:
            self.errors.append(e)
            sock.close()
            return
        self._keep(Connection(self, wire, peer, False))

    def _keep(self, connection):
        self.connections.append(connection)
        return connection

    def connected(self, peer, timeout=10):
        """A living connection with that peer ID, waiting for it to come."""
        for _ in until(timeout):
            for c in self.connections:
                if c.peer == peer and c.alive():
                    return c
        raise socket.timeout("no connection with that peer")

    def serve(self, stream):
        try:
            name = answer_protocol(stream, lambda n: n in self.protocols or n in self.unary or n in self.streaming)
            stream.protocol = name
            if name in self.protocols:
                self.protocols[name](stream)
            elif name in self.streaming:
                self.streaming[name](Call(stream), stream.connection)
            else:
                fields = pb_read(stream.read_delimited())
                request = pb_read(fields[3][0])
                try:
                    answer = pb((1, self.unary[name](request.get(3, [b""])[0], stream.connection)))
                except CallError as e:
                    answer = pb((2, str(e)))
                stream.write_delimited(pb((1, fields[1][0]), (4, answer)))
                stream.finish()
        except (Closed, OSError):
            pass
        except Exception as e:
            self.errors.append(e)

    def _identify(self, s):
        names = list(self.protocols) + list(self.unary) + list(self.streaming)
        s.write_delimited(pb((1, self.identity.public), *((2, a) for a in self.announced), *((3, n) for n in names)))
        s.finish()

    def _ping(self, s):
        while True:
            s.write(s.read(32, 60))


# --- msgpack, as hivemind writes it --------------------------------------------------------------


class Ext:
    """Any extension: code and payload."""

    def __init__(self, code, payload):
        self.code, self.payload = code, payload


class Dictionary(dict):
    """A DHT dictionary: {subkey: (value bytes, expiration)}; subkeys must be hashable."""

    def __init__(self, entries=(), maxsize=float("inf"), latest=None):
        super().__init__(entries)
        self.maxsize = maxsize
        self.latest = latest if latest is not None else max((e for _, e in self.values()), default=float("-inf"))


def _head(n, short, fix_max, codes):
    """A length: in the first byte up to fix_max, else behind one of the codes for 1, 2 and 4 bytes
    (None: there is none)."""
    if short is not None and n <= fix_max:
        return bytes([short | n])
    for code, size, form in zip(codes, (1, 2, 4), (">B", ">H", ">I")):
        if code is not None and n < 1 << 8 * size:
            return bytes([code]) + struct.pack(form, n)
    raise ValueError("msgpack: too long")


def pack(x):
    if x is None:
        return b"\xc0"
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        if 0 <= x < 128:
            return bytes([x])
        if -32 <= x < 0:
            return struct.pack("b", x)
        for code, form, low, high in ((0xcc, ">B", 0, 1 << 8), (0xcd, ">H", 0, 1 << 16), (0xce, ">I", 0, 1 << 32),
                                      (0xcf, ">Q", 0, 1 << 64), (0xd0, ">b", -1 << 7, 0), (0xd1, ">h", -1 << 15, 0),
                                      (0xd2, ">i", -1 << 31, 0), (0xd3, ">q", -1 << 63, 0)):
            if low <= x < high:
                return bytes([code]) + struct.pack(form, x)
        raise ValueError("msgpack: integer")
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        x = x.encode()
        return _head(len(x), 0xa0, 31, (0xd9, 0xda, 0xdb)) + x
    if isinstance(x, (bytes, bytearray)):
        return _head(len(x), None, 0, (0xc4, 0xc5, 0xc6)) + x
    if isinstance(x, Dictionary):
        return pack(Ext(0x50, pack([float(x.maxsize), float(x.latest), [[k, v, float(e)] for k, (v, e) in x.items()]])))
    if isinstance(x, dict):
        return _head(len(x), 0x80, 15, (None, 0xde, 0xdf)) + b"".join(pack(k) + pack(v) for k, v in x.items())
    if isinstance(x, tuple):
        return pack(Ext(0x40, pack(list(x))))
    if isinstance(x, list):
        return _head(len(x), 0x90, 15, (None, 0xdc, 0xdd)) + b"".join(pack(v) for v in x)
    if isinstance(x, Ext):
        n = len(x.payload)
        fixed = {1: 0xd4, 2: 0xd5, 4: 0xd6, 8: 0xd7, 16: 0xd8}
        head = bytes([fixed[n]]) if n in fixed else _head(n, None, 0, (0xc7, 0xc8, 0xc9))
        return head + bytes([x.code]) + x.payload
    raise TypeError(f"msgpack: {type(x)}")


def unpack(data):
    return _unpack(data, 0)[0]


def _unpack(d, at):
    def number(form):
        return struct.unpack_from(form, d, at)[0], at + struct.calcsize(form)

    def items(n, at):
        out = []
        for _ in range(n):
            x, at = _unpack(d, at)
            out.append(x)
        return out, at

    def pairs(n, at):
        flat, at = items(2 * n, at)
        return dict(zip(flat[::2], flat[1::2])), at

    def ext(n, at):
        code, payload = d[at], d[at + 1:at + 1 + n]
        if code == 0x40:
            return tuple(unpack(payload)), at + 1 + n
        if code == 0x50:
            maxsize, latest, entries = unpack(payload)
            return Dictionary({k: (v, e) for k, v, e in entries}, maxsize, latest), at + 1 + n
        return Ext(code, payload), at + 1 + n

    c = d[at]
    at += 1
    if c < 0x80:
        return c, at
    if c < 0x90:
        return pairs(c & 15, at)
    if c < 0xa0:
        return items(c & 15, at)
    if c < 0xc0:
        return d[at:at + (c & 31)].decode(), at + (c & 31)
    if c >= 0xe0:
        return c - 256, at
    if c in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[c], at
    if c in (0xca, 0xcb) or 0xcc <= c <= 0xd3:
        return number({0xca: ">f", 0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i",
                       0xd3: ">q"}[c])
    if 0xd4 <= c <= 0xd8:
        return ext(1 << c - 0xd4, at)
    n, at = number({0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xc7: ">B", 0xc8: ">H", 0xc9: ">I", 0xd9: ">B", 0xda: ">H", 0xdb: ">I",
                    0xdc: ">H", 0xdd: ">I", 0xde: ">H", 0xdf: ">I"}[c])
    if c <= 0xc6:
        return d[at:at + n], at + n
    if c <= 0xc9:
        return ext(n, at)
    if c <= 0xdb:
        return d[at:at + n].decode(), at + n
    return items(n, at) if c <= 0xdd else pairs(n, at)


# --- hivemind's messages, by field number --------------------------------------------------------

# name: number, type, a * if it is repeated. Any type but the plain ones names another
# message.
MESSAGES = {name: dict((f.split()[0], (int(f.split()[1]), f.split()[2].rstrip("*"), f.endswith("*"))) for f in fields.split(", ") if f)
            for name, fields in {
    "AccessToken": "username 1 str, public_key 2 bytes, expiration_time 3 str, signature 4 bytes",
    "RequestAuthInfo": "client_access_token 1 AccessToken, service_public_key 2 bytes, time 3 double, nonce 4 bytes, "
                       "signature 5 bytes",
    "ResponseAuthInfo": "service_access_token 1 AccessToken, nonce 2 bytes, signature 3 bytes",
    "NodeInfo": "node_id 1 bytes",
    "PingRequest": "auth 1 RequestAuthInfo, peer 2 NodeInfo, validate 3 int",
    "PingResponse": "auth 1 ResponseAuthInfo, peer 2 NodeInfo, dht_time 4 double, available 5 int",
    "StoreRequest": "auth 1 RequestAuthInfo, keys 2 bytes*, subkeys 3 bytes*, values 4 bytes*, expiration_time 5 double*, "
                    "in_cache 6 int*, peer 7 NodeInfo",
    "StoreResponse": "auth 1 ResponseAuthInfo, store_ok 2 int*, peer 3 NodeInfo",
    "FindRequest": "auth 1 RequestAuthInfo, keys 2 bytes*, peer 3 NodeInfo",
    "FindResult": "type 1 int, value 2 bytes, expiration_time 3 double, nearest_node_ids 4 bytes*, nearest_peer_ids 5 bytes*",
    "FindResponse": "auth 1 ResponseAuthInfo, results 2 FindResult*, peer 3 NodeInfo",
    "JoinRequest": "schema_hash 2 bytes, expiration 3 double, gather 4 bytes, client_mode 5 int, group_key 6 str",
    "MessageFromLeader": "code 1 int, group_id 2 bytes, suggested_leader 3 bytes, ordered_peer_ids 4 bytes*, gathered 5 bytes*",
    "Tensor": "buffer 1 bytes, size 2 int*, requires_grad 3 int, dtype 4 str, compression 5 int, chunks 6 int",
    "AveragingData": "code 1 int, group_id 2 bytes, peer_id 3 bytes, tensor_part 4 Tensor, weight 5 double",
    "DownloadRequest": "",
    "DownloadData": "metadata 1 bytes, tensor_part 2 Tensor",
    "HopMessage": "type 1 int, peer 2 RelayPeer, reservation 3 Reservation, limit 4 Limit, status 5 int",
    "StopMessage": "type 1 int, peer 2 RelayPeer, limit 3 Limit, status 4 int",
    "RelayPeer": "id 1 bytes, addrs 2 bytes*",
    "Reservation": "expire 1 int, addrs 2 bytes*, voucher 3 bytes",
    "Limit": "duration 1 int, data 2 int",
    "KadMessage": "type 1 int, key 2 bytes, closer 8 KadPeer*, provider 9 KadPeer*, level 10 int",
    "KadPeer": "id 1 bytes, addrs 2 bytes*, connection 3 int",
    "AutonatMessage": "type 1 int, dial 2 AutonatDial, response 3 AutonatResponse",
    "AutonatDial": "peer 1 RelayPeer",
    "AutonatResponse": "status 1 int, text 2 str, addr 3 bytes",
}.items()}

CODES = {name: i for i, name in enumerate(
    "NO_CODE REQUEST_JOIN ACCEPTED BEGIN_ALLREDUCE PART_FOR_AVERAGING AVERAGED_PART NOT_DECLARED NOT_A_LEADER BAD_EXPIRATION_TIME "
    "BAD_SCHEMA_HASH BAD_GROUP_ID DUPLICATE_PEER_ID GROUP_IS_FULL NOT_LOOKING_FOR_GROUP PROTOCOL_VIOLATION INTERNAL_ERROR CANCELLED "
    "GROUP_DISBANDED BAD_GROUP_KEY".split())}


def encode(name, **values):
    """A message in the order of its numbers. What is given is written, defaults too; None is
    not."""
    fields = []
    for key in values:
        if key not in MESSAGES[name]:
            raise KeyError(f"{name} has no {key}")
    for key, (number, kind, repeated) in MESSAGES[name].items():
        value = values.get(key)
        if value is None:
            continue
        if kind in MESSAGES:
            one = lambda v, k=kind: v if isinstance(v, bytes) else encode(k, **v)
            fields += [(number, one(v)) for v in (value if repeated else [value])]
        elif not repeated:
            fields.append((number, float(value) if kind == "double" else value))
        elif kind == "double":
            fields.append((number, b"".join(struct.pack("<d", v) for v in value)))
        elif kind == "int":
            fields.append((number, b"".join(varint(v) for v in value)))
        else:
            fields += [(number, v) for v in value]
    return pb(*fields)


def decode(name, data):
    """{field: value}: absent ones are their default, [] or None for a message."""
    raw, out = pb_read(data), {}
    for key, (number, kind, repeated) in MESSAGES[name].items():
        values = raw.get(number, [])
        if kind in MESSAGES:
            values = [decode(kind, v) for v in values]
        elif kind == "double":
            values = [x for v in values for (x,) in struct.iter_unpack("<d", v)]
        elif kind == "str":
            values = [v.decode(errors="replace") for v in values]
        elif kind == "int":
            flat = []
            for v in values:
                at = 0
                while isinstance(v, bytes) and at < len(v):
                    n, at = read_varint(v, at)
                    flat.append(n)
                if isinstance(v, int):
                    flat.append(v)
            values = flat
        default = None if kind in MESSAGES else {"bytes": b"", "str": "", "int": 0, "double": 0.0}[kind]
        out[key] = values if repeated else values[-1] if values else default
    return out


# --- the DHT -------------------------------------------------------------------------------------

PLAIN = b"\xc0"  # the subkey of a regular value
WHOLE = b""      # ... and of a whole dictionary


def dht_id(source):
    return hashlib.sha1(source if isinstance(source, bytes) else pack(source)).digest()


def dht_ping(connection, node_id=None, validate=False, timeout=10, auth=None):
    r = encode("PingRequest", auth=auth, peer=dict(node_id=node_id), validate=1 if validate else None)
    return decode("PingResponse", connection.call("DHTProtocol.rpc_ping", r, timeout))


def store(connection, records, node_id=None, timeout=10):
    """records: (key of 20 bytes, subkey bytes, value bytes, expiration[, in cache]). The list of
    answers."""
    r = encode("StoreRequest", keys=[x[0] for x in records], subkeys=[x[1] for x in records], values=[x[2] for x in records],
               expiration_time=[x[3] for x in records], in_cache=[int(len(x) > 4 and x[4]) for x in records],
               peer=dict(node_id=node_id))
    answer = decode("StoreResponse", connection.call("DHTProtocol.rpc_store", r, timeout))
    return [bool(x) for x in answer["store_ok"]]


def find(connection, keys, node_id=None, timeout=10):
    """A list of results: type 0 nothing, 1 a value, 2 a dictionary (`unpack(value)` is it), and the
    nearest nodes."""
    r = encode("FindRequest", keys=keys, peer=dict(node_id=node_id))
    return decode("FindResponse", connection.call("DHTProtocol.rpc_find", r, timeout))["results"]


def serve_dht(peer, node_id, records=None, clock=time.time):
    """Lets a Peer answer as a DHT node: takes every store, finds what is in records {key: (type,
    value, expiration)}."""
    records = {} if records is None else records
    info = dict(node_id=node_id)

    def on_store(request, connection):
        r = decode("StoreRequest", request)
        return encode("StoreResponse", store_ok=[1] * len(r["keys"]), peer=info)

    def on_find(request, connection):
        results = []
        for key in decode("FindRequest", request)["keys"]:
            kind, value, expiration = records.get(key, (0, None, None))
            results.append(dict(type=kind, value=value, expiration_time=expiration, nearest_node_ids=[], nearest_peer_ids=[]))
        return encode("FindResponse", results=results, peer=info)

    peer.unary["DHTProtocol.rpc_ping"] = lambda q, c: encode("PingResponse", peer=info, dht_time=clock(), available=1)
    peer.unary["DHTProtocol.rpc_store"] = on_store
    peer.unary["DHTProtocol.rpc_find"] = on_find
    return records


class RecordKey:
    """hivemind's RSA key for DHT records and access tokens."""

    def __init__(self, pkcs1=None, key=None):
        self.key = key or (serialization.load_der_private_key(pkcs1, None) if pkcs1 else rsa.generate_private_key(65537, 2048))
        self.text = self.key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        self.tag = b"[owner:" + self.text + b"]"

    def sign(self, message):
        """base64 of RSA-PSS with the longest salt."""
        scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
        return base64.b64encode(self.key.sign(message, scheme, hashes.SHA256()))

    def verifies(self, message, signature):
        scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
        try:
            self.key.public_key().verify(base64.b64decode(signature), message, scheme, hashes.SHA256())
            return True
        except InvalidSignature:
            return False

    def record(self, key, value, expiration, subkey=None):
        """A signed record for store(): the subkey is the owner's tag unless given (any object),
        value any object."""
        subkey, value = pack(self.tag if subkey is None else subkey), pack(value)
        signature = self.sign(pack((key, subkey, value, float(expiration))))
        return key, subkey, value + b"[signature:" + signature + b"]", float(expiration)

    def token(self, user_key, username="stranger", expires=None):
        """As an authority: an access token for the user's key."""
        expires = expires or time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 3600))
        signature = self.sign(f"{username} {user_key.text!r} {expires}".encode())
        return dict(username=username, public_key=user_key.text, expiration_time=expires, signature=signature)

    def authenticate(self, message, token, service_key=None, clock=None):
        """A plain request of the DHT with our signed RequestAuthInfo in front."""
        auth = dict(client_access_token=token, service_public_key=service_key, time=clock or time.time(), nonce=os.urandom(8))
        unsigned = pb((1, encode("RequestAuthInfo", **auth))) + message
        return pb((1, encode("RequestAuthInfo", **auth, signature=self.sign(unsigned)))) + message


def progress(peer_id, epoch, samples=0, speed=1.0, clock=None, client_mode=False):
    """The value of a progress record."""
    return dict(peer_id=peer_id, epoch=epoch, samples_accumulated=samples, samples_per_second=float(speed),
                time=float(clock or time.time()), client_mode=client_mode)


def float_tensor(values):
    """Uncompressed float32."""
    return dict(buffer=struct.pack(f"<{len(values)}f", *values), size=[len(values)], dtype="float32", compression=0)


# --- our own programs ----------------------------------------------------------------------------

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POTLUCK = os.path.abspath(os.environ.get("POTLUCK", os.path.join(ROOT, "build", "potluck")))
WORK = tempfile.mkdtemp(prefix="attack.")
started = []


def until(timeout, step=0.05):
    """for _ in until(5): a round each step, until this many seconds are over."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        yield
        time.sleep(step)


def ask_for_schema(victim, prefix, join):
    """The hash of the tensors' shapes that a trainer averages, which requests to join carry: a stranger that declares itself as the
    earliest leader of the averager `prefix` learns it from the first request to its RPC `join`. None: nobody has asked."""
    asked = []
    bait = Peer(source="127.0.0.9")
    bait.streaming[join] = lambda call, c: (asked.append(decode("JoinRequest", call.receive())), call.fail())
    serve_dht(bait, os.urandom(20))
    c = bait.dial(victim.address)
    for _ in until(20, 0.2):
        store(c, [(dht_id(prefix + ".0b"), pack(bait.id), b"\xc3", time.time() + 0.8)])
        if asked:
            return asked[0]["schema_hash"]
    return None


class Process:
    """One of our programs: its events (lines of JSON), its log, and what it costs."""

    def __init__(self, *args, env=None):
        self.args, self.events = args, []
        n = len(started)
        self.out = os.path.join(WORK, f"{n}.out")
        self.err = os.path.join(WORK, f"{n}.err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen([POTLUCK, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT,
                                          env={**os.environ, **(env or {})})
        self.pid, self.address, self.peer = self.popen.pid, None, None
        started.append(self)

    def lines(self):
        """Every event so far."""
        events = []
        with open(self.out, "rb") as f:
            for line in f.read().split(b"\n")[:-1]:
                try:
                    events.append(json.loads(line))
                except ValueError:
                    pass
        return events

    def wait_for(self, event, timeout=30, **values):
        """The first event of that name with these values; None if it does not come, or the program
        ends."""
        for _ in until(timeout):
            ended = not self.alive()
            for e in self.lines():
                if e.get("event") == event and all(e.get(k) == v for k, v in values.items()):
                    return e
            if ended:
                return None
        return None

    def log(self):
        with open(self.err, "rb") as f:
            return f.read().decode(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def _status(self, field):
        try:
            with open(f"/proc/{self.pid}/status") as f:
                for line in f:
                    if line.startswith(field + ":"):
                        return int(line.split()[1]) / 1024
        except OSError:
            pass
        return 0.0

    def rss(self):
        """Resident memory, MiB."""
        return self._status("VmRSS")

    def peak(self):
        """The most it ever was, MiB."""
        return self._status("VmHWM")

    def cpu(self):
        """Seconds of a processor so far, all threads."""
        with open(f"/proc/{self.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def stop(self, timeout=20):
        if self.alive():
            self.popen.send_signal(signal.SIGINT)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        return self.popen.returncode


def start(command, *args, env=None, timeout=60):
    """`potluck COMMAND ARGS --json`, once it listens: .address is how others join it, .peer its raw
    ID."""
    p = Process(command, *args, "--json", env=env)
    e = p.wait_for("listening", timeout)
    if not e:
        print(p.log())
        raise RuntimeError(f"potluck {command} does not listen")
    p.address = e["multiaddr"]
    p.peer = parse_address(p.address)[2]
    return p


def peer(*args, join=None, listen="/ip4/127.0.0.1/tcp/0", **how):
    """A `potluck peer`, joined or alone."""
    p = start("peer", "--listen", listen, "--no-check", *(["--join", join.address] if join else []), *args, **how)
    for _ in until(30):
        if any(e.get("event") in ("joined", "alone") for e in p.lines()):
            break
    return p


def trainer(*args, join=None, run="r", out=None, listen="/ip4/127.0.0.1/tcp/0", **how):
    """A `potluck train` of the tests' tiny model: 8 pairs a batch, an epoch of 16, rounds after a
    second."""
    defaults = {"--config": "test/program/tiny.json", "--limit": "64", "--batch": "8", "--target-batch": "16", "--save-every": "0",
                "--threads": "1", "--matchmaking-time": "1", "--steps": "1000000"}
    given = set(args)
    options = [x for k, v in defaults.items() if k not in given for x in (k, v)]
    out = out or os.path.join(WORK, f"trained-{len(started)}")
    p = start("train", "--run", run, "--listen", listen, "--out", out, "--no-check", "--quiet", *options,
              *(["--join", join.address] if join else []), *args, **how)
    p.directory = out
    return p


def latency(victim, source="127.0.0.1", timeout=10):
    """Seconds that a newcomer's handshake and DHT ping take; infinity if it gets no answer."""
    begin = time.monotonic()
    try:
        c = Peer(source=source).dial(victim.address, timeout)
        dht_ping(c, timeout=timeout)
        c.close()
        return time.monotonic() - begin
    except (Closed, CallError, OSError, KeyError, IndexError):
        return float("inf")


def allow_descriptors(n):
    """This many open sockets for this process; what the limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = n if hard == resource.RLIM_INFINITY else min(n, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
    return n


# --- the count -----------------------------------------------------------------------------------

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(what, good, detail=""):
    """One line of the report; detail tells what was seen where it failed."""
    counts["passed" if good else "failed"] += 1
    print(f"ok   {what}" if good else f"FAIL {what}{': ' if detail != '' else ''}{detail}", flush=True)
    return bool(good)


def skip(what, why):
    counts["skipped"] += 1
    print(f"skip {what}: {why}", flush=True)


def _clear():
    for p in started:
        if p.alive():
            p.popen.kill()
            p.popen.wait()
    shutil.rmtree(WORK, ignore_errors=True)


atexit.register(_clear)


def _too_long(*_):
    print(f"FAIL not over within {LIMIT} s", flush=True)
    counts["failed"] += 1
    finish()


LIMIT = 300  # s: the longest attack takes 75 where nothing else runs
signal.signal(signal.SIGALRM, _too_long)
signal.alarm(LIMIT)


def _uncaught(kind, value, trace):
    sys.__excepthook__(kind, value, trace)
    print(f"FAIL {kind.__name__}: {value}", flush=True)
    counts["failed"] += 1
    finish()


sys.excepthook = _uncaught


def finish():
    """The closing count, and the end of every program that was started."""
    _clear()
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    sys.stdout.flush()
    os._exit(1 if counts["failed"] else 0)
