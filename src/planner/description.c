/* Reads the description of a cluster: hosts, ranks, and links. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/cluster.h"
#include "json/json.h"

/* The description that is being read, and the cluster that it describes. */
typedef struct reader {
    const tsr__document *document;
    tsr_cluster *cluster;
    bool need_rates; /* otherwise, another document has the rates of ranks */
} reader;

/* Sizes ---------------------------------------------------------------------------------------- */

/* Reads text such as "8GiB", "512M" or "1.5T" (powers of 1024). Returns false if it is something
 * else, more than 2^53 bytes, or less than one byte, because 0 means "no limit". */
static bool parse_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    double value = 0;
    tsr__json json = {.text = text, .size = strlen(text), .what = "memory"};
    if (text[0] == '-' || text[0] == ' ' || tsr__json_real(&json, &value) != TSR_OK)
        return false;
    const char *end = text + json.at, *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit) {
        value *= (double)(UINT64_C(1) << 10 * (unit - units + 1));
        end++;
        if (strcmp(end, "iB") == 0)
            end += 2;
    }
    /* A double represents each number of bytes up to 2^53 exactly. */
    if (*end != '\0' || !(value <= 0x1p53) || (value > 0 && value < 1))
        return false;
    *out = (uint64_t)value;
    return true;
}

/* Reads a size: a number of bytes, or text such as "8GiB". */
static tsr_status read_memory(const reader *r, tsr__value object, const char *where, uint64_t *out)
{
    const tsr__value value = tsr__value_member(object, "memory");
    int64_t bytes = -1;
    char text[64];
    if (!value.document)
        return TSR_OK;
    if (tsr__value_integer(value, &bytes) && bytes >= 0 && bytes <= INT64_C(1) << 53)
        *out = (uint64_t)bytes;
    else if (!tsr__value_text(value, sizeof text, text) || !parse_bytes(text, out))
        return tsr__document_fail(
            r->document,
            "\"memory\" of %s must be bytes, up to 2^53, such as 8589934592 or \"8GiB\"", where);
    return TSR_OK;
}

/* Links ---------------------------------------------------------------------------------------- */

static tsr_status read_link(const reader *r, tsr__value object, const char *where, tsr__link *out)
{
    double latency = 0, bandwidth = 0;
    const tsr__number_limits latency_us = {"latency_us", 0, 1e7, true},
                             gbytes = {"gbytes_per_second", 0, 1e5, false};
    if (!tsr__value_member(object, "latency_us").document)
        return tsr__document_fail(r->document, "%s has no \"latency_us\"", where);
    TSR__TRY(tsr__value_number(r->document, object, where, latency_us, &latency));
    TSR__TRY(tsr__value_number(r->document, object, where, gbytes, &bandwidth));
    *out = tsr__link_of(latency * 1e-6, bandwidth * 1e9);
    return TSR_OK;
}

int tsr__host_ranks(const tsr_cluster *cluster, int host)
{
    int count = 0;
    for (int i = 0; i < cluster->ranks; i++)
        count += cluster->rank[i].host == host;
    return count;
}

static tsr__link *link_between(const tsr_cluster *c, int a, int b)
{
    return &c->links[a * c->hosts + b];
}

static int find_host(const tsr_cluster *c, const char *name)
{
    for (int i = 0; i < c->hosts; i++)
        if (strcmp(c->names[i], name) == 0)
            return i;
    return -1;
}

/* Reads an element of "links": a link between two hosts. */
static tsr_status read_pair(const reader *r, tsr__value object, int number)
{
    static const char *const names[] = {"hosts", "latency_us", "gbytes_per_second", NULL};
    const tsr_cluster *c = r->cluster;
    char where[32], name[TSR__HOST_NAME];
    int hosts[2] = {-1, -1};
    tsr__link link;
    snprintf(where, sizeof where, "links[%d]", number);
    TSR__TRY(tsr__value_check_members(r->document, object, where, names));
    TSR__TRY(read_link(r, object, where, &link));
    const tsr__value pair = tsr__value_member(object, "hosts");
    if (tsr__value_count(pair) != 2)
        return tsr__document_fail(r->document, "\"hosts\" of %s must be the names of two hosts",
                                  where);
    tsr__elements list = tsr__value_elements(pair);
    tsr__value element;
    for (int i = 0; tsr__next_element(&list, &element); i++) {
        if (!tsr__value_text(element, sizeof name, name))
            return tsr__document_fail(r->document, "\"hosts\" of %s must be the names of two hosts",
                                      where);
        hosts[i] = find_host(c, name);
        if (hosts[i] < 0)
            return tsr__document_fail(
                r->document, "%s names the host \"%.60s\", which does not exist", where, name);
    }
    if (hosts[0] == hosts[1])
        return tsr__document_fail(
            r->document, "%s names the host \"%s\" twice; the link inside a host is its \"link\"",
            where, c->names[hosts[0]]);
    *link_between(c, hosts[0], hosts[1]) = *link_between(c, hosts[1], hosts[0]) = link;
    return TSR_OK;
}

