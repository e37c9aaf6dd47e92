/* Functions that all layers share: creation, partitions, passes, and access to parameters by index
 * or name. */
#include "parallel/internal.h"
#include "parallel/layers/adapter.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "tessera/transformer.h"

/* Creating ----------------------------------------------------------------------------------- */

static tsr_status set_names(tsr_layer *layer, const char *name)
{
    const char *type = layer->type->name;
    layer->name = tsr__strdup(name ? name : "");
    if (!layer->name)
        return TSR_ERR_NO_MEMORY;
    size_t size = strlen(type) + strlen(layer->name) + 2;
    layer->who = tsr__calloc(size, 1);
    if (!layer->who)
        return TSR_ERR_NO_MEMORY;
    snprintf(layer->who, size, "%s%s%s", type, *layer->name ? " " : "", layer->name);
    return TSR_OK;
}

tsr_status tsr__layer_new(const tsr__layer_type *type, size_t size, tsr_group *group,
                          const char *name, tsr_layer **out)
{
    group = group ? group : tsr_group_default();
    TSR__REQUIRE(group, "%s: no group is given, and there is no default one", type->name);
    tsr_layer *layer = tsr__calloc(1, size);
    if (!layer)
        return TSR_ERR_NO_MEMORY;
    layer->type = type;
    layer->group = group;
    layer->stream = tsr_group_stream(group);
    layer->device = tsr_stream_device(layer->stream);
    layer->rank = tsr_group_rank(group);
    layer->size = tsr_group_size(group);
    tsr_status status = set_names(layer, name);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}

void tsr_layer_destroy(tsr_layer **layer)
{
    if (!layer || !*layer)
        return;
    tsr_layer *closing = *layer;
    *layer = NULL;
    for (int i = 0; i < closing->child_count; i++)
        tsr_layer_destroy(&closing->child[i]);
    if (closing->type->finish)
        closing->type->finish(closing);
    for (int i = 0; i < closing->parameter_count; i++)
        tsr__parameter_destroy(&closing->parameter[i]);
    tsr__adapter_bank_drop(closing);
    tsr__free(closing->child);
    tsr__free(closing->parameter);
    tsr__free(closing->name);
    tsr__free(closing->who);
    tsr__free(closing);
}

tsr_status tsr__layer_add_child(tsr_layer *layer, tsr_layer *child)
{
    void *children = layer->child;
    tsr_status status = tsr__grow(&children, &layer->child_capacity, (size_t)layer->child_count + 1,
                                  sizeof(tsr_layer *));
    layer->child = children;
    if (status != TSR_OK) {
        tsr_layer_destroy(&child);
        return status;
    }
    layer->child[layer->child_count++] = child;
    return TSR_OK;
}

tsr_group *tsr_layer_group(const tsr_layer *layer)
{
    return layer ? layer->group : NULL;
}

tsr_status tsr__keep(const tsr_tensor *tensor, tsr_tensor **out)
{
    return tsr_tensor_view(tensor, tsr_tensor_layout(tensor), out);
}

/* Dividing ----------------------------------------------------------------------------------- */

static tsr_status compute_shards(const tsr_layer *layer, int64_t size,
                                 const tsr_partition_params *params, tsr__division *out)
{
    tsr_shard_range *ranges = tsr__calloc((size_t)layer->size, sizeof *ranges);
    if (!ranges)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_partition((uint64_t)size, layer->size, params, ranges);
    for (int r = 0; status == TSR_OK && r < layer->size; r++)
        out->sizes[r] = (int64_t)ranges[r].count;
    if (status == TSR_OK) {
        out->first = (int64_t)ranges[layer->rank].start;
        out->length = (int64_t)ranges[layer->rank].count;
    }
    tsr__free(ranges);
    return status;
}

