/* http_source.c - a web server that cuts, stalls, lies about lengths and ranges, is busy, changes
 * the file or damages it, in the open and over TLS; the source gives the right bytes or one
 * sentence. The server is a thread here. */
#include "net/http/client/http_source.h"
#include "web_server.h"

#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define FILE_BYTES (3 * HTTP_BLOCK_BYTES + 12345)

static uint8_t content[FILE_BYTES];
static char sha256[65];
static char away[100];           /* where /away and /keeps lead */
static atomic_int authorized;    /* requests with a token */
static struct http_cache *cache; /* what the next source is opened with */
static struct pl_err err;

/* What the server does is the path's first letter, so that tests do not share a state. */
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
    if (mode == 'a' || mode == 'k') { /* to another origin; to itself, for ever */
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

static int setup(void **state)
{
    unsigned char digest[32];
    unsigned bytes;
    (void)state;
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

/* Whoever waits for stall_s each time gets on slowly, or not at all. */
static void silence_costs_little_where_answers_are_quick(void **state)
{
    struct http_client *c = client();
    struct pl_source *s;
    double began = pl_seconds(), took;
    (void)state;
    assert_int_equal(open_path(&s, c, "/harsh", sha256), PL_OK);
    assert_int_equal(read_all(s), PL_OK);
    took = pl_seconds() - began;
    if (took < 1 || took > 40) /* the server's second; one patience is 60 s */
        fail_msg("%.1f s, %d requests", took, atomic_load(&plain.requests));
    pl_source_close(s);
    http_client_close(c);
}

/* A whole list, in spite of cuts, and none that is too long. */
static void lists_come_in_parts_too(void **state)
{
    struct http_client *c = client();
    char url[200];
    void *data;
    size_t bytes;
    (void)state;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/cut", plain.port);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES, url, &err), PL_OK);
    assert_int_equal(bytes, FILE_BYTES);
    assert_memory_equal(data, content, FILE_BYTES);
    free(data);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES - 1, url, &err), PL_ELIMIT);
    assert_null(data);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/whole", plain.port);
    assert_int_equal(http_client_get(c, &data, &bytes, FILE_BYTES, url, &err), PL_OK);
    assert_memory_equal(data, content, FILE_BYTES);
    free(data);
    http_client_close(c);
}

static int open_secure(struct pl_source **s, struct http_client **c, const char *host,
                       const char *ca)
{
    struct http_client_options o = http_client_options();
    char url[200];
    o.wait_s = 0.01;
    o.stall_s = 60;
    o.ca_file = ca;
    assert_int_equal(http_client_open(c, &o, &err), PL_OK);
    snprintf(url, sizeof url, "https://%s:%d/cut", host, secure.port);
    atomic_store(&secure.requests, 0);
    return http_source_open(s, *c, NULL, url, sha256, &err);
}

static void secrets_come_from_whom_they_should(void **state)
{
    struct http_client *c;
    struct pl_source *s;
    (void)state;
    /* First of all: the server may count late who came before. */
    assert_int_equal(open_secure(&s, &c, "127.0.0.1", NULL), PL_EIO); /* whose is that? */
    assert_non_null(strstr(err.text, "certificate"));
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(atomic_load(&secure.requests), 1); /* and no other try mends it */
    http_client_close(c);
    if (open_secure(&s, &c, "127.0.0.1", ca_file)) fail_msg("%s", err.text);
    assert_int_equal(read_all(s), PL_OK);
    pl_source_close(s);
    http_client_close(c);
    assert_int_equal(open_secure(&s, &c, "localhost", ca_file), PL_EIO); /* another's */
    assert_non_null(strstr(err.text, "localhost"));
    assert_null(strstr(err.text, "tries"));
    http_client_close(c);
    assert_int_equal(open_secure(&s, &c, "127.0.0.1", "/nowhere.pem"), PL_EIO);
    assert_non_null(strstr(err.text, "/nowhere.pem"));
    assert_null(strstr(err.text, "tries"));
    http_client_close(c);
}

