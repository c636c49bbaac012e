"""Servers that try to get tokens of other servers: over plain HTTP, by redirects, by lists and
pages that name them, by similar host names, by upload addresses. Our programs have tokens and keys
in their environment; the test compares what each server received."""
import http.server
import ssl

from adversary import *

SECRETS = {"HF_TOKEN": "hf_secret", "POTLUCK_TOKEN": "own_secret", "AWS_ACCESS_KEY_ID": "AKIAKEY",
           "AWS_SECRET_ACCESS_KEY": "aws_secret", "AWS_SESSION_TOKEN": "aws_session"}
ENVIRONMENT = dict(SECRETS)
SHARD = open(os.path.join(ROOT, "test", "interop", "pyarrow", "v2_dictionary_zstd.parquet"), "rb").read()


class Site:
    """A web server: `pages` maps paths to bodies, a body (number, url) is a redirect. Remembers
    every request's head."""

    def __init__(self, tls=None, host="127.0.0.1"):
        self.pages, self.heads = {}, []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                site.heads.append(f"{self.requestline}\n{self.headers}")
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                page = site.pages.get(self.path.split("?")[0], SHARD if self.path.endswith(".parquet") else b"")
                status, headers = 200, {}
                if isinstance(page, tuple):
                    status, headers, page = page[0], {"Location": page[1]}, b"moved"
                elif "Range" in self.headers and page:
                    first, last = self.headers["Range"][6:].split("-")
                    status, headers = 206, {"Content-Range": f"bytes {first}-{min(int(last), len(page) - 1)}/{len(page)}"}
                    page = page[int(first):int(last) + 1]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(page)

            do_HEAD = do_PUT = do_POST = do_PATCH = do_GET

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shown(self):
        """Which secrets it has been shown since the last call, and how often it was asked."""
        text, n = "\n".join(self.heads), len(self.heads)
        self.heads = []
        return sorted({k for k, v in SECRETS.items() if v in text}), n


def certificate():
    """One self-signed certificate for every address of these tests."""
    key, crt = os.path.join(WORK, "key.pem"), os.path.join(WORK, "ca.pem")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                           "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,IP:127.0.0.2,DNS:localhost",
                           "-keyout", key, "-out", crt], capture_output=True)
    if made.returncode:
        skip("tokens", "no openssl")
        finish()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    return context, crt


tls, ca = certificate()
hub, cdn, other, alias = Site(tls), Site(tls), Site(), Site(tls, "127.0.0.2")


def run(*args, **env):
    for s in (hub, cdn, other, alias):
        s.heads = []
    try:
        return subprocess.run([POTLUCK, *args], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=40,
                              env={**os.environ, **ENVIRONMENT, "SSL_CERT_FILE": ca, "HF_ENDPOINT": hub.url, **env})
    except subprocess.TimeoutExpired as e:
        return e


def train(url, **env):
    """Reads the data as far as it goes: these are no pairs of the model, which is found out after
    they have been fetched."""
    return run("train", "--data", url, "--steps", "1", "--config", "test/program/tiny.json", "--batch", "4", "--target-batch", "4",
               "--threads", "1", "--quiet", "--out", os.path.join(WORK, "out"), **env)


def nobody_but(what, allowed, *sites, asked=True):
    """allowed: {site: secrets it may see}."""
    for s in sites:
        seen, n = s.shown()
        check(f"{what}: {'the hub' if s is hub else 'another'} at {s.url.split(':')[0]} sees {allowed.get(s, [])}",
              seen == allowed.get(s, []) and (n or not asked), f"{seen}, {n} requests")


# --- reading -------------------------------------------------------------------------------------

ONLY_HF = {"POTLUCK_TOKEN": ""}
hub.pages["/list.txt"] = b"a.parquet\n"
train(hub.url + "/list.txt", **ONLY_HF)
nobody_but("a list of the hub", {hub: ["HF_TOKEN"]}, hub)

other.pages["/list.txt"] = b"a.parquet\n"
train(other.url + "/list.txt")
nobody_but("in the open", {}, other)
train(other.url + "/a.parquet", HF_ENDPOINT=other.url)
nobody_but("in the open, although it is the hub's own address", {}, other)

for kind, text in (("list of lines", "{0}/a.parquet\n"), ("list of JSON", '[{{"url": "{0}/a.parquet"}}]'),
                   ("folder page", '<a href="{0}/a.parquet">a</a> <a href="b.parquet">b</a>')):
    path = "/" if "page" in kind else "/list.json" if "JSON" in kind else "/list.txt"
    for s in (cdn, other):
        hub.pages[path] = text.format(s.url).encode()
        train(hub.url + path, **ONLY_HF)
        nobody_but(f"a {kind} that names another server", {}, s, asked="page" not in kind)
hub.pages["/list.txt"] = f"//127.0.0.1:{cdn.port}/a.parquet\n".encode()
train(hub.url + "/list.txt", **ONLY_HF)
nobody_but("an entry without a scheme", {}, cdn, asked=False)

for status in (301, 302, 303, 307, 308):
    for s in (cdn, other) if status == 302 else (cdn,):
        hub.pages["/moved.parquet"] = (status, s.url + "/a.parquet")
        train(hub.url + "/moved.parquet", **ONLY_HF)
        nobody_but(f"a redirect, {status}", {hub: ["HF_TOKEN"]}, hub, s)
