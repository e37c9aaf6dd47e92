/* Matrices are kept in the dtype that the files have, unless the caller wants another one, or the
 * dtype is a block format and a rank's part would begin or end inside a block. */
#include "model/weights/kept.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "model/weights/expert_load.h"
#include "parallel/internal.h"
#include "tensor/dtype.h"

/* Dtypes ------------------------------------------------------------------------------------- */

/* The fewest blocks for each rank with which experts are divided inside, unless the caller says so.
 */
enum { LEAST_BLOCKS = 4 };

/* Finds out whether blocks of a delta net's output matrix have columns of several heads that are in
 * tiled order. */
static tsr_status find_tiles(tsr__kept *k, const tsr__weights *weights)
{
    tsr__weight weight;
    for (int i = 0; k->matrices == 0 && i < k->config->layers; i++) {
        if (!tsr__config_layer(k->config, i)->delta_net)
            continue;
        TSR__TRY(tsr__weight_find(weights, i, "delta_net.o.weight", &weight));
        if (!tsr__weight_keeps_blocks(&weight, tsr__elements_dtype(weight.file)))
            k->tiles = true;
    }
    return TSR_OK;
}

tsr_status tsr__kept_choose(const tsr__weights *weights, int ranks, tsr_dtype wanted,
                            tsr_expert_division experts, tsr__kept *out)
{
    const tsr_quant_format *format = tsr_quant_format_of(wanted);
    tsr__weight embedding;
    TSR__REQUIRE(wanted == 0 || tsr__dtype_is_float(wanted) || (format && format->quantizes),
                 "model: weights cannot be kept as %s; f32, f16, bf16 and block formats that "
                 "tsr_quantize supports are possible",
                 tsr_dtype_name(wanted));
    TSR__REQUIRE((unsigned)experts <= TSR_EXPERT_DIVISION_MIXED,
                 "model: expert_division is %d, which is not a tsr_expert_division", (int)experts);
    *out = (tsr__kept){.config = weights->config,
                       .ranks = ranks,
                       .matrices = wanted,
                       .experts = experts,
                       .others = wanted};
    TSR__TRY(find_tiles(out, weights));
    if (tsr__dtype_is_float(wanted))
        return TSR_OK;
    TSR__TRY(tsr__weight_find(weights, -1, "embedding.weight", &embedding));
    out->others = tsr__elements_dtype(embedding.file);
    if (!tsr__dtype_is_float(out->others))
        out->others = TSR_F32;
    return TSR_OK;
}

/* Returns the dtype in which a matrix is kept if it is not divided. */
static tsr_dtype whole_dtype(const tsr__kept *k, const tsr__weight *weight)
{
    const tsr_dtype dtype = k->matrices != 0 ? k->matrices : tsr__elements_dtype(weight->file);
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    return weight->columns % block == 0 ? dtype : k->others;
}

tsr_dtype tsr__kept_part(const tsr__kept *k, const tsr__weight *weight,
                         const tsr__weight_part *part)
{
    const tsr_dtype dtype = whole_dtype(k, weight);
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    if (k->matrices == 0 && !tsr__weight_keeps_blocks(weight, dtype))
        return k->others;
    return part->first_column % block == 0 && part->columns % block == 0 ? dtype : k->others;
}

/* Divisions ---------------------------------------------------------------------------------- */

/* Gives the largest number of elements in a block of one matrix, over all layers of a kind. These
 * numbers are powers of two, so the largest is a multiple of all. */
static tsr_status largest_block(const tsr__kept *k, const tsr__weights *weights, int kind,
                                const char *ours, int64_t *out)
{
    tsr__weight weight;
    *out = 1;
    for (int i = 0; i < k->config->layers; i++) {
        if (k->config->layer_kinds[i] != kind)
            continue;
        TSR__TRY(tsr__weight_find(weights, i, ours, &weight));
        const int64_t block = (int64_t)tsr__dtype_block(whole_dtype(k, &weight));
        *out = block > *out ? block : *out;
    }
    return TSR_OK;
}

/* Returns the smallest number of units, of `features` each, that together are whole blocks, or 0 if
 * there are too few units for all ranks to get that many. */
