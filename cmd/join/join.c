/* join.c - `potluck join`: takes part in a run by one address. [TTT 2.1]
 *
 *   visit - ask the peer at the address for the manifest that it has signed
 *   show  - ten lines, and whether the model fits into this machine's memory
 *   train - as `potluck train` with the options of the manifest
 *
 * The address ends in the peer's ID, so the manifest is that of the peer that the user has named:
 * manifests of other peers under the same run's name are counted, and never used. */
#include "cmd/cmd.h"
#include "join_page.h"
#include "cmd/common/json_event.h"
#include "cmd/common/process_memory.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/doctor/preflight.h"
#include "cmd/train/train.h"
#include "cmd/train/train_agree.h"
#include "cmd/common/train_manifest.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

struct join {
    struct train_requests train; /* its own and a peer's options */
    const char *maker;
    struct peer_id signer; /* of the manifest: --maker, or the peer that is joined */
    int show;
    struct manifest_record found;
    struct join_page page; /* where the address was a page's */
    size_t same,
        others; /* numbers of peers that publish this manifest, and another one, for the run */
    struct pl_err differs;
};

#define OPTIONS struct join
static const struct option_row rows[] = {
    { "show", NULL, NULL, OPT_FLAG(show), "print a description of the run, and do not train" },
    { "maker", "PEER-ID", NULL, OPT_TEXT(maker),
      "use the manifest that this peer has signed; needed if MULTIADDR is that of a bootstrap "
      "peer, which publishes none" },
    { NULL, NULL, NULL, OPT_TABLE(train, train_own_rows), NULL },
    { NULL, NULL, NULL, OPT_HEADING, "In the swarm" },
    { NULL, NULL, NULL, OPT_TABLE(train, train_peer_rows), NULL },
    { 0 },
};

static int run_join(int argc, char **argv);
const struct command command_join = {
    .name = "join",
    .summary = "train in an existing run, by the address of one of its peers",
    .synopsis = "MULTIADDR [OPTION ...]\nhttps://PAGE [OPTION ...]",
    .about =
        "Asks the peer at MULTIADDR, any peer that trains, for the manifest of its run: model, "
        "optimizer, schedule, target batch, compression, tokenizer and data. Shows it, checks "
        "this machine's memory, and trains as potluck train does. The address has to end in "
        "/p2p/PEER-ID, as potluck train prints it. The address of the run's web page (potluck "
        "dash) will do as well: it names peers.",
    .rows = rows,
    .notes = "The peer at MULTIADDR has signed the manifest, so take addresses only from people "
             "that you trust. Peers that publish another manifest for the same run are counted "
             "and otherwise ignored.",
    .run = run_join,
};

/* --- visit ------------------------------------------------------------------------------------ */

/* Before anybody is called: a misspelt ID needs no network to be refused. */
static int name_signer(struct join *j, struct pl_err *err)
{
    if (swarm_check_peer_address(j->train.join.join.item[0], err)) return PL_EUSE;
    if (!j->maker) return train_manifest_named(&j->signer, j->train.join.join.item[0], err);
    if (peer_id_from_text(&j->signer, j->maker, strlen(j->maker)))
        return pl_fail(err, PL_EUSE, "--maker: expected a peer ID, got '%.80s'", j->maker);
    return PL_OK;
}

static int find_manifest(struct join *j, struct swarm *s, struct pl_err *err)
{
    const char *address = j->train.join.join.item[0];
    int rc = train_manifest_of_peer(&j->found, s, &j->signer, err);
    if (rc == PL_ENOTFOUND && !j->maker)
        pl_fail(
            err, rc,
            "the peer at %.250s publishes no manifest of a run: give the address of a peer that "
            "trains, or --maker with the ID of one",
            address);
    if (!rc) train_manifest_count(&j->same, &j->others, &j->differs, s, &j->found.manifest, NULL);
    return rc;
}

