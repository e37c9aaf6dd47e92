/* Sets of adapters: creating and attaching them, and the gradients of parameters that all ranks
 * have.
 */
#include "parallel/layers/adapter.h"

#include <string.h>

#include "base/hash.h"
#include "parallel/internal.h"
#include "parallel/layers/latent_attention.h"
#include "parallel/layers/moe.h"
#include "tensor/dtype.h"

/* Gradients of parameters that all ranks have ------------------------------------------------ */

/* A set of adapters: its children are tsr__adapter. */
typedef struct adapters {
    tsr_layer base;
    /* The contributions of this rank to gradients of parameters that every rank has; NULL if there
     * are none */
    tsr_tensor *contributions;
    tsr__adapter_dropout dropout;
    tsr__adapter_choice choice;
    uint64_t version; /* of the norms that adapters with magnitudes need */
} adapters;

static int64_t elements_of(const tsr_parameter *seen)
{
    int64_t elements = 1;
    for (int d = 0; d < seen->ndim; d++)
        elements *= seen->global_shape[d];
    return elements;
}

/* Returns whether this rank computes only a contribution to a parameter's gradient. */
static bool is_replicated(const tsr_layer *layer, int index)
{
    return layer->size > 1 && layer->parameter[index]->seen.shard_dim < 0;
}

static tsr_status give_contributions(adapters *set)
{
    int64_t at = 0;
    for (int c = 0; c < set->base.child_count; c++) {
        tsr__adapter *adapter = (tsr__adapter *)set->base.child[c];
        for (int i = 0; i < adapter->base.parameter_count; i++) {
            const tsr_parameter *seen = &adapter->base.parameter[i]->seen;
            tsr_tensor *range = NULL;
            if (!is_replicated(&adapter->base, i))
                continue;
            TSR__TRY(
                tsr_tensor_slice(set->contributions, 0, at, at + elements_of(seen), 1, &range));
            const tsr_status status = tsr_tensor_reshape(range, seen->ndim, seen->global_shape,
                                                         &adapter->contribution[i]);
            tsr_tensor_destroy(&range);
            TSR__TRY(status);
            at += elements_of(seen);
        }
    }
    return TSR_OK;
}

static void drop_contributions(adapters *set)
{
    for (int c = 0; c < set->base.child_count; c++)
        for (int i = 0; i < 3 * TSR__MAX_ADAPTED; i++)
            tsr_tensor_destroy(&((tsr__adapter *)set->base.child[c])->contribution[i]);
    tsr_tensor_destroy(&set->contributions);
}

tsr_status tsr__adapters_begin_backward(tsr_layer *layer)
{
    adapters *set = (adapters *)layer;
    int64_t total = 0;
    if (layer->frozen)
        return TSR_OK;
    if (set->contributions)
        return tsr_fill(layer->stream, set->contributions, 0);
    for (int c = 0; c < layer->child_count; c++)
        for (int i = 0; i < layer->child[c]->parameter_count; i++)
            if (is_replicated(layer->child[c], i))
                total += elements_of(&layer->child[c]->parameter[i]->seen);
    if (total == 0)
        return TSR_OK;
    TSR__TRY(tsr_tensor_create(layer->device, TSR_F32, 1, &total, &set->contributions));
    tsr_status status = give_contributions(set);
    if (status == TSR_OK)
        status = tsr_fill(layer->stream, set->contributions, 0);
    if (status != TSR_OK)
        drop_contributions(set);
    return status;
}

tsr_status tsr__adapters_sum(tsr_layer *layer)
{
    adapters *set = (adapters *)layer;
    if (!set->contributions || layer->frozen)
        return TSR_OK;
    TSR__TRY(tsr_group_all_reduce(layer->group, set->contributions, TSR_OP_SUM, NULL, NULL));
    for (int c = 0; c < layer->child_count; c++) {
        tsr__adapter *adapter = (tsr__adapter *)layer->child[c];
        for (int i = 0; i < adapter->base.parameter_count; i++) {
            tsr__layer_parameter *parameter = adapter->base.parameter[i];
            const tsr_tensor *sum = adapter->contribution[i];
            if (!sum || !adapter->enabled)
                continue;
            TSR__TRY(tsr__parameter_need_grad(&adapter->base, i));
            TSR__TRY(parameter->grad_empty ? tsr_copy(layer->stream, parameter->seen.grad, sum)
                                           : tsr_axpy(layer->stream, parameter->seen.grad, 1, sum));
            parameter->grad_empty = false;
        }
    }
    return TSR_OK;
}

