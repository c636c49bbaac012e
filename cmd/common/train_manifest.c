/* train_manifest.c - reading is done before training, publishing in the background: a record lives
 * MANIFEST_LIFE and is stored anew every MANIFEST_RENEW. */
#include "train_manifest.h"
#include "net/hivemind/records/validate.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Records that are read under one key; each costs one check of an Ed25519 signature, 0.1 ms. */
#define RECORDS_MAX 1000
#define SECOND_TIME 20.0 /* s until the first renewal: peers that began with us have joined */

/* --- reading ---------------------------------------------------------------------------------- */

int train_manifest_named(struct peer_id *peer, const char *address, struct pl_err *err)
{
    struct multiaddr a;
    struct multiaddr_target t;
    int rc = multiaddr_from_text(&a, address, err);
    if (rc) return PL_EUSE;
    if (multiaddr_target(&t, &a) || !t.peer.length)
        return pl_fail(err, PL_EUSE, "'%.200s' names no peer: it must end in /p2p/PEER-ID",
                       address);
    *peer = t.peer;
    return PL_OK;
}

/* Calls `take` for each valid record under the key, until it returns something else than PL_OK. */
static void each_record(struct swarm *s, const struct dht_id *key, const struct peer_id *of,
                        int (*take)(void *context, struct manifest_record *r,
                                    const struct dht_item *item),
                        void *context)
{
    struct dht_result found;
    int rc;
    dht_result_init(&found);
    rc = swarm_get(s, &found, key, 1);
    if (!rc && found.type == DHT_FOUND_DICTIONARY)
        for (size_t i = 0; i < found.dictionary.count && i < RECORDS_MAX && !rc; i++) {
            const struct dht_item *item = &found.dictionary.items[i];
            struct manifest_record *r = calloc(1, sizeof *r);
            if (!r) break;
            if (!manifest_record_read(r, of, item->subkey, item->subkey_n, item->value, item->n,
                                      NULL))
                rc = take(context, r, item);
            manifest_record_clear(r);
            free(r);
        }
    dht_result_clear(&found);
}

struct newest {
    struct manifest_record *r;
    double expiration;
    int found;
};

static int take_newest(void *context, struct manifest_record *r, const struct dht_item *item)
{
    struct newest *n = context;
    if (n->found && item->expiration <= n->expiration) return PL_OK;
    if (n->found) manifest_record_clear(n->r);
    *n->r = *r;
    r->text = NULL; /* *n->r owns it now */
    n->expiration = item->expiration;
    n->found = 1;
    return PL_OK;
}

int train_manifest_of_peer(struct manifest_record *r, struct swarm *s, const struct peer_id *peer,
                           struct pl_err *err)
{
    struct newest n = { .r = r };
    struct dht_id key;
    char text[PEER_ID_TEXT_MAX];
    if (manifest_key_of_peer(&key, peer)) return pl_fail(err, PL_ENOMEM, "no memory");
    each_record(s, &key, peer, take_newest, &n);
    if (n.found) return PL_OK;
    peer_id_text(text, peer);
    return pl_fail(err, PL_ENOTFOUND, "peer %s publishes no manifest of a run", text);
}

struct counting {
    const struct run_manifest *m;
    const struct bytes *own;
    size_t *same, *others;
    struct pl_err *why;
    char **text; /* of one that is the same; NULL: not wanted */
};

static int count(void *context, struct manifest_record *r, const struct dht_item *item)
{
    struct counting *c = context;
    struct pl_err differs;
    if (c->own && bytes_length(c->own) == item->subkey_n &&
        !memcmp(bytes_at(c->own), item->subkey, item->subkey_n))
        return PL_OK;
    if (manifest_compare(c->m, &r->manifest, &differs)) {
        if (!*c->others) *c->why = differs;
        ++*c->others;
    } else {
        ++*c->same;
        if (c->text && !*c->text) {
            *c->text = r->text;
            r->text = NULL;
        }
    }
    return PL_OK;
}

static void count_all(struct counting *c, struct swarm *s)
{
    struct dht_id key;
    *c->same = *c->others = 0;
    if (!manifest_key_of_run(&key, c->m->run)) each_record(s, &key, NULL, count, c);
}

void train_manifest_count(size_t *same, size_t *others, struct pl_err *why, struct swarm *s,
                          const struct run_manifest *m, const struct bytes *own)
{
    struct counting c = { m, own, same, others, why, NULL };
    count_all(&c, s);
}

/* --- publishing ------------------------------------------------------------------------------- */

struct train_manifest {
    struct swarm *s;
    const char *cmd;
    const struct run_manifest *ours;
    char *text;
    struct bytes subkey;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* of CLOCK_MONOTONIC */
    int ends;
};

/* A store that fails is made up for by the next one. */
static void publish(struct train_manifest *t)
{
    struct bytes value = { 0 };
    struct dht_id key;
    const double expires = swarm_time(t->s) + MANIFEST_LIFE;
    if (!manifest_record_write(&value, &t->subkey, &t->s->me, t->text)) {
        if (!manifest_key_of_peer(&key, &t->s->me.id))
            swarm_store(t->s, &key, &t->subkey, &value, expires);
        if (!manifest_key_of_run(&key, t->ours->run))
            swarm_store(t->s, &key, &t->subkey, &value, expires);
    }
    bytes_clear(&value);
}