/* As a client that leaves again: the training joins by itself. */
static int visit(struct join *j, struct pl_err *err)
{
    struct membership membership = j->train.join.membership;
    struct swarm_options how = { .cmd = "join",
                                 .join = j->train.join.join.item,
                                 .join_count = j->train.join.join.count };
    struct swarm s;
    int rc = cmd_membership_open(&membership, &how.auth, err);
    if (!rc && !(rc = swarm_open(&s, &how, err))) {
        if ((rc = cmd_wait_joined("join", &s, err))) preflight_explain(&s, &how, err);
        else rc = find_manifest(j, &s, err);
        swarm_close(&s);
    }
    membership_close(&membership);
    return rc;
}

/* --- show ------------------------------------------------------------------------------------- */

static void show_json(const struct join *j, const char *signer, double need, double have)
{
    json_t *manifest = json_loadb(j->found.text, j->found.n, 0, NULL);
    json_event_print(json_pack("{s:s,s:s,s:o,s:I,s:I,s:f,s:f}", "event", "manifest", "signed_by",
                               signer, "manifest", manifest, "same", (json_int_t)j->same, "others",
                               (json_int_t)j->others, "memory_needed", need, "memory_free", have));
}

static void show_text(const struct join *j, const char *signer, const struct pl_memory_use *use,
                      double need, double have)
{
    const struct run_manifest *m = &j->found.manifest;
    FILE *out = j->show ? stdout : stderr;
    fprintf(out, "run \"%s\", signed by peer %s (%s)\n", m->run, signer, m->software);
    fprintf(out, "  model       %s: %d blocks of width %d, %.3g million parameters\n",
            m->config.name, m->config.L, m->config.D, use->parameters / 1e6);
    fprintf(out, "  optimizer   %s, learning rate %g, warmup in the first %g %% of the steps\n",
            m->optimizer, m->lr, 100 * m->warmup);
    fprintf(out, "  schedule    %lld steps of %lld samples, of all peers together\n",
            (long long)m->steps, (long long)m->target_batch);
    if (m->token_noise > 0)
        fprintf(out, "  noise       %g %% of the image tokens are random at the peak rate\n",
                100 * m->token_noise);
    fprintf(out, "  averaging   %s, compression %s, parameters every %lld step%s\n", m->algorithm,
            m->compression, (long long)m->average_state_every,
            m->average_state_every == 1 ? "" : "s");
    fprintf(out, "  tokenizer   %.16s\n  codec       %.40s\n", m->tokenizer,
            *m->codec ? m->codec : "not named by the data");
    fprintf(out, "  data        %s%s\n", m->data_count ? m->data[0] : "each peer's own",
            m->data_count > 1 ? ", ..." : "");
    fprintf(out, "  peers       %zu publish%s this manifest\n", j->same, j->same == 1 ? "es" : "");
    fprintf(out, "  memory      %.2f GiB needed, %.2f GiB free\n", need / 0x1p30, have / 0x1p30);
    if (j->others)
        fprintf(out, "  warning     %zu other%s: %.300s\n", j->others, j->others == 1 ? "" : "s",
                j->differs.text);
    fflush(out);
}

/* The calculator's estimate; memory on a device does not count for the host. */
static int check_memory(struct join *j, double *need, double *have, struct pl_memory_use *use)
{
    const struct run_manifest *m = &j->found.manifest;
    struct compute compute = j->train.compute;
    struct pl_backend be;
    struct pl_optimizer_options optimizer = { .host = NULL };
    struct pl_memory_plan plan;
    if (compute_open(&be, &compute, "join")) return PL_EDEVICE;
    train_optimizer_named(&optimizer, m->optimizer);
    optimizer.host = j->train.offload ? &be : NULL;
    train_memory_plan(&plan, &m->config, j->train.job.micro_batch ? j->train.job.micro_batch : 1,
                      j->train.activations, &optimizer);
    pl_memory_estimate(use, &plan);
    *need = use->host + (be.host_alloc ? 0 : use->device);
    *have = proc_bytes("/proc/meminfo", "MemAvailable");
    return PL_OK;
}