tsr_status tsr__layer_partition(const tsr_layer *layer, const char *what, int64_t size,
                                const char *field, const tsr_partition_params *params,
                                tsr__division *out)
{
    tsr_partition_params chosen;
    tsr_status status = TSR__TAKE_PART(tsr_partition_params, params, &chosen);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: %s", layer->who, field);
    if (chosen.kind == TSR_PARTITION_EVEN)
        chosen.kind = TSR_PARTITION_STRICT;
    TSR__REQUIRE(chosen.kind != TSR_PARTITION_STRICT || size % layer->size == 0,
                 "%s: %s %lld is not divisible by %d ranks; %s UNEVEN or WEIGHTED allows it",
                 layer->who, what, (long long)size, layer->size, field);
    tsr__division division = {.sizes = tsr__calloc((size_t)layer->size, sizeof(int64_t))};
    if (!division.sizes)
        return TSR_ERR_NO_MEMORY;
    status = compute_shards(layer, size, &chosen, &division);
    if (status != TSR_OK) {
        tsr__free(division.sizes);
        return tsr__fail_context(status, "%s: %s", layer->who, what);
    }
    *out = division;
    return TSR_OK;
}

/* Passes ------------------------------------------------------------------------------------- */

/* Inputs of a forward pass other than x. Both members may be NULL. Only layers with `forward_added`
 * have such inputs. */
typedef struct extra_inputs {
    const tsr__cached *cached;
    const tsr_tensor *added;
} extra_inputs;

tsr_status tsr__layer_saved_new(const tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved **out)
{
    const size_t children = (size_t)layer->child_count * sizeof(tsr_layer_saved *);
    tsr_layer_saved *saved = tsr__calloc(1, sizeof *saved + children);
    if (!saved)
        return TSR_ERR_NO_MEMORY;
    saved->layer = layer;
    saved->child_count = layer->child_count;
    tsr_status status = tsr__keep(x, &saved->x);
    if (status == TSR_OK)
        *out = saved;
    else
        tsr_layer_saved_destroy(&saved);
    return status;
}

static tsr_status forward_with(tsr_layer *layer, const tsr_tensor *x, const extra_inputs *extra,
                               tsr_layer_saved **saved, tsr_tensor **y)
{
    TSR__TRY(tsr__layer_check_forward(layer));
    tsr_layer_saved *keep = NULL;
    if (saved)
        TSR__TRY(tsr__layer_saved_new(layer, x, &keep));
    tsr_tensor *result = NULL;
    tsr_status status =
        extra ? layer->type->forward_added(layer, x, extra->cached, extra->added, keep, &result)
              : layer->type->forward(layer, x, keep, &result);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&result);
        tsr_layer_saved_destroy(&keep);
        return status;
    }
    if (saved)
        *saved = keep;
    *y = result;
    return TSR_OK;
}

tsr_status tsr_layer_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved **saved,
                             tsr_tensor **y)
{
    TSR__REQUIRE(layer && x && y, "layer_forward: %s is NULL", !layer ? "layer" : x ? "y" : "x");
    return forward_with(layer, x, NULL, saved, y);
}

tsr_status tsr__layer_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                    const tsr__cached *cached, const tsr_tensor *added,
                                    tsr_layer_saved **saved, tsr_tensor **y)
{
    return forward_with(layer, x, &(extra_inputs){cached, added}, saved, y);
}

tsr_status tsr_layer_forward_cached(tsr_layer *layer, const tsr_tensor *x, tsr_kv_cache *cache,
                                    int cache_layer, tsr_tensor **y)
{
    TSR__REQUIRE(layer && x && cache && y, "layer_forward_cached: %s is NULL",
                 !layer  ? "layer"
                 : !x    ? "x"
                 : cache ? "y"
                         : "cache");
    TSR__REQUIRE(layer->type->forward_cached,
                 "%s: it has no attention and cannot use a cache; use tsr_layer_forward",
                 layer->who);
    TSR__TRY(tsr__layer_check_forward(layer));
    tsr_tensor *result = NULL;
    TSR__TRY(layer->type->forward_cached(
        layer, x, &(tsr__cached){.cache = cache, .layer = cache_layer}, &result));
    *y = result;
    return TSR_OK;
}

