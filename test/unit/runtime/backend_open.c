/* backend_open.c - where a backend is searched, the error for one that cannot be loaded, and the
 * environment in which it is loaded. */
#include "runtime/backend_open.h"
#include "data/files/file.h"
#include "test/unit/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-backend-XXXXXX", own_path[PATH_MAX], fast[PATH_MAX + 20];

/* The fast backend lies in the folder above the tests. */
static int begin(void **state)
{
    ssize_t n = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    char *slash;
    if (n <= 0 || !mkdtemp(folder)) return -1;
    snprintf(fast, sizeof fast, "%s", own_path);
    slash = strrchr(fast, '/');
    strcpy(slash, "/../libpl_fast.so");
    return unsetenv("PL_BACKEND_DIR");
}

static int end(void **state)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void in_folder(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(!symlink(fast, path) || errno == EEXIST);
}

static void names_that_cannot_be_opened(void **state)
{
    static const char name[] = "a12345678901234567890123456789012"; /* 33 characters */
    struct pl_backend be;
    struct pl_err err;
    assert_int_equal(pl_backend_open(&be, "no-such", &err), PL_ENOTFOUND);
    assert_string_equal(err.text, "backend no-such: not built");
    assert_int_equal(pl_backend_open(&be, name, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "at most 32 characters"));
    assert_int_equal(pl_backend_open(&be, name + 1, &err), PL_ENOTFOUND);
    assert_int_equal(pl_backend_open(&be, "/no/such/file.so", &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, "backend /no/such/file.so: /no/such/file.so: cannot open"));
}

static void library_without_backend_symbol_is_refused(void **state)
{
    struct pl_backend be;
    struct pl_err err;
    Dl_info cmocka;
    assert_true(dladdr((void *)(uintptr_t)&_assert_true, &cmocka));
    assert_int_equal(pl_backend_open(&be, cmocka.dli_fname, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "not a backend: it has no symbol pl_backend_v1"));
}

/* A folder that is named is the only one. */
static void a_named_folder(void **state)
{
    char longest[PATH_MAX + 1];
    struct pl_backend be;
    struct pl_err err;
    in_folder("libpl_my_own.so");
    setenv("PL_BACKEND_DIR", folder, 1);
    assert_int_equal(pl_backend_open(&be, "my-own", NULL), PL_OK);
    assert_string_equal(be.name, "fast");
    assert_int_equal(pl_backend_open(&be, "other", &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, folder));
    memset(longest, 'a', sizeof longest);
    longest[PATH_MAX] = 0;
    setenv("PL_BACKEND_DIR", longest, 1);
    assert_int_equal(pl_backend_open(&be, "my-own", &err), PL_EUSE);
    assert_non_null(strstr(err.text, "PL_BACKEND_DIR: a path of more than"));
    setenv("PL_BACKEND_DIR", longest + 1, 1);
    assert_int_equal(pl_backend_open(&be, "my-own", NULL), PL_ENOTFOUND);
    setenv("PL_BACKEND_DIR", "", 1); /* as if it were not set */
    assert_int_equal(pl_backend_open(&be, "no-such", &err), PL_ENOTFOUND);
    assert_string_equal(err.text, "backend no-such: not built");
    unsetenv("PL_BACKEND_DIR");
}

/* "auto" takes the best that there is, and says what is missing and why. */
static void auto_takes_the_best_backend(void **state)
{
    struct pl_backend be;
    setenv("PL_BACKEND_DIR", folder, 1);
    assert_int_equal(pl_backend_open(&be, "auto", NULL), PL_OK);
    assert_string_equal(be.name, "ref");
    assert_non_null(strstr(be.note, "; no cuda ("));
    assert_non_null(strstr(be.note, "libpl_fast.so"));
    in_folder("libpl_fast.so");
    assert_int_equal(pl_backend_open(&be, "auto", NULL), PL_OK);
    assert_string_equal(be.name, "fast");
    assert_non_null(strstr(be.note, "; no cuda ("));
    assert_null(strstr(be.note, "no fast"));
    unsetenv("PL_BACKEND_DIR");
    assert_int_equal(pl_backend_open(&be, "ref", NULL), PL_OK);
    assert_string_equal(be.name, "ref");
}

/* A copy of this program opens "x", installed in one place after the other. */
static void next_to_the_program(void **state)
{
    static const char *const places[] = { "bin/libpl_x.so", "lib/potluck/libpl_x.so" };
    static const char *const folders[] = { "bin", "lib", "lib/potluck" };
    char program[200], path[220], command[230];
    void *data;
    size_t n;
    for (size_t i = 0; i < PL_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(program, sizeof program, "%s/bin/program", folder);
    assert_int_equal(pl_file_read(&data, &n, own_path, 1 << 28, NULL), PL_OK);
    assert_int_equal(pl_file_write(program, data, n, NULL), PL_OK);
    free(data);
    assert_int_equal(chmod(program, 0700), 0);
    snprintf(command, sizeof command, "%s x", program);
    assert_int_equal(WEXITSTATUS(system(command)), 1);
    for (size_t i = 0; i < PL_COUNT(places); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, places[i]);
        in_folder(places[i]);
        assert_int_equal(WEXITSTATUS(system(command)), 0);
        unlink(path);
    }
}

/* OpenBLAS' own choice, and threads that wait without spinning forever unless the user says how they wait. */
static void environment(void **state)
{
    struct pl_backend be;
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    setenv("OPENBLAS_L2_SIZE", "1", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    unsetenv("GOMP_SPINCOUNT");
    pl_backend_open(&be, "no-such", NULL);
    assert_null(getenv("OPENBLAS_CORETYPE"));
    assert_null(getenv("OPENBLAS_L2_SIZE"));
    assert_null(getenv("GOMP_SPINCOUNT"));
    unsetenv("OMP_WAIT_POLICY");
    pl_backend_open(&be, "no-such", NULL);
    assert_string_equal(getenv("GOMP_SPINCOUNT"), "5000");
    setenv("GOMP_SPINCOUNT", "7", 1);
    setenv("OPENBLAS_L2_SIZE", "1", 1);
    pl_backend_open(&be, "/no/such/file.so", NULL); /* by its path, too */
    assert_string_equal(getenv("GOMP_SPINCOUNT"), "7");
    assert_null(getenv("OPENBLAS_L2_SIZE"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_cannot_be_opened),
        cmocka_unit_test(library_without_backend_symbol_is_refused),
        cmocka_unit_test(a_named_folder),
        cmocka_unit_test(auto_takes_the_best_backend),
        cmocka_unit_test(next_to_the_program),
        cmocka_unit_test(environment),
    };
    struct pl_backend be;
    if (argc > 1) return pl_backend_open(&be, argv[1], NULL) != PL_OK;
    return cmocka_run_group_tests(tests, begin, end);
}