/* Any peer may publish under the run's name, so other manifests do not stop this peer. */
static void warn_of_others(const struct train_manifest *t)
{
    struct pl_err why = { "" };
    size_t same, others;
    train_manifest_count(&same, &others, &why, t->s, t->ours, &t->subkey);
    if (others)
        fprintf(stderr, "\npotluck %s: warning: %zu peer%s of run \"%s\" train%s another way: %s\n",
                t->cmd, others, others == 1 ? "" : "s", t->ours->run, others == 1 ? "s" : "",
                why.text);
}

/* Returns 1 once train_manifest_end has been called. */
static int pause_for(struct train_manifest *t, double seconds)
{
    struct timespec until;
    int ends;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&t->lock);
    while (!t->ends && pthread_cond_timedwait(&t->changed, &t->lock, &until) != ETIMEDOUT) {}
    ends = t->ends;
    pthread_mutex_unlock(&t->lock);
    return ends;
}

static void *keep_published(void *context)
{
    struct train_manifest *t = context;
    publish(t);
    if (pause_for(t, SECOND_TIME)) return NULL;
    warn_of_others(t);
    do publish(t);
    while (!pause_for(t, MANIFEST_RENEW));
    return NULL;
}

/* Does anybody train this run? Python peers report progress and have no manifest. */
static int is_trained(struct swarm *s, const struct run_manifest *m, const struct bytes *own)
{
    char text[MANIFEST_TEXT_MAX + 32];
    struct dht_result progress;
    struct dht_id key;
    struct pl_err why;
    size_t same, others;
    int any;
    snprintf(text, sizeof text, "%s%s", m->run, schema_progress.suffix);
    dht_result_init(&progress);
    any = !dht_id_of_text(&key, text) && !swarm_get(s, &progress, &key, 1) &&
          progress.type == DHT_FOUND_DICTIONARY && progress.dictionary.count;
    dht_result_clear(&progress);
    if (any) return 1;
    train_manifest_count(&same, &others, &why, s, m, own);
    return same + others > 0;
}

/* The bootstrap peers' manifests, one after another. A bootstrap peer that trains our run has to
 * train it as we do. One that trains another run does not stop us, unless no peer trains ours: then
 * its name was probably misspelled. *text: the first manifest that equals ours. */
static int compare_with_bootstrap(char **text, struct swarm *s, const struct swarm_options *how,
                                  const struct run_manifest *ours, const struct bytes *own,
                                  struct pl_err *err)
{
    struct manifest_record *r = calloc(1, sizeof *r);
    struct pl_err why = { "" };
    char name[PEER_ID_TEXT_MAX];
    int rc = r ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; i < how->join_count && !rc; i++) {
        struct peer_id peer;
        if (train_manifest_named(&peer, how->join[i], &why) ||
            train_manifest_of_peer(r, s, &peer, &why))
            continue;
        peer_id_text(name, &peer);
        if (strcmp(r->manifest.run, ours->run)) {
            if (!is_trained(s, ours, own))
                rc = pl_fail(err, PL_EUSE,
                             "no peer trains run \"%s\"; peer %s trains \"%s\": --run %s, or give "
                             "the address of a peer that trains nothing",
                             ours->run, name, r->manifest.run, r->manifest.run);
        } else if ((rc = manifest_compare(ours, &r->manifest, &why))) {
            pl_fail(err, rc, "peer %s trains run \"%s\" another way: %.300s", name, ours->run,
                    why.text);
        } else if (!*text) {
            *text = r->text;
            r->text = NULL;
        }
        manifest_record_clear(r);
    }
    free(r);
    return rc;
}

static void release(struct train_manifest *t)
{
    bytes_clear(&t->subkey);
    free(t->text);
    free(t);
}

static int start(struct train_manifest *t, struct pl_err *err)
{
    pthread_condattr_t monotonic;
    int rc;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!(rc = pthread_create(&t->thread, NULL, keep_published, t))) return PL_OK;
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    return pl_fail(err, PL_ENOMEM, "thread: %s", strerror(rc));
}

int train_manifest_begin(struct train_manifest **out, struct swarm *s,
                         const struct swarm_options *how, const struct rsa_key *key,
                         const struct run_manifest *ours, struct pl_err *err)
{
    struct train_manifest *t = calloc(1, sizeof *t);
    struct counting c = { .m = ours };
    struct pl_err why = { "" };
    size_t same, others;
    int rc = t ? record_own_subkey(&t->subkey, key) : PL_ENOMEM;
    *out = NULL;
    if (!rc && !*ours->run) {
        fprintf(stderr,
                "potluck %s: the run's name is longer than %d characters, so it has no manifest: "
                "others cannot join by an address alone\n",
                how->cmd, MANIFEST_TEXT_MAX);
        goto done;
    }
    if (rc) {
        pl_fail(err, rc, "no memory");
        goto done;
    }
    t->s = s;
    t->cmd = how->cmd;
    t->ours = ours;
    if ((rc = compare_with_bootstrap(&t->text, s, how, ours, &t->subkey, err))) goto done;
    /* The text to publish: an equal manifest that others have signed already, else our own. */
    c = (struct counting){ ours, &t->subkey, &same, &others, &why, &t->text };
    if (!t->text && how->join_count) count_all(&c, s);
    if (!t->text && manifest_write(&t->text, ours, &why)) {
        fprintf(stderr, "potluck %s: %s; nobody can join by this peer's address alone\n", how->cmd,
                why.text);
        goto done;
    }
    if ((rc = start(t, err))) goto done;
    *out = t;
    return PL_OK;
done:
    if (t) release(t);
    return rc;
}

void train_manifest_end(struct train_manifest *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ends = 1;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    release(t);
}
