/* tessera bench all-reduce, all-gather, reduce-scatter: float32, between the ranks of a launcher's
 * job or processes of this host. */
#include "bench/cases/collective.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_config.h"
#include "bench/cases/collective_measure.h"
#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "cli/lib/memory.h"

/* The same operations by MPI ------------------------------------------------------------------- */

static const char *peer_program(void)
{
    const char *chosen = getenv("TESSERA_BENCH_MPI");
    return chosen && *chosen ? chosen : BENCH_MPI_PEER;
}

/* Returns true if this build has the program for MPI (mpi_peer.c). Otherwise records its absence as
 * the context's error. */
static bool peer_exists(bench_context *context)
{
    return *peer_program() ||
           bench_fail(context, "--peer: this build of tessera has no program for "
                               "MPI, because no MPI was found");
}

/* Parses what follows "size " in a line "size BYTES BATCH NANOSECONDS…" that the peer program
 * prints. */
static void read_peer_samples(char *line, const collective_sizes *sizes,
                              collective_result results[COLLECTIVE_MAX_SIZES])
{
    char *rest = line;
    const uint64_t bytes = strtoull(rest, &rest, 10);
    for (int i = 0; i < sizes->count; i++) {
        collective_result *out = &results[i];
        if (sizes->bytes[i] != bytes)
            continue;
        out->is_there = true;
        out->batch = strtoull(rest, &rest, 10);
        while (out->samples < COLLECTIVE_MAX_SAMPLES && *rest != '\0')
            out->ns[out->samples++] = strtod(rest, &rest);
    }
}

typedef struct peer_output {
    char version[128];
    /* The program's first line of output that is not a result and has a letter. If the program
     * fails, this line says why. */
    char other[256];
    bool complete;
} peer_output;

static void read_peer_output(FILE *from, const collective_sizes *sizes,
                             collective_result results[COLLECTIVE_MAX_SIZES], peer_output *out)
{
    char line[64 + 24 * COLLECTIVE_MAX_SAMPLES];
    while (fgets(line, sizeof line, from)) {
        line[strcspn(line, "\n")] = '\0';
        bool has_letter = false;
        for (const char *c = line; *c != '\0'; c++)
            has_letter = has_letter || isalpha((unsigned char)*c);
        if (strncmp(line, "version ", 8) == 0)
            snprintf(out->version, sizeof out->version, "%.100s", line + 8);
        else if (strncmp(line, "size ", 5) == 0)
            read_peer_samples(line + 5, sizes, results);
        else if (strcmp(line, "done") == 0)
            out->complete = true;
        else if (has_letter && out->other[0] == '\0')
            snprintf(out->other, sizeof out->other, "%.200s", line);
    }
}

/* Measures as collective_measure does, but with MPI, in `ranks` processes that mpirun starts.
 * Writes the name and version of the MPI to `version`. */
static bool run_peer(bench_context *context, collective_kind kind, int ranks,
                     const collective_sizes *sizes, double seconds,
                     collective_result results[COLLECTIVE_MAX_SIZES], char *version, size_t size)
{
    char list[12 * COLLECTIVE_MAX_SIZES] = "", command[1024 + sizeof list];
    peer_output said = {0};
    for (int i = 0; i < sizes->count; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), " %llu",
                       (unsigned long long)sizes->bytes[i]);
    (void)snprintf(command, sizeof command, "mpirun %s --oversubscribe -n %d '%s' %s %.6f%s 2>&1",
                   geteuid() == 0 ? "--allow-run-as-root" : "", ranks, peer_program(),
                   collective_names[kind], seconds, list);
    memset(results, 0, COLLECTIVE_MAX_SIZES * sizeof *results);
    FILE *from = popen(command, "r");
    if (!from)
        return bench_fail(context, "--peer: mpirun: %s", strerror(errno));
    read_peer_output(from, sizes, results, &said);
    if (pclose(from) != 0 || !said.complete)
        return bench_fail(context, "--peer: this command failed: %s: %s", command,
                          said.other[0] ? said.other : "it printed no error text");
    snprintf(version, size, "%s", said.version);
    return true;
}

/* The benchmark -------------------------------------------------------------------------------- */

/* With a peer (the MPI that the library is compared with), the measurement is repeated this many
 * times, each time with the library and then with the peer. */
#define ROUNDS 3

/* Returns the bus factor of nccl-tests. The data rate times this factor is the rate at which each
 * link between ranks carries data, if all links are fully used. */
static double bus_factor(collective_kind kind, int ranks)
{
    const double share = (double)(ranks - 1) / ranks;
    return kind == COLLECTIVE_ALL_REDUCE ? 2 * share : share;
}

static const collective_sizes usual_sizes = {
    .count = 10, .bytes = {8, 64, 512, 4096, 32768, 262144, 1048576, 2097152, 16777216, 67108864}};

/* Returns the sizes that the options select, from the smallest to the largest; each is the previous
 * one times the step factor. */
static collective_sizes sizes_of(const bench_options *options)
{
    if (options->max_bytes == 0)
        return usual_sizes;
    collective_sizes sizes = {0};
    for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes *= options->step_factor)
        sizes.bytes[sizes.count++] = (uint64_t)bytes;
    return sizes;
}

