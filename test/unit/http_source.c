/* http_source.c - a web server that cuts, stalls, lies about lengths and ranges, is busy, changes
 * the file or damages it; the source gives the right bytes or one sentence. The server is a thread
 * here. */
#include "../../net/http/source.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define FILE_BYTES (3 * HTTP_BLOCK_BYTES + 12345)

static uint8_t content[FILE_BYTES];
static char sha256[65];
static int listening, port;
static atomic_int requests;
static struct http_cache *cache; /* what the next source is opened with */
static struct pl_err err;

/* What the server does is the path's first letter, so that tests do not share a state. */
static void answer(int fd, const char *path, long long first, long long last, int number)
{
    char head[400];
    long long total = FILE_BYTES, bytes;
    long long from, claimed;
    char tag = 'a';
    char mode = path[1];
    if (mode == 'b' && number % 3) { /* busy, two times of three */
        static const char busy[] =
            "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";
        send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL);
        return;
    }
    if (mode == 'n') {
        static const char none[] =
            "HTTP/1.1 404 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        send(fd, none, sizeof none - 1, MSG_NOSIGNAL);
        return;
    }
    if (mode == 'r') { /* elsewhere */
        snprintf(head, sizeof head,
                 "HTTP/1.1 302 There\r\nLocation: /good\r\nContent-Length: 0\r\nConnection: "
                 "close\r\n\r\n");
        send(fd, head, strlen(head), MSG_NOSIGNAL);
        return;
    }
    if (mode == 'w') { /* knows no ranges */
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", FILE_BYTES);
        send(fd, head, strlen(head), MSG_NOSIGNAL);
        if (path[2] == 'a') { /* a wait where a block ends: it may look like the file's end */
            send(fd, content, HTTP_BLOCK_BYTES, MSG_NOSIGNAL);
            usleep(100000);
            send(fd, content + HTTP_BLOCK_BYTES, FILE_BYTES - HTTP_BLOCK_BYTES, MSG_NOSIGNAL);
        } else
            send(fd, content, FILE_BYTES, MSG_NOSIGNAL);
        return;
    }
    if (last >= total) last = total - 1;
    bytes = last - first + 1;
    from = first;
    claimed = bytes;
    if (mode == 'o') first += 1;                         /* about other bytes */
    if (mode == 'e' && number > 1) tag = 'b';            /* the file has changed */
    if (mode == 'l') claimed = bytes + 1000;             /* promises more than comes */
    if (mode == 'm') claimed = bytes += number % 2 ? 7 : 0; /* sends more than was asked for */
    snprintf(head, sizeof head,
             "HTTP/1.1 206 Part\r\nContent-Range: bytes %lld-%lld/%lld\r\nContent-Length: %lld\r\n"
             "ETag: \"%c\"\r\nConnection: close\r\n\r\n",
             first, last, total, claimed, tag);
    send(fd, head, strlen(head), MSG_NOSIGNAL);
    if (mode == 'c' && bytes > 50000) bytes = 50000 + number; /* cut in the middle, again and again */
    if (mode == 's' && number % 2) {                     /* stalls */
        send(fd, content + from, 100, MSG_NOSIGNAL);
        sleep(3);
        return;
    }
    if (from + bytes > total) bytes = total - from;
    if (mode == 'd' && first == 0) { /* one byte is another */
        uint8_t *copy = malloc((size_t)bytes);
        memcpy(copy, content + from, (size_t)bytes);
        copy[777] ^= 1;
        send(fd, copy, (size_t)bytes, MSG_NOSIGNAL);
        free(copy);
        return;
    }
    send(fd, content + from, (size_t)bytes, MSG_NOSIGNAL);
}

struct client {
    int fd, number;
};

static void *serve_one(void *context)
{
    struct client *c = context;
    char text[4096], path[200] = "/";
    size_t n = 0;
    long long first = 0, last = FILE_BYTES - 1;
    ssize_t got;
    const char *range;
    text[0] = 0;
    while (!strstr(text, "\r\n\r\n") && n < sizeof text - 1 &&
           (got = recv(c->fd, text + n, sizeof text - 1 - n, 0)) > 0)
        text[n += (size_t)got] = 0;
    if (sscanf(text, "GET %199s", path) == 1) {
        if ((range = strstr(text, "Range: bytes="))) sscanf(range + 13, "%lld-%lld", &first, &last);
        answer(c->fd, path, first, last, c->number);
    }
    shutdown(c->fd, SHUT_WR);
    while (recv(c->fd, text, sizeof text, 0) > 0) { } /* no reset may overtake what was sent */
    close(c->fd);
    free(c);
    return NULL;
}

static void *serve(void *context)
{
    int fd;
    (void)context;
    while ((fd = accept(listening, NULL, NULL)) >= 0) {
        struct client *c = malloc(sizeof *c);
        pthread_t thread;
        *c = (struct client){ fd, atomic_fetch_add(&requests, 1) + 1 };
        if (!pthread_create(&thread, NULL, serve_one, c)) pthread_detach(thread);
    }
    return NULL;
}