static uint64_t align_units(const tsr__kept *k, int64_t units, int64_t features, int64_t block)
{
    int64_t align = 1;
    while (align * features % block != 0)
        align *= 2;
    return (units + align - 1) / align >= k->ranks ? (uint64_t)align : 0;
}

tsr_status tsr__kept_align_heads(const tsr__kept *k, const tsr__weights *weights, int kind,
                                 uint64_t *out)
{
    const tsr_model_layer *layer = k->config->kinds[kind];
    const tsr_model_delta_net *net = layer->delta_net;
    if (net) {
        int64_t of_net;
        TSR__TRY(largest_block(k, weights, kind, "delta_net.o.weight", &of_net));
        /* In tiled order, a rank's key heads have each of their heads as consecutive columns. */
        *out = align_units(k, net->key_heads,
                           (k->tiles ? 1 : net->heads / net->key_heads) * net->value_dim, of_net);
        return TSR_OK;
    }
    if (layer->conv_taps > 0) {
        int64_t of_conv;
        TSR__TRY(largest_block(k, weights, kind, "short_conv.o.weight", &of_conv));
        *out = align_units(k, k->config->width, 1, of_conv);
        return TSR_OK;
    }
    const bool of_kv = layer->kv_heads >= k->ranks;
    const int64_t queries = of_kv ? layer->heads / layer->kv_heads : 1;
    int64_t block;
    TSR__TRY(largest_block(k, weights, kind, "attention.o.weight", &block));
    *out =
        align_units(k, of_kv ? layer->kv_heads : layer->heads, queries * layer->value_dim, block);
    return TSR_OK;
}

tsr_status tsr__kept_align_shared(const tsr__kept *k, const tsr__weights *weights, int kind,
                                  uint64_t *out)
{
    const tsr_model_experts *experts = k->config->kinds[kind]->experts;
    int64_t block;
    *out = 0;
    if (!experts || experts->shared_hidden == 0)
        return TSR_OK;
    TSR__TRY(largest_block(k, weights, kind, "mlp.shared.down.weight", &block));
    *out = align_units(k, experts->shared_hidden, 1, block);
    return TSR_OK;
}

tsr_status tsr__kept_align_mlp(const tsr__kept *k, const tsr__weights *weights, int kind,
                               uint64_t *out)
{
    const tsr_model_layer *layer = k->config->kinds[kind];
    int64_t block;
    *out = 0;
    if (!layer->experts || !layer->experts->beside_mlp)
        return TSR_OK;
    TSR__TRY(largest_block(k, weights, kind, "mlp.down.weight", &block));
    *out = align_units(k, layer->hidden, 1, block);
    return TSR_OK;
}

/* Experts ------------------------------------------------------------------------------------ */

/* Hosts with several ranks have experts together if the slowest rank is then expected to take at
 * most this part of the time. */
#define MIXED_GAIN 0.9

/* Fills group[ranks] from the division over hosts, and returns the number of groups. */
static int make_groups(const tsr__kept *k, const int *hosts, const tsr_shard_range *whole,
                       const tsr_shard_range *inside, int64_t hidden, tsr__expert_group *group)
{
    int groups = 0;
    for (int host = 0; host < k->ranks; host++) {
        tsr__expert_group here = {0};
        for (int r = 0; r < k->ranks; r++) {
            const double rate = k->rates ? k->rates[r] : 1;
            if (hosts[r] != host || inside[r].count == 0 || !(rate > 0))
                continue;
            here.experts = (int64_t)whole[r].count;
            here.work = fmax(here.work, (double)inside[r].count / (double)hidden / rate);
        }
        if (here.experts > 0)
            group[groups++] = here;
    }
    return groups;
}

