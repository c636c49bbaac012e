/* demo_view.c - the state of the demo's peers, from the JSON events that they print, and the text
 * that shows it. Time is an argument: tests set it. */
#include "demo_view.h"
#include "cmd/common/progress_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MAX 1000000000000 /* steps or samples: a sum of millions of them stays an int64_t */

/* --- the peers' reports ----------------------------------------------------------------------- */

static const char *const kinds[DEMO_PEERS] = { "bootstrap", "fast", "killed half-way", "joins late",
                                               "slow, a client" };

void demo_view_begin(struct demo_view *v, int64_t steps, int64_t target_batch, int is_local,
                     double now)
{
    *v = (struct demo_view){ .steps = steps,
                             .target_batch = target_batch,
                             .is_local = is_local,
                             .began = now,
                             .mark = { { .time = now }, { .time = now } } };
    for (int k = 0; k < DEMO_PEERS; k++) v->peer[k].kind = kinds[k];
}

static double real(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}
static int64_t count(const json_t *line, const char *key)
{
    int64_t n = json_integer_value(json_object_get(line, key));
    return n < 0 ? 0 : n < COUNT_MAX ? n : COUNT_MAX;
}

static const char *state_after(const char *event, int due)
{
    if (!strcmp(event, "behind")) return "catching up";
    if (!strcmp(event, "ready")) return "entering";
    return due ? "averaging" : "training";
}

json_t *demo_view_state(const char *state)
{
    return json_pack("{s:s, s:s}", "event", "state", "state", state);
}

static void take_state(struct demo_peer *p, const char *state)
{
    static const char *const states[] = { "starting", "open", "dead", "done" };
    for (size_t i = 0; state && i < PL_COUNT(states); i++)
        if (!strcmp(state, states[i])) {
            p->state = states[i];
            p->is_gone = i >= 2;
        }
}

void demo_view_event(struct demo_view *v, int k, const json_t *line)
{
    static const char *const events[] = { "ready",     "loaded", "batch",   "epoch",
                                          "corrected", "behind", "trouble", "end" };
    struct demo_peer *p = &v->peer[k];
    const char *event = json_string_value(json_object_get(line, "event"));
    size_t i = 0;
    while (event && i < PL_COUNT(events) && strcmp(event, events[i])) i++;
    if (event && !strcmp(event, "state"))
        take_state(p, json_string_value(json_object_get(line, "state")));
    if (event && k == 1 && !strcmp(event, "time")) v->averaging = real(line, "share");
    if (!event || i == PL_COUNT(events)) return;
    p->state = state_after(event, json_is_true(json_object_get(line, "due")));
    p->step = count(line, "epoch");
    p->peers = count(line, "peers");
    p->rate = real(line, "samples_per_second");
    if (!strcmp(event, "batch")) p->samples = count(line, "local_samples");
    else if (strcmp(event, "corrected")) p->samples = 0;
    if (strcmp(event, "epoch")) return;
    p->loss = real(line, "loss");
    p->loss_samples = count(line, "local_samples");
    p->round_peers = count(line, "round_peers");
    p->round_s = real(line, "seconds");
    v->trained += p->loss_samples;
}

/* --- the next step ---------------------------------------------------------------------------- */

/* Of the living, if any: the one with the highest step knows best. */
static const struct demo_peer *leader(const struct demo_view *v)
{
    const struct demo_peer *best = &v->peer[1];
    for (int k = 2; k < DEMO_PEERS; k++)
        if (v->peer[k].step > best->step || (best->is_gone && v->peer[k].step == best->step))
            best = &v->peer[k];
    return best;
}

int64_t demo_view_step(const struct demo_view *v) { return leader(v)->step; }

void demo_view_mark(struct demo_view *v, double now)
{
    if (now < v->mark[1].time + DEMO_PACE) return;
    v->mark[0] = v->mark[1];
    v->mark[1] = (struct demo_mark){ now, demo_view_step(v), v->trained };
}

static int is_at(const struct demo_peer *p, int64_t step)
{
    return p->state && !p->is_gone && p->step == step;
}

