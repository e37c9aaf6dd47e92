/* The parameters of a stack as sharded parameters. A head that is the embedding shares one
 * parameter with it, which is therefore a unit without a layer. That unit has a sharding of its
 * own, so that the first and the last stage have the same shards. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/stack/stack.h"
#include "parallel/internal.h"
#include "tessera/seed.h"

#define TIED 0 /* the only unit of `tied` */

/* Initial values ----------------------------------------------------------------------------- */

/* Describes the embedding that is also the head, and draws its values unless they are not used. */
static tsr_status draw_embedding(const tsr_stack *s, bool is_new, tsr_parameter *out)
{
    tsr_tensor *flat = NULL;
    *out = *tsr_layer_parameter(s->embedding, 0);
    out->tensor = NULL;
    if (!is_new)
        return TSR_OK;
    const tsr_tensor *given = tsr_layer_parameter(s->embedding, 0)->tensor;
    if (given)
        return tsr_tensor_view(given, tsr_tensor_layout(given), &out->tensor);
    const int64_t shape[2] = {out->length, out->global_shape[1]}, count = shape[0] * shape[1];
    TSR__TRY(tsr_tensor_create(s->device, out->dtype, 2, shape, &out->tensor));
    TSR__TRY(tsr_tensor_reshape(out->tensor, 1, &count, &flat));
    const tsr_status status = tsr__layer_initial(s->embedding, 0, s->stream, 0, flat);
    tsr_tensor_destroy(&flat);
    return status;
}

/* Describes and draws the learned positions, which every rank has in full. `name` gets their name.
 */
static tsr_status draw_positions(const tsr_stack *s, char name[TSR__STACK_NAME], tsr_parameter *out)
{
    const int64_t shape[2] = {s->config->context, s->config->width};
    const tsr_seed_point point = {.base = s->seed, .kind = TSR_SEED_OP, .op = 1};
    int64_t seed;
    TSR__TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &point, &seed));
    snprintf(name, TSR__STACK_NAME, "%s.weight",
             tsr__family_weight(s->family, false, "positions")->hf);
    *out =
        *tsr_parameter(.name = name, .dtype = s->dtype, .ndim = 2,
                       .global_shape = {shape[0], shape[1]}, .shard_dim = -1, .length = shape[0]);
    if (s->positions)
        return tsr_tensor_view(s->positions, tsr_tensor_layout(s->positions), &out->tensor);
    TSR__TRY(tsr_tensor_create(s->device, s->dtype, 2, shape, &out->tensor));
    tsr_random_params random = TSR_INIT(tsr_random_params);
    random.seed = (uint64_t)seed;
    return tsr_random_normal(s->stream, out->tensor, 0, s->deviation, &random);
}

/* Dividing ----------------------------------------------------------------------------------- */

/* How a stack is divided. */
typedef struct dividing {
    const tsr_fsdp_params *params;
    const tsr__fsdp_source *source; /* NULL: layers have their memory, or initial values */
    bool is_new;
} dividing;

static tsr_status divide(const dividing *how, bool is_frozen, int count, const tsr_fsdp_unit *units,
                         tsr_fsdp **out)
{
    tsr_fsdp_params own = *how->params;
    if (is_frozen)
        own.optimizer = TSR_OPTIMIZER_NONE;
    own.unit_count = count;
    own.units = units;
    if (how->source)
        return tsr__fsdp_create_from(&own, how->source, out);
    return how->is_new ? tsr_fsdp_create(&own, out) : tsr_fsdp_rebuild(&own, out);
}

static tsr_status divide_tied(tsr_stack *s, const dividing *how)
{
    tsr_parameter embedding = {0};
    if (!s->config->tied || !s->embedding)
        return TSR_OK;
    if (how->source)
        TSR__TRY(how->source->open(how->source->user, s->embedding, true));
    tsr_status status = draw_embedding(s, how->is_new, &embedding);
    const tsr_fsdp_unit unit = *tsr_fsdp_unit(.parameter_count = 1, .parameters = &embedding);
    if (status == TSR_OK)
        status = divide(how, s->tied_is_fixed, 1, &unit, &s->tied);
    if (status == TSR_OK && how->source)
        status = tsr_stream_wait(s->stream);
    tsr_tensor_destroy(&embedding.tensor);
    if (how->source)
        how->source->close(how->source->user, s->embedding);
    return status;
}

