#include "cli/plan/cluster/cost.h"

#include <math.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "tessera/pipeline.h"

/* The library's limits, src/comm/api/operation.c. */
#define LARGE_REDUCE_BYTES 16384.0
#define LARGE_LEVELS_BYTES 16384.0
#define LEVELS_PIECE_BYTES 524288.0
#define MIN_HALVED_BYTES 16384.0
#define MAX_HALVED_BYTES 65536.0

/* Links ---------------------------------------------------------------------------------------- */

plan_link plan_link_of(double latency, double bandwidth)
{
    const double large = 1 << 20;
    return (plan_link){
        .count = 2, .bytes = {0, large}, .seconds = {latency, latency + large / bandwidth}};
}

/* The time per byte between two points. Noise of a measurement may not make it negative. */
static double slope(const plan_link *link, int i)
{
    const double rise = link->seconds[i + 1] - link->seconds[i];
    return fmax(rise, 0) / (link->bytes[i + 1] - link->bytes[i]);
}

double plan_link_bandwidth(const plan_link *link)
{
    const int last = link->count - 1;
    const double per_byte = slope(link, last - 1);
    return per_byte > 0 ? 1 / per_byte : link->bytes[last] / link->seconds[last];
}

double plan_link_seconds(const plan_link *link, double bytes)
{
    int i = 0;
    while (i < link->count - 2 && bytes > link->bytes[i + 1])
        i++;
    if (bytes <= link->bytes[0])
        return link->seconds[0];
    if (bytes > link->bytes[link->count - 1])
        return link->seconds[link->count - 1] +
               (bytes - link->bytes[link->count - 1]) / plan_link_bandwidth(link);
    return link->seconds[i] + (bytes - link->bytes[i]) * slope(link, i);
}

/* Processors ----------------------------------------------------------------------------------- */

double plan_turns_seconds(const plan_turns *turns)
{
    return fmax(turns->ranks - 1, 0) * turns->seconds;
}

/* The wait of the slower of two ranks' hosts. */
static double turn_seconds(const plan_group *g, int a, int b)
{
    return g->turns ? fmax(plan_turns_seconds(&g->turns[g->host[a]]),
                           plan_turns_seconds(&g->turns[g->host[b]]))
                    : 0;
}

/* How many times as long a rank's work takes on its host. */
static double crowd_of(const plan_group *g, int rank)
{
    return g->turns ? fmax(g->turns[g->host[rank]].ranks, 1) : 1;
}

/* Rounds --------------------------------------------------------------------------------------- */

static const plan_link *between(const plan_group *g, int a, int b)
{
    return &g->links[g->host[a] * g->hosts + g->host[b]];
}

static int power_of_two(int size)
{
    int power = 1;
    while (2 * power <= size)
        power *= 2;
    return power;
}

/* The first rank of a leaf of the tree of reductions: ranks 2i and 2i + 1 share leaf i for
 * i < size − P. */
static int leaf_rank(const plan_group *g, int leaf)
{
    const int extra = g->size - power_of_two(g->size);
    return leaf < extra ? 2 * leaf : leaf + extra;
}

/* A round in which every leaf exchanges `bytes` with the leaf at a distance. */
static double round_seconds(const plan_group *g, int distance, double bytes)
{
    const int leaves = power_of_two(g->size);
    double longest = 0;
    for (int i = 0; i < leaves; i++) {
        const int a = leaf_rank(g, i), b = leaf_rank(g, i ^ distance);
        if (a > b)
            continue;
        int sharing = 0;
        for (int j = 0; j < leaves; j++)
            sharing += g->host[leaf_rank(g, j)] == g->host[a] &&
                       g->host[leaf_rank(g, j ^ distance)] == g->host[b];
        const plan_link *link = between(g, a, b);
        const bool wire = g->host[a] != g->host[b];
        const double wait = wire ? (sharing - 1) * bytes / plan_link_bandwidth(link) : 0;
        longest = fmax(longest, plan_link_seconds(link, bytes) + wait + turn_seconds(g, a, b));
    }
    return longest;
}

