#include "cli/plan/cluster/hosts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "cli/plan/plan.h"

/* Defaults, in microseconds, for ranks that share a processor: the time until the processor
 * switches from one polling rank to another, and the time until a sleeping rank runs. Measured by
 * tessera bench link on an Intel Xeon of two virtual processors (docs/communication.md). */
#define AWAKE_US 1.5
#define ASLEEP_US 15

/* The file that is being read, and where errors and values are stored. */
typedef struct reader {
    const char *path;
    char *error;
    plan_cluster *cluster;
    bool has_rates; /* another file has the rates of ranks, so this one may lack them */
} reader;

static bool wrong(const reader *r, const char *format, ...) CLI_PRINTF(2, 3);
static bool wrong(const reader *r, const char *format, ...)
{
    va_list arguments;
    const int used = snprintf(r->error, PLAN_CLUSTER_ERROR, "%.200s: ", r->path);
    va_start(arguments, format);
    (void)vsnprintf(r->error + used, PLAN_CLUSTER_ERROR - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

static json_t *load(const reader *r)
{
    json_error_t error;
    json_t *document = json_load_file(r->path, JSON_REJECT_DUPLICATES, &error);
    if (!document && error.line > 0)
        wrong(r, "line %d: %s", error.line, error.text);
    else if (!document)
        wrong(r, "%s", error.text);
    return document;
}

/* Members -------------------------------------------------------------------------------------- */

/* Fails if the object has a member that is not in `names`. */
static bool check_members(const reader *r, const json_t *object, const char *where,
                          const char *const *names)
{
    if (!json_is_object(object))
        return wrong(r, "%s is not an object", where);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        int i = 0;
        while (names[i] && strcmp(names[i], name) != 0)
            i++;
        if (!names[i])
            return wrong(r, "%s has the unknown member \"%.40s\"", where, name);
    }
    return true;
}

typedef struct limits {
    const char *name;
    double low, high; /* `low` itself is allowed only if it is 0 and the member is `optional` */
    bool optional;
} limits;

/* Reads a number. If an optional member is absent, does not change *out. */
static bool read_number(const reader *r, const json_t *object, const char *where, limits what,
                        double *out)
{
    const json_t *value = json_object_get(object, what.name);
    if (!value)
        return what.optional || wrong(r, "%s has no \"%s\"", where, what.name);
    if (!json_is_number(value))
        return wrong(r, "\"%s\" of %s is not a number", what.name, where);
    const double number = json_number_value(value);
    if (!(number >= what.low && number <= what.high) || (number <= 0 && !what.optional))
        return wrong(r, "\"%s\" of %s is %g; it must be %s and at most %g", what.name, where,
                     number, what.optional ? "at least 0" : "more than 0", what.high);
    *out = number;
    return true;
}

/* Reads a size: a number of bytes, or a text such as "8GiB". */
static bool read_memory(const reader *r, const json_t *object, const char *where, uint64_t *out)
{
    const json_t *value = json_object_get(object, "memory");
    if (!value)
        return true;
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= INT64_C(1) << 53)
        *out = (uint64_t)json_integer_value(value);
    else if (!json_is_string(value) || !cli_read_bytes(json_string_value(value), out))
        return wrong(
            r, "\"memory\" of %s must be bytes, up to 2^53, such as 8589934592 or \"8GiB\"", where);
    return true;
}

/* Links ---------------------------------------------------------------------------------------- */

static bool read_link(const reader *r, const json_t *object, const char *where, plan_link *out)
{
    double latency = 0, bandwidth = 0;
    const limits latency_us = {"latency_us", 0, 1e7, true},
                 gbytes = {"gbytes_per_second", 0, 1e5, false};
    if (!json_object_get(object, "latency_us"))
        return wrong(r, "%s has no \"latency_us\"", where);
    if (!read_number(r, object, where, latency_us, &latency) ||
        !read_number(r, object, where, gbytes, &bandwidth))
        return false;
    *out = plan_link_of(latency * 1e-6, bandwidth * 1e9);
    return true;
}

static plan_link *link_of(const reader *r, int a, int b)
{
    return &r->cluster->links[a * r->cluster->hosts + b];
}

static int find_host(const reader *r, const char *name)
{
    for (int i = 0; i < r->cluster->hosts; i++)
        if (name && strcmp(r->cluster->names[i], name) == 0)
            return i;
    return -1;
}

