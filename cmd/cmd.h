/* cmd.h - subcommands of the program: one file each, with its usage text on top. Exit status: 0
 * done, 1 failed, 2 misused. */
#ifndef PL_CMD_H
#define PL_CMD_H

#include "../ref/base.h"

typedef int cmd_fn(int argc, char **argv); /* argv[0] is the subcommand's name */

/* Name and one line of help, in the order a newcomer meets them. */
#define PL_COMMANDS(X) \
    X(demo, "train on real pairs, draw, and say how well it went") \
    X(train, "train a text-to-image transformer on shards of captions and codes") \
    X(generate, "draw pictures from captions") \
    X(tokenize, "text to token ids, and back: T5, CLIP, GPT-2") \
    X(prepare, "pictures with captions into shards of codes") \
    X(show, "look inside a shard, a checkpoint, a tokenizer") \
    X(convert, "a checkpoint from one kind of file to another") \
    X(upload, "checkpoints and shards to a web server") \
    X(average, "average tensors with a group of peers") \
    X(peer, "keep a swarm's door open: a peer that trains nothing") \
    X(dht, "read and write a swarm's records") \
    X(doctor, "why joining fails, on which side, and what to do") \
    X(authority, "give access tokens to the users of a moderated swarm") \
    X(vqgan, "pictures to codes and back; train a small codec") \
    X(dash, "the page of a run: loss, peers, leaderboard, and how to take part") \
    X(finetune, "GPT-2 on streamed text with 8-bit Adam: the tutorial") \
    X(calc, "memory that training a model takes, term by term") \
    X(bench, "time a backend: components, training steps, drawing") \
    X(conform, "replay golden values and pair tests against a backend")

#define DECLARE(name, help) cmd_fn cmd_##name;
PL_COMMANDS(DECLARE)
#undef DECLARE

/* A call that makes no sense: one line on stderr, "potluck CMD: what is wrong" and where to read
 * more. Returns PL_EUSE. (Of a flag that there is not, getopt_long says so in a line of its own.) */
int cmd_misused(const char *cmd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Refuses the first word that no flag has taken, as cmd_misused does; PL_OK when there is none. */
int cmd_no_more(const char *cmd, int argc, char **argv);

/* Whole numbers and reals from a flag or the environment: range-checked; on failure prints one line
 * "potluck CMD: --flag: '...' is not a ... from MIN to MAX" to stderr and returns PL_EUSE. */
int cmd_integer(int64_t *out, const char *cmd, const char *flag, const char *text, int64_t min,
                int64_t max);
int cmd_real(double *out, const char *cmd, const char *flag, const char *text, double min,
             double max);

#endif
