/* http_cache.c - blocks of files that are kept on the disk: read again without the network,
 * repaired when damaged, bounded, shared by processes. */
#include "net/http/client/http_source.h"
#include "file_server.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
    assert_int_equal(http_cache_open(&cache, folder, 20 * 1032, &err), PL_OK);
    http_cache_key(first, "x", 1000);
    http_cache_put(cache, first, data, sizeof data);
    for (uint64_t i = 0; i < 100; i++) {
        in_folder('o'); /* all but those used from here on */
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

/* Four processes put, get and evict the same blocks: every block that one of them gets is right. */
static void processes_share_a_folder(void **state)
{
    pid_t child[4];
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
    assert_true(in_folder('r') <= 40 * 3032); /* each may be ahead of its own reading */
    assert_int_equal(in_folder(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_kept),
        cmocka_unit_test(what_is_oldest_goes),
        cmocka_unit_test(processes_share_a_folder),
    };
    if (!mkdtemp(folder)) return 1;
    return cmocka_run_group_tests(tests, serve_file, remove_folder);
}