/* Reads an element of "links": a link between two hosts. */
static bool read_pair(const reader *r, const json_t *object, int number)
{
    static const char *const names[] = {"hosts", "latency_us", "gbytes_per_second", NULL};
    char where[32];
    int hosts[2];
    plan_link link;
    snprintf(where, sizeof where, "links[%d]", number);
    if (!check_members(r, object, where, names) || !read_link(r, object, where, &link))
        return false;
    const json_t *pair = json_object_get(object, "hosts");
    if (json_array_size(pair) != 2)
        return wrong(r, "\"hosts\" of %s must be the names of two hosts", where);
    for (size_t i = 0; i < 2; i++) {
        const char *name = json_string_value(json_array_get(pair, i));
        hosts[i] = find_host(r, name);
        if (hosts[i] < 0)
            return wrong(r, "%s names the host \"%.60s\", which does not exist", where,
                         name ? name : "");
    }
    if (hosts[0] == hosts[1])
        return wrong(r, "%s names the host \"%s\" twice; the link inside a host is its \"link\"",
                     where, r->cluster->names[hosts[0]]);
    *link_of(r, hosts[0], hosts[1]) = *link_of(r, hosts[1], hosts[0]) = link;
    return true;
}

/* Reads "link", which applies to all pairs of hosts, and "links", which apply to single pairs. */
static bool read_links_between(const reader *r, const json_t *root)
{
    static const char *const names[] = {"latency_us", "gbytes_per_second", NULL};
    const json_t *usual = json_object_get(root, "link"), *pairs = json_object_get(root, "links");
    plan_link link;
    if (usual) {
        if (!check_members(r, usual, "\"link\"", names) || !read_link(r, usual, "\"link\"", &link))
            return false;
        for (int a = 0; a < r->cluster->hosts; a++)
            for (int b = 0; b < r->cluster->hosts; b++)
                if (a != b)
                    *link_of(r, a, b) = link;
    }
    if (pairs && !json_is_array(pairs))
        return wrong(r, "\"links\" is not a list");
    for (size_t i = 0; i < json_array_size(pairs); i++)
        if (!read_pair(r, json_array_get(pairs, i), (int)i))
            return false;
    return true;
}

static bool check_links(const reader *r)
{
    const plan_cluster *c = r->cluster;
    for (int a = 0; a < c->hosts; a++)
        for (int b = a; b < c->hosts; b++)
            if (link_of(r, a, b)->count > 0 || (a == b && plan_cluster_host_ranks(c, a) == 1))
                continue;
            else if (a == b)
                return wrong(r, "host \"%s\" has %d ranks, but no \"link\" between them",
                             c->names[a], plan_cluster_host_ranks(c, a));
            else
                return wrong(r, "there is no link between the hosts \"%s\" and \"%s\"", c->names[a],
                             c->names[b]);
    return true;
}

/* Hosts ---------------------------------------------------------------------------------------- */

static bool read_rank(const reader *r, const json_t *object, const char *host, int number)
{
    static const char *const names[] = {
        "count", "gflops", "memory_gbytes_per_second", "layer_us", "collective_us", "memory", NULL};
    plan_cluster *c = r->cluster;
    char where[PLAN_HOST_NAME + 48];
    double count = 1, gflops = 0, gbytes = 0, layer_us = 0, collective_us = 0;
    plan_rank rank = {.host = c->hosts - 1};
    snprintf(where, sizeof where, "ranks[%d] of host \"%s\"", number, host);
    if (!check_members(r, object, where, names) ||
        (json_object_get(object, "count") &&
         !read_number(r, object, where, (limits){"count", 1, PLAN_MAX_CLUSTER_RANKS, false},
                      &count)) ||
        !read_number(r, object, where, (limits){"gflops", 0, 1e9, r->has_rates}, &gflops) ||
        !read_number(r, object, where, (limits){"memory_gbytes_per_second", 0, 1e6, r->has_rates},
                     &gbytes) ||
        !read_number(r, object, where, (limits){"layer_us", 0, 1e7, true}, &layer_us) ||
        !read_number(r, object, where, (limits){"collective_us", 0, 1e7, true}, &collective_us) ||
        !read_memory(r, object, where, &rank.memory))
        return false;
    if (count != floor(count))
        return wrong(r, "\"count\" of %s is %g; it must be a whole number", where, count);
    if (c->ranks + (int)count > PLAN_MAX_CLUSTER_RANKS)
        return wrong(r, "there are more than %d ranks", PLAN_MAX_CLUSTER_RANKS);
    rank.flops = gflops * 1e9;
    rank.bandwidth = gbytes * 1e9;
    rank.layer_seconds = layer_us * 1e-6;
    rank.collective_seconds = rank.host_collective_seconds = collective_us * 1e-6;
    for (int i = 0; i < (int)count; i++)
        c->rank[c->ranks++] = rank;
    return true;
}

