/* Reads the output of tessera bench link: the times of messages between ranks, of collectives in
 * the memory of each host, and of turns on shared processors. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/cluster.h"

/* The means of the measurements of each size. */
typedef struct means {
    tsr__link link;
    int counts[TSR__LINK_SIZES];
} means;

/* The output that is being read, and the cluster that gets its results. */
typedef struct reader {
    const tsr__document *document;
    tsr_cluster *cluster;
    /* [hosts][hosts]: times of messages, and the processor time that they take */
    means *links, *message_work;
    bool any; /* a time of a message was read */
} reader;

/* Adds the time of a message. Pairs of ranks on the same two hosts use the same link, so
 * differences between them are noise. */
static tsr_status add_message(const reader *r, means *to, double bytes, double seconds)
{
    tsr__link *link = &to->link;
    int i = 0;
    while (i < link->count && link->bytes[i] < bytes)
        i++;
    if (i < link->count && link->bytes[i] == bytes) {
        link->seconds[i] += (seconds - link->seconds[i]) / ++to->counts[i];
        return TSR_OK;
    }
    if (link->count == TSR__LINK_SIZES)
        return tsr__document_fail(r->document, "more than %d sizes of messages between two hosts",
                                  TSR__LINK_SIZES);
    for (int j = link->count++; j > i; j--) {
        link->bytes[j] = link->bytes[j - 1];
        link->seconds[j] = link->seconds[j - 1];
        to->counts[j] = to->counts[j - 1];
    }
    link->bytes[i] = bytes;
    link->seconds[i] = seconds;
    to->counts[i] = 1;
    return TSR_OK;
}

/* Checks that the measurement and the cluster agree on whether two ranks share a host. */
static tsr_status check_hosts(const reader *r, tsr__value which, const int64_t ranks[2],
                              const int hosts[2])
{
    const bool same = tsr__value_is(tsr__value_member(which, "hosts"), "same"),
               two = tsr__value_is(tsr__value_member(which, "hosts"), "two");
    if ((!same && !two) || same == (hosts[0] == hosts[1]))
        return TSR_OK;
    return tsr__document_fail(
        r->document, "ranks %d and %d are on %s in the measurement, but not in the cluster",
        (int)ranks[0], (int)ranks[1], same ? "the same host" : "two hosts");
}

/* Adds a measurement between two ranks: either the time of a message, or the time for which the
 * message keeps their processors busy. */
static tsr_status add_pair(const reader *r, tsr__value result, double seconds, means *to)
{
    const tsr_cluster *c = r->cluster;
    const tsr__value which = tsr__value_member(result, "case");
    int64_t ranks[2] = {0, 0}, bytes = -1;
    int hosts[2];
    if (!tsr__value_integer(tsr__value_member(which, "rank"), &ranks[0]) ||
        !tsr__value_integer(tsr__value_member(which, "peer"), &ranks[1]) ||
        !tsr__value_integer(tsr__value_member(which, "bytes"), &bytes) || bytes < 0 ||
        !(seconds > 0))
        return tsr__document_fail(r->document,
                                  "a result of the benchmark link lacks its ranks, bytes or time");
    for (int i = 0; i < 2; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->ranks)
            return tsr__document_fail(r->document,
                                      "has a link of rank %lld, but the cluster has %d ranks",
                                      (long long)ranks[i], c->ranks);
        hosts[i] = c->rank[ranks[i]].host;
    }
    TSR__TRY(check_hosts(r, which, ranks, hosts));
    const double size = (double)bytes;
    TSR__TRY(add_message(r, &to[hosts[0] * c->hosts + hosts[1]], size, seconds));
    return hosts[0] == hosts[1]
               ? TSR_OK
               : add_message(r, &to[hosts[1] * c->hosts + hosts[0]], size, seconds);
}

/* The case (parameters) of a result for one host. */
typedef struct host_case {
    int host, ranks, processors;
    tsr__value which;
} host_case;

static tsr_status read_host_case(const reader *r, tsr__value result, host_case *out)
{
    static const char *const names[] = {"host", "ranks", "processors"};
    int64_t values[3];
    out->which = tsr__value_member(result, "case");
    for (int i = 0; i < 3; i++)
        if (!tsr__value_integer(tsr__value_member(out->which, names[i]), &values[i]) ||
            values[i] < (i > 0) || values[i] > 65536)
            return tsr__document_fail(r->document,
                                      "a result of the benchmark link lacks the \"%s\" of its case",
                                      names[i]);
    if (values[0] >= r->cluster->hosts)
        return tsr__document_fail(
            r->document, "has results of host %d, but the cluster has %d host%s", (int)values[0],
            r->cluster->hosts, r->cluster->hosts == 1 ? "" : "s");
    out->host = (int)values[0];
    out->ranks = (int)values[1];
    out->processors = (int)values[2];
    return TSR_OK;
}

