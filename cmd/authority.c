/* authority.c - `potluck authority`: access tokens for the users of a swarm. Users are on a list,
 * and their peers get short-lived tokens; a user removed from the list is excluded once the last
 * token has expired. */
#include "cmd.h"
#include "cmd/common/json_event.h"
#include "cmd/common/plural.h"
#include "cmd/options/checks.h"

#include "data/files/file.h"
#include "net/http/authority/authority_server.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEM_MAX 65536

struct requests {
    const char *key, *allow, *invite, *name, *address, *cert, *cert_key;
    char coordinator_ip[64];
    int coordinator_port;
    int64_t port;
    double life_s;
    int json;
};

static int take_coordinator(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct requests *w = options;
    const char *colon = strrchr(value, ':');
    const size_t n = colon ? (size_t)(colon - value) : 0;
    int64_t port = 0;
    snprintf(w->coordinator_ip, sizeof w->coordinator_ip, "%.*s", (int)n, value);
    if (n >= sizeof w->coordinator_ip || check_ip(w->coordinator_ip, NULL) ||
        option_integer(&port, colon + 1, 1, 65535, NULL))
        return pl_fail(err, PL_EUSE, "'%.80s' is not IP:PORT", value);
    w->coordinator_port = (int)port;
    return PL_OK;
}

#define OPTIONS struct requests
static const struct option_row rows[] = {
    { "key", "FILE", NULL, OPT_PATH(key),
      "private key of the authority, created if the file is missing; keep it secret" },
    { "allow", "FILE", NULL, OPT_PATH(allow),
      "list of users, one per line: name and SHA-256 of the user's secret" },
    { "invite", "USER", NULL, OPT_TEXT_CHECKED(invite, authority_check_user),
      "add a user to the list, print the user's secret, and exit" },
    { "life", "SECONDS", "3600", OPT_SECONDS(life_s, 2 * AUTH_RENEW_BEFORE, 30 * 86400.0),
      "lifetime of a token; peers renew theirs in time" },
    { "address", "IP", NULL, OPT_TEXT_CHECKED(address, check_ip),
      "address to listen on (default: 0.0.0.0)" },
    { "port", "PORT", "8443", OPT_INTEGER(port, 0, 65535),
      "port to listen on; 0 takes any free one" },
    { "name", "NAME", "localhost", OPT_TEXT(name), "host name in the certificate" },
    { "cert", "FILE", NULL, OPT_PATH(cert),
      "TLS certificate (PEM), with --cert-key. Without it one is made for --name and kept next "
      "to the key, in FILE.crt and FILE.tls; users pass FILE.crt to --authority-ca" },
    { "cert-key", "FILE", NULL, OPT_PATH(cert_key), "private key of the certificate (PEM)" },
    { "coordinator", "IP:PORT", NULL, OPT_CALL(take_coordinator),
      "address of a bootstrap peer, which hivemind's scripts ask the authority for" },
    { "json", NULL, NULL, OPT_FLAG(json), "print events as lines of JSON" },
    { 0 },
};