/* Reads a host and its ranks. The link between its ranks is read later, because its place in the
 * array depends on the number of hosts. */
static bool read_host(const reader *r, const json_t *object, int number)
{
    static const char *const names[] = {"name",    "ranks",         "link", "processors",
                                        "turn_us", "awake_turn_us", NULL};
    plan_cluster *c = r->cluster;
    char where[32];
    double processors = 0, asleep_us = -1, awake_us = -1;
    snprintf(where, sizeof where, "hosts[%d]", number);
    if (!check_members(r, object, where, names))
        return false;
    const char *name = json_string_value(json_object_get(object, "name"));
    if (!name || *name == '\0' || strlen(name) >= PLAN_HOST_NAME)
        return wrong(r, "\"name\" of %s must be a text of 1 to %d bytes", where,
                     PLAN_HOST_NAME - 1);
    if (find_host(r, name) >= 0)
        return wrong(r, "two hosts have the name \"%s\"", name);
    if (!read_number(r, object, where, (limits){"processors", 0, 65536, true}, &processors) ||
        !read_number(r, object, where, (limits){"turn_us", 0, 1e6, true}, &asleep_us) ||
        !read_number(r, object, where, (limits){"awake_turn_us", 0, 1e6, true}, &awake_us))
        return false;
    c->processors[c->hosts] = processors;
    c->asleep_seconds[c->hosts] = asleep_us * 1e-6;
    c->awake_seconds[c->hosts] = awake_us * 1e-6;
    snprintf(c->names[c->hosts++], PLAN_HOST_NAME, "%s", name);
    const json_t *ranks = json_object_get(object, "ranks");
    if (json_array_size(ranks) == 0)
        return wrong(r, "host \"%s\" has no ranks", name);
    for (size_t i = 0; i < json_array_size(ranks); i++)
        if (!read_rank(r, json_array_get(ranks, i), name, (int)i))
            return false;
    return true;
}

static bool read_inner_links(const reader *r, const json_t *hosts)
{
    static const char *const names[] = {"latency_us", "gbytes_per_second", NULL};
    for (int i = 0; i < r->cluster->hosts; i++) {
        char where[PLAN_HOST_NAME + 32];
        const json_t *link = json_object_get(json_array_get(hosts, (size_t)i), "link");
        snprintf(where, sizeof where, "\"link\" of host \"%s\"", r->cluster->names[i]);
        if (link &&
            (!check_members(r, link, where, names) || !read_link(r, link, where, link_of(r, i, i))))
            return false;
    }
    return true;
}

static bool read_cluster(const reader *r, const json_t *root)
{
    static const char *const names[] = {"hosts", "link", "links", NULL};
    plan_cluster *c = r->cluster;
    const json_t *hosts = json_object_get(root, "hosts");
    if (!check_members(r, root, "the document", names))
        return false;
    if (json_array_size(hosts) == 0)
        return wrong(r, "\"hosts\" must be a list of at least one host");
    if (json_array_size(hosts) > PLAN_MAX_HOSTS)
        return wrong(r, "there are %zu hosts; the maximum is %d", json_array_size(hosts),
                     PLAN_MAX_HOSTS);
    for (size_t i = 0; i < json_array_size(hosts); i++)
        if (!read_host(r, json_array_get(hosts, i), (int)i))
            return false;
    c->links = cli_alloc((size_t)c->hosts * (size_t)c->hosts, sizeof *c->links);
    c->message_work = cli_alloc((size_t)c->hosts * (size_t)c->hosts, sizeof *c->message_work);
    return read_inner_links(r, hosts) && read_links_between(r, root);
}

/* Measured links ------------------------------------------------------------------------------- */

/* The means of the measurements of each size. */
typedef struct means {
    plan_link link;
    int counts[PLAN_LINK_POINTS];
} means;

/* Times of messages, and the processor time that they take, for each pair of hosts. */
typedef struct measured {
    means *links, *message_work; /* [hosts][hosts] */
} measured;

/* Adds the time of a message. Pairs of ranks on the same two hosts use the same link, so
 * differences between them are noise. */
