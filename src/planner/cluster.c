#include "planner/cluster.h"

#include "base/alloc.h"
#include "base/struct_size.h"

/* Defaults, in microseconds, for ranks that share a processor: the time until the processor
 * switches from one polling rank to another, and the time until a sleeping rank runs. Measured by
 * tessera bench link on an Intel Xeon of two virtual processors (docs/communication.md). */
#define AWAKE_US 1.5
#define ASLEEP_US 15

/* Reading -------------------------------------------------------------------------------------- */

/* Opens a document that is given as a path or as a text. `kind` is what error texts call a text. */
static tsr_status open_document(const char *kind, const char *path, const char *text,
                                tsr__document *out)
{
    return path ? tsr__document_open(path, out) : tsr__document_of_text(kind, text, out);
}

static tsr_status measure_links(const tsr_cluster_params *p, tsr_cluster *cluster)
{
    tsr__document document;
    if (!p->links && !p->links_text)
        return TSR_OK;
    TSR__TRY(open_document("links", p->links, p->links_text, &document));
    const tsr_status status = tsr__cluster_measure_links(&document, cluster);
    tsr__document_close(&document);
    return status;
}

static tsr_status measure_rates(const tsr_cluster_params *p, tsr_cluster *cluster)
{
    tsr__document document;
    if (!p->rates && !p->rates_text)
        return TSR_OK;
    TSR__TRY(open_document("rates", p->rates, p->rates_text, &document));
    const tsr_status status = tsr__cluster_measure_rates(&document, cluster);
    tsr__document_close(&document);
    return status;
}

/* Sets the times of turns that were neither described nor measured. */
static void set_default_turns(tsr_cluster *c)
{
    for (int i = 0; i < c->hosts; i++) {
        if (c->awake_seconds[i] < 0)
            c->awake_seconds[i] = AWAKE_US * 1e-6;
        if (c->asleep_seconds[i] < 0)
            c->asleep_seconds[i] = ASLEEP_US * 1e-6;
    }
}

static tsr_status read_documents(const tsr_cluster_params *p, tsr_cluster *cluster)
{
    tsr__document document;
    const bool need_rates = !p->rates && !p->rates_text;
    TSR__TRY(open_document("description", p->description, p->description_text, &document));
    tsr_status status = tsr__cluster_describe(&document, need_rates, cluster);
    if (status == TSR_OK)
        status = measure_links(p, cluster);
    if (status == TSR_OK)
        status = measure_rates(p, cluster);
    if (status == TSR_OK) {
        set_default_turns(cluster);
        status = tsr__cluster_check_links(&document, cluster);
    }
    tsr__document_close(&document);
    return status;
}

tsr_status tsr_cluster_create(const tsr_cluster_params *params, tsr_cluster **out)
{
    TSR__REQUIRE(params, "planner: params is NULL");
    TSR__REQUIRE(out, "planner: out is NULL");
    TSR__TAKE(tsr_cluster_params, params);
    const tsr_cluster_params *p = params;
    TSR__REQUIRE(p->description || p->description_text, "planner: description is missing");
    TSR__REQUIRE(!p->description || !p->description_text,
                 "planner: description and description_text are both given");
    TSR__REQUIRE(!p->links || !p->links_text, "planner: links and links_text are both given");
    TSR__REQUIRE(!p->rates || !p->rates_text, "planner: rates and rates_text are both given");
    tsr_cluster *cluster = tsr__calloc(1, sizeof *cluster);
    if (!cluster)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = read_documents(p, cluster);
    if (status == TSR_OK)
        *out = cluster;
    else
        tsr_cluster_destroy(&cluster);
    return status;
}

void tsr__cluster_finish(tsr_cluster *cluster)
{
    tsr__free(cluster->links);
    tsr__free(cluster->message_work);
    cluster->links = cluster->message_work = NULL;
}

void tsr_cluster_destroy(tsr_cluster **cluster)
{
    if (!cluster || !*cluster)
        return;
    tsr__cluster_finish(*cluster);
    tsr__free(*cluster);
    *cluster = NULL;
}

/* Queries -------------------------------------------------------------------------------------- */

int tsr_cluster_host_count(const tsr_cluster *cluster)
{
    return cluster ? cluster->hosts : 0;
}

int tsr_cluster_rank_count(const tsr_cluster *cluster)
{
    return cluster ? cluster->ranks : 0;
}

tsr_status tsr_cluster_get_host(const tsr_cluster *cluster, int host, tsr_cluster_host_info *out)
{
    TSR__REQUIRE(cluster && out, "planner: %s is NULL", cluster ? "out" : "cluster");
    TSR__REQUIRE(host >= 0 && host < cluster->hosts,
                 "planner: host %d is not one of the cluster's %d hosts", host, cluster->hosts);
    tsr_cluster_host_info info = {.struct_size = sizeof info,
                                  .name = cluster->names[host],
                                  .ranks = tsr__host_ranks(cluster, host),
                                  .processors = cluster->processors[host]};
    while (cluster->rank[info.first_rank].host != host)
        info.first_rank++;
    TSR__GIVE(tsr_cluster_host_info, &info, out);
    return TSR_OK;
}

tsr_status tsr_cluster_get_rank(const tsr_cluster *cluster, int rank, tsr_cluster_rank_info *out)
{
    TSR__REQUIRE(cluster && out, "planner: %s is NULL", cluster ? "out" : "cluster");
    TSR__REQUIRE(rank >= 0 && rank < cluster->ranks,
                 "planner: rank %d is not one of the cluster's %d ranks", rank, cluster->ranks);
    const tsr_cluster_rank_info info = {.struct_size = sizeof info,
                                        .host = cluster->rank[rank].host,
                                        .memory_bytes = cluster->rank[rank].memory};
    TSR__GIVE(tsr_cluster_rank_info, &info, out);
    return TSR_OK;
}