hub.pages["/moved.parquet"] = (302, f"//127.0.0.2:{alias.port}/a.parquet")
train(hub.url + "/moved.parquet", **ONLY_HF)
nobody_but("a redirect without a scheme", {}, alias)
hub.pages["/moved.parquet"] = (302, cdn.url + "/on.parquet")
cdn.pages["/on.parquet"] = (302, other.url + "/a.parquet")
train(hub.url + "/moved.parquet", **ONLY_HF)
nobody_but("two redirects", {hub: ["HF_TOKEN"]}, hub, cdn, other)
hub.pages["/moved.parquet"] = (302, "/a.parquet")
train(hub.url + "/moved.parquet", **ONLY_HF)
nobody_but("a redirect within the hub", {hub: ["HF_TOKEN"]}, hub)

# Names that look like the hub's, each of which leads to another server.
hub_at = f"127.0.0.1:{hub.port}"
for what, url in (("user information", f"https://{hub_at}@127.0.0.2:{alias.port}/a.parquet"),
                  ("a password", f"https://127.0.0.1:{hub.port}x@127.0.0.2:{alias.port}/a.parquet"),
                  ("another host, the path the hub", f"https://127.0.0.2:{alias.port}/{hub_at}/a.parquet"),
                  ("a query", f"https://127.0.0.2:{alias.port}/a.parquet?{hub.url}")):
    train(url, POTLUCK_TOKEN="")
    nobody_but(f"a URL that looks alike: {what}", {}, alias)
for what, url in (("another name of the same server", f"https://localhost:{hub.port}/a.parquet"),
                  ("user information", f"https://x@{hub_at}/a.parquet"), ("a short address", f"https://127.1:{hub.port}/a.parquet"),
                  ("a number", f"https://2130706433:{hub.port}/a.parquet")):
    train(url, POTLUCK_TOKEN="")
    nobody_but(f"not the hub's own origin: {what}", {}, hub, asked=False)
train(f"HTTPS://{hub_at}/a.parquet", **ONLY_HF)
nobody_but("a scheme has no case", {hub: ["HF_TOKEN"]}, hub)
train(hub.url + "/a.parquet", HF_ENDPOINT="", POTLUCK_TOKEN="")
nobody_but("the hub is another, huggingface.co", {}, hub)

# A token for one server: its own, named by the user, and not the servers that it names.
for s in (cdn, hub, other, alias):
    cdn.pages["/list.txt"] = f"{s.url}/a.parquet\n".encode()
    ended = train(cdn.url + "/list.txt")
    nobody_but("a list of its own server", {cdn: ["POTLUCK_TOKEN"], hub: ["HF_TOKEN"]}, cdn, s) if s is not cdn else \
        nobody_but("a list of its own server, of itself", {cdn: ["POTLUCK_TOKEN"]}, cdn)
check("no program crashed", ended.returncode in (0, 1, 2), ended)

# --- uploading -----------------------------------------------------------------------------------

model = os.path.join(WORK, "model.bin")
with open(model, "wb") as f:
    f.write(os.urandom(100000))


def upload(*args, **env):
    return run("upload", "--quiet", "--tries", "1", *args, model, **env)


upload("--to", other.url + "/")
nobody_but("put in the open", {}, other)
upload("--to", cdn.url + "/")
nobody_but("put to a server that is not the hub", {cdn: ["POTLUCK_TOKEN"]}, cdn)
upload("--to", cdn.url + "/", POTLUCK_TOKEN="")
nobody_but("put without its token", {}, cdn)
upload("--to", other.url + "/", "--tus")
nobody_but("tus in the open", {}, other)
upload("--to", other.url + "/bucket/", "--s3")
nobody_but("S3 in the open", {}, other, asked=False)
upload("--hub", "user/name", "--to", other.url)
nobody_but("a hub in the open", {}, other)
upload("--hub", "user/name", HF_ENDPOINT=other.url)
nobody_but("a hub in the open, from the environment", {}, other)
upload("--hub", "user/name", POTLUCK_TOKEN="")
nobody_but("a hub", {hub: ["HF_TOKEN"]}, hub)
for s in (cdn, other):
    for path in ("/model.bin", "/"):
        hub.pages[path] = (307, s.url + "/model.bin")
    upload("--to", hub.url + "/", POTLUCK_TOKEN="")
    nobody_but("put, redirected", {}, s, asked=False)

# --- an authority --------------------------------------------------------------------------------

SECRETS["the user's secret"] = "authority_secret"
secret_file = os.path.join(WORK, "secret")
with open(secret_file, "w") as f:
    f.write(SECRETS["the user's secret"])
nobody = "/ip4/127.0.0.1/tcp/1/p2p/" + Identity().text


def join(url):
    return run("dht", "get", "k", "--join", nobody, "--authority", url, "--authority-ca", ca, "--token-file", secret_file)


join(cdn.url)
nobody_but("an authority", {cdn: ["the user's secret"]}, cdn)
cdn.pages["/api/experiments/join"] = (307, alias.url + "/api/experiments/join")
join(cdn.url)
nobody_but("an authority that sends on", {cdn: ["the user's secret"]}, cdn)
nobody_but("an authority that sends on", {}, alias, asked=False)
join(other.url)
nobody_but("an authority in the open", {}, other, asked=False)
join(f"https://127.0.0.1:{cdn.port}@127.0.0.2:{alias.port}")
nobody_but("an authority by user information", {}, alias, asked=False)

finish()
