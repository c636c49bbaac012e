/* file.c - a file is written completely or not at all, even if a call fails in between. */
#include "data/files/file.h"
#include "data/files/memory_stream.h"
#include "test/unit/unit.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-file-XXXXXX", path[80];
static struct pl_err err;

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return pl_file_write(path, "old", 3, &err);
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

static void expect(const char *content)
{
    void *data;
    size_t bytes;
    assert_int_equal(pl_file_read(&data, &bytes, path, 1000, &err), PL_OK);
    assert_int_equal(bytes, strlen(content));
    assert_string_equal(data, content);
    free(data);
}

static int files(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2; /* . and .. */
}

static void committed_or_not_at_all(void **state)
{
    struct pl_file_out out;
    assert_int_equal(pl_file_create(&out, path, &err), PL_OK);
    assert_int_equal(pl_file_append(&out, "new", 3, &err), PL_OK);
    expect("old");
    assert_int_equal(files(), 2);
    pl_file_discard(&out);
    pl_file_discard(&out); /* harmless */
    assert_int_equal(files(), 1);
    expect("old");
    assert_int_equal(pl_file_write(path, "new", 3, &err), PL_OK);
    assert_int_equal(files(), 1);
    expect("new");
    assert_int_equal(pl_file_write(path, "", 0, &err), PL_OK);
    expect("");
    assert_int_equal(pl_file_write(path, "old", 3, &err), PL_OK);
}

static void reading_is_limited(void **state)
{
    void *data;
    size_t bytes;
    assert_int_equal(pl_file_read(&data, &bytes, path, 2, &err), PL_ELIMIT);
    assert_null(data);
    assert_int_equal(pl_file_read(&data, &bytes, path, 3, &err), PL_OK);
    free(data);
    assert_int_equal(pl_file_read(&data, &bytes, folder, 1000, &err), PL_EIO);
    assert_int_equal(pl_file_read(&data, &bytes, "/dev/zero", 1000, &err), PL_EIO);
    assert_int_equal(pl_file_read(&data, &bytes, "/nowhere/x", 1000, &err), PL_EIO);
    assert_non_null(strstr(err.text, "/nowhere/x: "));
}

static void text_has_no_zero_bytes(void **state)
{
    char *text;
    assert_int_equal(pl_file_write(path, "a\0b", 3, &err), PL_OK);
    assert_int_equal(pl_file_read_text(&text, path, 10, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "byte 1 is zero"));
    assert_null(text);
    assert_int_equal(pl_file_write(path, "old", 3, &err), PL_OK);
    assert_int_equal(pl_file_read_text(&text, path, 10, &err), PL_OK);
    assert_string_equal(text, "old");
    free(text);
}

static void folders_within_folders(void **state)
{
    char deep[120], *ends[] = { "/new", "/new/x", "/new//y/z/" };
    for (size_t i = 0; i < PL_COUNT(ends); i++) {
        snprintf(deep, sizeof deep, "%s%s", folder, ends[i]);
        assert_int_equal(pl_folder_make(deep, &err), PL_OK);
        assert_int_equal(pl_folder_make(deep, &err), PL_OK); /* it is there already */
        assert_int_equal(access(deep, W_OK), 0);
    }
    assert_int_equal(pl_folder_make(path, &err), PL_EIO); /* a file */
    assert_non_null(strstr(err.text, path));
    snprintf(deep, sizeof deep, "%s/x", path);
    assert_int_equal(pl_folder_make(deep, &err), PL_EIO);
    assert_int_equal(pl_folder_make("", &err), PL_EIO);
    for (size_t i = PL_COUNT(ends); i-- > 0;) {
        snprintf(deep, sizeof deep, "%s%s", folder, ends[i]);
        assert_int_equal(rmdir(deep), 0);
        if (i == 2) {
            snprintf(deep, sizeof deep, "%s/new/y", folder);
            assert_int_equal(rmdir(deep), 0);
        }
    }
}

/* As on a full disk: the write fails somewhere, the old file stays, no temporary one does. */
static void a_full_disk(void **state)
{
    static char big[10000];
    struct rlimit before, small;
    memset(big, 'x', sizeof big);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    for (rlim_t limit = 0; limit < sizeof big; limit += 999) {
        small.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &small);
        assert_int_equal(pl_file_write(path, big, sizeof big, &err), PL_EIO);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_non_null(strstr(err.text, "cannot write"));
        assert_int_equal(files(), 1);
        expect("old");
    }
    assert_int_equal(pl_file_write("/nowhere/x", "x", 1, &err), PL_EIO);
}

/* A process killed while it writes leaves the old file; its remains do not stop the next one that
 * writes. */
static void a_kill_in_the_middle(void **state)
{
    for (int round = 0; round < 3; round++) {
        int status;
        pid_t child = fork();
        if (!child) {
            struct pl_file_out out;
            if (pl_file_create(&out, path, NULL) || pl_file_append(&out, "half", 4, NULL)) _exit(1);
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        expect("old");
    }
    assert_int_equal(pl_file_write(path, "old", 3, &err), PL_OK);
    expect("old");
    assert_int_equal(system("rm -f /tmp/potluck-file-*/file.*.part"), 0);
}

/* Whatever is printed becomes one text, with a zero byte behind it for which there is space. */
static void streams_in_memory(void **state)
{
    static const size_t sizes[] = { 0, 1, 4094, 4095, 4096, 4097, 8191, 8192, 30000 };
    char *want = malloc(30001);
    for (size_t i = 0; i < 30000; i++) want[i] = (char)('a' + i % 26);
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        for (size_t step = 1; step <= 30000; step = 30 * step) {
            struct pl_memory_stream s;
            FILE *f = pl_memory_stream_open(&s);
            assert_non_null(f);
            if (step > 1) setvbuf(f, NULL, _IONBF, 0);
            for (size_t at = 0; at < sizes[i]; at += step)
                fwrite(want + at, 1, sizes[i] - at < step ? sizes[i] - at : step, f);
            assert_int_equal(pl_memory_stream_close(&s, f), PL_OK);
            assert_int_equal(s.bytes, sizes[i]);
            assert_true(s.capacity > s.bytes);
            assert_memory_equal(s.text, want, s.bytes);
            assert_int_equal(s.text[s.bytes], 0);
            free(s.text);
        }
    free(want);
    struct pl_memory_stream s = { 0 };
    assert_int_equal(pl_memory_stream_close(&s, NULL), PL_ENOMEM); /* was never opened */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_or_not_at_all),
        cmocka_unit_test(reading_is_limited),
        cmocka_unit_test(text_has_no_zero_bytes),
        cmocka_unit_test(folders_within_folders),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_kill_in_the_middle),
        cmocka_unit_test(streams_in_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
