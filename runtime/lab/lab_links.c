/* lab_links.c - max-min fair rates by progressive filling [Bertsekas and Gallager 1992, 6.5.2]:
 *
 *   while there are transfers without a rate
 *     share = min over links of  free rate of the link / its transfers without a rate
 *     the transfers of that link get this rate, which is taken from their other links, too
 *
 * Rates change only where a transfer begins or is drained. In between all bytes flow evenly, so the
 * next event is known exactly, and the clock jumps there. */
#include "lab_links.h"
#include "ref/small.h"

#include <math.h>
#include <string.h>

#define MBIT 125000.0 /* bytes a second */

/* Equal transfers end together: their times differ by roundings of this size only. */
#define SAME_TIME 1e-12

static const struct {
    const char *name;
    struct lab_link link;
} profiles[] = {
    { "datacentre", { 10000 * MBIT, 10000 * MBIT, 0.0001, 0 } },
    { "fibre", { 300 * MBIT, 300 * MBIT, 0.005, 0 } },
    { "adsl", { 10 * MBIT, 50 * MBIT, 0.015, 0 } },
    { "mobile", { 10 * MBIT, 30 * MBIT, 0.03, 0.01 } },
};
const char *const lab_link_names[] = { "datacentre", "fibre", "adsl", "mobile", "mixed", NULL };

int lab_link_named(struct lab_link *link, const char *name, int peer)
{
    if (!strcmp(name, "mixed")) name = profiles[peer % (int)PL_COUNT(profiles)].name;
    for (size_t i = 0; i < PL_COUNT(profiles); i++)
        if (!strcmp(profiles[i].name, name)) {
            *link = profiles[i].link;
            return PL_OK;
        }
    return PL_ENOTFOUND;
}

int lab_net_open(struct lab_net *net, const struct lab_link *link, int peers)
{
    *net = (struct lab_net){ .peers = peers };
    net->link = pl_alloc((size_t)peers, sizeof *net->link);
    net->traffic = pl_alloc((size_t)peers, sizeof *net->traffic);
    if (!net->link || !net->traffic) {
        lab_net_close(net);
        return PL_ENOMEM;
    }
    memcpy(net->link, link, (size_t)peers * sizeof *link);
    return PL_OK;
}

void lab_net_close(struct lab_net *net)
{
    pl_free(net->link);
    pl_free(net->traffic);
    pl_free(net->transfer);
    *net = (struct lab_net){ 0 };
}

int lab_net_send(struct lab_net *net, int from, int to, double bytes, uint64_t tag)
{
    if (pl_grow(&net->transfer, net->count, &net->capacity, 64)) return PL_ENOMEM;
    net->transfer[net->count++] = (struct lab_transfer){
        .from = from, .to = to, .tag = tag, .bytes = bytes, .left = bytes
    };
    net->is_stale = 1;
    return PL_OK;
}

static void cut(struct lab_net *net, size_t i)
{
    struct lab_transfer *t = &net->transfer[i];
    net->traffic[t->from].cancelled += t->bytes - t->left;
    memmove(t, t + 1, (--net->count - i) * sizeof *t);
    net->is_stale = 1;
}

void lab_net_cut_peer(struct lab_net *net, int peer)
{
    for (size_t i = net->count; i-- > 0;)
        if (net->transfer[i].from == peer || net->transfer[i].to == peer) cut(net, i);
}

void lab_net_cut_tag(struct lab_net *net, uint64_t tag, uint64_t mask)
{
    for (size_t i = net->count; i-- > 0;)
        if ((net->transfer[i].tag & mask) == tag) cut(net, i);
}

/* --- rates ------------------------------------------------------------------------------------ */

#define UNSET (-1.0)

/* Link 2k is peer k's uplink, link 2k + 1 its downlink. */
struct filling {
    double left;
    int unset; /* transfers without a rate */
};

static int uses(const struct lab_transfer *t, int link)
{
    return link == 2 * t->from || link == 2 * t->to + 1;
}

