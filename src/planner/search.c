#include "planner/search.h"

#include <stdlib.h>

#include "base/alloc.h"

/* With more hosts than this, only all hosts together and each host alone are tried. */
#define MAX_SUBSET_HOSTS 6

/* The ranks from which one set of candidates is made: each grid uses all of them. */
typedef struct pool {
    int count;
    int ranks[TSR_CLUSTER_MAX_RANKS];
} pool;

/* Returns into how many parts a kind of layer can be divided: the number of heads, of a delta net
 * of key heads, and of a short convolution of features. */
static int64_t heads_of(const tsr_model_config *c, int kind)
{
    const tsr_model_layer *layer = c->kinds[kind];
    return layer->delta_net       ? layer->delta_net->key_heads
           : layer->conv_taps > 0 ? c->width
                                  : layer->heads;
}

/* Returns the number of heads of the layer that has the fewest. */
static int64_t fewest_heads(const tsr_model_config *c)
{
    int64_t fewest = heads_of(c, 0);
    for (int i = 1; i < c->kind_count; i++)
        fewest = heads_of(c, i) < fewest ? heads_of(c, i) : fewest;
    return fewest;
}

/* Returns whether the model and the batch can be divided in this way. */
static bool is_possible(const tsr__grid_search *s, const tsr__grid_candidate *c)
{
    if (c->tensor > fewest_heads(s->config) || c->stages > s->config->layers)
        return false;
    const int context = s->work.context_ranks;
    return s->work.goal == TSR_PLAN_TRAINING
               ? c->data % context == 0 && s->work.sequences % (c->data / context) == 0
               : c->data == 1;
}

static tsr_status add_shape(const tsr__grid_search *s, const pool *from,
                            const tsr__grid_candidate *shape, tsr__grid_candidates *out)
{
    void *all = out->all;
    if (!is_possible(s, shape))
        return TSR_OK;
    TSR__TRY(tsr__grow(&all, &out->capacity, out->count + 1, sizeof *out->all));
    out->all = all;
    TSR__TRY(tsr__grid_candidate_make(s, from->ranks, shape, &out->all[out->count]));
    out->count++;
    return TSR_OK;
}

/* Adds all grids that use all ranks of a pool. */
static tsr_status add_pool(const tsr__grid_search *s, const pool *from, tsr__grid_candidates *out)
{
    tsr_status status = TSR_OK;
    for (int stages = 1; stages <= from->count; stages++)
        for (int data = 1; data <= from->count / stages; data++) {
            if (from->count % (stages * data) != 0)
                continue;
            tsr__grid_candidate shape = {
                .data = data, .tensor = from->count / stages / data, .stages = stages};
            for (int sharded = 0; sharded <= (data > 1) && status == TSR_OK; sharded++) {
                shape.sharded = sharded;
                status = add_shape(s, from, &shape, out);
            }
        }
    return status;
}

static void add_ranks_of(const tsr_cluster *c, int host, pool *out)
{
    for (int i = 0; i < c->ranks; i++)
        if (c->rank[i].host == host)
            out->ranks[out->count++] = i;
}

/* Returns the ranks of the hosts whose bits are set, or of all hosts. */
static pool pool_of(const tsr_cluster *c, unsigned hosts, bool every_host)
{
    pool out = {0};
    for (int host = 0; host < c->hosts; host++)
        if (every_host || hosts >> host & 1u)
            add_ranks_of(c, host, &out);
    return out;
}

/* Returns whether the time of this rank alone can be predicted, which needs a processor for it. */
static bool has_processor(const tsr_cluster *c, int rank)
{
    return !tsr__sharing_of(c, 1, &rank).less_than_one;
}

/* Returns whether an earlier rank makes a candidate of this rank alone superfluous: it has the same
 * properties, and its time can be predicted if this rank's time can. */
static bool is_known(const tsr_cluster *c, int rank)
{
    const tsr__cluster_rank *r = &c->rank[rank];
    const bool predicted = has_processor(c, rank);
    for (int i = 0; i < rank; i++)
        if (has_processor(c, i) >= predicted && c->rank[i].flops == r->flops &&
            c->rank[i].bandwidth == r->bandwidth && c->rank[i].memory == r->memory &&
            c->rank[i].layer_seconds == r->layer_seconds)
            return true;
    return false;
}

static tsr_status add_all(const tsr__grid_search *s, tsr__grid_candidates *out)
{
    const tsr_cluster *c = s->cluster;
    const bool subsets = c->hosts <= MAX_SUBSET_HOSTS;
    tsr_status status = TSR_OK;
    for (int rank = 0; rank < c->ranks && status == TSR_OK; rank++)
        if (!is_known(c, rank) && c->ranks > 1) {
            const pool alone = {1, {rank}};
            status = add_pool(s, &alone, out);
        }
    for (unsigned hosts = 1; subsets && hosts + 1 < 1u << c->hosts && status == TSR_OK; hosts++) {
        const pool some = pool_of(c, hosts, false);
        if (some.count > 1)
            status = add_pool(s, &some, out);
    }
    for (int host = 0; !subsets && host < c->hosts && status == TSR_OK; host++) {
        pool some = {0};
        add_ranks_of(c, host, &some);
        if (some.count > 1)
            status = add_pool(s, &some, out);
    }
    const pool all = pool_of(c, 0, true);
    return status == TSR_OK ? add_pool(s, &all, out) : status;
}

/* Sorts candidates: the fastest first, and those whose time is not predicted last. Of equally fast
 * ones, the one with fewer ranks comes first, then the one with fewer stages. */
static int compare_candidates(const void *a, const void *b)
{
    const tsr__grid_candidate *x = a, *y = b;
    if (x->sharing.less_than_one != y->sharing.less_than_one)
        return x->sharing.less_than_one - y->sharing.less_than_one;
    if (x->predicted.seconds != y->predicted.seconds)
        return x->predicted.seconds < y->predicted.seconds ? -1 : 1;
    if (x->count != y->count)
        return x->count - y->count;
    return x->stages != y->stages ? x->stages - y->stages : x->sharded - y->sharded;
}

tsr_status tsr__grid_search_run(tsr__grid_search *s, tsr__grid_candidates *out)
{
    *out = (tsr__grid_candidates){0};
    TSR__TRY(tsr__grid_count_layer(s));
    TSR__TRY(add_all(s, out));
    if (out->count > 0)
        qsort(out->all, out->count, sizeof *out->all, compare_candidates);
    return TSR_OK;
}

void tsr__grid_candidates_free(tsr__grid_candidates *candidates)
{
    for (size_t i = 0; i < candidates->count; i++)
        tsr__grid_candidate_free(&candidates->all[i]);
    tsr__free(candidates->all);
    *candidates = (tsr__grid_candidates){0};
}
