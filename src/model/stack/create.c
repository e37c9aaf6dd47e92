/* Creates a stack, and lists its parameters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/stack/stack.h"
#include "model/weights/weights.h"
#include "tessera/seed.h"

#define USUAL_DEVIATION 0.02 /* as in GPT-2 */
#define NAME_SIZE 48

/* Layers ------------------------------------------------------------------------------------- */

/* Checks that a layer that has no keys finds those of a layer of this stage, for the same heads. */
static tsr_status check_shared_keys(const tsr_stack *s, int index)
{
    const int source = tsr__stack_keys_layer(s, index);
    tsr_heads own = TSR_INIT(tsr_heads), other = TSR_INIT(tsr_heads);
    if (source == index)
        return TSR_OK;
    if (source < 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "model: layer %d reads the keys of an earlier layer, which is in another "
                         "stage; such layers must be in one stage",
                         s->first_layer + index);
    TSR__TRY(tsr_self_attention_get_heads(s->blocks[index], &own));
    TSR__TRY(tsr_self_attention_get_heads(s->blocks[source], &other));
    TSR__REQUIRE(own.kv_first == other.kv_first && own.kv_count == other.kv_count &&
                     own.head_dim == other.head_dim && own.value_dim == other.value_dim,
                 "model: layer %d reads the keys of layer %d, which has other heads on this rank",
                 s->first_layer + index, s->first_layer + source);
    return TSR_OK;
}

/* Sets keys_of if a block uses the keys of another. */
static tsr_status find_key_owners(tsr_stack *s)
{
    bool any = false;
    for (int i = 0; i < s->layer_count; i++)
        any = any || tsr__stack_keys_layer(s, i) != i;
    if (!any)
        return TSR_OK;
    s->keys_of = tsr__calloc((size_t)s->layer_count, sizeof *s->keys_of);
    if (!s->keys_of)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < s->layer_count; i++) {
        const int source = tsr__stack_keys_layer(s, i);
        s->keys_of[i] = -1;
        if (source != i)
            s->keys_of[i] = s->keys_of[source] = source;
    }
    return TSR_OK;
}

static tsr_status create_blocks(tsr_stack *s, const tsr__stack_options *o, uint64_t seed)
{
    s->blocks = tsr__calloc((size_t)s->layer_count, sizeof *s->blocks);
    if (!s->blocks)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < s->layer_count; i++) {
        const tsr_status status =
            tsr__stack_create_block(s, o, seed, s->first_layer + i, &s->blocks[i]);
        if (status != TSR_OK)
            return tsr__fail_context(status, "model: layer %d", s->first_layer + i);
        TSR__TRY(check_shared_keys(s, i));
    }
    return find_key_owners(s);
}

static tsr_status create_layers(tsr_stack *s, const tsr__stack_options *o)
{
    const tsr_model_config *c = s->config;
    int64_t seed;
    const tsr_seed_point point = {.base = o->seed, .kind = TSR_SEED_OP, .op = 0};
    TSR__TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &seed));
    const tsr_init_params init = tsr__stack_init(o, (uint64_t)seed, o->deviation);
    const bool next = o->next_token && s->is_last; /* a stage with it needs the embedding */
    if (s->is_first || (s->is_last && c->tied) || next)
        TSR__TRY(tsr_embedding_create(
            tsr_embedding_params(.group = s->group, .name = tsr__stack_layer_name(s, "embedding"),
                                 .vocabulary_size = c->vocabulary, .width = c->width,
                                 .dtype = s->dtype, .partition = &o->partition, .init = &init,
                                 .deferred = true),
            &s->embedding));
    TSR__TRY(create_blocks(s, o, (uint64_t)seed));
    if (c->layer_input > 0)
        TSR__TRY(tsr__stack_create_inputs(s, &o->partition, &init, o->norm_dtype));
    if (next)
        TSR__TRY(tsr__stack_create_next(s, o));
    if (!s->is_last)
        return TSR_OK;
    TSR__TRY(
        tsr_norm_create(tsr_norm_params(.group = s->group, .name = tsr__stack_layer_name(s, "norm"),
                                        .size = c->width, .kind = c->norm, .bias = c->norm_bias,
                                        .epsilon = (float)c->norm_epsilon, .dtype = o->norm_dtype,
                                        .deferred = true),
                        &s->norm));
    return tsr_column_linear_create(
        tsr_linear_params(.group = s->group, .name = tsr__stack_layer_name(s, "head"),
                          .input_size = c->width, .output_size = c->vocabulary, .dtype = s->dtype,
                          .partition = &o->partition, .init = &init, .deferred = true),
        &s->head);
}

