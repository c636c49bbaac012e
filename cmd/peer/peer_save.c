/* peer_save.c - the state is downloaded and checked on the network's thread; the caller's thread
 * polls, takes a complete state, and writes it. */
#include "peer_save.h"
#include "cmd/common/json_event.h"
#include "net/hivemind/swarm/averaging.h"
#include "cmd/cmd.h"
#include "cmd/train/train_job.h"
#include "data/models/checkpoint.h"
#include "data/files/file.h"
#include "net/hivemind/progress/claims.h"
#include "net/hivemind/training/training.h"
#include "cmd/common/outputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define POLL_EVERY 10.0 /* s between polls of the swarm's epoch */
#define AGAIN 30.0      /* s after a download that failed */
#define SILENCE 15.0    /* s of a donor that says nothing, then the next one is asked */

enum stage { SAVE_IDLE, SAVE_LOADING, SAVE_LOADED };

struct peer_save {
    struct peer_save_options o;
    int json;
    char prefix[GROUP_KEY_MAX];
    struct dht_id progress, identity;
    struct swarm *s;
    struct peer_model *model;
    struct averager *averager;
    int64_t epoch;    /* of the newest checkpoint; -1: no checkpoint yet */
    int64_t reported; /* last reported epoch of the swarm; -1: none */
    struct claims claims;
    int64_t lead; /* see claims.h, at the last poll */
    double due, began;
    pthread_mutex_t lock;
    /* under the lock, as the network's thread changes them */
    enum stage stage;
    int status;
    struct state_load load;
    struct peer_id donor;
    struct pl_err why;
};

#define OPTIONS struct peer_save_options
const struct option_row peer_save_rows[] = {
    { "save", "DIR", NULL, OPT_PATH(folder),
      "save the run's state there as checkpoints of potluck train; needs neither data nor a GPU" },
    { "save-every", "SECONDS", "600", OPT_SECONDS(every, 1, 1e7),
      "time between checkpoints; none is written if the run has made no step" },
    { "keep", "N", "2", OPT_INTEGER(keep, 0, 1000000),
      "newest checkpoints that are kept; 0 keeps all" },
    { 0 },
};

/* --- output ----------------------------------------------------------------------------------- */

/* who: the donor whose download failed; NULL: no particular one. Called on both threads. */
static void say_trouble(const struct peer_save *p, const struct peer_id *who, const char *why)
{
    char id[PEER_ID_TEXT_MAX] = "";
    if (who) peer_id_text(id, who);
    if (p->json)
        json_event_print(json_pack("{s:s,s:s?,s:s}", "event", "not_saved", "donor", who ? id : NULL,
                                   "why", why));
    else fprintf(stderr, "potluck peer: %s%s%s\n", who ? id : "", who ? ": " : "", why);
}

static void say_saved(const struct peer_save *p, const char *path)
{
    char id[PEER_ID_TEXT_MAX];
    struct stat st;
    long long bytes = stat(path, &st) ? 0 : (long long)st.st_size;
    double seconds = pl_seconds() - p->began;
    peer_id_text(id, &p->donor);
    if (p->json)
        json_event_print(json_pack("{s:s,s:I,s:s,s:I,s:s,s:f}", "event", "checkpoint", "epoch",
                                   (json_int_t)p->epoch, "path", path, "bytes", (json_int_t)bytes,
                                   "donor", id, "seconds", seconds));
    else {
        printf("step %lld: %s, %lld bytes, from %s, in %.1f s\n", (long long)p->epoch, path, bytes,
               id, seconds);
        fflush(stdout);
    }
}

/* --- the download, on the network's thread ---------------------------------------------------- */

static void on_donor_failed(void *context, const struct peer_id *donor, int status,
                            const struct pl_err *why)
{
    const struct peer_save *p = context;
    struct pl_err text = *why;
    if (status == PL_EUSE)
        pl_fail(&text, status,
                "%.300s; your side: --config %.60s and --optimizer %s differ from the "
                "run's",
                why->text, p->model->config, p->model->kind);
    say_trouble(p, donor, text.text);
}