static int show(struct join *j, struct pl_err *err)
{
    char signer[PEER_ID_TEXT_MAX];
    struct pl_memory_use use;
    double need, have;
    peer_id_text(signer, &j->found.peer);
    if (check_memory(j, &need, &have, &use)) return PL_EDEVICE; /* printed by compute_open */
    if (j->train.swarm.json) show_json(j, signer, need, have);
    else if (!j->train.job.quiet || j->show) show_text(j, signer, &use, need, have);
    if (have > 0 && need > have && !j->show && !j->train.swarm.no_check)
        return pl_fail(
            err, PL_ENOMEM,
            "the model needs %.2f GiB and %.2f GiB are free: close other programs, or take part "
            "without training (potluck peer); --no-check tries in spite of this",
            need / 0x1p30, have / 0x1p30);
    return PL_OK;
}

/* --- train ------------------------------------------------------------------------------------ */

/* The manifest's options in place of the command line's. */
static int take_options(struct join *j, struct pl_err *err)
{
    const struct run_manifest *m = &j->found.manifest;
    const char *compression = j->train.averaging.compression;
    if (strcmp(compression, compression_names[0]) && strcmp(compression, m->compression))
        return pl_fail(err, PL_EUSE, "--compression: %s here, %s in the run", compression,
                       m->compression);
    int rc = train_agree(&j->train, m, err);
    return rc ? rc : train_agree_data(&j->train, m, err);
}

/* Peers that draw the same samples in the same order would learn from each twice. */
static int draw_seed(int64_t *seed, struct pl_err *err)
{
    uint32_t bits;
    if (RAND_bytes((unsigned char *)&bits, sizeof bits) != 1)
        return pl_fail(err, PL_EIO, "no random numbers");
    *seed = bits;
    return PL_OK;
}

/* A page's URL in place of a multiaddr: the addresses that it names, before those of --join. */
static int take_address(struct join *j, const char *address, struct pl_err *err)
{
    struct option_list *to = &j->train.join.join;
    size_t count = 1;
    if (!strncmp(address, "http", 4)) {
        int rc = join_page_read(&j->page, address, err);
        if (rc) return rc;
        count = j->page.count;
    }
    if (to->count + count > OPTION_LIST_MAX)
        return pl_fail(err, PL_EUSE, "more than %d addresses", OPTION_LIST_MAX);
    memmove(to->item + count, to->item, to->count * sizeof *to->item);
    for (size_t i = 0; i < count; i++) to->item[i] = j->page.count ? j->page.address[i] : address;
    to->count += count;
    return PL_OK;
}

static int join(struct join *j, const char *address)
{
    struct pl_err err = { "" };
    int rc = take_address(j, address, &err);
    if (!rc) rc = name_signer(j, &err);
    const int status = rc ? command_status(rc) : 1; /* what the run refuses is no misuse */
    if (!rc) rc = visit(j, &err);
    if (!rc) rc = show(j, &err);
    if (!rc && !j->show) rc = take_options(j, &err);
    if (!rc && !j->show && j->train.data_seed < 0) rc = draw_seed(&j->train.data_seed, &err);
    if (rc && *err.text) command_failed("join", "%s", err.text);
    if (rc) return status;
    return j->show ? 0 : train_run(&j->train);
}

static int run_join(int argc, char **argv)
{
    struct join j = { .maker = NULL };
    int words, status;
    train_requests_init(&j.train, "join");
    if (!options_parse(&command_join, &j, argc, argv, &words, &status)) {
        if (words == 1 && (*argv[1] == '/' || !strncmp(argv[1], "http", 4)))
            status = join(&j, argv[1]);
        else {
            command_misused("join", "give one MULTIADDR, the address of a peer that trains, or the "
                                    "https address of the run's page");
            status = 2;
        }
    }
    train_data_close(&j.train.data);
    manifest_record_clear(&j.found);
    join_page_clear(&j.page);
    return status;
}