static int check(const struct requests *w)
{
    if (!w->allow || (!w->key && !w->invite))
        return command_misused("authority", "--allow and --key (or --invite) are needed");
    if (!w->cert != !w->cert_key)
        return command_misused("authority", "--cert and --cert-key go together");
    return PL_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Secret: created with mode 0600, never readable by others. */
static int write_secret(const char *path, const struct bytes *data, struct pl_err *err)
{
    mode_t before = umask(077);
    int rc = pl_file_write(path, bytes_at(data), bytes_length(data), err);
    umask(before);
    return rc;
}

static int load_key(struct rsa_key *key, const char *path, struct pl_err *err)
{
    struct bytes pem = { 0 };
    struct pl_err why;
    void *data;
    size_t n;
    int rc;
    if (!access(path, F_OK)) {
        if ((rc = pl_file_read(&data, &n, path, PEM_MAX, &why)))
            return pl_fail(err, rc, "--key %.300s", why.text);
        if ((rc = rsa_key_parse(key, data, n, &why)))
            pl_fail(err, rc,
                    "--key %.200s: %.200s; remove it, and one is made, which ends all "
                    "tokens of the old one",
                    path, why.text);
        free(data);
        return rc;
    }
    if ((rc = rsa_key_make(key, err))) return rc;
    if (!(rc = rsa_key_write(&pem, key))) rc = write_secret(path, &pem, err);
    bytes_clear(&pem);
    return rc;
}

/* Certificate and key as texts, made next to the authority's key if none are given. */
static int load_certificate(char **cert, char **key, char crt_path[1024], const struct requests *w,
                            struct pl_err *err)
{
    char tls_path[1024];
    void *c, *k;
    size_t n;
    int rc = PL_OK;
    snprintf(crt_path, 1024, "%.1000s%s", w->cert ? w->cert : w->key, w->cert ? "" : ".crt");
    snprintf(tls_path, sizeof tls_path, "%.1000s%s", w->cert ? w->cert_key : w->key,
             w->cert ? "" : ".tls");
    if (!w->cert && (access(crt_path, F_OK) || access(tls_path, F_OK))) {
        struct bytes made = { 0 }, made_key = { 0 };
        rc = certificate_make(&made, &made_key, w->name, err);
        if (!rc) rc = write_secret(tls_path, &made_key, err);
        if (!rc) rc = pl_file_write(crt_path, bytes_at(&made), bytes_length(&made) - 1, err);
        bytes_clear(&made);
        bytes_clear(&made_key);
    }
    if (!rc) rc = pl_file_read(&c, &n, crt_path, PEM_MAX, err);
    if (rc) return rc;
    if ((rc = pl_file_read(&k, &n, tls_path, PEM_MAX, err))) {
        free(c);
        return rc;
    }
    *cert = c;
    *key = k;
    return certificate_check(c, crt_path, k, tls_path, err);
}

/* --- inviting --------------------------------------------------------------------------------- */

static int invite(const struct requests *w, struct pl_err *err)
{
    struct authority a = { .users = NULL };
    char token[AUTHORITY_TOKEN_MAX];
    struct bytes list = { 0 };
    void *text = NULL;
    size_t n = 0;
    int rc = PL_OK;
    if (!access(w->allow, F_OK)) rc = pl_file_read(&text, &n, w->allow, AUTHORITY_LIST_MAX, err);
    if (!rc && n) rc = authority_read(&a, text, n, err); /* a broken list is not made longer */
    for (size_t i = 0; i < a.user_count && !rc; i++)
        if (!strcmp(a.users[i].name, w->invite))
            rc = pl_fail(err, PL_EUSE, "'%s' is on the list already; remove the line first",
                         w->invite);
    if (!rc && n) bytes_add(&list, text, n);
    if (!rc && n && ((const char *)text)[n - 1] != '\n') bytes_u8(&list, '\n');
    if (!rc) rc = authority_invite(token, &list, w->invite, err);
    if (!rc) rc = write_secret(w->allow, &list, err);
    if (!rc && w->json)
        printf("{\"event\":\"invited\",\"user\":\"%s\",\"token\":\"%s\"}\n", w->invite, token);
    else if (!rc) puts(token);
    free(text);
    bytes_clear(&list);
    authority_clear(&a);
    return rc;
}

/* --- serving ---------------------------------------------------------------------------------- */

/* Runs until a signal, and prints each event. */
static void watch(struct authority_server *s, const struct requests *w, const sigset_t *ends)
{
    static const struct timespec a_while = { .tv_sec = 1 };
    size_t issued = 0, refused = 0, now_issued, now_refused;
    struct pl_err last = { "" }, complaint;
    while (sigtimedwait(ends, NULL, &a_while) < 0) {
        authority_server_counts(s, &now_issued, &now_refused);
        authority_server_complaint(s, &complaint);
        if (complaint.text[0] && strcmp(complaint.text, last.text))
            fprintf(stderr, "potluck authority: %s; the previous list stays in force\n",
                    complaint.text);
        last = complaint;
        if (now_issued == issued && now_refused == refused) continue;
        issued = now_issued;
        refused = now_refused;
        if (w->json)
            json_event_print(json_pack("{s:s,s:I,s:I}", "event", "served", "issued",
                                       (json_int_t)issued, "refused", (json_int_t)refused));
        else {
            printf("%zu token%s issued, %zu request%s refused\n", issued, PLURAL(issued), refused,
                   PLURAL(refused));
            fflush(stdout);
        }
    }
}

static int serve(const struct requests *w, struct pl_err *err)
{
    struct rsa_key key = { 0 };
    struct authority a = { .key = &key,
                           .life_s = w->life_s,
                           .coordinator_ip = w->coordinator_port ? w->coordinator_ip : NULL,
                           .coordinator_port = w->coordinator_port };
    struct authority_server *s = NULL;
    char *cert = NULL, *cert_key = NULL, crt_path[1024];
    sigset_t ends;
    int rc;
    /* blocked before the server's thread begins, so that only watch() sees them */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    rc = authority_server_list(&a, w->allow, err); /* before keys are made */
    if (!rc) rc = load_key(&key, w->key, err);
    if (!rc) rc = load_certificate(&cert, &cert_key, crt_path, w, err);
    if (!rc)
        rc = authority_server_open(&s, &a, w->allow, w->address, (int)w->port, cert, cert_key, err);
    if (!rc && w->json)
        json_event_print(json_pack("{s:s,s:i,s:s,s:I}", "event", "listening", "port",
                                   authority_server_port(s), "certificate", crt_path, "users",
                                   (json_int_t)a.user_count));
    else if (!rc) {
        printf("serving %zu user%s at port %d; users join with\n  --authority https://%s:%d "
               "--authority-ca %s --token-file THEIRS\n",
               a.user_count, PLURAL(a.user_count), authority_server_port(s), w->name,
               authority_server_port(s), crt_path);
        fflush(stdout);
    }
    if (!rc) watch(s, w, &ends);
    authority_server_close(s);
    free(cert);
    free(cert_key);
    authority_clear(&a);
    rsa_key_clear(&key);
    return rc;
}

static int run_authority(int argc, char **argv)
{
    struct requests w = { .key = NULL };
    struct pl_err err;
    int rc;
    if (options_parse(&command_authority, &w, argc, argv, NULL, &rc)) return rc;
    if (check(&w)) return 2;
    rc = w.invite ? invite(&w, &err) : serve(&w, &err);
    if (rc) command_failed("authority", "%s", err.text);
    return rc != 0;
}

const struct command command_authority = {
    .name = "authority",
    .summary = "give access tokens to the users of a moderated swarm",
    .synopsis = "--key FILE --allow FILE [--name NAME] [--port PORT] [OPTION ...]\n"
                "--invite USER --allow FILE",
    .about =
        "Gives access tokens over HTTPS to peers of the users on a list, and to no others. A user "
        "joins with --authority and --token-file, a file with the secret that --invite printed. "
        "To exclude a user, remove the line: the list is read again whenever it changes.",
    .rows = rows,
    .run = run_authority,
};