/* Creating ----------------------------------------------------------------------------------- */

static void finish_adapter(tsr_layer *layer)
{
    tsr__adapter *adapter = (tsr__adapter *)layer;
    for (int i = 0; i < 3 * TSR__MAX_ADAPTED; i++)
        tsr_tensor_destroy(&adapter->contribution[i]);
    for (int i = 0; i < TSR__MAX_ADAPTED; i++)
        tsr_tensor_destroy(&adapter->norm[i]);
    if (!adapter->target)
        return;
    struct tsr__adapter **at = &adapter->target->adapters;
    while (*at && *at != adapter)
        at = &(*at)->next;
    if (*at)
        *at = adapter->next;
    tsr__adapter_bank_drop(adapter->target);
}

static void finish_adapters(tsr_layer *layer)
{
    tsr_tensor_destroy(&((adapters *)layer)->contributions);
}

/* Neither has passes of its own: those of the adapted layers use them. */
static const tsr__layer_type adapter_type = {.name = "adapter", .finish = finish_adapter},
                             adapters_type = {.name = "adapters", .finish = finish_adapters};

tsr_status tsr__adapters_create(tsr_group *group, const char *name, bool trainable, tsr_layer **out)
{
    TSR__TRY(tsr__layer_new(&adapters_type, sizeof(adapters), group, name, out));
    (*out)->frozen = !trainable;
    ((adapters *)*out)->version = 1;
    return TSR_OK;
}

void tsr__adapters_enable(tsr_layer *layer, bool enabled)
{
    for (int i = 0; i < layer->child_count; i++)
        ((tsr__adapter *)layer->child[i])->enabled = enabled;
}

void tsr__adapters_changed(tsr_layer *layer)
{
    ((adapters *)layer)->version++;
}

void tsr__adapters_choose_enabled(tsr_layer *layer)
{
    ((adapters *)layer)->choice = (tsr__adapter_choice){0};
}

void tsr__adapters_choose_one(tsr_layer *layer, bool is_it)
{
    ((adapters *)layer)->choice =
        (tsr__adapter_choice){.mode = TSR__ADAPTERS_ONE, .only = is_it ? 0 : -1};
}

void tsr__adapters_choose_by_row(tsr_layer *layer, int number, int count, uint64_t version,
                                 const tsr_tensor *ids)
{
    ((adapters *)layer)->choice = (tsr__adapter_choice){.mode = TSR__ADAPTERS_BY_ROW,
                                                        .number = number,
                                                        .count = count,
                                                        .ids = ids,
                                                        .version = version};
}

void tsr__adapters_set_dropout(tsr_layer *layer, float p, uint64_t seed, uint64_t subsequence)
{
    ((adapters *)layer)->dropout = (tsr__adapter_dropout){p, seed, subsequence};
}

/* Merging ------------------------------------------------------------------------------------ */

static tsr_status check_merge(const tsr__adapter *adapter, int part)
{
    const tsr__layer_parameter *weight = tsr__adapter_weight(adapter, part);
    TSR__REQUIRE(weight->seen.tensor, "%s: %s has no memory", adapter->target->who, weight->name);
    const tsr_dtype dtype = tsr_tensor_layout(weight->seen.tensor)->dtype;
    if (tsr__dtype_is_block(dtype))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: %s is %s; an adapter can be merged into floats only",
                         adapter->target->who, weight->name, tsr_dtype_name(dtype));
    return TSR_OK;
}

/* weight += scale · b a. */
static tsr_status merge_matrix(tsr_stream *stream, tsr_tensor *weight, const tsr_tensor *b,
                               const tsr_tensor *a, float scale)
{
    return tsr_matmul(stream, weight, b, a, tsr_matmul_params(.alpha = scale, .accumulate = true));
}

