/* bench.c - `potluck bench`: how fast a backend is, compared with the reference, with the Python
 * packages that do the same work, and with the peak speed of this machine. */
#include "bench.h"
#include "cmd/cmd.h"
#include "cmd/train/train_job.h"
#include "cmd/common/outputs.h"
#include "data/files/file.h"
#include "data/files/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the order of section_names. */
static int (*const sections[])(struct bench *b) = {
    bench_parts,   bench_codes,    bench_attention, bench_steps,
    bench_drawing, bench_pictures, bench_device,
};

static const char *const section_names[] = { "parts",   "codes",    "attention", "steps",
                                             "drawing", "pictures", "device",    NULL };

static int take_size(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct bench *b = options;
    for (int i = 0; i < BENCH_SIZES; i++)
        if (!strcmp(bench_sizes[i].name, value)) {
            b->chosen[i] = 1;
            return PL_OK;
        }
    return pl_fail(err, PL_EUSE, "'%.40s' is not one of demo, small, middle, run", value);
}

#define OPTIONS struct bench
static const struct option_row rows[] = {
    { "quick", NULL, NULL, OPT_FLAG(quick),
      "leave out size run, whose step takes a minute and 6 GB" },
    { "only", "SECTION", NULL, OPT_CHOICE(section, section_names),
      "time one section only. device times memory traffic, pictures times VQGAN and CLIP" },
    { "size", "S", NULL, OPT_CALL_OF(take_size, train_configs),
      "demo, small, middle or run; may be repeated (default: all, but drawing without run, which "
      "takes minutes an image)" },
    { "filter", "S", NULL, OPT_TEXT(filter), "in section parts, only lines that contain S" },
    { "batch", "N", NULL, OPT_INTEGER(batch, 1, 4096),
      "samples per step (default: 32, 8, 2 and 1 for the four sizes)" },
    { "images", "N", "16", OPT_INTEGER(images, 1, 1024), "images drawn at a time" },
    { "values", "N", NULL, OPT_INTEGER(values, 65536, (int64_t)1 << 32),
      "floats per buffer in section device and for the device's peaks (default: 2^27 on a "
      "device, 2^22 in host memory)" },
    { "steps", "N", "3", OPT_INTEGER(steps, 1, 1000), "steps per size; the fastest counts" },
    { "activations", "A", NULL, OPT_CHOICE(activations, train_activations),
      "activations kept for the backward pass; if not given, stored for size demo and reversible "
      "for others" },
    { "peer", "SCRIPT", NULL, OPT_PATH(peers.script),
      "also time the Python packages with this script: test/bench/peer.py" },
    { "python", "P", "python3", OPT_PATH(peers.python), "interpreter that runs the script" },
    { "json", "FILE", NULL, OPT_PATH(json), "write all figures there, if no section fails" },
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

/* Everything the sections will ask for, in one run of the script. */
static void ask_peers(struct bench *b, int section)
{
    static const struct {
        const char *section, *kind;
    } kinds[] = {
        { "codes", "codes" },  { "attention", "attention" }, { "steps", "step" },
        { "drawing", "draw" }, { "pictures", "pictures" },
    };
    char text[PL_COUNT(kinds) * BENCH_SIZES][48], *wanted[PL_COUNT(kinds) * BENCH_SIZES];
    struct pl_err err;
    int n = 0;
    if (!b->peers.script) {
        printf("Python packages not timed: --peer test/bench/peer.py times them\n");
        return;
    }
    for (size_t k = 0; k < PL_COUNT(kinds); k++)
        for (int i = 0; i < BENCH_SIZES; i++) {
            int count = k == 0   ? 1 << 20
                        : k == 3 ? (int)b->images
                                 : bench_samples(b, &bench_sizes[i]);
            if (section >= 0 && strcmp(section_names[section], kinds[k].section)) continue;
            /* codes and pictures have no size; sampling at the reference run's size takes Python
             * hours */
            if ((k % 4 == 0 && i > 0) || (k % 4 != 0 && !b->chosen[i]) ||
                (k == 3 && i == BENCH_SIZES - 1))
                continue;
            snprintf(text[n], sizeof text[n], "%s:%s:%d", kinds[k].kind, bench_sizes[i].name,
                     count);
            wanted[n] = text[n];
            n++;
        }
    printf("timing Python packages with %s %s ...\n", b->peers.python, b->peers.script);
    fflush(stdout);
    if (n && bench_peers_ask(&b->peers, wanted, n, b->cores, b->bf16, &err))
        printf("Python packages not timed: %s\n", err.text);
}

static void print_machine(const struct bench *b)
{
    int device = b->be.alloc != b->ref.alloc;
    printf("backend  %s\n", b->be.note);
    if (device) printf("device   %s: ", b->peak.vectors);
    else printf("machine  %d thread%s, %s: ", b->cores, b->cores > 1 ? "s" : "", b->peak.vectors);
    if (!device || !b->bf16) printf("float32 %.1f GF/s, ", 1e-9 * b->peak.float32);
    if (b->peak.bf16 > 0) printf("bf16 %.1f GF/s, ", 1e-9 * b->peak.bf16);
    printf("memory %.1f GB/s\n", 1e-9 * b->peak.memory);
    fflush(stdout);
}

static int write_json(const struct bench *b, const char *path)
{
    json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:f, s:O}", "backend", b->be.note, "threads",
                          b->cores, "peak_float32", b->peak.float32, "peak_bf16", b->peak.bf16,
                          "peak_memory", b->peak.memory, "rows", b->rows);
    char *text = pl_json_text(o, JSON_INDENT(1)); /* NULL also if a row has been left out */
    struct pl_err err;
    int rc = text ? pl_file_write(path, text, strlen(text), &err)
                  : pl_fail(&err, PL_ENOMEM, "%.200s: no memory", path);
    if (rc) command_failed("bench", "%s", err.text);
    free(text);
    json_decref(o);
    return rc;
}

