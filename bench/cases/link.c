/* tessera bench link: messages between every two ranks, one pair at a time; and how the ranks of a
 * host share its processors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/collective.h"
#include "bench/cases/ranks.h"
#include "bench/cases/turns.h"
#include "bench/harness/bench.h"
#include "bench/harness/clock.h"
#include "cli/lib/memory.h"

enum {
    MAX_SIZES = 8,
    MAX_SAMPLES = 50,
    BUSY_SAMPLES = 5,
    /* The use of processors is measured only for messages up to this size: a larger one may not fit
     * into the buffers of a connection, and its sender would wait. */
    MAX_BUSY_BYTES = 65536,
    TAG = 1,
};

#define LINK_TRY(call)                                                                             \
    do {                                                                                           \
        const tsr_status tried = (call);                                                           \
        if (tried != TSR_OK)                                                                       \
            return tried;                                                                          \
    } while (0)

/* The sizes of messages in bytes: half of a round trip of the small one is the latency, and the
 * rate of the large one is the bandwidth. */
static const int64_t usual_sizes[] = {8, 4 << 20};

typedef struct plan {
    int size_count;
    uint64_t bytes[MAX_SIZES];
    /* how long to measure each pair and size */
    double seconds;
} plan;

/* The times of one size between this rank and a higher one. */
typedef struct link_figures {
    uint64_t batch, checked, wrong;
    /* about the time of a message; the lower rank measures it and tells the other */
    double leader_ns;
    int samples;
    double ns[MAX_SAMPLES]; /* the time of one message: half of a round trip */
    /* The time that a message uses this rank's processor: on the lower rank for sending it, on the
     * other for receiving it. No samples if the ranks share a host or the message is large. */
    int busy_samples;
    double busy_ns[BUSY_SAMPLES];
} link_figures;

/* The result of a rank. `links` has [ranks][MAX_SIZES] entries, one for each other rank and size of
 * messages. */
typedef struct rank_result {
    int host; /* the number of the host on which the rank runs */
    turns_figures turns;
    _Alignas(16) link_figures links[];
} rank_result;

typedef struct pair {
    tsr_comm *comm;
    bool is_far; /* the two ranks are on different hosts */
    bool leads;  /* this is the lower rank, which sends first and measures */
    int peer;
    uint64_t bytes;
    uint8_t *send, *recv;
} pair;

/* Sends a message from one rank of the pair to the other and one back. */
static tsr_status round_trip(const pair *p)
{
    tsr_status status = TSR_OK;
    if (p->leads)
        status = tsr_comm_send(p->comm, p->send, p->bytes, TSR_U8, p->peer, TAG, NULL);
    if (status == TSR_OK)
        status = tsr_comm_recv(p->comm, p->recv, p->bytes, TSR_U8, p->peer, TAG, NULL);
    if (status == TSR_OK && !p->leads)
        status = tsr_comm_send(p->comm, p->send, p->bytes, TSR_U8, p->peer, TAG, NULL);
    return status;
}

static uint8_t content(int rank, uint64_t at)
{
    return (uint8_t)(at * 7 + at / 251 + (uint64_t)rank * 13 + 1);
}

/* Compares what the peer has sent with what it should send. The rank that leads (the lower one)
 * also gets the other rank's numbers of checked and wrong bytes. */
static tsr_status verify(const pair *p, link_figures *out)
{
    uint64_t counts[2] = {p->bytes, 0}, theirs[2] = {0, 0};
    memset(p->recv, 0, p->bytes);
    tsr_status status = round_trip(p);
    for (uint64_t i = 0; i < p->bytes; i++)
        counts[1] += p->recv[i] != content(p->peer, i);
    if (status == TSR_OK && !p->leads)
        return tsr_comm_send(p->comm, counts, 2, TSR_I64, p->peer, TAG, NULL);
    if (status == TSR_OK)
        status = tsr_comm_recv(p->comm, theirs, 2, TSR_I64, p->peer, TAG, NULL);
    out->checked += counts[0] + theirs[0];
    out->wrong += counts[1] + theirs[1];
    return status;
}