/* A checkpoint of a false, high epoch would stay the folder's newest. */
static int check_epoch(const struct peer_save *p, const struct state_load *state,
                       struct pl_err *err)
{
    struct training_state t;
    int rc = training_state_read(&t, state->metadata, state->metadata_n, err);
    if (rc) return rc;
    if (t.epoch > progress_plus(p->lead, CLAIMS_SLACK))
        rc = pl_fail(err, PL_EPROTO, "state: of epoch %lld, the swarm is at %lld",
                     (long long)t.epoch, (long long)p->lead);
    training_state_clear(&t);
    return rc;
}

static int check(void *context, const struct state_load *state, struct pl_err *err)
{
    const struct peer_save *p = context;
    int rc = check_epoch(p, state, err);
    return rc ? rc : optimizer_state_check(&p->model->state, state, p->epoch + 1, err);
}

static void loaded(struct peer_save *p, int status, const struct pl_err *why)
{
    pthread_mutex_lock(&p->lock);
    p->stage = SAVE_LOADED;
    p->status = status;
    if (status) p->why = *why;
    pthread_mutex_unlock(&p->lock);
}

static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *state, const struct pl_err *err)
{
    struct peer_save *p = context;
    p->load = *state;
    memset(state, 0, sizeof *state);
    p->donor = *donor;
    loaded(p, status, err);
}

static void begin_load(void *context)
{
    struct peer_save *p = context;
    struct pl_err err;
    int rc = averager_load(p->averager, check, on_loaded, p);
    if (!rc) return;
    pl_fail(&err, rc, "state: %s", pl_status_name(rc));
    loaded(p, rc, &err);
}

/* --- turns ------------------------------------------------------------------------------------ */

/* Several keys write for one peer: which is its own? */
static void prove(struct peer_save *p, struct progress_record *records, size_t count)
{
    struct dht_result r;
    if (!swarm_get(p->s, &r, &p->identity, 1))
        claims_prove(records, count, r.dictionary.items, r.dictionary.count);
    dht_result_clear(&r);
}

/* The epoch that most of the run's peers have reached; -1: no reports. */
static int64_t swarm_epoch(struct peer_save *p)
{
    struct progress_record *records = NULL;
    struct dht_result r;
    const double now = swarm_time(p->s);
    size_t count = 0;
    if (!swarm_get(p->s, &r, &p->progress, 1) && r.type == DHT_FOUND_DICTIONARY &&
        (records = malloc((r.dictionary.count + 1) * sizeof *records)))
        count = claims_read(records, r.dictionary.items, r.dictionary.count);
    if (count && p->claims.wants_proofs) prove(p, records, count);
    claims_update(&p->claims, records, count, 1, now,
                  &count); /* of its claims only epochs are used */
    free(records);
    dht_result_clear(&r);
    return claims_lead(&p->claims, p->epoch, now);
}

/* Another run, or one that has begun anew: its checkpoints would not be the folder's newest. */
static void say_behind(struct peer_save *p, int64_t epoch)
{
    char why[320];
    if (epoch < 0 || epoch >= p->epoch || p->reported >= 0) return;
    snprintf(
        why, sizeof why,
        "%.80s holds a checkpoint of step %lld, the swarm is at %lld: nothing is saved until it "
        "is past that",
        p->o.folder, (long long)p->epoch, (long long)epoch);
    say_trouble(p, NULL, why);
    p->reported = epoch;
}

static void poll_swarm(struct peer_save *p)
{
    int64_t epoch = swarm_epoch(p);
    p->due = pl_seconds() + fmin(POLL_EVERY, p->o.every);
    say_behind(p, epoch);
    if (epoch <= p->epoch) return;
    p->lead = epoch;
    p->began = pl_seconds();
    p->stage = SAVE_LOADING; /* before the network's thread gets p */
    if (loop_post(p->s->loop, begin_load, p)) p->stage = SAVE_IDLE;
}

