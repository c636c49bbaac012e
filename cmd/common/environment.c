/* environment.c - checks environment variables before anything depends on them.
 *
 * Libraries fail quietly here: libgomp prints a note of its own and goes on with another number
 * of threads, and a backend missing from PL_BACKEND_DIR means that the slow one computes. A
 * wrong value should end the program at once, with a sentence. */
#include "environment.h"
#include "net/http/client/client.h"
#include "ref/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define OMP_LEVELS_MAX 64      /* nested parallel regions: programs nest a few */
#define OMP_NUMBER_MAX 1000000 /* threads, above any machine; fast/ uses at most 1024 */
#define SPIN_DIGITS_MAX 9      /* multiplied by a unit it still fits 64 bits */

/* A check returns NULL if the value is good, otherwise the expectation. */
typedef const char *check_fn(const char *value);

/* "4" or "4,2,1": a number a level of nesting, as OpenMP has it. */
static const char *threads(const char *value)
{
    static const char expected[] = "a whole number of threads from 1 to 1000000";
    for (int level = 0; level < OMP_LEVELS_MAX; level++) {
        char *end;
        long n;
        errno = 0;
        n = strtol(value, &end, 10);
        if (errno || end == value || n < 1 || n > OMP_NUMBER_MAX) return expected;
        while (isspace((unsigned char)*end)) end++;
        if (!*end) return NULL;
        if (*end != ',') return expected;
        value = end + 1;
    }
    return expected;
}

/* "5000", "30k", "infinite". */
static const char *spin(const char *value)
{
    size_t digits = strspn(value, "0123456789");
    const char *unit = value + digits;
    if (!strcasecmp(value, "infinite") || !strcasecmp(value, "infinity")) return NULL;
    if (digits && digits <= SPIN_DIGITS_MAX && (!*unit || (strchr("kKmMgGtT", *unit) && !unit[1])))
        return NULL;
    return "a number of turns, or infinite";
}

static const char *wait_policy(const char *value)
{
    return strcasecmp(value, "active") && strcasecmp(value, "passive") ? "active or passive" : NULL;
}

static const char *isa(const char *value)
{
    static const char *const words[] = { "plain", "avx2", "avx512", "neon", "rvv" };
    for (size_t i = 0; i < PL_COUNT(words); i++)
        if (!strcmp(value, words[i])) return NULL;
    return "plain, avx2, avx512, neon or rvv";
}

static const char *folder(const char *value)
{
    struct stat st;
    return stat(value, &st) || !S_ISDIR(st.st_mode) ? "a folder" : NULL;
}

/* A value for a header line must not contain a line end. */
static const char *printable(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value <= ' ' || *value == 127) return "no spaces or control characters";
    return NULL;
}

static const char *region(const char *value)
{
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-') return "letters, digits and hyphens";
    return NULL;
}

static const char *address(const char *value)
{
    if (strncmp(value, "http://", 7) && strncmp(value, "https://", 8)) return "http:// or https://";
    return printable(value);
}

static const struct {
    const char *name;
    check_fn *check;
    int secret; /* its value is never shown */
} variables[] = {
    { "OMP_NUM_THREADS", threads, 0 },     { "OMP_WAIT_POLICY", wait_policy, 0 },
    { "GOMP_SPINCOUNT", spin, 0 },         { "PL_FAST_ISA", isa, 0 },
    { "PL_BACKEND_DIR", folder, 0 },       { "PL_DATA_DIR", folder, 0 },
    { "POTLUCK_TOKEN", printable, 1 },     { "HF_TOKEN", printable, 1 },
    { "HF_ENDPOINT", address, 0 },         { "AWS_REGION", region, 0 },
    { "AWS_ACCESS_KEY_ID", printable, 1 }, { "AWS_SECRET_ACCESS_KEY", printable, 1 },
    { "AWS_SESSION_TOKEN", printable, 1 },
};

int environment_check(void)
{
    for (size_t i = 0; i < PL_COUNT(variables); i++) {
        const char *name = variables[i].name, *value = getenv(name), *expected;
        char shown[81];
        if (!value) continue;
        if (!*value) {
            unsetenv(name);
            continue;
        }
        if (!(expected = variables[i].check(value))) continue;
        snprintf(shown, sizeof shown, "%s", value); /* a control character would break the line */
        for (char *c = shown; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
        fprintf(stderr, "potluck: the environment's %s: expected %s%s%s%s\n", name, expected,
                variables[i].secret ? "" : ", not '", variables[i].secret ? "" : shown,
                variables[i].secret ? "" : "'");
        return PL_EUSE;
    }
    return PL_OK;
}

/* Checked at its first use only: a missing CA file ends TLS connections, not everything else. */
const char *environment_ca_file(void)
{
    const char *path = getenv("SSL_CERT_FILE");
    return path && *path ? path : NULL;
}

const char *environment_hub(void)
{
    const char *url = getenv("HF_ENDPOINT");
    return url && *url ? url : "https://huggingface.co";
}

void environment_credentials(struct http_credential *out, const char *named, const char *hub)
{
    out[0] = (struct http_credential){ getenv("POTLUCK_TOKEN"), named };
    out[1] = (struct http_credential){ getenv("HF_TOKEN"), hub };
}
