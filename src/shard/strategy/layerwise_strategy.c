/* Assigns complete layers to ranks. It starts with the largest layer and assigns each one to the
 * rank that would finish its work first. Source: Graham, "Bounds on multiprocessing timing
 * anomalies" (SIAM J. Appl. Math. 17, 1969). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shard/strategy/largest_remainder.h"
#include "shard/strategy/strategy.h"
#include "shard/strategy/wide_product.h"
#include "json/text_check.h"

/* A parameter, with the layer that it belongs to. There is a list of all parameters, sorted by
 * layer, and a list of layers, in which each layer is represented by its first parameter. The
 * members from layer_bytes on are set in the list of layers only. */
typedef struct member {
    const char *layer;
    uint64_t param;
    uint64_t layer_bytes; /* the bytes of all parameters of the layer */
    /* the index of the layer's first parameter in the list that is sorted by layer */
    uint64_t layer_first;
    uint64_t layer_members;
} member;

static int by_layer(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = strcmp(x->layer, y->layer);
    return order != 0 ? order : x->param < y->param ? -1 : x->param > y->param;
}

static int by_size(const void *a, const void *b)
{
    const member *x = a, *y = b;
    if (x->layer_bytes != y->layer_bytes)
        return x->layer_bytes > y->layer_bytes ? -1 : 1;
    return tsr_shard_compare_names(x->layer, y->layer);
}

/* Builds the list of layers from the list of parameters, which must be sorted by layer. */
static size_t group_layers(const tsr_shard_request *request, const member *members, size_t count,
                           member *layers)
{
    size_t layer_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(members[i - 1].layer, members[i].layer) != 0) {
            layers[layer_count] = members[i];
            layers[layer_count++].layer_first = i;
        }
        layers[layer_count - 1].layer_bytes += request->params[members[i].param].size_bytes;
        layers[layer_count - 1].layer_members++;
    }
    return layer_count;
}

/* Returns the rank that would finish first: the one with the smallest (bytes so far + size) /
 * weight. Returns -1 if no rank has enough memory. */
static int choose_rank(const tsr_shard_request *request, const uint64_t *bytes,
                       const uint64_t *weights, uint64_t gathered, uint64_t size)
{
    int best = -1;
    for (int r = 0; r < request->ranks; r++) {
        if (weights[r] == 0 || (request->memory_bytes != NULL &&
                                bytes[r] + size + gathered > request->memory_bytes[r]))
            continue;
        if (best < 0 || tsr__compare_products(bytes[r] + size, weights[best], bytes[best] + size,
                                              weights[r]) < 0)
            best = r;
    }
    return best;
}

static tsr_status no_rank(const tsr_shard_request *request, const member *layer,
                          const uint64_t *bytes, const uint64_t *weights, uint64_t gathered)
{
    uint64_t most = 0;
    char name[TSR__NAME_SHORT];
    for (int r = 0; r < request->ranks; r++) {
        uint64_t used = bytes[r] + gathered;
        uint64_t left = request->memory_bytes[r] > used ? request->memory_bytes[r] - used : 0;
        most = weights[r] > 0 && left > most ? left : most;
    }
    return tsr__fail(TSR_ERR_INVALID,
                     "shard: layer '%s' has %" PRIu64
                     " bytes, but the rank with the most memory left has %" PRIu64,
                     tsr__name_short(layer->layer, name), layer->layer_bytes, most);
}

static tsr_status place_layer(const tsr_shard_request *request, const member *members,
                              const member *layers, size_t layer_count, const uint64_t *weights,
                              uint64_t *bytes, tsr_shard_range *ranges)
{
    uint64_t gathered = tsr__gathered_bytes(request);
    for (size_t i = 0; i < layer_count; i++) {
        const member *layer = &layers[i];
        int rank = choose_rank(request, bytes, weights, gathered, layer->layer_bytes);
        if (rank < 0)
            return no_rank(request, layer, bytes, weights, gathered);
        bytes[rank] += layer->layer_bytes;
        for (uint64_t j = 0; j < layer->layer_members; j++) {
            uint64_t param = members[layer->layer_first + j].param;
            ranges[param * (uint64_t)request->ranks + (uint64_t)rank].count =
                request->params[param].count;
        }
    }
    return TSR_OK;
}

tsr_status tsr__assign_layerwise(const tsr_shard_request *request, const bool *chosen,
                                 tsr_shard_range *ranges)
{
    size_t ranks = (size_t)request->ranks, count = 0;
    member *members = tsr__calloc(2 * request->param_count, sizeof *members);
    uint64_t *numbers = tsr__calloc(2 * ranks, sizeof *numbers);
    if (members == NULL || numbers == NULL) {
        tsr__free(members);
        tsr__free(numbers);
        return TSR_ERR_NO_MEMORY;
    }
    uint64_t *bytes = numbers, *weights = numbers + ranks;
    tsr_status status = tsr__weights_from_rates(request->ranks, request->rates, weights);
    if (status == TSR_ERR_INVALID)
        status = tsr__fail_context(status, "shard");
    for (uint64_t p = 0; p < request->param_count && status == TSR_OK; p++) {
        const tsr_shard_param *param = &request->params[p];
        if (!param->always_gather && (chosen == NULL || chosen[p]))
            members[count++] = (member){.layer = param->layer, .param = p};
        else if (!param->always_gather)
            for (size_t r = 0; r < ranks; r++)
                bytes[r] += tsr__shard_bytes(param, ranges[p * ranks + r].count);
    }
    if (status == TSR_OK) {
        member *layers = members + request->param_count;
        qsort(members, count, sizeof *members, by_layer);
        size_t layer_count = group_layers(request, members, count, layers);
        qsort(layers, layer_count, sizeof *layers, by_size);
        status = place_layer(request, members, layers, layer_count, weights, bytes, ranges);
    }
    tsr__free(members);
    tsr__free(numbers);
    return status;
}