/* The mean of all peers' last losses; a peer that has not reported this step counts with its
 * step before. */
static double mean_loss(const struct demo_view *v, int64_t step)
{
    double sum = 0, samples = 0;
    for (int k = 1; k < DEMO_PEERS; k++) {
        const struct demo_peer *p = &v->peer[k];
        if (p->step < step - 1) continue;
        sum += p->loss * (double)p->loss_samples;
        samples += (double)p->loss_samples;
    }
    return samples > 0 ? sum / samples : 0;
}

/* --- the text --------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static size_t add(char text[DEMO_VIEW_TEXT], size_t at,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    at += (size_t)vsnprintf(text + at, DEMO_VIEW_TEXT - at, format, args);
    va_end(args);
    return at < DEMO_VIEW_TEXT ? at : DEMO_VIEW_TEXT - 1;
}

static size_t summary(char text[DEMO_VIEW_TEXT], const struct demo_view *v, double now,
                      const char *between)
{
    const struct demo_peer *first = leader(v);
    const double seconds = now - v->mark[0].time, elapsed = now - v->began;
    const int64_t step = first->step, steps = step - v->mark[0].step;
    const double loss = mean_loss(v, step);
    int64_t samples = 0, target = v->is_local ? 0 : v->target_batch;
    int averaging = 0;
    char took[24], more[24];
    size_t n = add(text, 0, "%s %lld of %lld, ", v->is_local ? "round" : "step", (long long)step,
                   (long long)v->steps);
    for (int k = 1; k < DEMO_PEERS; k++) {
        if (!is_at(&v->peer[k], step)) continue;
        samples += v->peer[k].samples;
        if (v->is_local) target += v->target_batch;
        averaging |= !strcmp(v->peer[k].state, "averaging");
    }
    if (step >= v->steps) n = add(text, n, "done");
    else {
        n = add(text, n, "%s  samples %lld of %lld", averaging ? "averaging" : "collecting",
                (long long)samples, (long long)target);
        if (first->peers) n = add(text, n, "  %lld peers", (long long)first->peers);
    }
    n = add(text, n, "%s", between);
    if (loss > 0) n = add(text, n, "loss %.4f  ", loss);
    if (v->trained && seconds > 0)
        n = add(text, n, "%.1f samples/s  ", (double)(v->trained - v->mark[0].trained) / seconds);
    n = add(text, n, "%s elapsed", progress_time(took, elapsed));
    if (step < v->steps && steps > 0)
        n = add(text, n, ", %s left",
                progress_time(more, seconds / (double)steps * (double)(v->steps - step)));
    return n;
}

void demo_view_line(char text[DEMO_VIEW_TEXT], const struct demo_view *v, double now)
{
    size_t n = summary(text, v, now, "  ");
    const char *before = "; peers: ";
    for (int k = 1; k < DEMO_PEERS; k++) {
        if (!v->peer[k].state) continue;
        n = add(text, n, "%s%d %s", before, k, v->peer[k].state);
        before = ", ";
    }
}

void demo_view_table(char text[DEMO_VIEW_TEXT], const struct demo_view *v, double now)
{
    size_t n = summary(text, v, now, "\n");
    n = add(text, n, "\n%-4s %-15s %-11s %5s %7s %7s %9s %s\n", "peer", "", "state", "step",
            "samples", "loss", "samples/s", "last step");
    for (int k = 0; k < DEMO_PEERS; k++) {
        const struct demo_peer *p = &v->peer[k];
        n = add(text, n, "%-4d %-15s %-11s", k, p->kind, p->state ? p->state : "not yet");
        if (k && p->state)
            n = add(text, n, " %5lld %7lld", (long long)p->step,
                    (long long)(p->is_gone ? 0 : p->samples));
        if (p->loss_samples)
            n = add(text, n, " %7.4f %9.1f %lld peers, %.2f s", p->loss, p->is_gone ? 0 : p->rate,
                    (long long)p->round_peers, p->round_s);
        n = add(text, n, "\n");
    }
}