/* Lists the units that are not in `tied`: units[layer_count + 7]. Returns their number. */
static int list_units(tsr_stack *s, const tsr_parameter *positions, tsr_fsdp_unit *units)
{
    const bool tied = s->config->tied;
    int count = 0;
    s->units = (tsr__stack_units){-1, -1, -1, -1, -1, -1};
    if (s->is_first && !tied) {
        s->units.embedding = count;
        units[count++] = *tsr_fsdp_unit(.layer = s->embedding);
    }
    if (s->is_first && s->config->learned_positions) {
        s->units.positions = count;
        units[count++] = *tsr_fsdp_unit(.parameter_count = 1, .parameters = positions);
    }
    if (s->input_table) {
        tsr_layer *const layers[] = {s->input_table, s->input_projection, s->input_norm};
        s->units.inputs = count;
        for (int i = 0; i < 3; i++)
            units[count++] = *tsr_fsdp_unit(.layer = layers[i]);
    }
    s->units.first_block = count;
    for (int i = 0; i < s->layer_count; i++)
        units[count++] = *tsr_fsdp_unit(.layer = s->blocks[i]);
    if (s->is_last) {
        s->units.norm = count;
        units[count++] = *tsr_fsdp_unit(.layer = s->norm);
    }
    if (s->is_last && !tied) {
        s->units.head = count;
        units[count++] = *tsr_fsdp_unit(.layer = s->head);
    }
    return count;
}

/* Returns whether a unit has no gradients. Learned positions are frozen if the embedding is. */
static bool is_frozen_unit(const tsr_stack *s, const tsr_fsdp_unit *unit)
{
    return tsr__layer_is_frozen(unit->layer ? unit->layer : s->embedding);
}

/* Divides units[count]: those that are trained and the others are models of their own if there are
 * both. Sets the places. */
static tsr_status divide_units(tsr_stack *s, const dividing *how, tsr_fsdp_unit *units, int count)
{
    tsr_fsdp_unit *frozen = tsr__calloc((size_t)count, sizeof *frozen);
    tsr__stack_place *places = tsr__calloc((size_t)count, sizeof *places);
    int trained_count = 0, frozen_count = 0;
    tsr_status status = frozen && places ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; status == TSR_OK && i < count; i++) {
        const bool is_frozen = !s->is_fixed && is_frozen_unit(s, &units[i]);
        places[i] = (tsr__stack_place){is_frozen, is_frozen ? frozen_count : trained_count};
        if (is_frozen)
            frozen[frozen_count++] = units[i];
        else
            units[trained_count++] = units[i];
    }
    if (status == TSR_OK && frozen_count > 0)
        status = divide(how, true, frozen_count, frozen, &s->frozen);
    if (status == TSR_OK)
        status = divide(how, s->is_fixed, trained_count, units, &s->sharded);
    if (status == TSR_OK) {
        tsr__free(s->places);
        s->places = places;
    } else {
        tsr__free(places);
        if (how->is_new)
            tsr_fsdp_destroy(&s->frozen);
    }
    tsr__free(frozen);
    return status;
}

static tsr_status divide_rest(tsr_stack *s, const dividing *how)
{
    char name[TSR__STACK_NAME];
    tsr_parameter positions = {0};
    tsr_fsdp_unit *units = tsr__calloc((size_t)s->layer_count + 7, sizeof *units);
    tsr_status status = units ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && s->is_first && s->config->learned_positions)
        status = draw_positions(s, name, &positions);
    if (status == TSR_OK)
        status = divide_units(s, how, units, list_units(s, &positions, units));
    tsr_tensor_destroy(&positions.tensor);
    tsr__free(units);
    return status;
}

/* Releases memory that the layers of a model had for parameters which are not in units of layers.
 */
static void release(tsr_stack *s)
{
    tsr_tensor_destroy(&s->positions);
    if (!s->tied)
        return;
    (void)!tsr_layer_set_parameter(s->embedding, 0, NULL, NULL, false); /* cannot fail */
    if (s->head)
        (void)!tsr_layer_set_parameter(s->head, 0, NULL, NULL, false);
}

static bool has_frozen_layers(const tsr_stack *s)
{
    bool found = (s->embedding && tsr__layer_is_frozen(s->embedding)) ||
                 (s->norm && tsr__layer_is_frozen(s->norm)) ||
                 (s->head && tsr__layer_is_frozen(s->head)) ||
                 (s->input_table && tsr__layer_is_frozen(s->input_table));
    for (int i = 0; i < s->layer_count; i++)
        found = found || tsr__layer_is_frozen(s->blocks[i]);
    return found;
}