/* Reads "link", which applies to all pairs of hosts, and "links", which apply to single pairs. */
static tsr_status read_links_between(const reader *r, tsr__value root)
{
    static const char *const names[] = {"latency_us", "gbytes_per_second", NULL};
    const tsr__value usual = tsr__value_member(root, "link"),
                     pairs = tsr__value_member(root, "links");
    const tsr_cluster *c = r->cluster;
    if (usual.document) {
        tsr__link link;
        TSR__TRY(tsr__value_check_members(r->document, usual, "\"link\"", names));
        TSR__TRY(read_link(r, usual, "\"link\"", &link));
        for (int a = 0; a < c->hosts; a++)
            for (int b = 0; b < c->hosts; b++)
                if (a != b)
                    *link_between(c, a, b) = link;
    }
    if (pairs.document && !tsr__value_is_array(pairs))
        return tsr__document_fail(r->document, "\"links\" is not a list");
    tsr__elements list = tsr__value_elements(pairs);
    tsr__value pair;
    for (int i = 0; tsr__next_element(&list, &pair); i++)
        TSR__TRY(read_pair(r, pair, i));
    return TSR_OK;
}

tsr_status tsr__cluster_check_links(const tsr__document *document, const tsr_cluster *c)
{
    for (int a = 0; a < c->hosts; a++)
        for (int b = a; b < c->hosts; b++)
            if (link_between(c, a, b)->count > 0 || (a == b && tsr__host_ranks(c, a) == 1))
                continue;
            else if (a == b)
                return tsr__document_fail(document,
                                          "host \"%s\" has %d ranks, but no \"link\" between them",
                                          c->names[a], tsr__host_ranks(c, a));
            else
                return tsr__document_fail(document,
                                          "there is no link between the hosts \"%s\" and \"%s\"",
                                          c->names[a], c->names[b]);
    return TSR_OK;
}

/* Hosts ---------------------------------------------------------------------------------------- */

/* Reads an element of a host's "ranks": a number of equal ranks. */
static tsr_status read_ranks(const reader *r, tsr__value object, const char *host, int number)
{
    static const char *const names[] = {"count",
                                        "gflops",
                                        "memory_gbytes_per_second",
                                        "host_gbytes_per_second",
                                        "layer_us",
                                        "collective_us",
                                        "memory",
                                        NULL};
    tsr_cluster *c = r->cluster;
    char where[TSR__HOST_NAME + 48];
    double count = 1, gflops = 0, gbytes = 0, host_gbytes = 0, layer_us = 0, collective_us = 0;
    tsr__cluster_rank rank = {.host = c->hosts - 1};
    const bool rates_optional = !r->need_rates;
    const struct {
        tsr__number_limits limits;
        double *out;
    } numbers[] = {
        {{"gflops", 0, 1e9, rates_optional}, &gflops},
        {{"memory_gbytes_per_second", 0, 1e6, rates_optional}, &gbytes},
        {{"host_gbytes_per_second", 0, 1e6, true}, &host_gbytes},
        {{"layer_us", 0, 1e7, true}, &layer_us},
        {{"collective_us", 0, 1e7, true}, &collective_us},
    };
    const tsr__number_limits counts = {"count", 1, TSR_CLUSTER_MAX_RANKS, false};
    snprintf(where, sizeof where, "ranks[%d] of host \"%s\"", number, host);
    TSR__TRY(tsr__value_check_members(r->document, object, where, names));
    if (tsr__value_member(object, "count").document)
        TSR__TRY(tsr__value_number(r->document, object, where, counts, &count));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TSR__TRY(tsr__value_number(r->document, object, where, numbers[i].limits, numbers[i].out));
    TSR__TRY(read_memory(r, object, where, &rank.memory));
    if (count != floor(count))
        return tsr__document_fail(r->document, "\"count\" of %s is %g; it must be a whole number",
                                  where, count);
    if (c->ranks + (int)count > TSR_CLUSTER_MAX_RANKS)
        return tsr__document_fail(r->document, "there are more than %d ranks",
                                  TSR_CLUSTER_MAX_RANKS);
    rank.flops = gflops * 1e9;
    rank.bandwidth = gbytes * 1e9;
    rank.host_bandwidth = host_gbytes * 1e9;
    rank.layer_seconds = layer_us * 1e-6;
    rank.collective_seconds = rank.host_collective_seconds = collective_us * 1e-6;
    for (int i = 0; i < (int)count; i++)
        c->rank[c->ranks++] = rank;
    return TSR_OK;
}