static int run_bench(int argc, char **argv)
{
    struct bench b = { .section = -1, .activations = -1 };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct pl_err err;
    int rc;
    if (options_parse(&command_bench, &b, argc, argv, NULL, &rc)) return rc;
    for (int i = 0; i < BENCH_SIZES; i++) b.named |= b.chosen[i];
    for (int i = 0; !b.named && i < BENCH_SIZES - b.quick; i++) b.chosen[i] = 1;
    if (outputs_check_file(b.json, &err)) return command_failed("bench", "%s", err.text);
    if (compute_open(&b.be, &b.compute, "bench")) return 1;
    b.cores = b.compute.threads ? (int)b.compute.threads : cores > 0 ? (int)cores : 1;
    b.bf16 = b.compute.precision && !strcmp(b.compute.precision, "bf16");
    pl_json_begin();
    b.rows = json_array();
    pl_backend_ref(&b.ref);
    if (!b.values) b.values = (size_t)1 << (b.be.alloc == b.ref.alloc ? 22 : 27);
    if (b.be.alloc == b.ref.alloc) b.peak = peak_measure(b.cores);
    else if (bench_device_peak(&b, &err)) {
        command_failed("bench", "%s", err.text);
        json_decref(b.rows);
        return 1;
    }
    print_machine(&b);
    ask_peers(&b, b.section);
    for (size_t i = 0; i < PL_COUNT(sections); i++)
        if ((b.section < 0 || (size_t)b.section == i) && sections[i](&b)) rc = 1;
    if (!rc && b.json) rc = write_json(&b, b.json) != 0;
    json_decref(b.rows);
    return rc;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "time a backend: components, training steps, drawing",
    .synopsis = "[--quick] [--only SECTION] [--size S ...] [--peer SCRIPT] [OPTION ...]",
    .about =
        "Times every component, a training step and drawing. Compares them with the reference, "
        "with the peak speed of this machine, which is measured in the same run, and with the "
        "Python packages that do the same work, if they are installed.",
    .rows = rows,
    .notes = "With --threads 1 processor time is measured, which other programs disturb less. A ~ "
             "marks a reference time that was estimated from a smaller case.",
    .run = run_bench,
};