static tsr_status divide_vocabulary(tsr_stack *s, const tsr_partition_params *partition)
{
    const int ranks = tsr_group_size(s->group);
    tsr_shard_range *ranges = tsr__calloc((size_t)ranks, sizeof *ranges);
    s->vocabulary = tsr__calloc((size_t)ranks, sizeof *s->vocabulary);
    tsr_status status = ranges && s->vocabulary ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_partition((uint64_t)s->config->vocabulary, ranks, partition, ranges);
    for (int r = 0; status == TSR_OK && r < ranks; r++)
        s->vocabulary[r] = (int64_t)ranges[r].count;
    tsr__free(ranges);
    return status;
}

/* Names a part of a model's layers that has no backward pass, or returns NULL. */
static const char *untrained_part(const tsr_model_config *c)
{
    for (int i = 0; i < c->kind_count; i++)
        if (c->kinds[i]->keys_as_values && !c->kinds[i]->qk_norm)
            return "values that are keys without a norm";
    return NULL;
}

static tsr_status create(tsr_stack *s, const tsr__stack_options *o)
{
    TSR__TRY(tsr__config_copy(o->config, &s->own_config));
    s->config = &s->own_config->public;
    const char *untrained = o->trains ? untrained_part(s->config) : NULL;
    if (untrained)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "stack: models of architecture %s cannot be trained: there is no backward "
                         "pass of %s",
                         s->config->architecture, untrained);
    const int layers = s->config->layers;
    TSR__REQUIRE(o->first_layer >= 0 && o->first_layer < layers && o->layer_count >= 0 &&
                     o->layer_count <= layers - o->first_layer,
                 "stack: %d layers from layer %d on; the model has layers 0 to %d", o->layer_count,
                 o->first_layer, layers - 1);
    s->family = tsr__family_by_name(s->config->architecture);
    s->group = o->group;
    s->context_group = o->context_group;
    s->stream = tsr_group_stream(o->group);
    s->device = tsr_stream_device(s->stream);
    s->dtype = o->dtype;
    s->features = o->features;
    s->seed = o->seed;
    s->deviation = o->deviation;
    s->tiled_delta_nets = o->tiled_delta_nets;
    s->first_layer = o->first_layer;
    s->layer_count = o->layer_count > 0 ? o->layer_count : layers - o->first_layer;
    s->is_first = s->first_layer == 0;
    s->is_last = s->first_layer + s->layer_count == layers;
    TSR__TRY(divide_vocabulary(s, &o->partition));
    return create_layers(s, o);
}

tsr_status tsr__stack_create(const tsr__stack_options *options, tsr_stack **out)
{
    tsr_stack *s = tsr__calloc(1, sizeof *s);
    if (!s)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = create(s, options);
    if (status == TSR_OK)
        *out = s;
    else
        tsr_stack_destroy(&s);
    return status;
}

/* Freezes all layers that a list does not name. */
static tsr_status freeze_others(tsr_stack *s, const char *trained)
{
    bool *chosen = tsr__calloc((size_t)s->config->layers, sizeof *chosen);
    tsr_status status = chosen ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__stack_choose("stack: trained", trained, s->config->layers, chosen);
    if (status == TSR_OK)
        tsr__stack_freeze(s);
    for (int i = 0; status == TSR_OK && i < s->layer_count; i++)
        tsr_layer_set_frozen(s->blocks[i], !chosen[s->first_layer + i]);
    tsr__free(chosen);
    return status;
}