/* merge_matrix for each expert that this rank has. */
static tsr_status merge_experts(tsr_stream *stream, tsr_tensor *weight, const tsr_tensor *b,
                                const tsr_tensor *a, float scale)
{
    tsr_status status = TSR_OK;
    for (int64_t e = 0; status == TSR_OK && e < tsr_tensor_layout(weight)->shape[0]; e++) {
        tsr_tensor *own[3] = {NULL, NULL, NULL};
        status = tsr_tensor_select(weight, 0, e, &own[0]);
        if (status == TSR_OK)
            status = tsr_tensor_select(b, 0, e, &own[1]);
        if (status == TSR_OK)
            status = tsr_tensor_select(a, 0, e, &own[2]);
        if (status == TSR_OK)
            status = merge_matrix(stream, own[0], own[1], own[2], scale);
        for (int i = 0; i < 3; i++)
            tsr_tensor_destroy(&own[i]);
    }
    return status;
}

static tsr_status merge_normed(tsr__adapter *adapter, int part)
{
    tsr__temps temps = {.stream = adapter->base.stream};
    const tsr_status status = tsr__adapter_merge_normed(adapter, &temps, part);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status merge_latent(const tsr__adapter *adapter, int part, tsr_tensor *weight)
{
    tsr__temps temps = {.stream = adapter->base.stream};
    const tsr_status status = tsr__latent_adapters_merge(adapter, &temps, part, weight);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__adapters_merge(tsr_layer *layer)
{
    for (int c = 0; c < layer->child_count; c++)
        for (int i = 0; i < ((tsr__adapter *)layer->child[c])->count; i++)
            TSR__TRY(check_merge((tsr__adapter *)layer->child[c], i));
    for (int c = 0; c < layer->child_count; c++) {
        const tsr__adapter *adapter = (tsr__adapter *)layer->child[c];
        for (int i = 0; i < adapter->count; i++) {
            const tsr__adapted *part = &adapter->part[i];
            TSR__TRY(tsr__parameter_require(layer->child[c], part->a));
            TSR__TRY(tsr__parameter_require(layer->child[c], part->b));
            const tsr_tensor *a = layer->child[c]->parameter[part->a]->seen.tensor,
                             *b = layer->child[c]->parameter[part->b]->seen.tensor;
            tsr_tensor *weight = tsr__adapter_weight(adapter, i)->seen.tensor;
            if (adapter->has_magnitudes) {
                TSR__TRY(merge_normed((tsr__adapter *)layer->child[c], i));
                continue;
            }
            if (adapter->kind == TSR__ADAPTER_LATENT) {
                TSR__TRY(merge_latent(adapter, i, weight));
                continue;
            }
            TSR__TRY(adapter->kind == TSR__ADAPTER_EXPERTS
                         ? merge_experts(layer->stream, weight, b, a, part->scale)
                         : merge_matrix(layer->stream, weight, b, a, part->scale));
        }
    }
    return TSR_OK;
}

/* Attaching ---------------------------------------------------------------------------------- */

/* Returns whether `full` ends in a dot and `name`. */
static bool ends_in(const char *full, const char *name)
{
    const size_t length = strlen(full), suffix = strlen(name);
    return length > suffix && full[length - suffix - 1] == '.' &&
           strcmp(full + length - suffix, name) == 0;
}

static bool is_moe(const tsr_layer *layer)
{
    return layer->type->forward_added == tsr__moe_forward_added;
}

static bool is_latent(const tsr_layer *layer)
{
    return layer->type == &tsr__latent_attention_type;
}

/* Finds the linear layer, mixture of experts or latent attention that has the weight called `name`
 * itself, and the weight's index. */
static tsr_layer *owner_of(tsr_layer *layer, const char *name, int *index)
{
    if (layer->type->forward == tsr__column_forward || layer->type->forward == tsr__row_forward ||
        is_moe(layer) || is_latent(layer))
        for (int i = 0; i < layer->parameter_count; i++)
            if (ends_in(layer->parameter[i]->name, name)) {
                *index = i;
                return layer;
            }
    for (int i = 0; i < layer->child_count; i++) {
        tsr_layer *found = owner_of(layer->child[i], name, index);
        if (found)
            return found;
    }
    return NULL;
}

/* Adds A or B of a part: [rows, columns] or, with experts, [experts, rows, columns]; with sizes[1]
 * = 0, magnitudes: [rows]. It is not divided if shard_dim is -1. */
static tsr_status add_parameter(tsr__adapter *adapter, const char *name, int64_t experts,
                                const int64_t sizes[2], int shard_dim,
                                const tsr__division *division, tsr_init kind, const uint64_t *seed)
{
    tsr__parameter_spec spec = {.name = name,
                                .dtype = TSR_F32,
                                .grad_dtype = TSR_F32,
                                .shard_dim = shard_dim,
                                .division = division,
                                .init = {.struct_size = sizeof(tsr_init_params),
                                         .kind = seed ? kind : TSR_INIT_NONE,
                                         .seed = seed ? *seed : 0},
                                .fan_in = sizes[1],
                                .fan_out = sizes[0]};
    if (experts > 0)
        spec.shape[spec.ndim++] = experts;
    spec.shape[spec.ndim++] = sizes[0];
    if (sizes[1] > 0)
        spec.shape[spec.ndim++] = sizes[1];
    return tsr__parameter_add(&adapter->base, &spec);
}

/* Adds B (half 1) or the magnitudes (half 2) of all parts: a row or number for each feature of y.
 */
static tsr_status add_outputs(tsr__adapter *adapter, const tsr__adapter_part *parts, int half,
                              const uint64_t *seed)
{
    const tsr__linear *linear = tsr__adapter_linear(adapter);
    const tsr__column_linear *column = (const tsr__column_linear *)linear;
    for (int i = 0; i < adapter->count; i++) {
        const char *name = half == 1 ? parts[i].name_b : parts[i].name_m;
        const tsr__column_block *block =
            adapter->is_row ? NULL : &column->block[adapter->part[i].block];
        const int64_t sizes[2] = {block ? block->output_size : linear->output_size,
                                  half == 1 ? parts[i].rank : 0};
        TSR__TRY(add_parameter(adapter, name, 0, sizes, !block || block->replicated ? -1 : 0,
                               block ? &block->division : NULL, TSR_INIT_ZEROS, seed));
    }
    return TSR_OK;
}

static tsr_status add_linear(tsr__adapter *adapter, const tsr__adapter_part *parts,
                             const uint64_t *seed)
{
    const tsr__linear *linear = tsr__adapter_linear(adapter);
    const tsr__row_linear *row = (const tsr__row_linear *)linear;
    for (int i = 0; i < adapter->a_count; i++)
        TSR__TRY(
            add_parameter(adapter, parts[i].name_a, 0,
                          (int64_t[]){parts[i].rank, linear->input_size}, adapter->is_row ? 1 : -1,
                          adapter->is_row ? &row->weight_division : NULL, TSR_INIT_TORCH, seed));
    TSR__TRY(add_outputs(adapter, parts, 1, seed));
    return adapter->has_magnitudes ? add_outputs(adapter, parts, 2, seed) : TSR_OK;
}

/* Adds A of all parts and then B of all parts, divided as the weights are: by experts; or by hidden
 * features, which are columns of A of down, and rows of B of gate and up. */
static tsr_status add_mixture(tsr__adapter *adapter, const tsr__adapter_part *parts,
                              const uint64_t *seed)
{
    const tsr__moe *m = (const tsr__moe *)adapter->target;
    const bool shared = adapter->kind == TSR__ADAPTER_SHARED, whole = !shared && m->by_experts;
    const tsr__division *division = shared ? &m->shared_division : &m->division;
    const int64_t experts = shared ? 0 : m->experts;
    const int first = shared ? 0 : 1; /* the dimension of rows */
    if (!shared && m->in_teams)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: its experts are mixed over hosts, and cannot have adapters",
                         m->base.who);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < adapter->count; i++) {
            const int which = adapter->part[i].block;
            const bool is_down = which == TSR__MOE_DOWN || which == TSR__MOE_SHARED_DOWN,
                       divided = half == 0 ? is_down : !is_down;
            const int64_t *shape = tsr__adapter_weight(adapter, i)->seen.global_shape + first,
                          sizes[2][2] = {{parts[i].rank, shape[1]}, {shape[0], parts[i].rank}};
            const int dim = whole ? 0 : !divided ? -1 : half == 0 ? first + 1 : first;
            TSR__TRY(add_parameter(adapter, half == 0 ? parts[i].name_a : parts[i].name_b, experts,
                                   sizes[half], dim, division,
                                   half == 0 ? TSR_INIT_TORCH : TSR_INIT_ZEROS, seed));
        }
    return TSR_OK;
}

