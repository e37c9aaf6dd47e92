/* Creates transformer blocks. */
#include "parallel/layers/transformer_block.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/norm_layer.h"
#include "tessera/transformer.h"

/* Makes the name of a child: for "h.0" and "norm1", "h.0.norm1". */
static tsr_status child_name(const tsr_layer *layer, const char *last, char **out)
{
    const size_t size = strlen(layer->name) + strlen(last) + 2;
    *out = tsr__calloc(size, 1);
    if (!*out)
        return TSR_ERR_NO_MEMORY;
    strcpy(*out, layer->name);
    if (*layer->name)
        strcat(*out, ".");
    strcat(*out, last);
    return TSR_OK;
}

/* Adds a child if creating it had the status TSR_OK. Frees its name. */
static tsr_status add_created(tsr__block *b, tsr_status status, char *name, tsr_layer *child)
{
    tsr__free(name);
    return status == TSR_OK ? tsr__layer_add_child(&b->base, child) : status;
}

/* Sets the fields that the params of all children have alike. */
#define SET_COMMON_FIELDS(of, params, child_name)                                                  \
    ((of).group = (params)->group, (of).name = (child_name),                                       \
     (of).grad_dtype = (params)->grad_dtype, (of).deferred = (params)->deferred)

/* Creates a norm and sets *index to its index. */
static tsr_status create_norm(tsr__block *b, const tsr_block_params *params, const char *last,
                              int *index)
{
    tsr_norm_params norm;
    TSR__TRY(TSR__TAKE_PART(tsr_norm_params, params->norm, &norm));
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, last, &name));
    SET_COMMON_FIELDS(norm, params, name);
    norm.size = params->size;
    norm.sequence = params->sequence;
    norm.dtype = norm.dtype != 0 ? norm.dtype : params->dtype;
    tsr_status status = tsr_norm_create(&norm, &child);
    *index = b->base.child_count;
    return add_created(b, status, name, child);
}

static tsr_status create_attention(const tsr_block_params *params, const char *name,
                                   tsr_layer **out)
{
    tsr_self_attention_params attention;
    TSR__TRY(TSR__TAKE_PART(tsr_self_attention_params, params->attention, &attention));
    SET_COMMON_FIELDS(attention, params, name);
    attention.size = params->size;
    attention.sequence = params->sequence;
    attention.sequence_dim = params->sequence_dim;
    attention.dtype = params->dtype;
    return tsr_self_attention_create(&attention, out);
}

static tsr_status create_delta_net(const tsr_block_params *params, const char *name,
                                   tsr_layer **out)
{
    tsr_delta_net_params net;
    TSR__TRY(TSR__TAKE_PART(tsr_delta_net_params, params->delta_net, &net));
    SET_COMMON_FIELDS(net, params, name);
    net.size = params->size;
    net.dtype = params->dtype;
    return tsr_delta_net_create(&net, out);
}

static tsr_status create_latent_attention(const tsr_block_params *params, const char *name,
                                          tsr_layer **out)
{
    tsr_latent_attention_params attention;
    TSR__TRY(TSR__TAKE_PART(tsr_latent_attention_params, params->latent_attention, &attention));
    SET_COMMON_FIELDS(attention, params, name);
    attention.size = params->size;
    attention.dtype = params->dtype;
    return tsr_latent_attention_create(&attention, out);
}

static tsr_status create_short_conv(const tsr_block_params *params, const char *name,
                                    tsr_layer **out)
{
    tsr_short_conv_params conv;
    TSR__TRY(TSR__TAKE_PART(tsr_short_conv_params, params->short_conv, &conv));
    SET_COMMON_FIELDS(conv, params, name);
    conv.size = params->size;
    conv.dtype = params->dtype;
    return tsr_short_conv_create(&conv, out);
}

static tsr_status create_experts(const tsr_block_params *params, const char *name, tsr_layer **out)
{
    tsr_moe_params experts;
    TSR__TRY(TSR__TAKE_PART(tsr_moe_params, params->experts, &experts));
    SET_COMMON_FIELDS(experts, params, name);
    experts.input_size = params->size;
    experts.dtype = params->dtype;
    return tsr_moe_create(&experts, out);
}