tsr_status tsr_layer_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                              tsr_tensor **dx)
{
    TSR__REQUIRE(layer && saved && dy, "layer_backward: %s is NULL",
                 !layer  ? "layer"
                 : saved ? "dy"
                         : "saved");
    TSR__REQUIRE(saved->layer == layer, "%s: `saved` is from %s", layer->who, saved->layer->who);
    TSR__TRY(tsr__layer_check_input(layer, "dy", dy));
    TSR__TRY(tsr__layer_check_backward(layer, dx != NULL, saved->x, dy));
    if (layer->frozen && !dx && !tsr__layer_trains_adapters(layer))
        return TSR_OK;
    tsr_tensor *result = NULL;
    TSR__TRY(layer->type->backward(layer, saved, dy, dx ? &result : NULL));
    if (dx)
        *dx = result;
    return TSR_OK;
}

void tsr_layer_saved_destroy(tsr_layer_saved **saved)
{
    if (!saved || !*saved)
        return;
    tsr_layer_saved *closing = *saved;
    *saved = NULL;
    for (int i = 0; i < closing->child_count; i++)
        tsr_layer_saved_destroy(&closing->child[i]);
    tsr_tensor_destroy(&closing->x);
    tsr_tensor_destroy(&closing->gathered_x);
    tsr_tensor_destroy(&closing->hidden);
    tsr_tensor_destroy(&closing->gate);
    tsr_tensor_destroy(&closing->lse);
    tsr_tensor_destroy(&closing->heads);
    tsr_tensor_destroy(&closing->convolved);
    for (int i = 0; i < 2; i++)
        tsr_tensor_destroy(&closing->before[i]);
    tsr_tensor_destroy(&closing->inverse_rms);
    tsr_tensor_destroy(&closing->starts);
    tsr_tensor_destroy(&closing->chunk_starts);
    tsr_tensor_destroy(&closing->positions);
    tsr_tensor_destroy(&closing->norm_stats);
    tsr_tensor_destroy(&closing->kept);
    tsr_tensor_destroy(&closing->normalised);
    for (int i = 0; i < TSR__SAVED_EXPERT_COUNT; i++)
        tsr_tensor_destroy(&closing->expert[i]);
    for (int i = 0; i < TSR__SAVED_LATENT_COUNT; i++)
        tsr_tensor_destroy(&closing->latent[i]);
    tsr__context_forget(&closing->context);
    tsr__free(closing->exchanged);
    tsr__free(closing);
}

/* Parameters --------------------------------------------------------------------------------- */

int tsr_layer_parameter_count(const tsr_layer *layer)
{
    if (!layer)
        return 0;
    int count = layer->parameter_count;
    for (int i = 0; i < layer->child_count; i++)
        count += tsr_layer_parameter_count(layer->child[i]);
    return count;
}

/* Finds the layer that has parameter *index: this layer or a descendant. Changes *index to the
 * index that the parameter has in that layer. */
static tsr_layer *owner_of(const tsr_layer *layer, int *index)
{
    if (!layer || *index < 0)
        return NULL;
    if (*index < layer->parameter_count)
        return (tsr_layer *)layer;
    *index -= layer->parameter_count;
    for (int i = 0; i < layer->child_count; i++) {
        int count = tsr_layer_parameter_count(layer->child[i]);
        if (*index < count)
            return owner_of(layer->child[i], index);
        *index -= count;
    }
    return NULL;
}

const tsr_parameter *tsr_layer_parameter(const tsr_layer *layer, int index)
{
    tsr_layer *owner = owner_of(layer, &index);
    return owner ? &owner->parameter[index]->seen : NULL;
}