/* Stores how the ranks of a host share its processors, unless the description of the cluster
 * contains these values. */
static tsr_status add_turn(const reader *r, tsr__value result, double seconds)
{
    tsr_cluster *c = r->cluster;
    host_case measured;
    TSR__TRY(read_host_case(r, result, &measured));
    const tsr__value others = tsr__value_member(measured.which, "others");
    const bool awake = tsr__value_is(others, "awake");
    if (!awake && !tsr__value_is(others, "asleep"))
        return tsr__document_fail(r->document,
                                  "a result of the benchmark link has turns without \"others\"");
    double *to = awake ? &c->awake_seconds[measured.host] : &c->asleep_seconds[measured.host];
    if (c->processors[measured.host] == 0)
        c->processors[measured.host] = measured.processors;
    if (*to < 0)
        *to = seconds;
    return TSR_OK;
}

/* Stores the time of an all-reduce of a host's ranks. The smallest all-reduce gives the latency.
 * The additional time of a larger one is the work of all ranks that share a processor, because they
 * work one after the other. */
static tsr_status add_memory(const reader *r, tsr__value result, double seconds)
{
    host_case measured;
    int64_t bytes = -1;
    TSR__TRY(read_host_case(r, result, &measured));
    tsr__memory_cost *to = &r->cluster->memory[measured.host];
    const int i = to->work.count;
    if (!tsr__value_integer(tsr__value_member(measured.which, "bytes"), &bytes) || bytes < 0 ||
        measured.ranks < 2 || !(seconds > 0) || i == TSR__LINK_SIZES)
        return tsr__document_fail(
            r->document,
            "a result of the benchmark link lacks an all-reduce's ranks, bytes or time");
    if (i == 0)
        *to = (tsr__memory_cost){.ranks = measured.ranks, .latency = seconds};
    const double read = 2 * (double)bytes / measured.ranks * (measured.ranks - 1);
    if (i > 0 && read <= to->work.bytes[i - 1])
        return tsr__document_fail(
            r->document, "has all-reduces of host %d whose sizes do not ascend", measured.host);
    to->work.bytes[i] = read;
    to->work.seconds[i] =
        fmax(seconds - to->latency, 0) / ceil((double)measured.ranks / measured.processors);
    to->work.count++;
    return TSR_OK;
}

static tsr_status add_result(reader *r, tsr__value result)
{
    const tsr__value name = tsr__value_member(result, "benchmark");
    double ns = -1e9;
    (void)tsr__value_real(tsr__value_member(tsr__value_member(result, "host_ns"), "median"), &ns);
    const double seconds = 1e-9 * ns;
    if (tsr__value_is(name, "turn"))
        return add_turn(r, result, fmax(seconds, 0));
    if (tsr__value_is(name, "memory"))
        return add_memory(r, result, seconds);
    if (tsr__value_is(name, "message"))
        return add_pair(r, result, seconds, r->message_work);
    if (!tsr__value_is(name, "link"))
        return TSR_OK;
    r->any = true;
    return add_pair(r, result, seconds, r->links);
}

/* Replaces the links that were measured, and stores the other results. */
static tsr_status store(const reader *r)
{
    tsr_cluster *c = r->cluster;
    for (int i = 0; i < c->hosts * c->hosts; i++) {
        const tsr__link *link = &r->links[i].link;
        if (link->count == 1)
            return tsr__document_fail(
                r->document, "has messages of one size only, %g bytes; at least two are needed",
                link->bytes[0]);
        if (link->count > 0)
            c->links[i] = *link;
        if (r->message_work[i].link.count > 1)
            c->message_work[i] = r->message_work[i].link;
    }
    for (int i = 0; i < c->hosts; i++)
        if (c->memory[i].work.count == 1)
            c->memory[i].work.count = 0;
    return TSR_OK;
}

static tsr_status read_results(reader *r)
{
    tsr__elements list =
        tsr__value_elements(tsr__value_member(tsr__document_root(r->document), "results"));
    tsr__value result;
    while (tsr__next_element(&list, &result))
        TSR__TRY(add_result(r, result));
    return r->any ? store(r)
                  : tsr__document_fail(r->document, "has no results of tessera bench link");
}

tsr_status tsr__cluster_measure_links(const tsr__document *document, tsr_cluster *c)
{
    const size_t pairs = (size_t)c->hosts * (size_t)c->hosts;
    reader r = {.document = document,
                .cluster = c,
                .links = tsr__calloc(pairs, sizeof *r.links),
                .message_work = tsr__calloc(pairs, sizeof *r.message_work)};
    const tsr_status status = r.links && r.message_work ? read_results(&r) : TSR_ERR_NO_MEMORY;
    tsr__free(r.links);
    tsr__free(r.message_work);
    return status;
}
