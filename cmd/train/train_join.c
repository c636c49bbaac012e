/* train_join.c - the way of `potluck train --run` into a swarm and out of it:
 *
 *   key and access token - node, held - page - preflight checks, which join - manifest - addresses
 *   are printed - (training) - all of it in reverse
 *
 * The first peer prints its addresses earlier, before it measures its own speed. */
#include "train_join.h"
#include "cmd/common/outputs.h"
#include "cmd/common/swarm_messages.h"

#include <stdio.h>

/* For people, who would pass it on: only once this peer is known to take part. */
static void print_addresses(const struct train_swarm *w, struct swarm *s)
{
    char name[1024], before[sizeof name + 20];
    if (w->json) return;
    snprintf(before, sizeof before, "  --run %s --join ",
             outputs_shell_word(name, sizeof name, w->run));
    cmd_show_addresses(s, stderr,
                       w->manifest ? "others join this run by potluck join ADDRESS, or by "
                                     "potluck train with the same options and\n"
                                   : "others join this run with\n",
                       before);
}

/* For programs: before anything is waited for, since others may come while we still join. */
static void print_event(const struct train_swarm *w, struct swarm *s)
{
    char address[MULTIADDR_TEXT_MAX];
    if (!w->json || swarm_address_for_others(s, address)) return;
    printf("{\"event\":\"listening\",\"multiaddr\":\"%s\"}\n", address);
    fflush(stdout);
}

int train_join_open(struct train_join *j, struct train_swarm *w, const struct pl_trainer *trainer,
                    struct pl_err *err)
{
    const struct train_job *job = w->job;
    struct pl_memory_plan memory;
    const struct preflight_join_options asks = {
        .swarm = &j->options,
        .run = w->run,
        .memory = &memory,
        .target_batch = job->target_batch * train_period(w), /* of an outer step, as reported */
        .be = trainer->model->params.be,
        .json = w->json,
        .quiet = job->quiet,
        .off = w->no_check
    };
    int rc;
    *j = (struct train_join){ .w = w, .options = join_options_swarm(w->join, job->cmd) };
    j->options.hold = 1; /* the preflight check joins the DHT */
    j->options.validators = &j->validators;
    j->validators.key = &j->key;
    if ((rc = rsa_key_make(&j->key, err))) return rc;
    if ((rc = validators_add_run(&j->validators, w->run)))
        return pl_fail(err, rc, "--run: '%.60s' is too long a name", w->run);
    if ((rc = cmd_membership_open(&w->join->membership, &j->options.auth, err))) return rc;
    if ((rc = swarm_open(&j->swarm, &j->options, err))) return rc;
    j->is_open = 1;
    print_event(w, &j->swarm);
    if (!j->options.join_count) print_addresses(w, &j->swarm);
    w->page.run = w->run;
    w->page.membership = &w->join->membership;
    w->page.folder = job->out;
    w->page.json = w->json;
    w->page.target_batch = asks.target_batch;
    w->page.total_steps = (int64_t)job->steps;
    own_page_start(&w->page, &j->swarm, j->options.join, j->options.join_count);
    train_memory_plan(&memory, &trainer->model->config, job->micro_batch,
                      trainer->model->activations, &trainer->options.optimizer);
    rc = preflight_join(&j->check, &j->swarm, &asks, err);
    if (!rc && w->manifest)
        rc = train_manifest_begin(&j->manifest, &j->swarm, &j->options, &j->key, w->manifest, err);
    if (!rc && j->options.join_count) print_addresses(w, &j->swarm);
    return rc;
}

void train_join_close(struct train_join *j)
{
    if (j->is_open) {
        own_page_end(&j->w->page);
        train_manifest_end(j->manifest);
        preflight_join_end(j->check);
        swarm_close(&j->swarm);
    }
    membership_close(&j->w->join->membership);
    rsa_key_clear(&j->key);
}