static tsr_status create_mlp(const tsr_block_params *params, const char *name, tsr_layer **out)
{
    tsr_mlp_params mlp;
    TSR__TRY(TSR__TAKE_PART(tsr_mlp_params, params->mlp, &mlp));
    SET_COMMON_FIELDS(mlp, params, name);
    mlp.input_size = mlp.output_size = params->size;
    mlp.sequence = params->sequence;
    mlp.sequence_dim = params->sequence_dim;
    mlp.dtype = params->dtype;
    return tsr_mlp_create(&mlp, out);
}

/* A kind of layer that can be the layer of a residual branch. */
typedef struct branch_layer {
    const char *field; /* of tsr_block_params */
    size_t offset;     /* of this field, a pointer to the params of the layer */
    const char *name;  /* of the child */
    bool sequence;     /* possible with sequence parallelism */
    tsr_status (*create)(const tsr_block_params *params, const char *name, tsr_layer **out);
} branch_layer;

#define FIELD(field) #field, offsetof(tsr_block_params, field)

/* Those that mix tokens, of which a block has one. The first one has defaults. */
static const branch_layer mixers[] = {
    {FIELD(attention), "attention", true, create_attention},
    {FIELD(delta_net), "delta_net", false, create_delta_net},
    {FIELD(latent_attention), "attention", false, create_latent_attention},
    {FIELD(short_conv), "short_conv", false, create_short_conv},
};
static const branch_layer mlp_layer = {FIELD(mlp), "mlp", true, create_mlp},
                          experts_layer = {FIELD(experts), "mlp", false, create_experts};

static bool is_given(const tsr_block_params *params, const branch_layer *of)
{
    const void *field;
    memcpy(&field, (const char *)params + of->offset, sizeof field);
    return field != NULL;
}

static tsr_status create_branch_layer(tsr__block *b, const tsr_block_params *params,
                                      const branch_layer *of)
{
    TSR__REQUIRE(of->sequence || !params->sequence,
                 "%s: %s is given with sequence, which is not possible", b->base.who, of->field);
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, of->name, &name));
    const tsr_status status = of->create(params, name, &child);
    return add_created(b, status, name, child);
}

static tsr_status create_mixer(tsr__block *b, const tsr_block_params *params)
{
    const branch_layer *found = NULL;
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++) {
        if (!is_given(params, &mixers[i]))
            continue;
        TSR__REQUIRE(!found, "%s: %s and %s are given; only one is possible", b->base.who,
                     found->field, mixers[i].field);
        found = &mixers[i];
    }
    return create_branch_layer(b, params, found ? found : &mixers[0]);
}

/* Adds a linear layer of which each rank has all. */
static tsr_status create_whole(tsr__block *b, const tsr_block_params *params, const char *last,
                               int64_t input, int64_t output, int *index)
{
    tsr_layer *child = NULL;
    char *name;
    TSR__TRY(child_name(&b->base, last, &name));
    const tsr_status status = tsr__whole_linear_create(
        tsr_linear_params(.group = b->base.group, .name = name, .input_size = input,
                          .output_size = output, .dtype = params->dtype,
                          .grad_dtype = params->grad_dtype, .deferred = params->deferred),
        &child);
    *index = b->base.child_count;
    return add_created(b, status, name, child);
}

/* Adds what follows the two branches. */
static tsr_status create_end(tsr__block *b, const tsr_block_params *params)
{
    TSR__REQUIRE(params->layer_input >= 0, "%s: layer_input is %lld; it must not be negative",
                 b->base.who, (long long)params->layer_input);
    TSR__REQUIRE(!params->sequence || (params->layer_input == 0 && !params->output_scale),
                 "%s: layer_input and output_scale do not go with sequence", b->base.who);
    if (params->layer_input == 0)
        return TSR_OK;
    TSR__TRY(create_whole(b, params, "end.gate", params->size, params->layer_input, &b->gate));
    TSR__TRY(create_whole(b, params, "end.out", params->layer_input, params->size, &b->out));
    return create_norm(b, params, "end.norm", &b->end_norm);
}

