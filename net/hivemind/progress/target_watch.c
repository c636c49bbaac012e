/* target_watch.c - do the others have our target batch? [spec hivemind-protocol 8]
 *
 * Every peer of a run must step at the same number of samples, but hivemind's records do not hold
 * it, and a wrong --target-batch only shows as bad training. Two signs reveal it:
 *
 *   early   the swarm's epoch advances, again and again, long before our target: theirs is smaller
 *   late    no peer comes to our steps, and the others collect far more samples: theirs is larger
 *
 * The estimate must not accuse an honest setup. So each unknown is assumed in the setup's favour
 * (peers may be 1.5 times as fast as they report, each may add one more batch), and only several
 * consecutive signs count. */
#include "target_watch.h"

#include <math.h>
#include <string.h>

/* --- steps long before our target ------------------------------------------------------------- */

/* The samples of this epoch that the record's peer has by now, if it has gone on at its speed. */
static double samples_at(const struct progress_record *r, int64_t epoch, double now)
{
    /* Records of other epochs say nothing of this one's samples. */
    if (r->epoch != epoch) return 0;
    return (double)r->samples + fmax(0, now - r->time) * r->samples_per_second;
}

struct survey {
    int64_t epoch;         /* the others' newest */
    double reported;       /* samples of that epoch, by the records */
    double samples, speed; /* the same, with the samples since then; of all peers */
};

static struct survey survey_records(const struct progress_record *others, size_t count,
                                    const struct progress_record *own, double now)
{
    struct survey s = { .epoch = -1, .speed = own->samples_per_second };
    for (size_t i = 0; i < count; i++) /* clients lead no group, as in progress_update */
        if (!others[i].client_mode && others[i].epoch > s.epoch) s.epoch = others[i].epoch;
    for (size_t i = 0; i < count; i++) {
        s.speed += others[i].samples_per_second;
        s.samples += samples_at(&others[i], s.epoch, now);
        if (others[i].epoch == s.epoch) s.reported += (double)others[i].samples;
    }
    s.samples += samples_at(own, s.epoch, now);
    if (own->epoch == s.epoch) s.reported += (double)own->samples;
    return s;
}

static void forget(struct target_watch *w)
{
    w->early = 0;
    w->steps = w->came = w->seen = 0;
}

static int warn_early(struct target_watch *w, double most, double samples, int64_t target,
                      struct pl_err *warning)
{
    /* From below: the most samples that records showed at one epoch, and the estimate at the
     * reported speeds. */
    double about = fmin(most, fmax(w->seen, (w->base + w->came - samples) / w->steps));
    w->has_warned_early = 1;
    pl_fail(warning, PL_OK,
            "the swarm has stepped %.0f times without us, at about %.0f to %.0f samples, our "
            "--target-batch is %lld; your side, if the others agree: use their --target-batch; "
            "otherwise the first peer to step steps for all",
            w->steps, fmin(w->seen, about), about, (long long)target);
    return 1;
}

/* Counts samples and epochs from the first poll that finds the swarm at a later epoch, until our
 * own step; samples / epochs is about their target batch. A poll may see several epochs at once
 * if it comes late, but more than four times as many as the one before is a peer that has come
 * back from far ahead: counting begins anew. */
static int check_early(struct target_watch *w, const struct survey *s, int64_t target, double now,
                       struct pl_err *warning)
{
    double steps = (double)(s->epoch - w->epoch), most;
    /* Our own step came in time, or the records went back: no sign. */
    if (w->has_stepped || steps < 0) {
        w->has_stepped = 0;
        w->last_steps = 0;
        forget(w);
        return 0;
    }
    /* Samples since the last poll, by all peers' speeds. */
    w->came += s->speed * fmax(0, now - w->at);
    w->seen = fmax(w->seen, s->reported);
    if (steps == 0) return 0;
    if (!(w->last_steps > 0) || steps > TARGET_WATCH_LEAP * w->last_steps) {
        forget(w);
        w->base = s->samples;
    } else {
        w->early++;
        w->steps += steps;
    }
    w->last_steps = steps;
    if (w->early < TARGET_WATCH_STEPS || w->has_warned_early) return 0;
    /* The most that each of their steps can have had, if all were 1.5 times as fast as reported. */
    most = (w->base + TARGET_WATCH_FASTER * w->came) / w->steps;
    return most < TARGET_WATCH_EARLY * (double)target
               ? warn_early(w, most, s->samples, target, warning)
               : 0;
}

/* --- steps without groupmates ----------------------------------------------------------------- */

void target_watch_step(struct target_watch *w, double triggered, int alone)
{
    w->alone_since = alone ? triggered : 0;
    w->has_stepped = 1;
    if (!alone) w->late = 0;
}

/* A peer that has reported after our trigger, still at our old epoch, has seen that our target
 * was reached and went on. If those peers hold twice our target, theirs must be larger: less
 * could be a last batch of each on top. */
static int check_late(struct target_watch *w, const struct progress_record *others, size_t count,
                      const struct progress_record *own, int64_t target, struct pl_err *warning)
{
    int64_t samples = 0;
    for (size_t i = 0; i < count; i++)
        if (others[i].epoch == own->epoch - 1 && others[i].time > w->alone_since &&
            samples <= INT64_MAX - others[i].samples)
            samples += others[i].samples;
    /* One judgement for each of our steps. */
    w->alone_since = 0;
    if ((double)samples < TARGET_WATCH_LATE * (double)target) {
        w->late = 0;
        return 0;
    }
    if (++w->late < TARGET_WATCH_ALONE || w->has_warned_late) return 0;
    w->has_warned_late = 1;
    pl_fail(warning, PL_OK,
            "no peer joined our last %d steps at --target-batch %lld, although the others had %lld "
            "samples by then and continued; your side, if they agree: use their --target-batch, "
            "which is larger",
            w->late, (long long)target, (long long)samples);
    return 1;
}

/* --- both ------------------------------------------------------------------------------------- */

int target_watch_update(struct target_watch *w, const struct progress_record *others, size_t count,
                        const struct progress_record *own, int64_t target, double now,
                        struct pl_err *warning)
{
    struct survey s = survey_records(others, count, own, now);
    int warned = 0;
    /* Our last step had no groupmates: check the others' records. */
    if (w->alone_since > 0 && count) warned = check_late(w, others, count, own, target, warning);
    if (s.epoch < 0) forget(w);
    else if (w->has_last && !warned) warned = check_early(w, &s, target, now, warning);
    w->has_last = s.epoch >= 0;
    w->epoch = s.epoch;
    w->at = now;
    return warned;
}