static tsr_status load_over_hosts(const tsr__kept *k, const tsr_model_experts *experts,
                                  const int *hosts, uint64_t align, int64_t chosen, double *slowest,
                                  double *by_average)
{
    const tsr_partition_params partition = {.struct_size = sizeof partition,
                                            .kind = k->rates ? TSR_PARTITION_WEIGHTED
                                                             : TSR_PARTITION_UNEVEN,
                                            .rates = k->rates,
                                            .align = align};
    const size_t ranks = (size_t)k->ranks;
    tsr_shard_range *whole = tsr__calloc(ranks, sizeof *whole);
    tsr_shard_range *inside = tsr__calloc(ranks, sizeof *inside);
    tsr__expert_group *group = tsr__calloc(ranks, sizeof *group);
    tsr_status status = whole && inside && group
                            ? tsr__teams_divide(k->ranks, hosts, &partition, experts->count,
                                                experts->hidden, whole, inside)
                            : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__expert_load(make_groups(k, hosts, whole, inside, experts->hidden, group),
                                  group, chosen, slowest, by_average);
    tsr__free(whole);
    tsr__free(inside);
    tsr__free(group);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "model: hosts");
}

tsr_status tsr__kept_expert_load(const tsr__kept *k, const tsr_model_experts *experts,
                                 const tsr__kept_hidden *how, int64_t chosen, double *slowest,
                                 double *by_average)
{
    int *hosts = tsr__calloc((size_t)k->ranks, sizeof *hosts); /* one host: inside experts */
    if (!hosts)
        return TSR_ERR_NO_MEMORY;
    for (int r = 0; r < k->ranks; r++)
        hosts[r] = how->whole_experts ? r : how->mixed && k->hosts ? k->hosts[r] : 0;
    const tsr_status status =
        load_over_hosts(k, experts, hosts, how->align, chosen, slowest, by_average);
    tsr__free(hosts);
    return status;
}

/* Returns the division of experts over hosts and their ranks. */
static tsr__kept_hidden mixed_division(const tsr__kept *k, const tsr_model_experts *experts,
                                       int64_t block)
{
    tsr__kept largest = *k;
    largest.ranks = k->hosts ? tsr__teams_largest(k->ranks, k->hosts) : k->ranks;
    return (tsr__kept_hidden){.mixed = true,
                              .length = experts->hidden,
                              .align = align_units(&largest, experts->hidden, 1, block)};
}

/* Replaces the division *out if experts mixed over hosts are expected to be clearly faster. */
static tsr_status consider_mixed(const tsr__kept *k, const tsr_model_experts *experts,
                                 int64_t block, tsr__kept_hidden *out)
{
    const tsr__kept_hidden mixed = mixed_division(k, experts, block);
    const int largest = k->hosts ? tsr__teams_largest(k->ranks, k->hosts) : k->ranks;
    double with, without, ignored;
    if (largest == 1 || largest == k->ranks || mixed.align == 0)
        return TSR_OK;
    TSR__TRY(tsr__kept_expert_load(k, experts, &mixed, experts->used, &with, &ignored));
    TSR__TRY(tsr__kept_expert_load(k, experts, out, experts->used, &without, &ignored));
    if (with <= MIXED_GAIN * without)
        *out = mixed;
    return TSR_OK;
}

tsr_status tsr__kept_divide_hidden(const tsr__kept *k, const tsr__weights *weights, int kind,
                                   tsr__kept_hidden *out)
{
    const tsr_model_layer *layer = k->config->kinds[kind];
    const tsr_model_experts *experts = layer->experts;
    int64_t block;
    TSR__TRY(largest_block(k, weights, kind,
                           experts ? "mlp.experts.down.weight" : "mlp.down.weight", &block));
    *out = (tsr__kept_hidden){.length = experts ? experts->hidden : layer->hidden};
    out->align = align_units(k, out->length, 1, block);
    if (experts && k->experts == TSR_EXPERT_DIVISION_MIXED) {
        *out = mixed_division(k, experts, block);
        return TSR_OK;
    }
    if (!experts || k->experts == TSR_EXPERT_DIVISION_INSIDE)
        return TSR_OK;
    out->whole_experts =
        k->experts == TSR_EXPERT_DIVISION_WHOLE ||
        (k->ranks > 1 &&
         (out->align == 0 || out->length / (int64_t)out->align < (int64_t)LEAST_BLOCKS * k->ranks));
    if (out->whole_experts)
        *out = (tsr__kept_hidden){.whole_experts = true, .length = experts->count};
    return k->experts == TSR_EXPERT_DIVISION_AUTO ? consider_mixed(k, experts, block, out) : TSR_OK;
}