/* The rounds before and after, in which the ranks that share a leaf meet. */
static double extra_seconds(const plan_group *g, double bytes)
{
    double longest = 0;
    for (int i = 0; i < g->size - power_of_two(g->size); i++)
        longest = fmax(longest, plan_link_seconds(between(g, 2 * i, 2 * i + 1), bytes) +
                                    turn_seconds(g, 2 * i, 2 * i + 1));
    return longest;
}

/* Half, a quarter, … of `bytes`, over ascending distances from `first` on. */
static double halving_seconds(const plan_group *g, int first, double bytes)
{
    double sum = 0;
    for (int distance = first; distance < power_of_two(g->size); distance *= 2)
        sum += round_seconds(g, distance, bytes *= 0.5);
    return sum;
}

static double doubling_seconds(const plan_group *g, int first, double bytes)
{
    double sum = 0;
    for (int distance = first; distance < power_of_two(g->size); distance *= 2)
        sum += round_seconds(g, distance, bytes);
    return sum;
}

/* Shared memory -------------------------------------------------------------------------------- */

/* Ranks of one host that add or copy `bytes` together, `passes` times: each rank moves what the
 * others have of its share. */
static double memory_seconds(const plan_group *g, int rank, int ranks, int passes, double bytes)
{
    const plan_link *inside = between(g, rank, rank);
    if (ranks < 2)
        return 0;
    const double rounds = ceil(log2(ranks));
    return rounds * (plan_link_seconds(inside, 0) + passes * turn_seconds(g, rank, rank)) +
           passes * bytes * (ranks - 1) / ranks / plan_link_bandwidth(inside) *
               (ranks == g->size ? crowd_of(g, rank) : 1);
}

static double slowest_memory_seconds(const plan_group *g, int ranks, int passes, double bytes)
{
    double longest = 0;
    for (int i = 0; i < g->size; i++)
        longest = fmax(longest, memory_seconds(g, i, ranks, passes, bytes));
    return longest;
}

int plan_group_levels(const plan_group *g)
{
    const int leaves = power_of_two(g->size), extra = g->size - leaves;
    int levels = 1;
    for (int size = 1; size <= leaves; size *= 2) {
        bool same = true;
        for (int rank = 0; rank < g->size && same; rank++) {
            const int leaf = rank < 2 * extra ? rank / 2 : rank - extra;
            same = g->host[rank] == g->host[leaf_rank(g, leaf / size * size)];
        }
        if (!same)
            break;
        levels = size;
    }
    return levels == leaves ? g->size : levels;
}

/* Collectives ---------------------------------------------------------------------------------- */

/* An all-reduce of one piece between subtrees, each of whose leaves exchanges a share. */
static double shared_piece_seconds(const plan_group *g, int leaves, double piece)
{
    const double share = piece / leaves;
    const bool two = power_of_two(g->size) == 2 * leaves;
    if (two && (share < MIN_HALVED_BYTES || share > MAX_HALVED_BYTES))
        return round_seconds(g, leaves, share);
    return 2 * halving_seconds(g, leaves, share);
}

static double levels_all_reduce_seconds(const plan_group *g, int leaves, double bytes)
{
    const double inner = slowest_memory_seconds(g, leaves, 2, bytes);
    if (leaves > 2 && bytes < LARGE_LEVELS_BYTES) {
        /* The first rank of each subtree sends, so nobody shares the link. */
        double sum = 0;
        for (int distance = leaves; distance < power_of_two(g->size); distance *= 2)
            sum += plan_link_seconds(between(g, leaf_rank(g, 0), leaf_rank(g, distance)), bytes) +
                   turn_seconds(g, leaf_rank(g, 0), leaf_rank(g, distance));
        return inner + sum;
    }
    const double whole = floor(bytes / LEVELS_PIECE_BYTES);
    const double rest = bytes - whole * LEVELS_PIECE_BYTES;
    double sum = inner;
    if (whole > 0)
        sum += whole * shared_piece_seconds(g, leaves, LEVELS_PIECE_BYTES);
    if (rest > 0)
        sum += shared_piece_seconds(g, leaves, rest);
    return sum;
}