static tsr_status create_scale(tsr__block *b, const tsr_block_params *params)
{
    const tsr__parameter_spec spec = {.name = "end.scale",
                                      .dtype = TSR_F32,
                                      .grad_dtype = TSR_F32,
                                      .ndim = 1,
                                      .shape = {1},
                                      .shard_dim = -1,
                                      .init = {.kind = TSR_INIT_DEFAULT},
                                      .fan_in = 1,
                                      .fan_out = 1,
                                      .ones = true};
    b->output_scale = params->output_scale;
    if (!b->output_scale)
        return TSR_OK;
    TSR__TRY(tsr__parameter_add(&b->base, &spec));
    return params->deferred ? TSR_OK : tsr__parameter_allocate(&b->base, 0);
}

/* Adds the MLP, the experts, or both. */
static tsr_status create_hidden(tsr__block *b, const tsr_block_params *params)
{
    b->mlp.layer = b->base.child_count;
    if (!params->experts || !params->mlp)
        return create_branch_layer(b, params, params->experts ? &experts_layer : &mlp_layer);
    TSR__TRY(create_branch_layer(b, params, &mlp_layer));
    TSR__TRY(create_norm(b, params, "mlp_norm", &b->mlp.layer_norm));
    b->mlp.experts = b->base.child_count;
    TSR__TRY(create_branch_layer(b, params, &experts_layer));
    return create_norm(b, params, "experts_norm", &b->mlp.experts_norm);
}

static const tsr__residual_branch no_children = {
    .norm = -1, .post_norm = -1, .experts = -1, .layer_norm = -1, .experts_norm = -1};

static tsr_status init_block(tsr__block *b, const tsr_block_params *params)
{
    b->recompute = params->recompute;
    b->has_experts = params->experts != NULL;
    b->sequence = params->sequence;
    b->sequence_dim = params->sequence_dim;
    TSR__REQUIRE(params->size >= 1, "%s: size is %lld; it must be at least 1", b->base.who,
                 (long long)params->size);
    TSR__REQUIRE((unsigned)params->norms <= TSR_BLOCK_NORMS_BOTH,
                 "%s: norms is %d, which is not a tsr_block_norms", b->base.who,
                 (int)params->norms);
    b->residual_scale = params->residual_scale == 0 ? 1 : params->residual_scale;
    TSR__REQUIRE(isfinite(b->residual_scale), "%s: residual_scale is %g", b->base.who,
                 (double)b->residual_scale);
    const bool before = params->norms != TSR_BLOCK_NORMS_AFTER,
               after = params->norms != TSR_BLOCK_NORMS_BEFORE;
    b->attention = b->mlp = no_children;
    b->attention.name = "attention";
    b->mlp.name = "mlp";
    b->gate = b->out = b->end_norm = -1;
    TSR__TRY(create_scale(b, params));
    if (before)
        TSR__TRY(create_norm(b, params, "norm1", &b->attention.norm));
    b->attention.layer = b->base.child_count;
    TSR__TRY(create_mixer(b, params));
    if (after)
        TSR__TRY(create_norm(b, params, "post_norm1", &b->attention.post_norm));
    if (before)
        TSR__TRY(create_norm(b, params, "norm2", &b->mlp.norm));
    TSR__TRY(create_hidden(b, params));
    if (after)
        TSR__TRY(create_norm(b, params, "post_norm2", &b->mlp.post_norm));
    return create_end(b, params);
}

tsr_status tsr_block_create(const tsr_block_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "block: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_block_params, params);
    tsr_layer *layer;
    TSR__TRY(
        tsr__layer_new(&tsr__block_type, sizeof(tsr__block), params->group, params->name, &layer));
    tsr_status status = init_block((tsr__block *)layer, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
