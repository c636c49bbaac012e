/* bench.c - `potluck bench`: how fast is a backend, beside the reference, beside the Python that
 * does the same, and beside what the machine could do? */
#include "bench.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: potluck bench [--quick] [--only SECTION] [--size S ...] [--peer SCRIPT] [OPTION ...]\n"
    "\n"
    "Times every component, a training step and drawing: beside the reference, beside the peak of this\n"
    "machine, which is measured in the same run, and beside the Python packages that do the same work,\n"
    "where they are found.\n"
    "\n"
    "  --quick          without the run's size, whose step takes a minute and 6 GB\n"
    "  --only SECTION   parts, codes, attention, steps, drawing, pictures (VQGAN, CLIP) or device (what\n"
    "                   moves memory, beside a copy); default: all\n"
    "  --size S         demo, small, middle or run; may be repeated (default: all)\n"
    "  --filter S       of the parts, only lines that contain S\n"
    "  --batch N        samples a step (default: 32, 8, 2 and 1)\n"
    "  --values N       floats of a buffer in section device, and of the device's peaks (default: 2^27\n"
    "                   on a device, 2^22 in the machine's memory)\n"
    "  --steps N        steps a size; the best counts (default: 3)\n"
    "  --activations A  reversible, recomputed or stored (default: stored for the demo, as it trains,\n"
    "                   else reversible, as the run did)\n"
    "  --peer SCRIPT    times the Python packages too: test/bench/peer.py\n"
    "  --python P       what runs it (default: python3)\n"
    "  --json FILE      all figures\n" COMPUTE_USAGE "\n"
    "With --threads 1 processor time is counted, which other programs disturb less. ~: follows from the\n"
    "reference's rate on a smaller case.\n";

const struct bench_size bench_sizes[BENCH_SIZES] = {
    { "demo", 32, PL_STORED, 0, 0, 200 },
    { "small", 8, PL_REVERSIBLE, 3.4, 4.6, 0 },
    { "middle", 2, PL_REVERSIBLE, 2.8, 4.0, 0 },
    { "run", 1, PL_REVERSIBLE, 2.9, 3.75, 0 },
};

static const struct {
    const char *name;
    int (*run)(struct bench *b);
} sections[] = {
    { "parts", bench_parts },   { "codes", bench_codes },     { "attention", bench_attention },
    { "steps", bench_steps },   { "drawing", bench_drawing }, { "pictures", bench_pictures },
    { "device", bench_device },
};

double bench_now(const struct bench *b)
{
    struct timespec t;
    if (b->compute.threads != 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)) return pl_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int bench_samples(const struct bench *b, const struct bench_size *size)
{
    return b->batch ? (int)b->batch : size->samples;
}

void bench_row(struct bench *b, const struct bench_peer_time *peer, json_t *row)
{
    if (peer) {
        json_object_set_new(row, "peer", json_string(peer->by));
        json_object_set_new(row, "peer_s", json_real(peer->seconds));
    }
    json_array_append_new(b->rows, row);
}

enum {
    O_SIZE = 1,
    O_FILTER,
    O_STEPS,
    O_ACTIVATIONS,
    O_QUICK,
    O_ONLY,
    O_PEER,
    O_PYTHON,
    O_JSON,
    O_BATCH,
    O_VALUES
};

/* Index of a word among some, or -1 with a line printed. */
static int word(const char *flag, const char *value, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(words[i], value)) return i;
    fprintf(stderr, "potluck bench: %s: '%.40s' is none of", flag, value);
    for (int i = 0; i < count; i++) fprintf(stderr, "%s %s", i ? "," : "", words[i]);
    fputc('\n', stderr);
    return -1;
}

struct choice {
    int quick, section; /* -1: all */
    const char *json;
};

