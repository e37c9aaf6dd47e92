/* Creates layers of latent attention: checks the params, divides the heads among the ranks, and
 * adds the parameters. */
#include "parallel/layers/latent_attention.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/norm_layer.h"

#define MOST_EXPANDED (INT64_C(1) << 25)

/* The type ------------------------------------------------------------------------------------ */

static tsr_status forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                          tsr_tensor **y)
{
    return tsr__latent_forward_added(layer, x, NULL, NULL, saved, y);
}

static tsr_status forward_cached(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                 tsr_tensor **y)
{
    return tsr__latent_forward_added(layer, x, cached, NULL, NULL, y);
}

static void finish(tsr_layer *layer)
{
    tsr__latent_attention *a = (tsr__latent_attention *)layer;
    tsr_tensor_destroy(&a->positions);
    tsr_rope_destroy(&a->rope);
    tsr__free(a->division.sizes);
    tsr__free(a->q_sizes);
}

const tsr__layer_type tsr__latent_attention_type = {.name = "latent_attention",
                                                    .forward = forward,
                                                    .backward = tsr__latent_backward,
                                                    .finish = finish,
                                                    .forward_cached = forward_cached,
                                                    .forward_added = tsr__latent_forward_added};

tsr__latent_attention *tsr__latent_of(const tsr_layer *layer)
{
    const tsr_layer *found = layer->type == &tsr__latent_attention_type ? layer : NULL;
    for (int i = 0; i < layer->child_count; i++)
        if (layer->child[i]->type == &tsr__latent_attention_type)
            found = layer->child[i];
    return (tsr__latent_attention *)found;
}