static bool add_point(const reader *r, means *to, double bytes, double seconds)
{
    plan_link *link = &to->link;
    int i = 0;
    while (i < link->count && link->bytes[i] < bytes)
        i++;
    if (i < link->count && link->bytes[i] == bytes) {
        link->seconds[i] += (seconds - link->seconds[i]) / ++to->counts[i];
        return true;
    }
    if (link->count == PLAN_LINK_POINTS)
        return wrong(r, "more than %d sizes of messages between two hosts", PLAN_LINK_POINTS);
    for (int j = link->count++; j > i; j--) {
        link->bytes[j] = link->bytes[j - 1];
        link->seconds[j] = link->seconds[j - 1];
        to->counts[j] = to->counts[j - 1];
    }
    link->bytes[i] = bytes;
    link->seconds[i] = seconds;
    to->counts[i] = 1;
    return true;
}

/* Adds a measurement between two ranks: either the time of a message, or the time for which the
 * message keeps their processors busy. */
static bool add_pair(const reader *r, const json_t *result, double seconds, means *to)
{
    const plan_cluster *c = r->cluster;
    const json_t *which = json_object_get(result, "case");
    const json_t *ranks[] = {json_object_get(which, "rank"), json_object_get(which, "peer")},
                 *bytes = json_object_get(which, "bytes");
    int hosts[2];
    if (!json_is_integer(ranks[0]) || !json_is_integer(ranks[1]) || !json_is_integer(bytes) ||
        json_integer_value(bytes) < 0 || !(seconds > 0))
        return wrong(r, "a result of the benchmark link lacks its ranks, bytes or time");
    for (int i = 0; i < 2; i++) {
        const json_int_t rank = json_integer_value(ranks[i]);
        if (rank < 0 || rank >= c->ranks)
            return wrong(r, "has a link of rank %lld, but the cluster has %d ranks",
                         (long long)rank, c->ranks);
        hosts[i] = c->rank[rank].host;
    }
    const char *same = json_string_value(json_object_get(which, "hosts"));
    if (same && (strcmp(same, "same") == 0) != (hosts[0] == hosts[1]))
        return wrong(r, "ranks %d and %d are on %s in the measurement, but not in the cluster",
                     (int)json_integer_value(ranks[0]), (int)json_integer_value(ranks[1]),
                     strcmp(same, "same") == 0 ? "the same host" : "two hosts");
    const double size = (double)json_integer_value(bytes);
    return add_point(r, &to[hosts[0] * c->hosts + hosts[1]], size, seconds) &&
           (hosts[0] == hosts[1] ||
            add_point(r, &to[hosts[1] * c->hosts + hosts[0]], size, seconds));
}

/* The case (parameters) of a result for one host. */
typedef struct host_case {
    int host, ranks, processors;
    const json_t *which;
} host_case;

static bool read_host_case(const reader *r, const json_t *result, host_case *out)
{
    static const char *const names[] = {"host", "ranks", "processors"};
    int64_t values[3];
    out->which = json_object_get(result, "case");
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(out->which, names[i]);
        values[i] = json_is_integer(value) ? json_integer_value(value) : -1;
        if (values[i] < (i > 0) || values[i] > 65536)
            return wrong(r, "a result of the benchmark link lacks the \"%s\" of its case",
                         names[i]);
    }
    if (values[0] >= r->cluster->hosts)
        return wrong(r, "has results of host %d, but the cluster has %d host%s", (int)values[0],
                     r->cluster->hosts, r->cluster->hosts == 1 ? "" : "s");
    out->host = (int)values[0];
    out->ranks = (int)values[1];
    out->processors = (int)values[2];
    return true;
}

/* Stores how the ranks of a host share its processors, unless the description of the cluster
 * contains these values. */
static bool add_turn(const reader *r, const json_t *result, double seconds)
{
    plan_cluster *c = r->cluster;
    host_case at;
    if (!read_host_case(r, result, &at))
        return false;
    const char *others = json_string_value(json_object_get(at.which, "others"));
    if (!others || (strcmp(others, "awake") != 0 && strcmp(others, "asleep") != 0))
        return wrong(r, "a result of the benchmark link has turns without \"others\"");
    double *to =
        strcmp(others, "awake") == 0 ? &c->awake_seconds[at.host] : &c->asleep_seconds[at.host];
    if (c->processors[at.host] == 0)
        c->processors[at.host] = at.processors;
    if (*to < 0)
        *to = seconds;
    return true;
}