/* Adds A of all parts, which all ranks have, and then B of all parts, divided as the weights are by
 * heads. */
static tsr_status add_latent(tsr__adapter *adapter, const tsr__adapter_part *parts,
                             const uint64_t *seed)
{
    const tsr__latent_attention *a = (const tsr__latent_attention *)adapter->target;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < (half == 0 ? adapter->a_count : adapter->count); i++) {
            int64_t inputs, outputs;
            tsr__division division;
            tsr__latent_sizes(a, adapter->part[i].block, &inputs, &outputs, &division);
            const bool divided = half == 1 && division.sizes;
            const int64_t sizes[2][2] = {{parts[i].rank, inputs}, {outputs, parts[i].rank}};
            TSR__TRY(add_parameter(adapter, half == 0 ? parts[i].name_a : parts[i].name_b, 0,
                                   sizes[half], divided ? 0 : -1, divided ? &division : NULL,
                                   half == 0 ? TSR_INIT_TORCH : TSR_INIT_ZEROS, seed));
        }
    return TSR_OK;
}

/* Allocates one tensor for A of all parts, and one for B of each; of experts, one for each. */
static tsr_status allocate(tsr__adapter *adapter)
{
    tsr_layer *layer = &adapter->base;
    int64_t shape[TSR__PARAMETER_DIMS];
    tsr_tensor *joint = NULL;
    for (int i = 0; adapter->kind >= TSR__ADAPTER_EXPERTS && i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_allocate(layer, i));
    if (adapter->kind >= TSR__ADAPTER_EXPERTS)
        return TSR_OK;
    tsr__parameter_shape(layer->parameter[0], shape);
    shape[0] = adapter->ranks;
    TSR__TRY(tsr_tensor_create(layer->device, TSR_F32, 2, shape, &joint));
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK && i < adapter->count; i++) {
        tsr__layer_parameter *a = layer->parameter[adapter->part[i].a];
        const int64_t first = adapter->part[i].first;
        status = tsr__parameter_allocate(layer, adapter->part[i].b);
        if (status == TSR_OK && adapter->has_magnitudes)
            status = tsr__parameter_allocate(layer, adapter->part[i].m);
        if (status == TSR_OK && i < adapter->a_count)
            status = tsr_tensor_slice(joint, 0, first, first + adapter->part[i].rank, 1,
                                      &a->seen.tensor);
        if (status == TSR_OK && i < adapter->a_count)
            status = tsr__initial_fill(a, layer->stream, a->seen.tensor);
    }
    tsr_tensor_destroy(&joint);
    return status;
}