static void add_samples(bench_samples *to, const collective_result *from)
{
    to->repetitions = from->batch;
    for (int i = 0; i < from->samples; i++)
        bench_samples_add(to, from->ns[i]);
}

static bool check_collective(bench_context *context, bench_row *row,
                             const collective_result *result)
{
    bench_check_begin(&row->check, "every element on every rank, before and after timing");
    bench_check_value(&row->check, 0, 0, result->wrong ? result->got : 0,
                      result->wrong ? result->want : 0, 0);
    row->check.checked = result->checked;
    return bench_verified(context, row);
}

static bench_row *add_row(bench_context *context, collective_kind kind, int ranks, int hosts,
                          uint64_t bytes)
{
    bench_row *row = bench_add(context, collective_names[kind], BENCH_GBYTES, (double)bytes);
    bench_integer(row, "ranks", ranks);
    bench_integer(row, "hosts", hosts);
    bench_integer(row, "bytes", (int64_t)bytes);
    row->bus_factor = bus_factor(kind, ranks);
    return row;
}

/* Measures all sizes for one number of ranks. */
static bool run_ranks(bench_context *context, collective_kind kind, int ranks)
{
    const collective_sizes sizes = sizes_of(context->options);
    collective_result *results = cli_alloc(COLLECTIVE_MAX_SIZES, sizeof *results);
    bench_row *rows[COLLECTIVE_MAX_SIZES] = {NULL};
    const int rounds = context->options->peer ? ROUNDS : 1;
    const double seconds = context->options->seconds / rounds;
    char version[128] = "";
    bool done = true;
    for (int round = 0; round < rounds && done; round++) {
        done = collective_measure(context, kind, ranks, &sizes, seconds, results);
        for (int i = 0; i < sizes.count && done && bench_reports(context); i++) {
            if (!results[i].is_there)
                continue;
            if (!rows[i])
                rows[i] = add_row(context, kind, ranks, results[i].hosts,
                                  collective_elements(kind, ranks, sizes.bytes[i]) * sizeof(float));
            done = check_collective(context, rows[i], &results[i]);
            add_samples(&rows[i]->host, &results[i]);
        }
        if (done && context->options->peer)
            done =
                run_peer(context, kind, ranks, &sizes, seconds, results, version, sizeof version);
        for (int i = 0; i < sizes.count && done && context->options->peer; i++) {
            if (!rows[i] || !results[i].is_there)
                continue;
            add_samples(&rows[i]->peer, &results[i]);
            snprintf(rows[i]->peer_name, sizeof rows[i]->peer_name, "%s", version);
        }
    }
    free(results);
    return done;
}

static bool run_collective(bench_context *context, collective_kind kind)
{
    static const int usual[] = {BENCH_MIN_RANKS, 4};
    if ((context->options->peer && !peer_exists(context)) ||
        (bench_reports(context) && !bench_memcpy_peak(context)))
        return false;
    const int ranks = context->job ? tsr_comm_size(context->job) : (int)context->options->ranks;
    for (int i = 0; i < (ranks > 0 ? 1 : 2); i++) {
        if (!run_ranks(context, kind, ranks > 0 ? ranks : usual[i]))
            return false;
    }
    return true;
}

static bool run_all_reduce(bench_context *context)
{
    return run_collective(context, COLLECTIVE_ALL_REDUCE);
}

static bool run_all_gather(bench_context *context)
{
    return run_collective(context, COLLECTIVE_ALL_GATHER);
}

static bool run_reduce_scatter(bench_context *context)
{
    return run_collective(context, COLLECTIVE_REDUCE_SCATTER);
}

const bench bench_all_reduce = {
    .name = "all-reduce",
    .summary = "sums over processes; GB/s of float32",
    .help = "float32 between the ranks of the job, if a launcher such as 'tessera launch', srun or "
            "mpirun has started several; otherwise between processes of this host: 2, then 4 of "
            "them, or --ranks. 8 B to 64 MiB, or --minbytes to --maxbytes. GB/s are the bytes of "
            "the whole data by time (algbw of "
            "nccl-tests); busbw is the rate that the links between ranks carry. Times are those of "
            "the slowest rank. Every element is verified on every rank. --peer measures the same "
            "with MPI, alternating.\n",
    .takes = BENCH_PEER | BENCH_RANKS | BENCH_BYTES,
    .host_only = true,
    .run = run_all_reduce,
};

const bench bench_all_gather = {
    .name = "all-gather",
    .summary = "the data of all processes, gathered on each of them; GB/s",
    .help = "Like all-reduce.\n",
    .takes = BENCH_PEER | BENCH_RANKS | BENCH_BYTES | BENCH_SHARES,
    .host_only = true,
    .alone = true,
    .run = run_all_gather,
};

const bench bench_reduce_scatter = {
    .name = "reduce-scatter",
    .summary = "sums over processes, one share of them to each; GB/s",
    .help = "Like all-reduce.\n",
    .takes = BENCH_PEER | BENCH_RANKS | BENCH_BYTES | BENCH_SHARES,
    .host_only = true,
    .alone = true,
    .run = run_reduce_scatter,
};