/* Stores the time of an all-reduce of a host's ranks. The smallest all-reduce gives the latency.
 * What a larger one takes longer is the work of all ranks that share a processor, because they work
 * one after the other. */
static bool add_memory(const reader *r, const json_t *result, double seconds)
{
    host_case at;
    if (!read_host_case(r, result, &at))
        return false;
    plan_memory_cost *to = &r->cluster->memory[at.host];
    const json_t *bytes = json_object_get(at.which, "bytes");
    const double size = json_is_integer(bytes) ? (double)json_integer_value(bytes) : -1;
    const int i = to->work.count;
    if (at.ranks < 2 || !(size >= 0) || !(seconds > 0) || i == PLAN_LINK_POINTS)
        return wrong(r,
                     "a result of the benchmark link lacks an all-reduce's ranks, bytes or time");
    if (i == 0)
        *to = (plan_memory_cost){.ranks = at.ranks, .latency = seconds};
    const double read = 2 * size / at.ranks * (at.ranks - 1);
    if (i > 0 && read <= to->work.bytes[i - 1])
        return wrong(r, "has all-reduces of host %d whose sizes do not ascend", at.host);
    to->work.bytes[i] = read;
    to->work.seconds[i] = fmax(seconds - to->latency, 0) / ceil((double)at.ranks / at.processors);
    to->work.count++;
    return true;
}

static bool add_result(const reader *r, const json_t *result, const measured *to, bool *any)
{
    const char *name = json_string_value(json_object_get(result, "benchmark"));
    const json_t *time = json_object_get(json_object_get(result, "host_ns"), "median");
    const double seconds = json_is_number(time) ? 1e-9 * json_number_value(time) : -1;
    if (!name)
        return true;
    if (strcmp(name, "turn") == 0)
        return add_turn(r, result, fmax(seconds, 0));
    if (strcmp(name, "memory") == 0)
        return add_memory(r, result, seconds);
    if (strcmp(name, "message") == 0)
        return add_pair(r, result, seconds, to->message_work);
    if (strcmp(name, "link") != 0)
        return true;
    *any = true;
    return add_pair(r, result, seconds, to->links);
}

/* Replaces links by those that tessera bench link has measured, and stores its other results. */
static bool read_measured(const reader *r, const json_t *root, const measured *to)
{
    plan_cluster *c = r->cluster;
    const json_t *results = json_object_get(root, "results");
    bool any = false;
    for (size_t i = 0; i < json_array_size(results); i++)
        if (!add_result(r, json_array_get(results, i), to, &any))
            return false;
    if (!any)
        return wrong(r, "has no results of tessera bench link");
    for (int i = 0; i < c->hosts * c->hosts; i++) {
        const plan_link *link = &to->links[i].link;
        if (link->count == 1)
            return wrong(r, "has messages of one size only, %g bytes; at least two are needed",
                         link->bytes[0]);
        if (link->count > 0)
            c->links[i] = *link;
        if (to->message_work[i].link.count > 1)
            c->message_work[i] = to->message_work[i].link;
    }
    for (int i = 0; i < c->hosts; i++)
        if (c->memory[i].work.count == 1)
            c->memory[i].work.count = 0;
    return true;
}

/* Measured rates ------------------------------------------------------------------------------- */

/* Reads the measured time of a rank's passes with one number of rows, and appends it to rank->pass.
 * The numbers of rows must ascend. */
static bool read_pass(const reader *r, const json_t *object, int number, plan_rank *rank)
{
    const double last = rank->passes > 0 ? rank->pass[rank->passes - 1].rows : 0;
    char where[64];
    plan_pass read = {0};
    snprintf(where, sizeof where, "passes[%d] of rank %d", rank->passes, number);
    if (rank->passes == PLAN_PASSES)
        return wrong(r, "rank %d has more than %d passes", number, PLAN_PASSES);
    const struct {
        limits of;
        double *out, unit;
    } numbers[] = {
        {{"rows", 0, 1e9, false}, &read.rows, 1},
        {{"pass_us", 0, 1e9, true}, &read.pass, 1e-6},
        {{"layer_us", 0, 1e9, true}, &read.layer, 1e-6},
        {{"million_elements_us", 0, 1e12, false}, &read.element, 1e-12},
        {{"head_us", 0, 1e9, true}, &read.head, 1e-6},
        {{"million_head_elements_us", 0, 1e12, true}, &read.head_element, 1e-12},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!read_number(r, object, where, numbers[i].of, numbers[i].out))
            return false;
        *numbers[i].out *= numbers[i].unit;
    }
    if (read.rows <= last)
        return wrong(r, "%s has %g rows, after %g; they must ascend", where, read.rows, last);
    rank->pass[rank->passes++] = read;
    return true;
}

