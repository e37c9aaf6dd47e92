/* Creates self-attention layers: divides the heads among the ranks, and creates the layer that
 * computes queries, keys and values, and the layer that computes the output. */
#include "parallel/layers/self_attention.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/layers/context.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/norm_layer.h"

/* The params, with defaults filled in, and the division of the heads. */
typedef struct head_plan {
    tsr_self_attention_params params;
    tsr_partition_params partition; /* copies of what `params` points to */
    tsr_init_params output_init;
    bool replicated; /* every rank has the parameters of all kv heads */
    /* The heads that `partition` divides: kv heads, or query heads if replicated. */
    tsr__division divided_heads;
    /* The features of the query heads and of the kv heads, and those of values and of the query
     * heads' results. If replicated, the sizes of kv_features and values are NULL. */
    tsr__division features, kv_features, values, results;
} head_plan;

static void head_plan_finish(head_plan *p)
{
    tsr__free(p->divided_heads.sizes);
    tsr__free(p->features.sizes);
    tsr__free(p->kv_features.sizes);
    tsr__free(p->values.sizes);
    tsr__free(p->results.sizes);
}

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_sizes(const tsr_layer *layer, head_plan *p)
{
    tsr_self_attention_params *params = &p->params;
    TSR__REQUIRE(params->size >= 1 && params->heads >= 1 && params->heads <= TSR_MAX_HEADS,
                 "%s: size is %lld, heads %lld; both must be at least 1, and heads at most %d",
                 layer->who, (long long)params->size, (long long)params->heads, TSR_MAX_HEADS);
    if (params->kv_heads == 0)
        params->kv_heads = params->heads;
    TSR__REQUIRE(params->kv_heads >= 1 && params->heads % params->kv_heads == 0,
                 "%s: kv_heads %lld does not divide heads %lld", layer->who,
                 (long long)params->kv_heads, (long long)params->heads);
    TSR__REQUIRE(params->head_dim != 0 || params->size % params->heads == 0,
                 "%s: heads %lld does not divide size %lld; set head_dim", layer->who,
                 (long long)params->heads, (long long)params->size);
    if (params->head_dim == 0)
        params->head_dim = params->size / params->heads;
    TSR__REQUIRE(params->head_dim >= 1 && params->head_dim <= TSR_MAX_HEAD_DIM,
                 "%s: head_dim is %lld; 1 to %d are possible", layer->who,
                 (long long)params->head_dim, TSR_MAX_HEAD_DIM);
    if (params->value_dim == 0)
        params->value_dim = params->head_dim;
    TSR__REQUIRE(params->value_dim >= 1 && params->value_dim <= TSR_MAX_HEAD_DIM,
                 "%s: value_dim is %lld; 1 to %d are possible", layer->who,
                 (long long)params->value_dim, TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(!params->keys_as_values || params->value_dim == params->head_dim,
                 "%s: keys_as_values is set, but value_dim is %lld and head_dim %lld", layer->who,
                 (long long)params->value_dim, (long long)params->head_dim);
    return TSR_OK;
}

static tsr_status check_attention_params(const tsr_layer *layer, head_plan *p)
{
    const tsr_self_attention_params *params = &p->params;
    TSR__TRY(check_sizes(layer, p));
    TSR__REQUIRE(params->window >= 0 && (params->window == 0 || params->causal),
                 "%s: window is %lld%s; it must be positive, and goes with causal attention",
                 layer->who, (long long)params->window, params->causal ? "" : ", not causal");
    TSR__REQUIRE(p->partition.align <= TSR_MAX_HEADS,
                 "%s: partition.align is %llu; at most %d heads are possible", layer->who,
                 (unsigned long long)p->partition.align, TSR_MAX_HEADS);
    TSR__REQUIRE((unsigned)params->qk_norm <= TSR_QK_NORM_WHOLE,
                 "%s: qk_norm is %d, which is not a tsr_qk_norm", layer->who, (int)params->qk_norm);
    TSR__REQUIRE(isfinite(params->temperature) &&
                     (params->temperature == 0 || params->temperature_length >= 1),
                 "%s: temperature is %g and temperature_length %lld; the length must be at least 1",
                 layer->who, (double)params->temperature, (long long)params->temperature_length);
    TSR__REQUIRE(!params->shared_keys || (params->qk_norm != TSR_QK_NORM_WHOLE && params->causal &&
                                          !params->sequence && !params->keys_as_values),
                 "%s: shared_keys goes with causal attention, and not with TSR_QK_NORM_WHOLE, "
                 "sequence or keys_as_values",
                 layer->who);
    TSR__REQUIRE(!params->keys_as_values || !params->bias,
                 "%s: keys_as_values does not go with bias", layer->who);
    TSR__REQUIRE(!params->output_gate || !(params->keys_as_values || params->shared_keys),
                 "%s: output_gate does not go with keys_as_values or shared_keys", layer->who);
    TSR__REQUIRE(tsr_group_size(params->context_group) == 1 || params->causal,
                 "%s: context_group goes with causal attention", layer->who);
    TSR__TRY(tsr__context_check(layer, params->context_group));
    TSR__REQUIRE(tsr_group_size(params->context_group) == 1 ||
                     params->value_dim == params->head_dim,
                 "%s: value_dim is %lld and head_dim %lld; with a context_group they must be equal",
                 layer->who, (long long)params->value_dim, (long long)params->head_dim);
    TSR__REQUIRE(isfinite(params->scale), "%s: scale is %g", layer->who, (double)params->scale);
    TSR__REQUIRE(isfinite(params->softcap) && params->softcap >= 0,
                 "%s: softcap is %g; it must not be negative", layer->who, (double)params->softcap);
    TSR__REQUIRE(!params->rope || params->rope->rotary_dim <= params->head_dim,
                 "%s: rope has a rotary_dim of %lld, but head_dim is %lld", layer->who,
                 (long long)params->rope->rotary_dim, (long long)params->head_dim);
    TSR__TRY(tsr__layer_init(layer, "output_init", params->output_init, &p->output_init));
    TSR__TRY(tsr__linear_check(
        layer, tsr_linear_params(.overlap_parts = params->overlap_parts, .init = params->init,
                                 .dtype = params->dtype, .grad_dtype = params->grad_dtype)));
    return params->sequence ? tsr__layer_check_sequence_dim(layer, params->sequence_dim) : TSR_OK;
}

/* Heads -------------------------------------------------------------------------------------- */

/* Gets a division with `factor` elements for each element of `in`. */
static tsr_status scale_division(const tsr_layer *layer, const tsr__division *in, int64_t factor,
                                 tsr__division *out)
{
    int64_t *sizes = tsr__calloc((size_t)layer->size, sizeof *sizes);
    if (!sizes)
        return TSR_ERR_NO_MEMORY;
    for (int r = 0; r < layer->size; r++)
        sizes[r] = in->sizes[r] * factor;
    *out = (tsr__division){sizes, in->first * factor, in->length * factor};
    return TSR_OK;
}

/* Finds the kv heads that the query heads of this rank read. These kv heads are consecutive. */
static tsr_status set_kv_heads(tsr__attention *a, const head_plan *p)
{
    const int64_t per_kv_head = p->params.heads / p->params.kv_heads;
    tsr_heads *heads = &a->heads;
    heads->kv_first = heads->first / per_kv_head;
    heads->kv_count = heads->count == 0
                          ? 0
                          : (heads->first + heads->count - 1) / per_kv_head + 1 - heads->kv_first;
    a->kv_head = tsr__calloc((size_t)heads->count + 1, sizeof *a->kv_head);
    if (!a->kv_head)
        return TSR_ERR_NO_MEMORY;
    a->regular = true;
    for (int64_t h = 0; h < heads->count; h++) {
        a->kv_head[h] = (int32_t)((heads->first + h) / per_kv_head - heads->kv_first);
        a->regular = a->regular && a->kv_head[h] == h * heads->kv_count / heads->count;
    }
    return TSR_OK;
}

/* Divides the kv heads among the ranks, with the query heads that read them. If there are fewer kv
 * heads than ranks, divides the query heads instead. */
static tsr_status divide_heads(tsr__attention *a, head_plan *p)
{
    const tsr_layer *layer = &a->base;
    const tsr_self_attention_params *params = &p->params;
    p->replicated = params->kv_heads < layer->size;
    const int64_t queries = p->replicated ? 1 : params->heads / params->kv_heads;
    TSR__TRY(tsr__layer_partition(layer, p->replicated ? "heads" : "kv_heads",
                                  p->replicated ? params->heads : params->kv_heads, "partition",
                                  &p->partition, &p->divided_heads));
    TSR__TRY(scale_division(layer, &p->divided_heads, queries * params->head_dim, &p->features));
    TSR__TRY(scale_division(layer, &p->divided_heads, queries * params->value_dim, &p->results));
    if (!p->replicated) {
        TSR__TRY(scale_division(layer, &p->divided_heads, params->head_dim, &p->kv_features));
        TSR__TRY(scale_division(layer, &p->divided_heads, params->value_dim, &p->values));
    }
    a->heads.first = p->divided_heads.first * queries;
    a->heads.count = p->divided_heads.length * queries;
    a->heads.head_dim = params->head_dim;
    a->heads.value_dim = params->value_dim;
    TSR__TRY(set_kv_heads(a, p));
    p->kv_features.first = a->heads.kv_first * params->head_dim;
    p->kv_features.length = a->heads.kv_count * params->head_dim;
    p->values.first = a->heads.kv_first * params->value_dim;
    p->values.length = a->heads.kv_count * params->value_dim;
    return TSR_OK;
}

/* Layers ------------------------------------------------------------------------------------- */

static tsr_linear_params linear_params(const tsr__attention *a, const head_plan *p)
{
    const tsr_self_attention_params *params = &p->params;
    return (tsr_linear_params){
        .struct_size = sizeof(tsr_linear_params),
        .group = a->base.group,
        .name = params->name,
        .input_size = params->size,
        .output_size = params->heads * params->head_dim,
        .bias = params->bias,
        .dtype = params->dtype,
        .input = params->sequence ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL,
        .sequence_dim = params->sequence_dim,
        .init = params->init,
        .grad_dtype = params->grad_dtype,
        .reduce_f32 = params->reduce_f32,
        .overlap_parts = params->overlap_parts,
        .deferred = params->deferred,
    };
}

static tsr_status create_input(tsr__attention *a, const head_plan *p)
{
    const tsr_linear_params linear = linear_params(a, p);
    const tsr__column_block q = {
        .name = "q",
        .output_size = p->params.heads * p->params.head_dim,
        .division = p->features,
    };
    const tsr__column_block k = {
        .name = "k",
        .output_size = p->params.kv_heads * p->params.head_dim,
        .division = p->kv_features,
        .replicated = p->replicated,
    };
    const tsr__column_block v = {
        .name = "v",
        .output_size = p->params.kv_heads * p->params.value_dim,
        .division = p->values,
        .replicated = p->replicated,
    };
    const tsr__column_block gate = {
        .name = "gate",
        .output_size = p->params.heads * p->params.value_dim,
        .division = p->results,
    };
    const int count = p->params.shared_keys      ? 1
                      : p->params.keys_as_values ? 2
                      : a->output_gate           ? 4
                                                 : 3;
    tsr_layer *child;
    TSR__TRY(tsr__column_create(&linear, count, (tsr__column_block[]){q, k, v, gate}, &child));
    return tsr__layer_add_child(&a->base, child);
}

static tsr_status create_output(tsr__attention *a, const head_plan *p)
{
    const tsr_self_attention_params *params = &p->params;
    tsr_linear_params linear = linear_params(a, p);
    const int64_t unit = p->replicated ? 1 : params->heads / params->kv_heads;
    linear.input_size = params->heads * params->value_dim;
    linear.output_size = params->size;
    linear.bias = params->output_bias;
    linear.input = TSR_LAYOUT_SHARDED;
    linear.output = params->sequence ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL;
    tsr_partition_params partition = p->partition;
    partition.align = tsr__max_u64(partition.align, 1) * (uint64_t)(unit * params->value_dim);
    linear.partition = &partition;
    if (p->output_init.kind != TSR_INIT_DEFAULT)
        linear.init = &p->output_init;
    tsr_layer *child;
    TSR__TRY(tsr__row_create(&linear, "o", &child));
    return tsr__layer_add_child(&a->base, child);
}

/* Adds the weights of a norm over all heads, of which each rank has those of its features. */
static tsr_status add_whole_norm(tsr__attention *a, const head_plan *p, int which, const char *name,
                                 tsr_dtype dtype)
{
    const bool divided = which == TSR__Q_NORM || !p->replicated;
    tsr__division division = which == TSR__Q_NORM ? p->features : p->kv_features;
    if (divided) {
        const size_t bytes = (size_t)a->base.size * sizeof *division.sizes;
        a->weight_sizes[which] = tsr__calloc(1, bytes);
        if (!a->weight_sizes[which])
            return TSR_ERR_NO_MEMORY;
        memcpy(a->weight_sizes[which], division.sizes, bytes);
        division.sizes = a->weight_sizes[which];
    }
    const tsr__parameter_spec spec = {
        .name = name,
        .dtype = dtype,
        .grad_dtype = p->params.grad_dtype,
        .ndim = 1,
        .shape = {a->whole[which], 0},
        .shard_dim = divided ? 0 : -1,
        .division = divided ? &division : NULL,
        .init = {.kind = TSR_INIT_DEFAULT},
        .fan_in = a->whole[which],
        .fan_out = a->whole[which],
        .ones = true,
    };
    return tsr__norm_parameter_add_divided(&a->base, &spec);
}

/* Finds out which kv heads this rank counts in sums over all ranks: those whose first query head it
 * has. */
static void set_counted(tsr__attention *a, const head_plan *p)
{
    const int64_t each = p->params.heads / p->params.kv_heads, first = a->heads.first,
                  end = first + a->heads.count;
    const int64_t from = (first + each - 1) / each, to = (end + each - 1) / each;
    a->counted_first = from - a->heads.kv_first;
    a->counted = a->heads.count == 0 ? 0 : to - from;
    if (a->counted == 0)
        a->counted_first = 0;
}

static tsr_status create_norms(tsr__attention *a, const head_plan *p)
{
    const tsr_self_attention_params *params = &p->params;
    static const char *const names[] = {"q_norm.weight", "k_norm.weight"};
    a->qk_norm = params->qk_norm;
    if (a->qk_norm != TSR_QK_NORM_NONE || a->value_norm)
        TSR__TRY(
            tsr__norm_epsilon(&a->base, "norm_epsilon", params->norm_epsilon, &a->norm_epsilon));
    if (a->qk_norm == TSR_QK_NORM_NONE)
        return TSR_OK;
    a->whole[TSR__Q_NORM] = params->heads * params->head_dim;
    a->whole[TSR__K_NORM] = params->kv_heads * params->head_dim;
    a->replicated = p->replicated;
    set_counted(a, p);
    const tsr_dtype dtype = params->norm_dtype != 0 ? params->norm_dtype : params->dtype;
    for (int i = 0; i < (a->shared_keys ? 1 : 2); i++) {
        TSR__TRY(a->qk_norm == TSR_QK_NORM_WHOLE
                     ? add_whole_norm(a, p, i, names[i], dtype)
                     : tsr__norm_parameter_add(&a->base, names[i], params->head_dim, dtype,
                                               params->grad_dtype, false));
        if (!params->deferred)
            TSR__TRY(tsr__parameter_allocate(&a->base, i));
    }
    return TSR_OK;
}

static tsr_status create_sinks(tsr__attention *a, const head_plan *p)
{
    const tsr_self_attention_params *params = &p->params;
    const int64_t queries = p->replicated ? 1 : params->heads / params->kv_heads;
    tsr__parameter_spec spec = {
        .name = "sinks",
        .dtype = TSR_F32,
        .ndim = 1,
        .shape = {params->heads, 0},
        .fan_in = params->head_dim,
        .fan_out = params->head_dim,
        .bias = true,
    };
    a->sinks = params->sinks;
    if (!a->sinks)
        return TSR_OK;
    tsr__division division;
    TSR__TRY(scale_division(&a->base, &p->divided_heads, queries, &division));
    a->head_sizes = division.sizes;
    spec.division = &division;
    TSR__TRY(tsr__layer_init(&a->base, "init", params->init, &spec.init));
    TSR__TRY(tsr__layer_dtype(&a->base, "grad_dtype", params->grad_dtype, &spec.grad_dtype));
    TSR__TRY(tsr__parameter_add(&a->base, &spec));
    return params->deferred ? TSR_OK
                            : tsr__parameter_allocate(&a->base, a->base.parameter_count - 1);
}

static tsr_status init_attention(tsr__attention *a, head_plan *p)
{
    tsr_layer *layer = &a->base;
    TSR__TRY(check_attention_params(layer, p));
    TSR__TRY(divide_heads(a, p));
    a->causal = p->params.causal;
    a->output_gate = p->params.output_gate;
    a->window = p->params.window;
    a->temperature = p->params.temperature;
    a->temperature_length = p->params.temperature_length;
    a->scale = p->params.scale;
    a->softcap = p->params.softcap;
    a->value_norm = p->params.value_norm;
    a->keys_as_values = p->params.keys_as_values;
    a->shared_keys = p->params.shared_keys;
    if (tsr_group_size(p->params.context_group) > 1)
        a->context_group = p->params.context_group;
    if (p->params.rope) {
        tsr_status status = tsr_rope_create(layer->stream, p->params.rope, &a->rope);
        if (status != TSR_OK)
            return tsr__fail_context(status, "%s", layer->who);
    }
    TSR__TRY(create_norms(a, p));
    TSR__TRY(create_sinks(a, p));
    TSR__TRY(create_input(a, p));
    return create_output(a, p);
}

tsr_status tsr_self_attention_create(const tsr_self_attention_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "self_attention: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_self_attention_params, params);
    tsr_layer *layer;
    head_plan p = {.params = *params};
    const tsr_status taken = TSR__TAKE_PART(tsr_partition_params, params->partition, &p.partition);
    if (taken != TSR_OK)
        return tsr__fail_context(taken, "self_attention: partition");
    TSR__TRY(tsr__layer_new(&tsr__self_attention_type, sizeof(tsr__attention), params->group,
                            params->name, &layer));
    tsr_status status = init_attention((tsr__attention *)layer, &p);
    head_plan_finish(&p);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