static int parse(struct bench *b, struct choice *choice, int argc, char **argv)
{
    static const struct option options[] = {
        { "size", required_argument, NULL, O_SIZE },
        { "filter", required_argument, NULL, O_FILTER },
        { "batch", required_argument, NULL, O_BATCH },
        { "steps", required_argument, NULL, O_STEPS },
        { "activations", required_argument, NULL, O_ACTIVATIONS },
        { "values", required_argument, NULL, O_VALUES },
        { "quick", no_argument, NULL, O_QUICK },
        { "only", required_argument, NULL, O_ONLY },
        { "peer", required_argument, NULL, O_PEER },
        { "python", required_argument, NULL, O_PYTHON },
        { "json", required_argument, NULL, O_JSON },
        { "help", no_argument, NULL, 'h' },
        COMPUTE_OPTIONS,
        { 0 },
    };
    static const char *const modes[] = { "reversible", "recomputed", "stored" };
    const char *names[BENCH_SIZES], *parts[PL_COUNT(sections)];
    int64_t values;
    int c, any = 0, rc;
    for (int i = 0; i < BENCH_SIZES; i++) names[i] = bench_sizes[i].name;
    for (size_t i = 0; i < PL_COUNT(sections); i++) parts[i] = sections[i].name;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case O_SIZE:
            if ((rc = word("--size", optarg, names, BENCH_SIZES)) < 0) return PL_EUSE;
            b->chosen[rc] = any = 1;
            break;
        case O_ACTIVATIONS:
            if ((b->activations = word("--activations", optarg, modes, 3)) < 0) return PL_EUSE;
            break;
        case O_ONLY:
            choice->section = word("--only", optarg, parts, (int)PL_COUNT(sections));
            if (choice->section < 0) return PL_EUSE;
            break;
        case O_STEPS:
            if (cmd_integer(&b->steps, "bench", "--steps", optarg, 1, 1000)) return PL_EUSE;
            break;
        case O_BATCH:
            if (cmd_integer(&b->batch, "bench", "--batch", optarg, 1, 4096)) return PL_EUSE;
            break;
        case O_VALUES:
            if (cmd_integer(&values, "bench", "--values", optarg, 65536, (int64_t)1 << 32))
                return PL_EUSE;
            b->values = (size_t)values;
            break;
        case O_FILTER: b->filter = optarg; break;
        case O_QUICK: choice->quick = 1; break;
        case O_PEER: b->peers.script = optarg; break;
        case O_PYTHON: b->peers.python = optarg; break;
        case O_JSON: choice->json = optarg; break;
        case 'h': fputs(usage, stdout); return 1;
        default:
            if (compute_option(&b->compute, "bench", c, optarg) <= 0) return PL_EUSE;
        }
    }
    if (cmd_no_more("bench", argc, argv)) return PL_EUSE;
    for (int i = 0; !any && i < BENCH_SIZES - choice->quick; i++) b->chosen[i] = 1;
    return PL_OK;
}

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
        printf("peers not asked: --peer test/bench/peer.py times them\n");
        return;
    }
    for (size_t k = 0; k < PL_COUNT(kinds); k++)
        for (int i = 0; i < BENCH_SIZES; i++) {
            int count = k == 0 ? 1 << 20 : k == 3 ? 16 : bench_samples(b, &bench_sizes[i]);
            if (section >= 0 && strcmp(sections[section].name, kinds[k].section)) continue;
            /* codes and pictures have no size; drawing at the run's takes Python hours */
            if ((k % 4 == 0 && i > 0) || (k % 4 != 0 && !b->chosen[i]) ||
                (k == 3 && i == BENCH_SIZES - 1))
                continue;
            snprintf(text[n], sizeof text[n], "%s:%s:%d", kinds[k].kind, bench_sizes[i].name,
                     count);
            wanted[n] = text[n];
            n++;
        }
    printf("asking %s %s ...\n", b->peers.python, b->peers.script);
    fflush(stdout);
    if (n && bench_peers_ask(&b->peers, wanted, n, b->cores, b->bf16, &err))
        printf("no peers: %s\n", err.text);
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
    int rc = !o || json_dump_file(o, path, JSON_INDENT(1));
    if (rc) fprintf(stderr, "potluck bench: %s: could not be written\n", path);
    json_decref(o);
    return rc;
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = { .steps = 3, .activations = -1, .peers = { .python = "python3" } };
    struct choice choice = { .section = -1 };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct pl_err err;
    int rc = parse(&b, &choice, argc, argv);
    if (rc) return rc > 0 ? 0 : 2;
    rc = 0;
    if (compute_open(&b.be, &b.compute, "bench")) return 1;
    b.cores = b.compute.threads ? (int)b.compute.threads : cores > 0 ? (int)cores : 1;
    b.bf16 = b.compute.precision && !strcmp(b.compute.precision, "bf16");
    b.rows = json_array();
    pl_backend_ref(&b.ref);
    if (!b.values) b.values = (size_t)1 << (b.be.alloc == b.ref.alloc ? 22 : 27);
    if (b.be.alloc == b.ref.alloc) b.peak = peak_measure(b.cores);
    else if (bench_device_peak(&b, &err)) {
        fprintf(stderr, "potluck bench: %s\n", err.text);
        json_decref(b.rows);
        return 1;
    }
    print_machine(&b);
    ask_peers(&b, choice.section);
    for (size_t i = 0; i < PL_COUNT(sections); i++)
        if ((choice.section < 0 || (size_t)choice.section == i) && sections[i].run(&b)) rc = 1;
    if (choice.json && write_json(&b, choice.json)) rc = 1;
    json_decref(b.rows);
    return rc;
}
