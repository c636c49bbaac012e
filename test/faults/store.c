/* store.c - writes a page's history or a cache of blocks, and reads what a crash has left of one.
 *
 *   store history write FILE N    N points, each a transaction
 *   store history read FILE       opens it as the page does, and prints the number of points
 *   store cache write FOLDER N    N blocks
 *   store cache read FOLDER N     prints how many of them are there; each is right, or not there */
#include "net/http/client/cache.h"
#include "net/http/dashboard/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 5000 /* bytes */

static int failed(const struct pl_err *err)
{
    fprintf(stderr, "store: %s\n", err->text);
    return 1;
}

static int write_history(const char *path, int n)
{
    struct history *h;
    struct pl_err err;
    int rc = history_open(&h, path, "run", &err);
    if (rc) return failed(&err);
    for (int i = 0; !rc && i < n; i++) {
        const struct history_point p = {
            .time = 10 * i, .step = i, .peers = 3, .loss = 1.0 / (i + 1)
        };
        rc = history_begin(h, &err);
        if (!rc) rc = history_add(h, &p, &err);
        if (!rc) rc = history_report(h, "key", "peer", 10 * i, i, 64, 8, &err);
        if (!rc) rc = history_commit(h, &err);
    }
    history_close(h);
    return rc ? failed(&err) : 0;
}

static int read_history(const char *path)
{
    static struct history_point point[1000];
    struct history *h;
    struct pl_err err;
    size_t count;
    int rc = history_open(&h, path, "run", &err);
    if (rc) return failed(&err);
    rc = history_points(h, point, sizeof point / sizeof *point, &count, &err);
    history_close(h);
    if (rc) return failed(&err);
    for (size_t i = 0; i < count; i++)
        if (point[i].step != (int64_t)i || point[i].time != 10.0 * (double)i) {
            fprintf(stderr, "store: point %zu is of step %lld\n", i, (long long)point[i].step);
            return 1;
        }
    printf("%zu\n", count);
    return 0;
}

static void block_of(char key[HTTP_CACHE_KEY], unsigned char block[BLOCK], int i)
{
    http_cache_key(key, "shard", (uint64_t)i);
    memset(block, i + 1, BLOCK);
}

static int use_cache(const char *folder, int n, int writes)
{
    unsigned char want[BLOCK], got[BLOCK];
    char key[HTTP_CACHE_KEY];
    struct http_cache *c;
    struct pl_err err;
    int there = 0;
    if (http_cache_open(&c, folder, 1 << 20, &err)) return failed(&err);
    for (int i = 0; i < n; i++) {
        block_of(key, want, i);
        if (writes) http_cache_put(c, key, want, BLOCK);
        else if (http_cache_get(c, key, got, BLOCK)) {
            if (memcmp(got, want, BLOCK)) {
                fprintf(stderr, "store: block %d holds something else\n", i);
                return 1;
            }
            there++;
        }
    }
    http_cache_close(c);
    if (!writes) printf("%d\n", there);
    return 0;
}

int main(int argc, char **argv)
{
    int is_history = argc > 3 && !strcmp(argv[1], "history"), n = argc > 4 ? atoi(argv[4]) : 0;
    if (argc < 4) return 2;
    if (strcmp(argv[2], "write"))
        return is_history ? read_history(argv[3]) : use_cache(argv[3], n, 0);
    return is_history ? write_history(argv[3], n) : use_cache(argv[3], n, 1);
}
