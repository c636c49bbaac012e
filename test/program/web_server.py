"""web_server.py - serves a folder badly: web_server.py FOLDER harsh|silent [CERTIFICATE KEY]

harsh: of each 5 answers one stops in the middle, and of each 7 requests one is asked to come back
later; the connection stays open after either; the folder itself is a page of links. silent: five
answers come, the list and the shards' first parts; of each later one a byte, and then nothing more.
The port is printed.
"""
import http.server
import itertools
import os
import re
import ssl
import sys

folder, mode = sys.argv[1:3]
numbers = itertools.count(1)


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=folder)

    def log_message(self, *_):
        pass

    def head(self, status, length, *headers):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_GET(self):
        if self.path.endswith("/"):
            return super().do_GET()
        number = next(numbers)
        path = os.path.join(folder, os.path.basename(self.path))
        if not os.path.isfile(path):
            return self.head(404, 0)
        if mode == "harsh" and number % 7 == 3:
            return self.head(503, 0)
        with open(path, "rb") as file:
            data = file.read()
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        body = data[first:last + 1]
        self.head(206, len(body), ("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(data)}"))
        if mode == "silent" and number > 5:
            body = body[:1]
            print("silent now", file=sys.stderr, flush=True)
        elif mode == "harsh" and number % 5 == 0:
            body = body[:len(body) // 2]
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:5])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