static void give(struct lab_net *net, struct filling *f, struct lab_transfer *t, double rate)
{
    struct filling *both[2] = { &f[2 * t->from], &f[2 * t->to + 1] };
    t->rate = rate;
    t->end = net->now + t->left / rate;
    for (int i = 0; i < 2; i++) {
        both[i]->left = fmax(0, both[i]->left - rate);
        both[i]->unset--;
    }
}

static void compute_rates(struct lab_net *net)
{
    struct filling f[2 * LAB_PEERS_MAX];
    int links = 2 * net->peers;
    for (int k = 0; k < net->peers; k++) {
        const struct lab_link *l = &net->link[k];
        f[2 * k] = (struct filling){ l->up * (1 - l->loss), 0 };
        f[2 * k + 1] = (struct filling){ l->down * (1 - l->loss), 0 };
        net->traffic[k].now_up = net->traffic[k].now_down = 0;
    }
    for (size_t i = 0; i < net->count; i++) {
        struct lab_transfer *t = &net->transfer[i];
        if (t->is_drained) continue;
        t->rate = UNSET;
        f[2 * t->from].unset++;
        f[2 * t->to + 1].unset++;
    }
    for (;;) {
        int tightest = -1;
        double share = INFINITY;
        for (int l = 0; l < links; l++)
            if (f[l].unset && f[l].left / f[l].unset < share) {
                share = f[l].left / f[l].unset;
                tightest = l;
            }
        if (tightest < 0) break;
        /* a link that roundings have emptied still lets its last transfers through */
        if (!(share > 0)) share = 1;
        for (size_t i = 0; i < net->count; i++) {
            struct lab_transfer *t = &net->transfer[i];
            if (!t->is_drained && t->rate == UNSET && uses(t, tightest)) give(net, f, t, share);
        }
    }
    for (size_t i = 0; i < net->count; i++) {
        const struct lab_transfer *t = &net->transfer[i];
        if (t->is_drained) continue;
        net->traffic[t->from].now_up += t->rate;
        net->traffic[t->to].now_down += t->rate;
    }
    for (int k = 0; k < net->peers; k++) {
        struct lab_traffic *t = &net->traffic[k];
        t->peak_up = fmax(t->peak_up, t->now_up);
        t->peak_down = fmax(t->peak_down, t->now_down);
    }
    net->is_stale = 0;
}

/* --- the clock -------------------------------------------------------------------------------- */

double lab_net_next(struct lab_net *net)
{
    double next = INFINITY;
    if (net->is_stale) compute_rates(net);
    for (size_t i = 0; i < net->count; i++) next = fmin(next, net->transfer[i].end);
    return fmax(next, net->now);
}

void lab_net_advance(struct lab_net *net, double time)
{
    double seconds = time - net->now, same = time * (1 + SAME_TIME);
    if (net->is_stale) compute_rates(net);
    for (int k = 0; k < net->peers; k++) {
        struct lab_traffic *t = &net->traffic[k];
        if (t->now_up > 0 || t->now_down > 0) t->busy += seconds;
    }
    net->now = time;
    for (size_t i = 0; i < net->count; i++) {
        struct lab_transfer *t = &net->transfer[i];
        if (t->is_drained) continue;
        if (t->end > same) {
            t->left = fmax(0, t->left - t->rate * seconds);
            continue;
        }
        t->left = 0;
        t->is_drained = 1;
        t->end = time + net->link[t->from].latency + net->link[t->to].latency;
        net->is_stale = 1;
    }
}

int lab_net_take(struct lab_net *net, struct lab_transfer *out)
{
    double same = net->now * (1 + SAME_TIME);
    for (size_t i = 0; i < net->count; i++) {
        struct lab_transfer *t = &net->transfer[i];
        if (!t->is_drained || t->end > same) continue;
        *out = *t;
        net->traffic[t->from].sent += t->bytes;
        net->traffic[t->to].received += t->bytes;
        memmove(t, t + 1, (--net->count - i) * sizeof *t);
        return 1;
    }
    return 0;
}