static tsr_status time_batch(const pair *p, uint64_t batch, double *ns)
{
    tsr_status status = TSR_OK;
    const double start = bench_now_ns();
    for (uint64_t i = 0; i < batch && status == TSR_OK; i++)
        status = round_trip(p);
    *ns = (bench_now_ns() - start) / (double)(2 * batch);
    return status;
}

/* Takes the samples. From the time of the first round trips, the rank that leads decides how many
 * round trips and samples both ranks make. */
static tsr_status measure_links(const pair *p, double seconds, link_figures *out)
{
    int64_t effort[3] = {0, 0, 0};
    double least = 1e300;
    LINK_TRY(verify(p, out));
    for (int i = 0; i < 10; i++) {
        double ns;
        LINK_TRY(time_batch(p, 1, &ns));
        least = ns < least ? ns : least;
    }
    const collective_effort chosen = collective_plan(2 * least, seconds);
    effort[0] = (int64_t)chosen.batch;
    effort[1] = chosen.samples < MAX_SAMPLES ? chosen.samples : MAX_SAMPLES;
    effort[2] = (int64_t)least;
    LINK_TRY(p->leads ? tsr_comm_send(p->comm, effort, 3, TSR_I64, p->peer, TAG, NULL)
                      : tsr_comm_recv(p->comm, effort, 3, TSR_I64, p->peer, TAG, NULL));
    out->leader_ns = (double)effort[2];
    for (int64_t i = 0; i < effort[1]; i++)
        LINK_TRY(time_batch(p, (uint64_t)effort[0], &out->ns[i]));
    out->batch = (uint64_t)effort[0];
    out->samples = (int)effort[1];
    return verify(p, out);
}

static double processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Measures how long a message uses the processors of both ranks. A rank that waits for a message
 * uses its processor, too. Therefore the receiver first sleeps until the message, which takes about
 * `ns`, has arrived. */
static tsr_status measure_busy(const pair *p, double ns, link_figures *out)
{
    const double away = 1e6 + 2 * ns;
    for (int i = 0; i < BUSY_SAMPLES; i++) {
        LINK_TRY(round_trip(p));
        if (!p->leads)
            nanosleep(&(struct timespec){(time_t)(away * 1e-9), (long)fmod(away, 1e9)}, NULL);
        const double start = processor_ns();
        LINK_TRY(p->leads ? tsr_comm_send(p->comm, p->send, p->bytes, TSR_U8, p->peer, TAG, NULL)
                          : tsr_comm_recv(p->comm, p->recv, p->bytes, TSR_U8, p->peer, TAG, NULL));
        out->busy_ns[out->busy_samples++] = processor_ns() - start;
    }
    return TSR_OK;
}

static tsr_status measure_pair(const pair *as, const plan *what, link_figures *out)
{
    pair p = *as;
    for (int i = 0; i < what->size_count; i++) {
        p.bytes = what->bytes[i];
        LINK_TRY(measure_links(&p, what->seconds, &out[i]));
        if (p.is_far && p.bytes <= MAX_BUSY_BYTES)
            LINK_TRY(measure_busy(&p, out[i].leader_ns, &out[i]));
    }
    return TSR_OK;
}

static tsr_status measure_pairs(tsr_comm *comm, const plan *what, uint8_t *send, uint8_t *recv,
                                link_figures *links)
{
    const int rank = tsr_comm_rank(comm), ranks = tsr_comm_size(comm);
    for (int low = 0; low < ranks; low++)
        for (int high = low + 1; high < ranks; high++) {
            LINK_TRY(tsr_comm_barrier(comm, NULL));
            if (rank != low && rank != high)
                continue;
            const pair p = {.comm = comm,
                            .is_far = tsr_comm_host(comm, low) != tsr_comm_host(comm, high),
                            .leads = rank == low,
                            .peer = rank == low ? high : low,
                            .send = send,
                            .recv = recv};
            LINK_TRY(measure_pair(&p, what, links + (size_t)p.peer * MAX_SIZES));
        }
    return TSR_OK;
}