static tsr_status init_adapter(tsr__adapter *adapter, const adapters *set, tsr_layer *target,
                               const tsr__adapter_part *parts, const int *blocks, int count,
                               const uint64_t *seed)
{
    adapter->target = target;
    adapter->dropout = &set->dropout;
    adapter->choice = &set->choice;
    adapter->version = &set->version;
    adapter->has_magnitudes = parts[0].name_m != NULL;
    adapter->mask = tsr__hash(TSR__HASH_START, parts[0].name_a, strlen(parts[0].name_a));
    adapter->is_row = target->type->forward == tsr__row_forward;
    adapter->kind = adapter->is_row                          ? TSR__ADAPTER_ROW
                    : is_latent(target)                      ? TSR__ADAPTER_LATENT
                    : !is_moe(target)                        ? TSR__ADAPTER_COLUMN
                    : blocks[0] >= (int)TSR__MOE_SHARED_GATE ? TSR__ADAPTER_SHARED
                                                             : TSR__ADAPTER_EXPERTS;
    adapter->enabled = true;
    adapter->count = count;
    adapter->a_count = count > 1 && strcmp(parts[0].name_a, parts[1].name_a) == 0 ? 1 : count;
    for (int i = 0; i < count; i++) {
        const bool has_a = i < adapter->a_count;
        adapter->part[i] = (tsr__adapted){.block = blocks[i],
                                          .a = has_a ? i : 0,
                                          .b = adapter->a_count + i,
                                          .m = adapter->a_count + count + i,
                                          .rank = parts[i].rank,
                                          .first = has_a ? adapter->ranks : 0,
                                          .scale = parts[i].scale};
        adapter->ranks += has_a ? parts[i].rank : 0;
    }
    TSR__TRY(adapter->kind == TSR__ADAPTER_LATENT    ? add_latent(adapter, parts, seed)
             : adapter->kind >= TSR__ADAPTER_EXPERTS ? add_mixture(adapter, parts, seed)
                                                     : add_linear(adapter, parts, seed));
    TSR__TRY(allocate(adapter));
    struct tsr__adapter **at = &target->adapters;
    while (*at)
        at = &(*at)->next;
    *at = adapter;
    return adapter->has_magnitudes && seed ? tsr__adapter_fill_magnitudes(adapter) : TSR_OK;
}

