/* simulation.h - a whole swarm in one process, repeated exactly from one seed.
 *
 * The peers run the code that real peers run: host, DHT, matchmaking, all-reduce, collaborative
 * optimizer, checkpoints. Only the system below it is replaced:
 *
 *   clock, threads   scheduler.c, threads.c   one thread runs at a time; the seed picks which
 *   libuv            uv.c                     the functions that net/ calls, on the virtual clock
 *   TCP              network.c                delay, bandwidth, partitions, resets
 *   files            disk.c                   what was not synced is lost or torn by a power failure
 *   malloc           memory.c                 counted by peer; any allocation may fail
 *   random numbers   random.c                 each peer has a generator of its own
 *
 * Nothing here reads a real clock, a socket or a random number of the system, so a seed gives the
 * same events on every run. As FoundationDB and TigerBeetle test. */
#ifndef PL_SIMULATION_H
#define PL_SIMULATION_H

#include <stddef.h>
#include <stdint.h>

#define SIM_PEERS_MAX 16 /* computers, Byzantine ones included */
#define SIM_US 1000ull
#define SIM_MS 1000000ull
#define SIM_S 1000000000ull

/* --- random.c --------------------------------------------------------------------------------- */

struct sim_random {
    uint64_t state;
};
uint64_t sim_random_next(struct sim_random *r);
uint64_t sim_random_below(struct sim_random *r, uint64_t n); /* n >= 1 */
double sim_random_uniform(struct sim_random *r);             /* in [0, 1) */
double sim_random_between(struct sim_random *r, double least, double most);
double sim_random_normal(struct sim_random *r);
int sim_random_happens(struct sim_random *r, double probability);
/* A hash of h and the bytes; not one that withstands attackers. */
uint64_t sim_digest(uint64_t h, const void *data, size_t n);
void sim_random_install(void); /* OpenSSL draws from the running peer's generator */

/* --- a computer ------------------------------------------------------------------------------- */

struct sim_disk;

struct sim_peer {
    int index;
    int is_on;                /* 0: without power, or not started yet */
    unsigned boots;           /* threads of an earlier boot never run again */
    uint64_t stopped_until;   /* virtual ns: its threads do not run before, as after SIGSTOP */
    double slowness;          /* factor of its processor time */
    int reads_nothing;        /* its sockets are never read, as a Byzantine peer may do it */
    double skew;              /* s that its wall clock is ahead */
    struct sim_random random; /* its keys, nonces and decisions */
    struct sim_disk *disk;
    /* memory.c */
    size_t bytes, bytes_peak;
    double malloc_failure; /* probability of each allocation's failure */
    uint64_t malloc_failures;
    /* network.c */
    int port;
    double bandwidth;     /* bytes a second of its uplink */
    uint64_t uplink_free; /* virtual ns: data sent now leave then */
};
extern struct sim_peer sim_peers[SIM_PEERS_MAX];
extern int sim_peer_count;

/* --- scheduler.c ------------------------------------------------------------------------------ */

extern struct sim_random sim_order; /* decides what happens next */

uint64_t sim_now(void);        /* virtual ns since the beginning */
uint64_t sim_read_clock(void); /* the same for the code under test: each call takes some time */

typedef void sim_event_fn(void *context, uint64_t argument);
/* fn is called at a virtual time, outside all threads. Of equal times the first one asked for
 * comes first. */
void sim_at(uint64_t when, sim_event_fn *fn, void *context, uint64_t argument);
void sim_after(uint64_t delay, sim_event_fn *fn, void *context, uint64_t argument);

struct sim_thread;
typedef void *sim_thread_fn(void *argument);
struct sim_thread *sim_thread_new(struct sim_peer *p, sim_thread_fn *fn, void *argument);
struct sim_thread *sim_thread_here(void); /* NULL: outside all threads, in an event */
struct sim_peer *sim_peer_here(void);     /* NULL likewise */
int sim_thread_is_over(const struct sim_thread *t);
void *sim_thread_result(const struct sim_thread *t);

#define SIM_FOR_EVER UINT64_MAX
/* The running thread sleeps until sim_wake(on), or until a virtual time. 1: it was the time. */
int sim_wait(const void *on, uint64_t until);
void sim_wake(const void *on, int all); /* one of those that sleep, or all */
void sim_yield(void);                   /* others may run first */

/* All threads of the computer end where they are. In one of them it does not return. */
void sim_threads_end(struct sim_peer *p);

/* Runs until sim_stop, or until a virtual time. */
void sim_run(uint64_t until);
void sim_stop(void);

/* --- the event log ---------------------------------------------------------------------------- */

extern int sim_verbose;
/* Adds an event to the log's hash; prints it if verbose. */
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_log_bytes(const char *what, int from, int to, const void *data, size_t n);
uint64_t sim_log_hash(void);
/* An invariant is broken: prints why, and the seed has failed. Does not return. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- network.c -------------------------------------------------------------------------------- */

/* The whole network's behaviour; times in seconds. */
struct sim_links {
    double delay, jitter;    /* one way; jitter is exponential */
    double loss, retransmit; /* probability that a segment comes later, and by how much */
    size_t window;           /* bytes of a connection on their way or unread */
};
extern struct sim_links sim_links;
/* 1: nothing passes between these two computers. */
extern uint8_t sim_cut[SIM_PEERS_MAX][SIM_PEERS_MAX];

uint32_t sim_address(const struct sim_peer *p); /* IPv4, host order */
/* The computer's sockets vanish. power: without a notice; otherwise their peers receive a reset. */
void sim_network_crash(struct sim_peer *p, int power);
/* Some connection of the computer is reset, or passes nothing from now on. */
void sim_network_break(struct sim_peer *p, int stall);

/* --- disk.c ----------------------------------------------------------------------------------- */

struct sim_disk_faults {
    double short_write;                      /* probability that a write takes only a part */
    double failure;                          /* probability of EIO for a write or rename, */
    double sync_failure;                     /* and for an fsync; */
    void (*sync_failed)(struct sim_peer *p); /* called after it */
    int full;                                /* 1: writes return ENOSPC */
};
struct sim_disk *sim_disk_new(void);
struct sim_disk_faults *sim_disk_faults(struct sim_disk *d);
/* The process has ended. power: unsynced data are lost or torn. */
void sim_disk_crash(struct sim_disk *d, int power, struct sim_random *r);

#endif