static turns_plan turns_of(const plan *what)
{
    return (turns_plan){what->seconds, what->size_count, what->bytes};
}

static tsr_status measure_rank(tsr_comm *comm, const void *user, void *result)
{
    const plan *what = user;
    rank_result *own = result;
    const uint64_t most = what->bytes[what->size_count - 1];
    uint8_t *send = cli_alloc(most, 1), *recv = cli_alloc(most, 1);
    const turns_plan of_hosts = turns_of(what);
    for (uint64_t i = 0; i < most; i++)
        send[i] = content(tsr_comm_rank(comm), i);
    own->host = tsr_comm_host(comm, tsr_comm_rank(comm));
    tsr_status status = measure_pairs(comm, what, send, recv, own->links);
    if (status == TSR_OK)
        status = turns_measure(comm, &of_hosts, &own->turns);
    free(send);
    free(recv);
    return status;
}

/* Results ------------------------------------------------------------------------------------ */

static bool add_row(bench_context *context, const rank_result *low, const rank_result *high,
                    int ranks[2], uint64_t bytes, const link_figures *figures)
{
    bench_row *row = bench_add(context, "link", BENCH_GBYTES, (double)bytes);
    bench_integer(row, "rank", ranks[0]);
    bench_integer(row, "peer", ranks[1]);
    bench_text(row, "hosts", "%s", low->host == high->host ? "same" : "two");
    bench_integer(row, "bytes", (int64_t)bytes);
    bench_check_begin(&row->check, "every byte of a message each way, before and after timing");
    bench_check_value(&row->check, 0, 0, (double)figures->wrong, 0, 0);
    row->check.checked = figures->checked;
    row->host.repetitions = 2 * figures->batch;
    for (int i = 0; i < figures->samples; i++)
        bench_samples_add(&row->host, figures->ns[i]);
    return bench_verified(context, row);
}

/* Adds a row with the time that a message uses a processor: the mean of sender and receiver. */
static bool add_busy_row(bench_context *context, int ranks[2], uint64_t bytes,
                         const link_figures *sender, const link_figures *receiver)
{
    if (sender->busy_samples == 0)
        return true;
    bench_row *row = bench_add(context, "message", BENCH_TIME, 1);
    bench_integer(row, "rank", ranks[0]);
    bench_integer(row, "peer", ranks[1]);
    bench_integer(row, "bytes", (int64_t)bytes);
    bench_check_begin(&row->check, "every byte of a message each way, before");
    bench_check_value(&row->check, 0, 0, (double)sender->wrong, 0, 0);
    row->check.checked = sender->checked;
    row->host.repetitions = 1;
    for (int i = 0; i < sender->busy_samples; i++)
        bench_samples_add(&row->host, (sender->busy_ns[i] + receiver->busy_ns[i]) / 2);
    return bench_verified(context, row);
}

/* The results of all ranks, one after the other. */
typedef struct all_results {
    const char *bytes;
    size_t each;
    int ranks;
} all_results;

static const rank_result *result_of(const all_results *all, int rank)
{
    return (const void *)(all->bytes + (size_t)rank * all->each);
}

/* Adds a row for each pair and size: the times of messages, or, if `busy`, the use of
 * processors. */