/* Returns whether `full` is `name`, or ends in a dot and `name`. */
static bool has_name(const char *full, const char *name)
{
    size_t length = strlen(full), suffix = strlen(name);
    if (suffix > length || strcmp(full + length - suffix, name) != 0)
        return false;
    return suffix == length || full[length - suffix - 1] == '.';
}

tsr_status tsr_layer_find_parameter(const tsr_layer *layer, const char *name,
                                    const tsr_parameter **out)
{
    TSR__REQUIRE(layer && name && out, "layer_find_parameter: %s is NULL",
                 !layer ? "layer"
                 : name ? "out"
                        : "name");
    const tsr_parameter *found = NULL;
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++) {
        const tsr_parameter *parameter = tsr_layer_parameter(layer, i);
        if (strcmp(parameter->name, name) == 0) {
            *out = parameter;
            return TSR_OK;
        }
        if (!has_name(parameter->name, name))
            continue;
        TSR__REQUIRE(!found, "%s: '%s' matches both %s and %s", layer->who, name, found->name,
                     parameter->name);
        found = parameter;
    }
    if (!found)
        return tsr__fail(TSR_ERR_NOT_FOUND, "%s: there is no parameter '%s'", layer->who, name);
    *out = found;
    return TSR_OK;
}

void tsr_layer_set_frozen(tsr_layer *layer, bool frozen)
{
    if (!layer)
        return;
    layer->frozen = frozen;
    for (int i = 0; i < layer->child_count; i++)
        tsr_layer_set_frozen(layer->child[i], frozen);
}

bool tsr__layer_is_frozen(const tsr_layer *layer)
{
    return layer->frozen;
}

void tsr_layer_zero_grad(tsr_layer *layer)
{
    if (!layer)
        return;
    for (int i = 0; i < layer->parameter_count; i++)
        layer->parameter[i]->grad_empty = true;
    for (int i = 0; i < layer->child_count; i++)
        tsr_layer_zero_grad(layer->child[i]);
}

tsr_status tsr_layer_set_parameter(tsr_layer *layer, int index, tsr_tensor *tensor,
                                   tsr_tensor *grad, bool grad_holds)
{
    const int asked = index;
    tsr_layer *owner = owner_of(layer, &index);
    TSR__REQUIRE(owner, "layer_set_parameter: index %d is outside %d parameters", asked,
                 tsr_layer_parameter_count(layer));
    tsr__layer_parameter *parameter = owner->parameter[index];
    TSR__TRY(
        tsr__parameter_check_memory(owner, parameter, "tensor", tensor, parameter->seen.dtype));
    TSR__TRY(tsr__parameter_check_memory(owner, parameter, "gradient", grad, (tsr_dtype)0));
    tsr_tensor *values = NULL, *gradient = NULL;
    if (tensor)
        TSR__TRY(tsr__keep(tensor, &values));
    tsr_status status = grad ? tsr__keep(grad, &gradient) : TSR_OK;
    if (status != TSR_OK) {
        tsr_tensor_destroy(&values);
        return status;
    }
    tsr_tensor_destroy(&parameter->seen.tensor);
    tsr_tensor_destroy(&parameter->seen.grad);
    parameter->seen.tensor = values;
    parameter->seen.grad = gradient;
    parameter->grad_empty = !grad || !grad_holds;
    return TSR_OK;
}

bool tsr__layer_is_divisible(const tsr_layer *layer, int index)
{
    const tsr_layer *owner = owner_of(layer, &index);
    return owner && owner->parameter[index]->divisible;
}

void tsr__layer_divide(tsr_layer *layer, int index, tsr__over_data over)
{
    tsr_layer *owner = owner_of(layer, &index);
    if (owner)
        owner->parameter[index]->over_data = over;
}

bool tsr__layer_grad_is_empty(const tsr_layer *layer, int index)
{
    const tsr_layer *owner = owner_of(layer, &index);
    return owner && owner->parameter[index]->grad_empty;
}