tsr_status tsr_stack_create(const tsr_stack_params *params, tsr_stack **out)
{
    tsr_partition_params partition = TSR_INIT(tsr_partition_params);
    TSR__REQUIRE(params && out, "stack: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_stack_params, params);
    TSR__REQUIRE(params->config, "stack: config is NULL");
    if (params->partition)
        TSR__TRY(tsr__struct_take("tsr_partition_params", sizeof partition, params->partition,
                                  &partition));
    partition.align = 0;
    partition.limits = NULL;
    if (partition.kind == TSR_PARTITION_EVEN)
        partition.kind = TSR_PARTITION_UNEVEN;
    const tsr_dtype dtype = params->dtype == 0 ? TSR_F32 : params->dtype;
    const double deviation = params->deviation == 0 ? USUAL_DEVIATION : params->deviation;
    tsr_group *group = params->group ? params->group : tsr_group_default();
    TSR__REQUIRE(group, "stack: there is no group, and no default group");
    TSR__REQUIRE(dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16,
                 "stack: dtype is %s; f32, f16 and bf16 are possible", tsr_dtype_name(dtype));
    TSR__REQUIRE(deviation > 0 && deviation <= 1e6,
                 "stack: deviation is %g; a number above 0 and up to 1e6 is possible", deviation);
    tsr_group *context_group =
        tsr_group_size(params->context_group) > 1 ? params->context_group : NULL;
    tsr_stack *created = NULL;
    TSR__TRY(
        tsr__stack_create(&(tsr__stack_options){.config = params->config,
                                                .trains = true,
                                                .group = group,
                                                .context_group = context_group,
                                                .first_layer = params->first_layer,
                                                .layer_count = params->layers,
                                                .partition = partition,
                                                .dtype = dtype,
                                                .norm_dtype = dtype,
                                                .features = dtype,
                                                .seed = params->seed,
                                                .deviation = (float)deviation,
                                                .recompute = params->recompute,
                                                .experts_over_data = params->experts_over_data},
                          &created));
    const tsr_status status = params->trained ? freeze_others(created, params->trained) : TSR_OK;
    if (status == TSR_OK)
        *out = created;
    else
        tsr_stack_destroy(&created);
    return status;
}

void tsr_stack_destroy(tsr_stack **stack)
{
    if (!stack || !*stack)
        return;
    tsr_stack *s = *stack;
    tsr_fsdp_destroy(&s->tied);
    tsr_fsdp_destroy(&s->sharded);
    tsr_fsdp_destroy(&s->frozen);
    tsr__free(s->places);
    tsr_layer_destroy(&s->embedding);
    for (int i = 0; s->blocks && i < s->layer_count; i++)
        tsr_layer_destroy(&s->blocks[i]);
    tsr__free(s->blocks);
    tsr__stack_destroy_next(s);
    tsr_layer_destroy(&s->norm);
    tsr_layer_destroy(&s->head);
    tsr_layer_destroy(&s->input_table);
    tsr_layer_destroy(&s->input_projection);
    tsr_layer_destroy(&s->input_norm);
    tsr__context_forget(&s->context);
    tsr_tensor_destroy(&s->positions);
    tsr_tensor_destroy(&s->adapter_rows);
    tsr__free(s->keys_of);
    tsr__free(s->vocabulary);
    tsr__free(s->own_config);
    tsr__free(s);
    *stack = NULL;
}

tsr_layer *tsr_stack_block(const tsr_stack *stack, int index)
{
    return stack && index >= 0 && index < stack->layer_count ? stack->blocks[index] : NULL;
}

tsr_status tsr_stack_get_info(const tsr_stack *stack, tsr_stack_info *out)
{
    TSR__REQUIRE(stack && out, "stack: %s is NULL", stack ? "out" : "stack");
    const int rank = tsr_group_rank(stack->group);
    tsr_stack_info info = {
        .blocks = stack->layer_count,
        .logits = stack->vocabulary[rank],
        .counted_elsewhere = stack->elsewhere[0] ? stack->elsewhere : NULL,
    };
    for (int r = 0; r < rank; r++)
        info.first_logit += stack->vocabulary[r];
    TSR__GIVE(tsr_stack_info, &info, out);
    return TSR_OK;
}

tsr_status tsr_stack_set_dropout(tsr_stack *stack, float p, const tsr_random_params *random)
{
    TSR__REQUIRE(stack, "stack: stack is NULL");
    for (int i = 0; i < stack->layer_count; i++)
        TSR__TRY(tsr_block_set_dropout(stack->blocks[i], p, random));
    return TSR_OK;
}

/* Parameters --------------------------------------------------------------------------------- */

typedef tsr_status visitor(void *user, const tsr__stack_parameter *parameter);

void tsr__stack_own_name(const tsr_stack *s, int layer, const char *ours, const tsr_parameter *p,
                         char out[TSR__STACK_NAME])
{
    char block[NAME_SIZE];
    if (ours)
        snprintf(out, TSR__STACK_NAME, "%s%s", ours, strrchr(p->name, '.'));
    else
        snprintf(out, TSR__STACK_NAME, "%s",
                 p->name + snprintf(block, sizeof block, "%s%d.", s->family->hf_block, layer));
}

#define TIED (-1) /* stands for the unit of `tied` */

/* The numbers of parameters that have been visited. */
typedef struct visited {
    uint64_t sharded, frozen, tied;
} visited;

static uint64_t *count_of(const tsr_stack *s, visited *counts, int unit)
{
    return unit == TIED                             ? &counts->tied
           : s->places && s->places[unit].is_frozen ? &counts->frozen
                                                    : &counts->sharded;
}

/* Visits the parameters of a layer whose name in weights.h is `ours`, or of a block. */
static tsr_status visit_layer(const tsr_stack *s, tsr_layer *layer, int number, const char *ours,
                              int unit, visited *counts, visitor *visit, void *user)
{
    uint64_t *count = count_of(s, counts, unit);
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++) {
        tsr__stack_parameter p = {.layer = number,
                                  .parameter = tsr_layer_parameter(layer, i),
                                  .owner = layer,
                                  .index = i,
                                  .sharded = unit == TIED ? s->tied : tsr__stack_model(s, unit),
                                  .unit = unit == TIED ? 0 : unit,
                                  .number = (*count)++};
        tsr__stack_own_name(s, number, ours, p.parameter, p.ours);
        TSR__TRY(visit(user, &p));
    }
    return TSR_OK;
}