static tsr_status attach(tsr_layer *set, tsr_layer *target, const tsr__adapter_part *parts,
                         const int *blocks, int count, const uint64_t *seed)
{
    tsr_layer *layer = NULL;
    TSR__TRY(tsr__layer_new(&adapter_type, sizeof(tsr__adapter), set->group, "", &layer));
    layer->frozen = set->frozen;
    const tsr_status status = init_adapter((tsr__adapter *)layer, (const adapters *)set, target,
                                           parts, blocks, count, seed);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    return tsr__layer_add_child(set, layer);
}

/* Returns the number of the column block that has a weight, or its tsr__moe_parameter or
 * tsr__latent_parameter. */
static int block_of(const tsr_layer *owner, int index)
{
    int which = 0;
    if (is_latent(owner)) {
        while (((const tsr__latent_attention *)owner)->index[which] != index)
            which++;
        return which;
    }
    if (!is_moe(owner))
        return index / (((const tsr__linear *)owner)->has_bias ? 2 : 1);
    while (((const tsr__moe *)owner)->index[which] != index)
        which++;
    return which;
}

/* Returns whether a part has the same A as the part before it. */
static bool has_same_a(const tsr__adapter_part *parts, int number)
{
    return strcmp(parts[number - 1].name_a, parts[number].name_a) == 0;
}

tsr_status tsr__adapters_attach(tsr_layer *set, tsr_layer *layer, int count,
                                const tsr__adapter_part *parts, const uint64_t *seed)
{
    for (int i = 0; i < count;) {
        int blocks[TSR__MAX_ADAPTED], index = 0, next = i;
        tsr_layer *target = owner_of(layer, parts[i].weight, &index);
        TSR__REQUIRE(target, "%s: it has no weight '%s' that can have an adapter", layer->who,
                     parts[i].weight);
        const int ndim = target->parameter[index]->seen.ndim; /* 3: of experts or heads */
        /* Parts together have either the same A or each its own. */
        const bool one_a = i + 1 < count && has_same_a(parts, i + 1);
        while (next < count && next - i < TSR__MAX_ADAPTED &&
               (next == i || has_same_a(parts, next) == one_a) &&
               owner_of(layer, parts[next].weight, &index) == target &&
               target->parameter[index]->seen.ndim == ndim) {
            blocks[next - i] = block_of(target, index);
            next++;
        }
        TSR__TRY(attach(set, target, &parts[i], blocks, next - i, seed));
        i = next;
    }
    return TSR_OK;
}