static bool add_pairs(bench_context *context, const plan *what, const all_results *all, bool busy)
{
    for (int low = 0; low < all->ranks; low++)
        for (int high = low + 1; high < all->ranks; high++)
            for (int i = 0; i < what->size_count; i++) {
                const rank_result *a = result_of(all, low), *b = result_of(all, high);
                const link_figures *outward = &a->links[(size_t)high * MAX_SIZES + (size_t)i],
                                   *back = &b->links[(size_t)low * MAX_SIZES + (size_t)i];
                int ranks[2] = {low, high};
                if (busy ? !add_busy_row(context, ranks, what->bytes[i], outward, back)
                         : !add_row(context, a, b, ranks, what->bytes[i], outward))
                    return false;
            }
    return true;
}

static bool add_hosts(bench_context *context, const plan *what, const all_results *all)
{
    const turns_plan of_hosts = turns_of(what);
    for (int rank = 0, hosts = 0; rank < all->ranks; rank++) {
        const rank_result *own = result_of(all, rank);
        if (own->host < hosts) /* hosts are numbered in the order of their first ranks */
            continue;
        hosts = own->host + 1;
        if (!turns_add_rows(context, own->host, &of_hosts, &own->turns))
            return false;
    }
    return true;
}

/* Chooses the sizes of messages: those of the options, or the usual ones. Fails if there are more
 * than MAX_SIZES. */
static bool choose_sizes(bench_context *context, plan *out)
{
    const bench_options *options = context->options;
    out->size_count = 2;
    for (int i = 0; i < 2; i++)
        out->bytes[i] = (uint64_t)usual_sizes[i];
    if (options->max_bytes == 0)
        return true;
    out->size_count = 0;
    for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes;
         bytes *= options->step_factor) {
        if (out->size_count == MAX_SIZES)
            return bench_fail(context,
                              "bench link: more than %d sizes from %lld to %lld bytes; choose a "
                              "larger --stepfactor than %lld",
                              MAX_SIZES, (long long)options->min_bytes,
                              (long long)options->max_bytes, (long long)options->step_factor);
        out->bytes[out->size_count++] = (uint64_t)bytes;
    }
    return true;
}

static bool run_links(bench_context *context)
{
    plan what = {.seconds = context->options->seconds};
    const int ranks = context->job                  ? tsr_comm_size(context->job)
                      : context->options->ranks > 0 ? (int)context->options->ranks
                                                    : BENCH_MIN_RANKS;
    if (!choose_sizes(context, &what))
        return false;
    const size_t result_bytes =
        sizeof(rank_result) + (size_t)ranks * MAX_SIZES * sizeof(link_figures);
    const bench_ranks_work work = {"link", measure_rank, &what, result_bytes};
    char *results = cli_alloc((size_t)ranks, result_bytes);
    const all_results all = {results, result_bytes, ranks};
    bool done = bench_ranks_run(context, ranks, &work, results);
    if (done && bench_reports(context))
        done = add_pairs(context, &what, &all, false) && add_pairs(context, &what, &all, true) &&
               add_hosts(context, &what, &all);
    free(results);
    return done;
}

const bench bench_link = {
    .name = "link",
    .summary = "messages between every two processes; time and GB/s",
    .help = "Messages there and back between every two ranks, one pair at a time: of the job, if a "
            "launcher has started several ranks; otherwise between --ranks processes of this host "
            "(default: 2). A message of 8 B, whose time is the latency, and one of 4 MiB, whose "
            "rate is the bandwidth, or --minbytes to --maxbytes. The time is half of a round trip. "
            "'hosts' says whether both ranks are on the same host. Every byte is verified in both "
            "directions. If a host has more ranks than processors, 'turn' is how long a rank of a "
            "processor keeps the next one waiting in a small all-reduce: others awake, if they "
            "poll, and asleep, if they must be woken; 'memory' is an all-reduce of all ranks of a "
            "host; and 'message' is what a message between hosts, of at most 64 KiB, takes of the "
            "processors of its two ranks, on average.\n",
    .takes = BENCH_RANKS | BENCH_BYTES,
    .host_only = true,
    .alone = true,
    .run = run_links,
};
