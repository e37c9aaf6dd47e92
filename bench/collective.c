/* tessera bench all-reduce, all-gather, reduce-scatter: float32, between processes of this host. */
#include "bench/collective.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/collective_peer.h"
#include "bench/collective_ranks.h"
#include "cli/memory.h"

#define ROUNDS 3 /* with a peer: turn and turn about */

/* As nccl-tests has it: what the links between ranks carry when each does its part. */
static double bus_factor(collective_kind kind, int ranks)
{
    const double share = (double)(ranks - 1) / ranks;
    return kind == COLLECTIVE_ALL_REDUCE ? 2 * share : share;
}

static void add_samples(bench_samples *to, const collective_result *from)
{
    to->repetitions = from->batch;
    for (int i = 0; i < from->samples; i++)
        bench_samples_add(to, from->ns[i]);
}

static bool check(bench_context *context, bench_row *row, const collective_result *result)
{
    bench_check_begin(&row->check, "every element on every rank, before and after timing");
    bench_check_value(&row->check, 0, 0, result->wrong ? result->got : 0,
                      result->wrong ? result->want : 0, 0);
    row->check.checked = result->checked;
    return bench_verified(context, row);
}

static bench_row *add_row(bench_context *context, collective_kind kind, int ranks, uint64_t bytes)
{
    bench_row *row = bench_add(context, collective_names[kind], BENCH_GBYTES, (double)bytes);
    bench_integer(row, "ranks", ranks);
    bench_integer(row, "bytes", (int64_t)bytes);
    row->bus_factor = bus_factor(kind, ranks);
    return row;
}

/* All sizes, for one number of ranks. */
static bool run_ranks(bench_context *context, collective_kind kind, int ranks)
{
    collective_result *results = cli_alloc(COLLECTIVE_SIZES, sizeof *results);
    bench_row *rows[COLLECTIVE_SIZES] = {NULL};
    const int rounds = context->options->peer ? ROUNDS : 1;
    const double seconds = context->options->seconds / rounds;
    char problem[640], version[128] = "";
    bool done = true;
    for (int round = 0; round < rounds && done; round++) {
        if (!collective_ranks_run(kind, ranks, seconds, results, problem, sizeof problem))
            done = bench_fail(context, "bench %s: %s", collective_names[kind], problem);
        for (int i = 0; i < COLLECTIVE_SIZES && done; i++) {
            if (!results[i].is_there)
                continue;
            if (!rows[i])
                rows[i] = add_row(context, kind, ranks, collective_bytes[i]);
            done = check(context, rows[i], &results[i]);
            add_samples(&rows[i]->host, &results[i]);
        }
        if (done && context->options->peer)
            done = collective_peer_run(context, kind, ranks, seconds, results, version,
                                       sizeof version);
        for (int i = 0; i < COLLECTIVE_SIZES && done && context->options->peer; i++) {
            if (!rows[i] || !results[i].is_there)
                continue;
            add_samples(&rows[i]->peer, &results[i]);
            snprintf(rows[i]->peer_name, sizeof rows[i]->peer_name, "%s", version);
        }
    }
    free(results);
    return done;
}

static bool run(bench_context *context, collective_kind kind)
{
    static const int usual[] = {2, 4};
    if ((context->options->peer && !collective_peer_exists(context)) || !bench_memcpy_peak(context))
        return false;
    if (context->options->ranks > 0)
        return run_ranks(context, kind, (int)context->options->ranks);
    for (int i = 0; i < 2; i++) {
        if (!run_ranks(context, kind, usual[i]))
            return false;
    }
    return true;
}

static bool run_all_reduce(bench_context *context)
{
    return run(context, COLLECTIVE_ALL_REDUCE);
}

static bool run_all_gather(bench_context *context)
{
    return run(context, COLLECTIVE_ALL_GATHER);
}

static bool run_reduce_scatter(bench_context *context)
{
    return run(context, COLLECTIVE_REDUCE_SCATTER);
}

#define HELP                                                                                       \
    "float32 between processes of this host, 2 and 4 of them or --ranks, 8 B to 64 MiB. GB/s are " \
    "bytes of the whole\nby time (nccl-tests: algbw); busbw is what the links between ranks "      \
    "carry. Times are those of the slowest rank. Every\nelement is verified on every rank. "       \
    "--peer: the same with MPI, turn and turn about.\n"

const bench bench_all_reduce = {
    .name = "all-reduce",
    .summary = "sums between processes",
    .help = HELP,
    .takes = BENCH_PEER | BENCH_RANKS,
    .host_only = true,
    .run = run_all_reduce,
};

const bench bench_all_gather = {
    .name = "all-gather",
    .summary = "everything of everybody to everybody",
    .help = "As all-reduce.\n",
    .takes = BENCH_PEER | BENCH_RANKS,
    .host_only = true,
    .alone = true,
    .run = run_all_gather,
};

const bench bench_reduce_scatter = {
    .name = "reduce-scatter",
    .summary = "a share of the sums to each process",
    .help = "As all-reduce.\n",
    .takes = BENCH_PEER | BENCH_RANKS,
    .host_only = true,
    .alone = true,
    .run = run_reduce_scatter,
};