/* From the hub to another host, of which it says what it likes: the bytes come, the token does not. */
static void redirects_take_no_token_along(void **state)
{
    struct http_client_options o = http_client_options();
    struct http_client *c;
    struct pl_source *s;
    char home[100], url[200];
    (void)state;
    o.wait_s = 0.01;
    o.ca_file = ca_file;
    snprintf(home, sizeof home, "https://127.0.0.1:%d/list.txt", secure.port);
    o.credential[1] = (struct http_credential){ "secret", home };
    assert_int_equal(http_client_open(&c, &o, &err), PL_OK);
    const struct {
        const char *path, *to;
        int is_secure, tokens;
    } cases[] = {
        { "/away", "http://127.0.0.1:%d/good", 0, 1 },  /* the token's own origin asked first */
        { "/redirected", NULL, 0, 2 },                  /* to itself: both see it */
        { "/away", "https://127.0.0.1:%d/good", 1, 2 }, /* the same, as a whole URL */
        { "/away", "https://user@127.0.0.1:%d/good", 1, 1 },
        { "/away", "//127.0.0.1:%d/good", 1, 2 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        if (cases[i].to)
            snprintf(away, sizeof away, cases[i].to, cases[i].is_secure ? secure.port : plain.port);
        snprintf(url, sizeof url, "https://127.0.0.1:%d%s", secure.port, cases[i].path);
        atomic_store(&authorized, 0);
        if (http_source_open(&s, c, NULL, url, NULL, &err)) fail_msg("%s: %s", away, err.text);
        if (atomic_load(&authorized) != cases[i].tokens)
            fail_msg("%s: %d of the requests had the token", away, atomic_load(&authorized));
        pl_source_close(s);
    }
    snprintf(url, sizeof url, "https://127.0.0.1:%d/keeps", secure.port);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_EIO);
    assert_non_null(strstr(err.text, "redirects"));
    snprintf(away, sizeof away, "file://%s", ca_file);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/away", secure.port);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_EIO);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/good", plain.port); /* in the open: none */
    atomic_store(&authorized, 0);
    assert_int_equal(http_source_open(&s, c, NULL, url, NULL, &err), PL_OK);
    assert_int_equal(atomic_load(&authorized), 0);
    pl_source_close(s);
    http_client_close(c);
}

static void lies_are_told(void **state)
{
    static const struct {
        const char *path, *words;
    } lies[] = {
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
    assert_int_equal(atomic_load(&plain.requests), 1);  /* its size and nothing else */
    assert_int_equal(read_once("/cut", sha256), PL_OK); /* the same file of another server */
    assert_int_equal(atomic_load(&plain.requests), 1);
    assert_int_equal(read_once("/good", NULL),
                     PL_OK); /* known by its ETag, which is another identity */
    assert_true(atomic_load(&plain.requests) > 1);
    assert_int_equal(read_once("/good", NULL), PL_OK);
    assert_int_equal(atomic_load(&plain.requests), 1);
    in_folder('d');
    assert_int_equal(read_once("/good", sha256), PL_OK); /* damage is noticed, and mended */
    assert_true(atomic_load(&plain.requests) > 1);
    assert_int_equal(read_once("/good", sha256), PL_OK);
    assert_int_equal(atomic_load(&plain.requests), 1);
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
        assert_int_equal(http_cache_get(cache, first, data, sizeof data),
                         1); /* used, so it stays */
        http_cache_key(key, "x", i);
        http_cache_put(cache, key, data, sizeof data);
        assert_true(in_folder(0) <= 22 * 1032);
        assert_int_equal(http_cache_get(cache, key, data, sizeof data), 1);
    }
    assert_true(in_folder(0) >= 18 * 1032);
    assert_int_equal(http_cache_get(cache, key, data, 999),
                     0); /* another length: another content */
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
    unlink(ca_file);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_whatever_the_server_does),
        cmocka_unit_test(silence_costs_little_where_answers_are_quick),
        cmocka_unit_test(lists_come_in_parts_too),
        cmocka_unit_test(secrets_come_from_whom_they_should),
        cmocka_unit_test(redirects_take_no_token_along),
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