/* Reads what tessera bench rates has measured for a rank. The rates of the rank (see plan_rank)
 * that are computed from it replace those of the description for training and for dividing the
 * model. */
static bool read_measured_rank(const reader *r, const json_t *object, int number,
                               double element_bytes)
{
    plan_rank *rank = &r->cluster->rank[number];
    const json_t *passes = json_object_get(object, "passes");
    char where[32];
    double collective = 0;
    snprintf(where, sizeof where, "rank %d", number);
    if (!read_number(r, object, where, (limits){"collective_us", 0, 1e7, true}, &collective))
        return false;
    double host_collective = collective; /* if the file does not have it */
    if (!read_number(r, object, where, (limits){"host_collective_us", 0, 1e7, true},
                     &host_collective))
        return false;
    for (size_t i = 0; i < json_array_size(passes); i++)
        if (!read_pass(r, json_array_get(passes, i), number, rank))
            return false;
    if (rank->passes == 0)
        return wrong(r, "rank %d has no passes", number);
    const plan_pass *first = &rank->pass[0], *last = &rank->pass[rank->passes - 1];
    rank->collective_seconds = collective * 1e-6;
    rank->host_collective_seconds = host_collective * 1e-6;
    rank->layer_seconds = first->layer;
    rank->bandwidth = element_bytes / first->element;
    rank->flops = 2 * last->rows / last->element;
    return true;
}

static bool read_rates(const reader *r, const json_t *root)
{
    const json_t *ranks = json_object_get(root, "ranks");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    double bytes = 0;
    if (!schema || strcmp(schema, "tessera.bench.rates") != 0)
        return wrong(r, "is not the output of tessera bench rates --json");
    if ((int)json_array_size(ranks) != r->cluster->ranks)
        return wrong(r, "has %zu ranks, but the cluster has %d", json_array_size(ranks),
                     r->cluster->ranks);
    if (!read_number(r, json_object_get(root, "model"), "\"model\"",
                     (limits){"bytes_per_element", 0, 8, false}, &bytes))
        return false;
    for (int i = 0; i < r->cluster->ranks; i++)
        if (!read_measured_rank(r, json_array_get(ranks, (size_t)i), i, bytes))
            return false;
    return true;
}

/* The description and the measurements --------------------------------------------------------- */

bool plan_cluster_read(const char *path, const char *links, const char *rates, plan_cluster *out,
                       char error[PLAN_CLUSTER_ERROR])
{
    reader r = {path, error, out, rates != NULL};
    memset(out, 0, sizeof *out);
    json_t *document = load(&r);
    bool good = document && read_cluster(&r, document);
    json_decref(document);
    if (good && links) {
        const size_t pairs = (size_t)out->hosts * (size_t)out->hosts;
        const measured all = {.links = cli_alloc(pairs, sizeof *all.links),
                              .message_work = cli_alloc(pairs, sizeof *all.message_work)};
        r.path = links;
        document = load(&r);
        good = document && read_measured(&r, document, &all);
        json_decref(document);
        free(all.links);
        free(all.message_work);
        r.path = path;
    }
    if (good && rates) {
        r.path = rates;
        document = load(&r);
        good = document && read_rates(&r, document);
        json_decref(document);
        r.path = path;
    }
    for (int i = 0; good && i < out->hosts; i++) {
        out->awake_seconds[i] = out->awake_seconds[i] < 0 ? AWAKE_US * 1e-6 : out->awake_seconds[i];
        out->asleep_seconds[i] =
            out->asleep_seconds[i] < 0 ? ASLEEP_US * 1e-6 : out->asleep_seconds[i];
    }
    return good && check_links(&r);
}

void plan_cluster_free(plan_cluster *cluster)
{
    free(cluster->links);
    free(cluster->message_work);
    cluster->links = cluster->message_work = NULL;
}

int plan_cluster_host_ranks(const plan_cluster *cluster, int host)
{
    int count = 0;
    for (int i = 0; i < cluster->ranks; i++)
        count += cluster->rank[i].host == host;
    return count;
}