static tsr_status read_name(const reader *r, tsr__value object, const char *where,
                            char name[TSR__HOST_NAME])
{
    if (!tsr__value_text(tsr__value_member(object, "name"), TSR__HOST_NAME, name) ||
        tsr__name_problem(name, strlen(name)))
        return tsr__document_fail(
            r->document,
            "\"name\" of %s must be a text of 1 to %d bytes without control characters", where,
            TSR__HOST_NAME - 1);
    if (find_host(r->cluster, name) >= 0)
        return tsr__document_fail(r->document, "two hosts have the name \"%s\"", name);
    return TSR_OK;
}

/* Reads a host and its ranks. The link between its ranks is read later, because its place in the
 * array depends on the number of hosts. */
static tsr_status read_host(const reader *r, tsr__value object, int number)
{
    static const char *const names[] = {"name",    "ranks",         "link", "processors",
                                        "turn_us", "awake_turn_us", NULL};
    tsr_cluster *c = r->cluster;
    char where[32], name[TSR__HOST_NAME];
    double processors = 0, asleep_us = -1, awake_us = -1;
    const struct {
        tsr__number_limits limits;
        double *out;
    } numbers[] = {
        {{"processors", 0, 65536, true}, &processors},
        {{"turn_us", 0, 1e6, true}, &asleep_us},
        {{"awake_turn_us", 0, 1e6, true}, &awake_us},
    };
    snprintf(where, sizeof where, "hosts[%d]", number);
    TSR__TRY(tsr__value_check_members(r->document, object, where, names));
    TSR__TRY(read_name(r, object, where, name));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TSR__TRY(tsr__value_number(r->document, object, where, numbers[i].limits, numbers[i].out));
    c->processors[c->hosts] = processors;
    c->asleep_seconds[c->hosts] = asleep_us * 1e-6;
    c->awake_seconds[c->hosts] = awake_us * 1e-6;
    snprintf(c->names[c->hosts++], TSR__HOST_NAME, "%s", name);
    tsr__elements list = tsr__value_elements(tsr__value_member(object, "ranks"));
    tsr__value ranks;
    int groups = 0;
    while (tsr__next_element(&list, &ranks))
        TSR__TRY(read_ranks(r, ranks, name, groups++));
    if (groups == 0)
        return tsr__document_fail(r->document, "host \"%s\" has no ranks", name);
    return TSR_OK;
}

static tsr_status read_inner_links(const reader *r, tsr__value hosts)
{
    static const char *const names[] = {"latency_us", "gbytes_per_second", NULL};
    const tsr_cluster *c = r->cluster;
    tsr__elements list = tsr__value_elements(hosts);
    tsr__value host;
    for (int i = 0; tsr__next_element(&list, &host); i++) {
        const tsr__value link = tsr__value_member(host, "link");
        char where[TSR__HOST_NAME + 32];
        snprintf(where, sizeof where, "\"link\" of host \"%s\"", c->names[i]);
        if (!link.document)
            continue;
        TSR__TRY(tsr__value_check_members(r->document, link, where, names));
        TSR__TRY(read_link(r, link, where, link_between(c, i, i)));
    }
    return TSR_OK;
}

tsr_status tsr__cluster_describe(const tsr__document *document, bool need_rates, tsr_cluster *c)
{
    static const char *const names[] = {"hosts", "link", "links", NULL};
    const reader r = {document, c, need_rates};
    const tsr__value root = tsr__document_root(document);
    TSR__TRY(tsr__value_check_members(document, root, "the document", names));
    const tsr__value hosts = tsr__value_member(root, "hosts");
    const size_t count = tsr__value_count(hosts);
    if (count == 0)
        return tsr__document_fail(document, "\"hosts\" must be a list of at least one host");
    if (count > TSR_CLUSTER_MAX_HOSTS)
        return tsr__document_fail(document, "there are %zu hosts; the maximum is %d", count,
                                  TSR_CLUSTER_MAX_HOSTS);
    tsr__elements list = tsr__value_elements(hosts);
    tsr__value host;
    for (int i = 0; tsr__next_element(&list, &host); i++)
        TSR__TRY(read_host(&r, host, i));
    c->links = tsr__calloc(count * count, sizeof *c->links);
    c->message_work = tsr__calloc(count * count, sizeof *c->message_work);
    if (!c->links || !c->message_work)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(read_inner_links(&r, hosts));
    return read_links_between(&r, root);
}