static int setup(void **state)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t n = sizeof a;
    pthread_t thread;
    unsigned char digest[32];
    unsigned bytes;
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof content; i++) content[i] = (uint8_t)(i * 2654435761u >> 13);
    EVP_Digest(content, sizeof content, digest, &bytes, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++) snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&a, sizeof a) || listen(listening, 50) ||
        getsockname(listening, (struct sockaddr *)&a, &n))
        return -1;
    port = ntohs(a.sin_port);
    return pthread_create(&thread, NULL, serve, NULL) || pthread_detach(thread);
}

static struct http_client *client_of(int stall_s)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    o.wait_s = 0.01;
    o.stall_s = stall_s;
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    return c;
}

/* So patient that a slow machine is not taken for a server that stalls. */
static struct http_client *client(void) { return client_of(60); }

static int open_path(struct pl_source **s, struct http_client *c, const char *path, const char *sum)
{
    char url[200];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    atomic_store(&requests, 0);
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

static void bytes_come_whatever_the_server_does(void **state)
{
    static const char *const paths[] = { "/good", "/busy",       "/cut",  "/long",
                                         "/more", "/redirected", "/stall" };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        struct http_client *c = strcmp(paths[i], "/stall") ? client() : client_of(1);
        struct pl_source *s;
        uint8_t last[4];
        int rc = open_path(&s, c, paths[i], sha256);
        if (rc) fail_msg("%s: %s", paths[i], err.text);
        /* as a Parquet reader does: the end first */
        assert_int_equal(pl_source_read(s, FILE_BYTES - 4, last, 4, &err), PL_OK);
        assert_memory_equal(last, content + FILE_BYTES - 4, 4);
        if ((rc = read_all(s))) fail_msg("%s: %s", paths[i], err.text);
        assert_int_equal(read_all(s), PL_OK); /* from what was kept */
        pl_source_close(s);
        http_client_close(c);
    }
}

static void lies_are_told(void **state)
{
    static const struct { const char *path, *words; } lies[] = {
        { "/none", "404" },
        { "/whole", "requests for parts" },
        { "/waits", "requests for parts" },
        { "/other", "other bytes" },
    };
    struct http_client *c = client();
    struct pl_source *s;
    (void)state;
    for (size_t i = 0; i < PL_COUNT(lies); i++) {
        assert_int_not_equal(open_path(&s, c, lies[i].path, NULL), PL_OK);
        assert_null(s);
        if (!strstr(err.text, lies[i].words)) fail_msg("%s: %s", lies[i].path, err.text);
        assert_non_null(strstr(err.text, lies[i].path));
    }
    assert_int_equal(open_path(&s, c, "/exchanged", NULL), PL_OK);
    assert_int_not_equal(read_all(s), PL_OK);
    assert_non_null(strstr(err.text, "changed"));
    pl_source_close(s);
    assert_int_equal(open_path(&s, c, "/damaged", sha256), PL_OK);
    assert_int_equal(pl_source_read(s, 900, content + 900, 0, &err), PL_OK);
    uint8_t byte;
    int rc = PL_OK;
    for (uint64_t at = 0; at < FILE_BYTES && !rc; at += HTTP_BLOCK_BYTES)
        rc = pl_source_read(s, at, &byte, 1, &err);
    assert_int_equal(rc, PL_EFORMAT);
    assert_non_null(strstr(err.text, "SHA-256"));
    pl_source_close(s);
    http_client_close(c);
}

static void what_is_no_web_address_is_refused(void **state)
{
    struct http_client *c = client();
    struct pl_source *s;
    char url[HTTP_URL_MAX + 20];
    (void)state;
    assert_int_not_equal(http_source_open(&s, c, NULL, "file:///etc/passwd", NULL, &err), PL_OK);
    assert_int_not_equal(http_source_open(&s, c, NULL, "http://127.0.0.1:1/x", NULL, &err), PL_OK);
    memset(url, 'a', sizeof url - 1);
    url[sizeof url - 1] = 0;
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_ELIMIT);
    http_client_close(c);
}

static int yes(void *context)
{
    (void)context;
    return 1;
}

static void waiting_can_be_stopped(void **state)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    struct pl_source *s;
    (void)state;
    o.wait_s = 1000;
    o.stopped = yes;
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    assert_int_equal(open_path(&s, c, "/stall", NULL), PL_EAGAIN);
    http_client_close(c);
}

/* -- what is kept on the disk -- */

static char folder[] = "/tmp/potluck-cache-XXXXXX";