static void save(struct peer_save *p)
{
    struct pl_err err = p->why;
    char *path = NULL;
    int64_t epoch;
    int rc = p->status, reported = rc == PL_EIO; /* of each donor */
    if (!rc)
        rc = optimizer_state_take(&p->model->state, p->model->dalle->params.value, &epoch, &p->load,
                                  &err);
    state_load_clear(&p->load);
    if (!rc)
        rc = train_job_save(p->model->dalle, p->model->optimizer, NULL, NULL, (uint64_t)epoch, NULL,
                            NULL, p->o.folder, (int)p->o.keep, &path, &err);
    if (!rc) {
        p->epoch = epoch;
        say_saved(p, path);
    } else if (!reported) say_trouble(p, NULL, err.text);
    free(path);
    p->due = pl_seconds() + (rc ? fmin(AGAIN, p->o.every) : p->o.every);
    p->stage = SAVE_IDLE;
}

void peer_save_turn(struct peer_save *p)
{
    enum stage stage;
    pthread_mutex_lock(&p->lock);
    stage = p->stage;
    pthread_mutex_unlock(&p->lock);
    if (stage == SAVE_LOADED) save(p);
    else if (stage == SAVE_IDLE && pl_seconds() >= p->due) poll_swarm(p);
}

/* --- life ------------------------------------------------------------------------------------- */

static int find_newest(struct peer_save *p, struct pl_err *err)
{
    char *path;
    const char *name;
    long long step;
    int rc = pl_checkpoint_newest(&path, p->o.folder, err);
    if (rc || !path) return rc;
    name = strrchr(path, '/');
    if (sscanf(name ? name + 1 : path, "checkpoint-%lld", &step) == 1) p->epoch = step;
    free(path);
    return PL_OK;
}

int peer_save_open(struct peer_save **out, const struct peer_save_options *o,
                   struct peer_model *model, const char *run, int json, struct pl_err *err)
{
    struct peer_save *p = calloc(1, sizeof *p);
    char key[GROUP_KEY_MAX];
    int rc;
    *out = NULL;
    if (!p) return pl_fail(err, PL_ENOMEM, "--save: no memory");
    p->o = *o;
    p->model = model;
    p->json = json;
    p->epoch = p->reported = -1;
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->prefix, sizeof p->prefix, "%.200s_state_averager", run);
    snprintf(key, sizeof key, "%.200s%s", run, schema_progress.suffix);
    rc = dht_id_of_text(&p->progress, key);
    snprintf(key, sizeof key, "%.200s%s", run, schema_identity.suffix);
    if (!rc) rc = dht_id_of_text(&p->identity, key);
    if (rc) pl_fail(err, rc, "--save: no memory");
    if (!rc) rc = outputs_take_folder(o->folder, err);
    if (!rc) rc = find_newest(p, err);
    if (rc) peer_save_close(p);
    else *out = p;
    return rc;
}

/* Of the averager only the download is used: as a client it is asked for nothing. */
int peer_save_start(struct peer_save *p, struct swarm *s, struct pl_err *err)
{
    enum pl_compression *method = calloc(p->model->state.count + 1, sizeof *method);
    const struct averager_options o = { .prefix = p->prefix,
                                        .class_name = TRAINING_STATE_CLASS,
                                        .be = &p->model->be,
                                        .tensors = p->model->state.count,
                                        .schema = p->model->state.schema,
                                        .method = method,
                                        .part_bytes = PL_PART_BYTES,
                                        .min_size = 2,
                                        .request_timeout = SILENCE,
                                        .sender_timeout = SILENCE,
                                        .bandwidth = PL_BANDWIDTH_UNKNOWN,
                                        .client_mode = 1,
                                        .donor_failed = on_donor_failed,
                                        .donor_context = p };
    int rc = method ? swarm_averager(&p->averager, s, &o, err)
                    : pl_fail(err, PL_ENOMEM, "--save: no memory");
    free(method);
    p->s = s;
    return rc;
}

void peer_save_close(struct peer_save *p)
{
    if (!p) return;
    if (p->averager) swarm_averager_close(p->s, p->averager);
    state_load_clear(&p->load);
    claims_clear(&p->claims);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