void tsr__latent_sizes(const tsr__latent_attention *a, int which, int64_t *inputs, int64_t *outputs,
                       tsr__division *division)
{
    const struct {
        int64_t inputs, outputs;
        int64_t *sizes;
        int64_t each; /* features of a head, if they are divided */
    } of[TSR__LATENT_PARAMETERS] = {
        [TSR__LATENT_Q_A] = {a->size, a->q_rank, NULL, 0},
        [TSR__LATENT_Q] = {a->q_rank > 0 ? a->q_rank : a->size, a->heads * (a->nope + a->rotary),
                           a->q_sizes, a->nope + a->rotary},
        [TSR__LATENT_KV_A] = {a->size, a->kv_rank + a->rotary, NULL, 0},
        [TSR__LATENT_K_B] = {a->kv_rank, a->heads * a->nope, a->k_sizes, a->nope},
        [TSR__LATENT_V_B] = {a->kv_rank, a->heads * a->value, a->v_sizes, a->value},
    };
    *inputs = of[which].inputs;
    *outputs = of[which].outputs;
    *division = (tsr__division){of[which].sizes, a->division.first * of[which].each,
                                a->division.length * of[which].each};
}

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_sizes(const tsr_layer *layer, const tsr_latent_attention_params *p)
{
    TSR__REQUIRE(p->size >= 1 && p->size <= INT32_MAX && p->heads >= 1 && p->heads <= TSR_MAX_HEADS,
                 "%s: size is %lld, heads %lld; both must be at least 1, and heads at most %d",
                 layer->who, (long long)p->size, (long long)p->heads, TSR_MAX_HEADS);
    TSR__REQUIRE(p->q_lora_rank >= 0 && p->q_lora_rank <= INT32_MAX && p->kv_lora_rank >= 1,
                 "%s: q_lora_rank is %lld, kv_lora_rank %lld; the first must not be negative, and "
                 "the second at least 1",
                 layer->who, (long long)p->q_lora_rank, (long long)p->kv_lora_rank);
    TSR__REQUIRE(p->nope_dim >= 1 && p->rope_dim >= 1 && p->value_dim >= 1,
                 "%s: nope_dim is %lld, rope_dim %lld, value_dim %lld; all must be at least 1",
                 layer->who, (long long)p->nope_dim, (long long)p->rope_dim,
                 (long long)p->value_dim);
    TSR__REQUIRE(p->kv_lora_rank <= TSR_MAX_HEAD_DIM - p->rope_dim &&
                     p->nope_dim <= TSR_MAX_HEAD_DIM - p->rope_dim &&
                     p->value_dim <= TSR_MAX_HEAD_DIM,
                 "%s: kv_lora_rank is %lld, nope_dim %lld, rope_dim %lld and value_dim %lld; the "
                 "sums of rope_dim and one of the first two, and value_dim, may be at most %d",
                 layer->who, (long long)p->kv_lora_rank, (long long)p->nope_dim,
                 (long long)p->rope_dim, (long long)p->value_dim, TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(!p->rope || p->rope->rotary_dim == p->rope_dim,
                 "%s: rope has a rotary_dim of %lld, but rope_dim is %lld", layer->who,
                 (long long)(p->rope ? p->rope->rotary_dim : 0), (long long)p->rope_dim);
    TSR__REQUIRE(isfinite(p->scale), "%s: scale is %g", layer->who, (double)p->scale);
    return tsr__linear_check(layer,
                             tsr_linear_params(.overlap_parts = p->overlap_parts, .init = p->init,
                                               .dtype = p->dtype, .grad_dtype = p->grad_dtype));
}

/* Parameters --------------------------------------------------------------------------------- */

static tsr_status add(tsr__latent_attention *a, tsr__latent_parameter which,
                      const tsr__parameter_spec *spec)
{
    a->index[which] = a->base.parameter_count;
    return tsr__parameter_add(&a->base, spec);
}

/* Adds a weight [rows, columns], whose rows the ranks divide if there is a division. */
static tsr_status add_weight(tsr__latent_attention *a, tsr__latent_parameter which,
                             const tsr__parameter_spec *base, const char *name, int64_t rows,
                             int64_t columns, const tsr__division *division)
{
    tsr__parameter_spec spec = *base;
    spec.name = name;
    spec.ndim = 2;
    spec.shape[0] = spec.fan_out = rows;
    spec.shape[1] = spec.fan_in = columns;
    spec.shard_dim = division ? 0 : -1;
    spec.division = division;
    return add(a, which, &spec);
}

/* Adds a weight with a matrix [rows, columns] for each head. */
static tsr_status add_matrices(tsr__latent_attention *a, tsr__latent_parameter which,
                               const tsr__parameter_spec *base, const char *name, int64_t rows,
                               int64_t columns)
{
    tsr__parameter_spec spec = *base;
    spec.name = name;
    spec.ndim = 3;
    spec.shape[0] = a->heads;
    spec.shape[1] = rows;
    spec.shape[2] = columns;
    spec.fan_in = a->kv_rank;
    spec.fan_out = rows == a->kv_rank ? columns : rows;
    spec.division = &a->division;
    return add(a, which, &spec);
}

static tsr_status add_norm(tsr__latent_attention *a, tsr__latent_parameter which, const char *name,
                           int64_t size, const tsr_latent_attention_params *p)
{
    a->index[which] = a->base.parameter_count;
    return tsr__norm_parameter_add(
        &a->base, name, size, p->norm_dtype != 0 ? p->norm_dtype : p->dtype, p->grad_dtype, false);
}

static tsr_status add_parameters(tsr__latent_attention *a, const tsr_latent_attention_params *p)
{
    const int64_t each = a->nope + a->rotary;
    tsr__parameter_spec base = {.ndim = 2};
    TSR__TRY(tsr__layer_dtype(&a->base, "dtype", p->dtype, &base.dtype));
    TSR__TRY(tsr__layer_dtype(&a->base, "grad_dtype", p->grad_dtype, &base.grad_dtype));
    TSR__TRY(tsr__layer_init(&a->base, "init", p->init, &base.init));
    a->q_sizes = tsr__calloc((size_t)a->base.size, 3 * sizeof *a->q_sizes);
    if (!a->q_sizes)
        return TSR_ERR_NO_MEMORY;
    a->k_sizes = a->q_sizes + a->base.size;
    a->v_sizes = a->k_sizes + a->base.size;
    for (int r = 0; r < a->base.size; r++) {
        a->q_sizes[r] = a->division.sizes[r] * each;
        a->k_sizes[r] = a->division.sizes[r] * a->nope;
        a->v_sizes[r] = a->division.sizes[r] * a->value;
    }
    const tsr__division queries = {a->q_sizes, a->division.first * each, a->division.length * each};
    if (a->q_rank > 0) {
        TSR__TRY(add_weight(a, TSR__LATENT_Q_A, &base, "q_a.weight", a->q_rank, a->size, NULL));
        TSR__TRY(add_norm(a, TSR__LATENT_Q_A_NORM, "q_a_norm.weight", a->q_rank, p));
    }
    TSR__TRY(add_weight(a, TSR__LATENT_Q, &base, a->q_rank > 0 ? "q_b.weight" : "q.weight",
                        a->heads * each, a->q_rank > 0 ? a->q_rank : a->size, &queries));
    TSR__TRY(add_weight(a, TSR__LATENT_KV_A, &base, "kv_a.weight", a->kv_rank + a->rotary, a->size,
                        NULL));
    TSR__TRY(add_norm(a, TSR__LATENT_KV_A_NORM, "kv_a_norm.weight", a->kv_rank, p));
    TSR__TRY(add_matrices(a, TSR__LATENT_K_B, &base, "k_b.weight", a->kv_rank, a->nope));
    TSR__TRY(add_matrices(a, TSR__LATENT_V_B, &base, "v_b.weight", a->value, a->kv_rank));
    for (int i = 0; i < a->base.parameter_count && !p->deferred; i++)
        TSR__TRY(tsr__parameter_allocate(&a->base, i));
    return TSR_OK;
}

/* Layers ------------------------------------------------------------------------------------- */

static tsr_status create_output(tsr__latent_attention *a, const tsr_latent_attention_params *p,
                                const tsr_partition_params *heads)
{
    tsr_partition_params partition = *heads;
    tsr_init_params output_init;
    tsr_layer *child;
    partition.align = tsr__max_u64(partition.align, 1) * (uint64_t)a->value;
    TSR__TRY(tsr__layer_init(&a->base, "output_init", p->output_init, &output_init));
    tsr_linear_params linear = {.struct_size = sizeof linear,
                                .group = a->base.group,
                                .name = p->name,
                                .input_size = a->heads * a->value,
                                .output_size = a->size,
                                .dtype = p->dtype,
                                .input = TSR_LAYOUT_SHARDED,
                                .output = TSR_LAYOUT_FULL,
                                .partition = &partition,
                                .init = p->init,
                                .grad_dtype = p->grad_dtype,
                                .reduce_f32 = p->reduce_f32,
                                .overlap_parts = p->overlap_parts,
                                .deferred = p->deferred};
    if (output_init.kind != TSR_INIT_DEFAULT)
        linear.init = &output_init;
    TSR__TRY(tsr__row_create(&linear, "o", &child));
    return tsr__layer_add_child(&a->base, child);
}

static tsr_status init(tsr__latent_attention *a, const tsr_latent_attention_params *p,
                       const tsr_partition_params *partition)
{
    tsr_layer *layer = &a->base;
    TSR__TRY(check_sizes(layer, p));
    a->size = p->size;
    a->heads = p->heads;
    a->q_rank = p->q_lora_rank;
    a->kv_rank = p->kv_lora_rank;
    a->nope = p->nope_dim;
    a->rotary = p->rope_dim;
    a->value = p->value_dim;
    a->causal = p->causal;
    a->reduce_f32 = p->reduce_f32;
    a->most_expanded = MOST_EXPANDED;
    a->scale = p->scale != 0 ? p->scale : (float)(1 / sqrt((double)(a->nope + a->rotary)));
    for (int i = 0; i < TSR__LATENT_PARAMETERS; i++)
        a->index[i] = -1;
    TSR__TRY(tsr__norm_epsilon(layer, "norm_epsilon", p->norm_epsilon, &a->norm_epsilon));
    TSR__REQUIRE(partition->align <= TSR_MAX_HEADS,
                 "%s: partition.align is %llu; at most %d heads are possible", layer->who,
                 (unsigned long long)partition->align, TSR_MAX_HEADS);
    TSR__TRY(tsr__layer_partition(layer, "heads", a->heads, "partition", partition, &a->division));
    if (p->rope) {
        const tsr_status status = tsr_rope_create(layer->stream, p->rope, &a->rope);
        if (status != TSR_OK)
            return tsr__fail_context(status, "%s", layer->who);
    }
    TSR__TRY(add_parameters(a, p));
    return create_output(a, p, partition);
}

tsr_status tsr_latent_attention_create(const tsr_latent_attention_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "latent_attention: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_latent_attention_params, params);
    tsr_partition_params partition;
    const tsr_status taken = TSR__TAKE_PART(tsr_partition_params, params->partition, &partition);
    if (taken != TSR_OK)
        return tsr__fail_context(taken, "latent_attention: partition");
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&tsr__latent_attention_type, sizeof(tsr__latent_attention),
                            params->group, params->name, &layer));
    const tsr_status status = init((tsr__latent_attention *)layer, params, &partition);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