/* How many bytes lie in the folder; each file is damaged, made old or removed if asked for. */
static long long in_folder(char what)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    long long sum = 0;
    while (d && (e = readdir(d))) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, 0) || !S_ISREG(st.st_mode)) continue;
        sum += st.st_size;
        if (what == 'r') unlinkat(dirfd(d), e->d_name, 0);
        if (what == 'o')
            utimensat(dirfd(d), e->d_name, (struct timespec[2]){ { 1000, 0 }, { 1000, 0 } }, 0);
        if (what == 'd') {
            int fd = openat(dirfd(d), e->d_name, O_WRONLY);
            assert_int_equal(pwrite(fd, "damage", 6, 100), 6);
            close(fd);
        }
    }
    if (d) closedir(d);
    return sum;
}

static int read_once(const char *path, const char *sum)
{
    struct http_client *c = client();
    struct pl_source *s;
    int rc = open_path(&s, c, path, sum);
    if (!rc) rc = read_all(s);
    pl_source_close(s);
    http_client_close(c);
    return rc;
}

static void blocks_are_kept(void **state)
{
    (void)state;
    assert_int_equal(http_cache_open(&cache, folder, 100 << 20, &err), PL_OK);
    assert_int_equal(read_once("/good", sha256), PL_OK);
    assert_int_equal(in_folder(0), FILE_BYTES + 4 * 32);
    assert_int_equal(read_once("/good", sha256), PL_OK);
    assert_int_equal(atomic_load(&requests), 1); /* its size and nothing else */
    assert_int_equal(read_once("/cut", sha256), PL_OK); /* the same file of another server */
    assert_int_equal(atomic_load(&requests), 1);
    assert_int_equal(read_once("/good", NULL), PL_OK); /* known by its ETag, which is another identity */
    assert_true(atomic_load(&requests) > 1);
    assert_int_equal(read_once("/good", NULL), PL_OK);
    assert_int_equal(atomic_load(&requests), 1);
    in_folder('d');
    assert_int_equal(read_once("/good", sha256), PL_OK); /* damage is noticed, and mended */
    assert_true(atomic_load(&requests) > 1);
    assert_int_equal(read_once("/good", sha256), PL_OK);
    assert_int_equal(atomic_load(&requests), 1);
    in_folder('r');
    http_cache_close(cache);
    cache = NULL;
}

static void what_is_oldest_goes(void **state)
{
    static uint8_t data[1000];
    char key[HTTP_CACHE_KEY], first[HTTP_CACHE_KEY];
    (void)state;
    assert_int_equal(http_cache_open(&cache, folder, 20 * 1032, &err), PL_OK);
    http_cache_key(first, "x", 1000);
    http_cache_put(cache, first, data, sizeof data);
    for (uint64_t i = 0; i < 100; i++) {
        in_folder('o'); /* all but what is used from here on */
        assert_int_equal(http_cache_get(cache, first, data, sizeof data), 1); /* used, so it stays */
        http_cache_key(key, "x", i);
        http_cache_put(cache, key, data, sizeof data);
        assert_true(in_folder(0) <= 22 * 1032);
        assert_int_equal(http_cache_get(cache, key, data, sizeof data), 1);
    }
    assert_true(in_folder(0) >= 18 * 1032);
    assert_int_equal(http_cache_get(cache, key, data, 999), 0); /* another length: another content */
    in_folder('r');
    http_cache_close(cache);
    cache = NULL;
    assert_int_not_equal(http_cache_open(&cache, "/dev/null/x", 1, &err), PL_OK);
    assert_null(cache);
}

/* Four processes put, get and evict the same blocks: whatever one gets is right. */
static void processes_share_a_folder(void **state)
{
    pid_t child[4];
    (void)state;
    for (int k = 0; k < 4; k++) {
        if ((child[k] = fork())) continue;
        static uint8_t data[3000], got[3000];
        struct http_cache *c;
        int wrong = http_cache_open(&c, folder, 20 * 3032, &err) != PL_OK;
        for (int i = 0; i < 2000 && !wrong; i++) {
            char key[HTTP_CACHE_KEY];
            unsigned block = (unsigned)(i * (k + 1)) % 40;
            memset(data, (int)block, sizeof data);
            http_cache_key(key, "shared", block);
            if (!http_cache_get(c, key, got, sizeof got)) http_cache_put(c, key, data, sizeof data);
            else wrong |= memcmp(got, data, sizeof data) != 0;
        }
        _exit(wrong);
    }
    for (int k = 0; k < 4; k++) {
        int status;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_true(in_folder('r') <= 40 * 3032); /* each may be ahead of its own look */
    assert_int_equal(in_folder(0), 0);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_whatever_the_server_does),
        cmocka_unit_test(lies_are_told),
        cmocka_unit_test(what_is_no_web_address_is_refused),
        cmocka_unit_test(waiting_can_be_stopped),
        cmocka_unit_test(blocks_are_kept),
        cmocka_unit_test(what_is_oldest_goes),
        cmocka_unit_test(processes_share_a_folder),
    };
    if (!mkdtemp(folder)) return 1;
    return cmocka_run_group_tests(tests, setup, remove_folder);
}