tsr_status tsr__layer_initial(const tsr_layer *layer, int index, tsr_stream *stream, int64_t first,
                              tsr_tensor *out)
{
    const int asked = index;
    const tsr_layer *owner = owner_of(layer, &index);
    TSR__REQUIRE(owner, "layer_initial: index %d is outside %d parameters", asked,
                 tsr_layer_parameter_count(layer));
    TSR__REQUIRE(out, "layer_initial: out is NULL");
    const tsr__layer_parameter *parameter = owner->parameter[index];
    const tsr_layout *layout = tsr_tensor_layout(out);
    TSR__REQUIRE(layout->ndim == 1 && tsr_layout_is_contiguous(layout),
                 "layer_initial: out is %s; a contiguous tensor of one dimension is needed",
                 TSR__SHAPE_OF(out));
    int64_t shape[TSR__PARAMETER_DIMS] = {1, 1, 1}, count = layout->shape[0];
    tsr__parameter_shape(parameter, shape);
    const int64_t total = shape[0] * shape[1] * shape[2];
    TSR__REQUIRE(first >= 0 && first <= total && count <= total - first,
                 "layer_initial: %lld elements from %lld on, but this rank's part of %s has %lld",
                 (long long)count, (long long)first, parameter->name, (long long)total);
    return tsr__initial_range(parameter, stream, first, out);
}

/* Gathers this rank's shard of a parameter from the data-parallel ranks that divide it; NULL if
 * none do. */
static tsr_status gather_shard(const tsr_layer *layer, const tsr__layer_parameter *parameter,
                               tsr_tensor **out)
{
    const tsr__over_data *over = &parameter->over_data;
    int64_t shape[TSR__PARAMETER_DIMS];
    *out = NULL;
    if (!over->group)
        return TSR_OK;
    tsr__parameter_shape(parameter, shape);
    TSR__TRY(
        tsr_tensor_create(layer->device, parameter->seen.dtype, parameter->seen.ndim, shape, out));
    return tsr_group_all_gather(over->group, *out, parameter->seen.tensor, 0,
                                tsr_collective_params(.sizes = over->sizes), NULL);
}

tsr_status tsr_layer_gather_parameter(const tsr_layer *layer, int index, tsr_tensor **out)
{
    const int asked = index;
    tsr_layer *owner = owner_of(layer, &index);
    TSR__REQUIRE(owner, "layer_gather_parameter: index %d is outside %d parameters", asked,
                 tsr_layer_parameter_count(layer));
    TSR__REQUIRE(out, "layer_gather_parameter: out is NULL");
    TSR__TRY(tsr__parameter_require(owner, index));
    const tsr__layer_parameter *parameter = owner->parameter[index];
    const tsr_parameter *seen = &parameter->seen;
    tsr_tensor *whole = NULL, *shard = NULL;
    TSR__TRY(tsr_tensor_create(owner->device, seen->dtype, seen->ndim, seen->global_shape, &whole));
    tsr_status status = gather_shard(owner, parameter, &shard);
    const tsr_tensor *mine = shard ? shard : seen->tensor;
    if (status == TSR_OK)
        status = seen->shard_dim < 0
                     ? tsr_copy(owner->stream, whole, mine)
                     : tsr_group_all_gather(owner->group, whole, mine, seen->shard_dim,
                                            tsr_collective_params(.sizes = parameter->sizes), NULL);
    tsr_tensor_destroy(&shard);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&whole);
        return status;
    }
    *out = whole;
    return TSR_OK;
}

void tsr__layer_saved_keep(tsr_layer_saved *saved, tsr_tensor *tensor)
{
    tsr_tensor_destroy(&saved->kept);
    saved->kept = tensor;
}

const tsr_tensor *tsr__layer_saved_kept(const tsr_layer_saved *saved)
{
    return saved->kept;
}
