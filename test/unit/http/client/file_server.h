/* file_server.h - a web server in a thread that serves one file, well or badly by the path's
 * first letter: it cuts, stalls, reports wrong lengths and ranges, is busy, changes the file or
 * damages it. */
#ifndef FILE_SERVER_H
#define FILE_SERVER_H

#include "net/http/client/http_source.h"
#include "test/unit/http/web_server.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>
#include <unistd.h>

#define FILE_BYTES (3 * HTTP_BLOCK_BYTES + 12345)

static uint8_t content[FILE_BYTES];
static char sha256[65];
static char away[100];           /* where /away and /keeps lead */
static atomic_int authorized;    /* requests with a token */
static struct http_cache *cache; /* the cache of the next source */
static struct pl_err err;

/* The path's first letter chooses the server's behaviour, so that tests do not share a state. */
static void answer_part(struct web_client *c, const char *path, long long first, long long last)
{
    int number = c->number;
    char head[400];
    long long total = FILE_BYTES, bytes;
    long long from, claimed;
    char tag = 'a';
    char mode = path[1];
    if (mode == 'b' && number % 3) { /* busy, two times of three */
        static const char busy[] =
            "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
        web_put(c, busy, sizeof busy - 1);
        return;
    }
    if (mode == 'h' && number % 7 == 2) { /* busy, and says for how long */
        static const char later[] = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n"
                                    "Content-Length: 0\r\nConnection: close\r\n\r\n";
        web_put(c, later, sizeof later - 1);
        return;
    }
    if (mode == 'n') {
        static const char none[] =
            "HTTP/1.1 404 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        web_put(c, none, sizeof none - 1);
        return;
    }
    if (mode == 'r') { /* elsewhere */
        snprintf(head, sizeof head,
                 "HTTP/1.1 302 There\r\nLocation: /good\r\nContent-Length: 0\r\nConnection: "
                 "close\r\n\r\n");
        web_put(c, head, strlen(head));
        return;
    }
    if (mode == 'a' || mode == 'k') { /* to another origin; to itself, forever */
        snprintf(head, sizeof head,
                 "HTTP/1.1 307 Away\r\nLocation: %s\r\nContent-Length: 4\r\nConnection: "
                 "close\r\n\r\naway",
                 mode == 'a' ? away : "/keeps/on");
        web_put(c, head, strlen(head));
        return;
    }
    if (mode == 'w') { /* knows no ranges */
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", FILE_BYTES);
        web_put(c, head, strlen(head));
        if (path[2] == 'a') { /* a wait where a block ends: it may look like the file's end */
            web_put(c, content, HTTP_BLOCK_BYTES);
            usleep(100000);
            web_put(c, content + HTTP_BLOCK_BYTES, FILE_BYTES - HTTP_BLOCK_BYTES);
        } else web_put(c, content, FILE_BYTES);
        return;
    }
    if (last >= total) last = total - 1;
    bytes = last - first + 1;
    from = first;
    claimed = bytes;
    if (mode == 'o') first += 1;                            /* about other bytes */
    if (mode == 'e' && number > 1) tag = 'b';               /* the file has changed */
    if (mode == 'l') claimed = bytes + 1000;                /* promises more than comes */
    if (mode == 'm') claimed = bytes += number % 2 ? 7 : 0; /* sends more than was asked for */
    snprintf(head, sizeof head,
             "HTTP/1.1 206 Part\r\nContent-Range: bytes %lld-%lld/%lld\r\nContent-Length: %lld\r\n"
             "ETag: \"%c\"\r\nConnection: close\r\n\r\n",
             first, last, total, claimed, tag);
    web_put(c, head, strlen(head));
    if (mode == 'c' && bytes > 50000)
        bytes = 50000 + number;      /* cut in the middle, again and again */
    if (mode == 's' && number % 2) { /* stalls */
        web_put(c, content + from, 100);
        sleep(3);
        return;
    }
    if (mode == 'h' && number % 5 == 0) { /* cut in the middle, and the connection stays open */
        web_put(c, content + from, (size_t)bytes / 2);
        while (web_get(c, head, sizeof head) > 0) {}
        return;
    }
    if (from + bytes > total) bytes = total - from;
    if (mode == 'd' && first == 0) { /* one byte is another */
        uint8_t *copy = malloc((size_t)bytes);
        memcpy(copy, content + from, (size_t)bytes);
        copy[777] ^= 1;
        web_put(c, copy, (size_t)bytes);
        free(copy);
        return;
    }
    web_put(c, content + from, (size_t)bytes);
}

static void answer(struct web_client *c)
{
    char path[200], range[100];
    long long first = 0, last = FILE_BYTES - 1;
    if (sscanf(c->text, "GET %199s", path) != 1) return;
    if (!strcmp(web_header(c, "Authorization", range, sizeof range), "Bearer secret"))
        atomic_fetch_add(&authorized, 1);
    sscanf(web_header(c, "Range", range, sizeof range), "bytes=%lld-%lld", &first, &last);
    answer_part(c, path, first, last);
}

static struct web_server plain = { .answer = answer, .parallel_for = 1 },
                         secure = { .answer = answer, .parallel_for = 1 };
static char folder[] = "/tmp/potluck-cache-XXXXXX", ca_file[60];

static int serve_file(void **state)
{
    unsigned char digest[32];
    unsigned bytes;
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 13);
    EVP_Digest(content, sizeof content, digest, &bytes, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++) snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    snprintf(ca_file, sizeof ca_file, "%s.pem", folder);
    return web_server_certify(&secure, ca_file) || web_server_open(&secure) ||
           web_server_open(&plain);
}

static struct http_client *client_of(int stall_s)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    o.wait_s = 0.01;
    o.tries = 6;
    o.stall_s = stall_s;
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    return c;
}

/* So patient that a slow machine is not taken for a server that stalls. */
static struct http_client *client(void) { return client_of(60); }

static int open_path(struct pl_source **s, struct http_client *c, const char *path, const char *sum)
{
    char url[200];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", plain.port, path);
    atomic_store(&plain.requests, 0);
    return http_source_open(s, c, cache, url, sum, &err);
}

/* All bytes, in steps of an odd size. The first status that is not PL_OK. */
static int read_all(struct pl_source *s)
{
    static uint8_t got[FILE_BYTES];
    memset(got, 0, sizeof got);
    assert_int_equal(s->size, FILE_BYTES);
    for (uint64_t at = 0; at < FILE_BYTES;) {
        size_t n = FILE_BYTES - at < 54321 ? (size_t)(FILE_BYTES - at) : 54321;
        int rc = pl_source_read(s, at, got + at, n, &err);
        if (rc) return rc;
        at += n;
    }
    assert_memory_equal(got, content, FILE_BYTES);
    return PL_OK;
}

static int remove_folder(void **state)
{
    unlink(ca_file);
    return rmdir(folder);
}

#endif