/* Visits the layers that compute the blocks' own inputs. */
static tsr_status visit_inputs(const tsr_stack *s, visited *counts, visitor *visit, void *user)
{
    const int unit = s->units.inputs;
    if (!s->input_table)
        return TSR_OK;
    TSR__TRY(visit_layer(s, s->input_table, -1, "input_table", unit, counts, visit, user));
    TSR__TRY(
        visit_layer(s, s->input_projection, -1, "input_projection", unit + 1, counts, visit, user));
    return visit_layer(s, s->input_norm, -1, "input_norm", unit + 2, counts, visit, user);
}

/* Visits the layer that predicts further tokens. It is not in training. */
static tsr_status visit_next(const tsr_stack *s, visited *counts, visitor *visit, void *user)
{
    const tsr__stack_next *n = &s->next;
    const struct {
        tsr_layer *layer;
        const char *ours;
    } all[] = {{n->embedding_norm, "next.embedding_norm"},
               {n->hidden_norm, "next.hidden_norm"},
               {n->join, "next.join"},
               {n->block, NULL},
               {n->norm, "next.norm"}};
    for (size_t i = 0; n->block && i < sizeof all / sizeof *all; i++)
        TSR__TRY(
            visit_layer(s, all[i].layer, s->config->layers, all[i].ours, 0, counts, visit, user));
    return TSR_OK;
}

static tsr_status visit_positions(const tsr_stack *s, visited *counts, visitor *visit, void *user)
{
    tsr_fsdp *sharded = tsr__stack_model(s, s->units.positions);
    const tsr__stack_parameter p = {.layer = -1,
                                    .ours = "positions.weight",
                                    .parameter = sharded ? tsr__stack_positions(s) : NULL,
                                    .sharded = sharded,
                                    .unit = s->units.positions,
                                    .number =
                                        sharded ? (*count_of(s, counts, s->units.positions))++ : 0};
    return visit(user, &p);
}

tsr_status tsr__stack_each(const tsr_stack *s, visitor *visit, void *user)
{
    const bool tied = s->config->tied;
    visited counts = {0};
    if (s->embedding)
        TSR__TRY(visit_layer(s, s->embedding, -1, "embedding", tied ? TIED : s->units.embedding,
                             &counts, visit, user));
    if (s->is_first && s->config->learned_positions)
        TSR__TRY(visit_positions(s, &counts, visit, user));
    TSR__TRY(visit_inputs(s, &counts, visit, user));
    for (int i = 0; i < s->layer_count; i++)
        TSR__TRY(visit_layer(s, s->blocks[i], s->first_layer + i, NULL, s->units.first_block + i,
                             &counts, visit, user));
    TSR__TRY(visit_next(s, &counts, visit, user));
    if (!s->is_last)
        return TSR_OK;
    TSR__TRY(visit_layer(s, s->norm, -1, "norm", s->units.norm, &counts, visit, user));
    return tied ? TSR_OK : visit_layer(s, s->head, -1, "head", s->units.head, &counts, visit, user);
}