double plan_all_reduce_seconds(const plan_group *g, double bytes)
{
    const int leaves = plan_group_levels(g);
    if (g->size < 2)
        return 0;
    if (leaves == g->size)
        return slowest_memory_seconds(g, g->size, 2, bytes);
    if (leaves > 1)
        return levels_all_reduce_seconds(g, leaves, bytes);
    return 2 * extra_seconds(g, bytes) + (bytes < LARGE_REDUCE_BYTES
                                              ? doubling_seconds(g, 1, bytes)
                                              : 2 * halving_seconds(g, 1, bytes));
}

double plan_reduce_scatter_seconds(const plan_group *g, double bytes)
{
    const int leaves = plan_group_levels(g);
    if (g->size < 2)
        return 0;
    if (leaves == g->size)
        return slowest_memory_seconds(g, g->size, 1, bytes);
    if (leaves > 1)
        return slowest_memory_seconds(g, leaves, 1, bytes) +
               halving_seconds(g, leaves, bytes / leaves);
    return extra_seconds(g, bytes) + halving_seconds(g, 1, bytes);
}

/* Pipelines ------------------------------------------------------------------------------------ */

typedef struct timetable {
    int stages, micro_batches;
    const double *passes, *sends;
    tsr_pipeline_step *steps; /* [stages][2 · micro_batches] */
    int *next;                /* [stages]: the next step of each */
    double *free;             /* [stages]: when the stage has made its steps */
    double *ends;             /* [stages][2][micro_batches]: when a pass ended; < 0: it has not */
} timetable;

static double *end_of(const timetable *t, int stage, tsr_pass pass, int micro_batch)
{
    return &t->ends[(stage * 2 + (pass == TSR_PASS_BACKWARD)) * t->micro_batches + micro_batch];
}

/* Makes the next step of a stage, if what it needs is known. */
static bool make_step(const timetable *t, int stage)
{
    if (t->next[stage] == 2 * t->micro_batches)
        return false;
    const tsr_pipeline_step step = t->steps[stage * 2 * t->micro_batches + t->next[stage]];
    const bool forward = step.pass == TSR_PASS_FORWARD;
    const int from = forward ? stage - 1 : stage + 1;
    double arrives = 0;
    if (from >= 0 && from < t->stages) {
        const double sent = *end_of(t, from, step.pass, step.micro_batch);
        if (sent < 0)
            return false;
        arrives = sent + t->sends[forward ? from : stage];
    }
    t->free[stage] = fmax(t->free[stage], arrives) + t->passes[stage] * (forward ? 1 : 2) / 3;
    *end_of(t, stage, step.pass, step.micro_batch) = t->free[stage];
    t->next[stage]++;
    return true;
}

static double play(int stages, int micro_batches, const double *passes, const double *sends)
{
    const size_t count = (size_t)stages, all = count * 2 * (size_t)micro_batches;
    timetable t = {.stages = stages,
                   .micro_batches = micro_batches,
                   .passes = passes,
                   .sends = sends,
                   .steps = cli_alloc(all, sizeof *t.steps),
                   .next = cli_alloc(count, sizeof *t.next),
                   .free = cli_alloc(count, sizeof *t.free),
                   .ends = cli_alloc(all, sizeof *t.ends)};
    double end = 0;
    for (size_t i = 0; i < all; i++)
        t.ends[i] = -1;
    for (int s = 0; s < stages; s++) /* cannot fail, because the numbers are in range */
        (void)!tsr_pipeline_schedule(s, stages, micro_batches,
                                     t.steps + (size_t)s * 2 * (size_t)micro_batches);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < stages; s++)
            while (make_step(&t, s))
                moved = true;
    }
    for (int s = 0; s < stages; s++)
        end = fmax(end, t.free[s]);
    free(t.steps);
    free(t.next);
    free(t.free);
    free(t.ends);
    return end;
}

double plan_pipeline_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends)
{
    const int played = 4 * stages;
    if (micro_batches <= 2 * played)
        return play(stages, micro_batches, passes, sends);
    const double half = play(stages, played, passes, sends),
                 both = play(stages, 2 * played, passes, sends);
    return both + (micro_batches - 2 * played) * (both - half) / played;
}