static tsr_status divide_all(tsr_stack *s, const tsr_fsdp_params *params,
                             const tsr__fsdp_source *source, bool is_new)
{
    TSR__REQUIRE(s, "stack: stack is NULL");
    TSR__TAKE(tsr_fsdp_params, params);
    TSR__REQUIRE(params->unit_count == 0 && !params->units && !params->plan,
                 "stack: unit_count is %d; the units are the stack's own, and need no plan",
                 params->unit_count);
    TSR__REQUIRE(!is_new || !s->sharded, "stack: the parameters are sharded already");
    if (is_new) {
        s->is_fixed = tsr__stack_is_frozen(s);
        s->tied_is_fixed = s->config->tied && s->embedding && tsr__layer_is_frozen(s->embedding);
    }
    TSR__REQUIRE(
        s->deviation > 0 || (s->is_fixed && is_new),
        "stack: the layers of a model for inference can be sharded only once, and if all of "
        "them are frozen");
    if (!is_new && has_frozen_layers(s) && !tsr__stack_is_frozen(s))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "stack: a stack of which only some layers are "
                                              "trained cannot be divided again");
    s->data = params->group ? params->group : tsr_group_default();
    const dividing how = {params, source, is_new};
    TSR__TRY(divide_tied(s, &how));
    const tsr_status status = divide_rest(s, &how);
    if (status != TSR_OK && is_new)
        tsr_fsdp_destroy(&s->tied);
    TSR__TRY(status);
    release(s);
    s->elsewhere[0] = s->tied && !s->is_first && !s->tied_is_fixed
                          ? tsr_fsdp_parameter(s->tied, TIED, 0)->name
                          : NULL;
    return TSR_OK;
}

tsr_status tsr_stack_shard(tsr_stack *stack, const tsr_fsdp_params *params)
{
    return divide_all(stack, params, NULL, true);
}

tsr_status tsr__stack_shard_from(tsr_stack *stack, const tsr_fsdp_params *params,
                                 const tsr__fsdp_source *source)
{
    return divide_all(stack, params, source, true);
}

tsr_status tsr_stack_reshard(tsr_stack *stack, const tsr_fsdp_params *params)
{
    return divide_all(stack, params, NULL, false);
}

tsr_status tsr_stack_add_to(tsr_stack *s, tsr_optimizer *optimizer)
{
    TSR__REQUIRE(s && s->sharded, "stack: %s",
                 s ? "the parameters are not sharded" : "stack is NULL");
    if (s->is_fixed)
        return TSR_OK;
    if (s->tied && !s->tied_is_fixed)
        TSR__TRY(tsr_optimizer_add_fsdp(optimizer, s->tied));
    return tsr_optimizer_add_fsdp(optimizer, s->sharded);
}

tsr_status tsr_stack_reduce_tied(tsr_stack *s, tsr_pipeline *pipeline)
{
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    TSR__REQUIRE(s, "stack: stack is NULL");
    if (!s->tied || s->tied_is_fixed || (s->is_first && s->is_last))
        return TSR_OK;
    TSR__TRY(tsr_fsdp_get_shard(s->tied, 0, &shard));
    return shard.grad ? tsr_pipeline_reduce_ends(pipeline, shard.grad) : TSR_OK;
}

const tsr_parameter *tsr__stack_positions(const tsr_stack *s)
{
    return tsr_fsdp_parameter(tsr__stack_model(s, s->units.positions),
                              s->places[s->units.positions].unit, 0);
}

/* Use ---------------------------------------------------------------------------------------- */

/* Returns whether a layer takes its only parameter from `tied`. */
static bool borrows(const tsr_stack *s, const tsr_layer *layer)
{
    return s->tied && layer && (layer == s->embedding || layer == s->head);
}

tsr_status tsr__stack_begin(tsr_stack *s, tsr_layer *layer, int unit, tsr_pass pass)
{
    if (!s->sharded)
        return TSR_OK;
    if (!borrows(s, layer))
        return tsr_fsdp_begin(tsr__stack_model(s, unit), s->places[unit].unit, pass);
    TSR__TRY(tsr_fsdp_begin(s->tied, TIED, pass));
    const tsr_parameter *p = tsr_fsdp_parameter(s->tied, TIED, 0);
    const tsr_status status = tsr_layer_set_parameter(layer, 0, p->tensor, p->grad, false);
    if (status != TSR_OK)
        tsr__fsdp_abandon(s->tied, TIED);
    return status;
}

tsr_status tsr__stack_end(tsr_stack *s, tsr_layer *layer, int unit, tsr_status pass)
{
    if (!s->sharded)
        return pass;
    tsr_fsdp *model = s->tied;
    if (borrows(s, layer)) {
        (void)!tsr_layer_set_parameter(layer, 0, NULL, NULL, false); /* cannot fail */
        unit = TIED;
    } else {
        model = tsr__stack_model(s, unit);
        unit = s->places[unit].unit;
    }
    if (pass == TSR_OK)
        return tsr_fsdp_end(model, unit);
    tsr__fsdp_abandon(model, unit);
    return pass;
}
