/* Creates adapters, attaches them to the layers of a stack, and divides their parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/given.h"
#include "base/struct_size.h"
#include "model/lora/lora.h"
#include "parallel/internal.h"

#define USUAL_RANK 8
#define MAX_RANK 65536
#define USUAL_TARGETS (TSR_LORA_EXPERTS - 1U) /* all except experts and the head */

/* Creating ----------------------------------------------------------------------------------- */

tsr_status tsr__lora_new(const tsr_lora_params *params, tsr_lora **out)
{
    TSR__REQUIRE(fabs(params->scale) < 1e30, "lora: scale is %g", params->scale);
    tsr_lora *lora = tsr__calloc(1, sizeof *lora);
    if (!lora)
        return TSR_ERR_NO_MEMORY;
    lora->scale = tsr__given_double(params->scale, 1);
    lora->stack = params->stack;
    lora->trainable = params->trainable;
    lora->dropout = params->dropout;
    lora->seed = params->seed;
    lora->passes = params->passes;
    lora->name = tsr__strdup(params->name ? params->name : "default");
    if (!lora->name) {
        tsr__free(lora);
        return TSR_ERR_NO_MEMORY;
    }
    *out = lora;
    return TSR_OK;
}

/* Attaches the modules of one layer, which follow each other from `first` on. */
static tsr_status attach_layer(tsr_lora *lora, tsr_layer *set, const uint64_t *seed, size_t first,
                               size_t count)
{
    const tsr__lora_module *modules = &lora->modules[first];
    tsr__adapter_part parts[TSR__LORA_TARGETS];
    char names[TSR__LORA_TARGETS][3][TSR__LORA_NAME];
    for (size_t i = 0; i < count; i++) {
        TSR__TRY(tsr__lora_parameter_name(lora->stack, &modules[i], 'A', names[i][0]));
        TSR__TRY(tsr__lora_parameter_name(lora->stack, &modules[i], 'B', names[i][1]));
        TSR__TRY(tsr__lora_parameter_name(lora->stack, &modules[i], 'M', names[i][2]));
        const char *ours = tsr__lora_targets[modules[i].target].ours;
        parts[i] =
            (tsr__adapter_part){.weight = modules->layer < 0 ? "weight" : ours,
                                .name_a = names[i][0],
                                .name_b = names[i][1],
                                .name_m = lora->dora ? names[i][2] : NULL,
                                .rank = modules[i].rank,
                                .scale = (float)lora->scale * tsr__lora_scale(lora, &modules[i])};
    }
    return tsr__adapters_attach(set, tsr__lora_layer(lora->stack, modules->layer), (int)count,
                                parts, seed);
}

static tsr_status attach_blocks(tsr_lora *lora, tsr_layer *set, const uint64_t *seed)
{
    const tsr_stack *s = lora->stack;
    for (size_t i = 0; i < lora->module_count;) {
        const int layer = lora->modules[i].layer;
        size_t next = i;
        while (next < lora->module_count && lora->modules[next].layer == layer)
            next++;
        if (tsr__lora_layer(s, layer))
            TSR__TRY(attach_layer(lora, set, seed, i, next - i));
        i = next;
    }
    return TSR_OK;
}

/* Refuses what adapters with magnitudes cannot have. */
static tsr_status check_dora(const tsr_lora *lora)
{
    TSR__REQUIRE(lora->dropout == 0, "lora: with dora, dropout is %g; it must be 0", lora->dropout);
    for (size_t i = 0; i < lora->module_count; i++) {
        const bool latent = tsr__lora_is_latent(lora->stack->config, &lora->modules[i]);
        if (latent || tsr__lora_targets[lora->modules[i].target].flag == TSR_LORA_EXPERTS)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "lora: adapters of %s cannot have magnitudes (dora)",
                             latent ? "latent attention" : "experts");
    }
    return TSR_OK;
}

tsr_status tsr__lora_attach(tsr_lora *lora, const uint64_t *seed)
{
    tsr_stack *s = lora->stack;
    tsr__stack_adapter **at = &s->adapters;
    if (lora->dora)
        TSR__TRY(check_dora(lora));
    TSR__TRY(tsr__adapters_create(s->group, lora->name, lora->trainable, &lora->adapter.layer));
    TSR__TRY(attach_blocks(lora, lora->adapter.layer, seed));
    lora->adapter.is_enabled = true;
    lora->adapter.has_head =
        lora->module_count > 0 && lora->modules[lora->module_count - 1].layer < 0;
    for (size_t i = 0; i < lora->module_count; i++) {
        lora->adapter.has_experts |=
            tsr__lora_targets[lora->modules[i].target].flag == TSR_LORA_EXPERTS;
        lora->adapter.has_latent |= tsr__lora_is_latent(s->config, &lora->modules[i]);
    }
    lora->adapter.has_magnitudes = lora->dora;
    lora->adapter.dropout = (float)lora->dropout;
    lora->adapter.dropout_seed = (uint64_t)lora->seed;
    if (s->trained_passes < lora->passes)
        s->trained_passes = lora->passes;
    while (*at)
        at = &(*at)->next;
    *at = &lora->adapter;
    lora->is_attached = true;
    lora->adapter.identity = ++s->adapter_version;
    return TSR_OK;
}

void tsr__lora_freeze(const tsr_lora *lora)
{
    if (lora->trainable && !lora->stack->sharded)
        tsr__stack_freeze(lora->stack);
}

tsr_status tsr__lora_check(const tsr_lora_params *p)
{
    TSR__REQUIRE(p->stack, "lora: stack is NULL");
    TSR__REQUIRE(p->rank >= 0 && p->rank <= MAX_RANK, "lora: rank is %d; 1 to %d are possible",
                 p->rank, MAX_RANK);
    TSR__REQUIRE(p->alpha >= 0 && p->alpha <= TSR__LORA_MAX_ALPHA,
                 "lora: alpha is %g; a number above 0, at most %g, is needed", p->alpha,
                 TSR__LORA_MAX_ALPHA);
    TSR__REQUIRE(p->dropout >= 0 && p->dropout < 1,
                 "lora: dropout is %g; 0 <= dropout < 1 is needed", p->dropout);
    unsigned known = 0;
    for (int t = 0; t < TSR__LORA_TARGETS; t++)
        known |= tsr__lora_targets[t].flag;
    TSR__REQUIRE(!(p->targets & ~known), "lora: targets is 0x%x; of these, 0x%x are possible",
                 p->targets, known);
    return TSR_OK;
}

/* Gives the name of the tensor of a folder that has a target of a layer, or "" if the layer lacks
 * the target. */
static tsr_status tensor_of(const tsr_lora *lora, int layer, int target, tsr__lora_place *out)
{
    const tsr__lora_module module = {.layer = layer, .target = target};
    tsr__parameter p;
    *out->name = '\0';
    return tsr__lora_find_parameter(lora, layer, target, &p)
               ? tsr__lora_find_place(lora->stack, &module, 0, false, out)
               : TSR_OK;
}

/* Finds out whether a target gets an adapter: those of `wanted`, and with magnitudes also those
 * that share a tensor with one of these, because the file has magnitudes of all rows of the tensor.
 */
static tsr_status is_wanted(const tsr_lora *lora, unsigned wanted, int layer, int target, bool *out)
{
    tsr__lora_place own, other;
    *out = (wanted & tsr__lora_targets[target].flag) != 0;
    if (*out || !lora->dora)
        return TSR_OK;
    TSR__TRY(tensor_of(lora, layer, target, &own));
    for (int t = 0; t < TSR__LORA_TARGETS && !*out && *own.name; t++) {
        if (!(wanted & tsr__lora_targets[t].flag))
            continue;
        TSR__TRY(tensor_of(lora, layer, t, &other));
        *out = strcmp(own.name, other.name) == 0;
    }
    return TSR_OK;
}

/* Lists the modules that `targets` asks for, in the chosen layers. */
static tsr_status add_modules(tsr_lora *lora, unsigned targets, const bool *chosen)
{
    const unsigned wanted = targets == 0 ? USUAL_TARGETS : targets;
    const int layers = lora->stack->config->layers;
    unsigned found = 0;
    for (int i = 0; i <= layers; i++)
        for (int t = 0; t < TSR__LORA_TARGETS; t++) {
            const int layer = i < layers ? i : -1;
            tsr__parameter p;
            bool gets_one;
            TSR__TRY(is_wanted(lora, wanted, layer, t, &gets_one));
            if (!gets_one || (layer >= 0 && !chosen[layer]) ||
                !tsr__lora_find_parameter(lora, layer, t, &p))
                continue;
            TSR__TRY(tsr__lora_add_module(lora, layer, t, &p));
            found |= tsr__lora_targets[t].flag;
        }
    for (int t = 0; t < TSR__LORA_TARGETS; t++)
        TSR__REQUIRE(!(targets & ~found & tsr__lora_targets[t].flag),
                     "lora: no layer of the model has %s", tsr__lora_targets[t].ours);
    TSR__REQUIRE(found != 0, "lora: no layer of the model can have an adapter");
    return TSR_OK;
}

tsr_status tsr_lora_create(const tsr_lora_params *params, tsr_lora **out)
{
    tsr_lora *lora = NULL;
    TSR__REQUIRE(params && out, "lora: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_lora_params, params);
    TSR__TRY(tsr__lora_check(params));
    TSR__TRY(tsr__lora_new(params, &lora));
    lora->rank = params->rank > 0 ? params->rank : USUAL_RANK;
    lora->alpha = params->alpha > 0 ? params->alpha : 2.0 * lora->rank;
    lora->rank_stabilised = params->rank_stabilised;
    lora->dora = params->dora;
    const uint64_t seed = (uint64_t)params->seed;
    const int layers = lora->stack->config->layers;
    bool *chosen = tsr__calloc((size_t)layers, sizeof *chosen);
    tsr_status status = chosen ? tsr__stack_choose("lora: layers", params->layers, layers, chosen)
                               : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = add_modules(lora, params->targets, chosen);
    tsr__free(chosen);
    if (status == TSR_OK)
        status = tsr__lora_attach(lora, &seed);
    if (status != TSR_OK) {
        tsr_lora_destroy(&lora);
        return status;
    }
    tsr__lora_freeze(lora);
    *out = lora;
    return TSR_OK;
}

void tsr_lora_destroy(tsr_lora **lora)
{
    if (!lora || !*lora)
        return;
    tsr_lora *closing = *lora;
    *lora = NULL;
    if (closing->is_attached) {
        tsr__stack_adapter **at = &closing->stack->adapters;
        while (*at != &closing->adapter)
            at = &(*at)->next;
        *at = closing->adapter.next;
        closing->stack->adapter_version++;
    }
    tsr_fsdp_destroy(&closing->adapter.sharded);
    tsr_layer_destroy(&closing->adapter.layer);
    tsr__free(closing->modules);
    tsr__free(closing->name);
    tsr__free(closing);
}

/* Use ---------------------------------------------------------------------------------------- */

void tsr_lora_set_enabled(tsr_lora *lora, bool enabled)
{
    if (!lora)
        return;
    lora->adapter.is_enabled = enabled;
    tsr__adapters_enable(lora->adapter.layer, enabled);
}

tsr_status tsr_lora_merge(tsr_lora *lora)
{
    TSR__REQUIRE(lora, "lora: lora is NULL");
    TSR__REQUIRE(lora->adapter.is_enabled, "lora: adapter '%s' is not enabled", lora->name);
    TSR__REQUIRE(!lora->stack->sharded && !lora->adapter.sharded,
                 "lora: adapter '%s' cannot be merged, because %s sharded", lora->name,
                 lora->stack->sharded ? "the stack is" : "it is");
    TSR__TRY(tsr__adapters_merge(lora->adapter.layer));
    for (const tsr__stack_adapter *a = lora->stack->adapters; a; a = a->next)
        tsr__adapters_changed(a->layer);
    tsr_lora_set_enabled(lora, false);
    return TSR_OK;
}

static tsr_status check_trainable(const tsr_lora *lora)
{
    TSR__REQUIRE(lora, "lora: lora is NULL");
    TSR__REQUIRE(lora->trainable, "lora: adapter '%s' is not trainable", lora->name);
    return TSR_OK;
}

static tsr_status divide(tsr_lora *lora, const tsr_fsdp_params *params, bool is_new)
{
    TSR__TRY(check_trainable(lora));
    TSR__TAKE(tsr_fsdp_params, params);
    TSR__REQUIRE(params->unit_count == 0 && !params->units && !params->plan,
                 "lora: unit_count is %d; the unit is the adapter's own, and needs no plan",
                 params->unit_count);
    TSR__REQUIRE(!is_new || !lora->adapter.sharded, "lora: the parameters are sharded already");
    tsr_fsdp_params own = *params;
    lora->data = params->group ? params->group : tsr_group_default();
    own.unit_count = 1;
    own.units = tsr_fsdp_unit(.layer = lora->adapter.layer);
    TSR__REQUIRE(lora->data, "lora: there is no group, and no default group");
    /* Data ranks have other rows, which need masks of their own. */
    lora->adapter.dropout_seed = (uint64_t)lora->seed ^ (uint64_t)tsr_group_rank(lora->data) << 40;
    if (tsr_layer_parameter_count(lora->adapter.layer) == 0) /* of another stage only */
        return TSR_OK;
    return is_new ? tsr_fsdp_create(&own, &lora->adapter.sharded)
                  : tsr_fsdp_rebuild(&own, &lora->adapter.sharded);
}

tsr_status tsr_lora_shard(tsr_lora *lora, const tsr_fsdp_params *params)
{
    return divide(lora, params, true);
}

tsr_status tsr_lora_reshard(tsr_lora *lora, const tsr_fsdp_params *params)
{
    return divide(lora, params, false);
}

tsr_status tsr_lora_add_to(tsr_lora *lora, tsr_optimizer *optimizer)
{
    TSR__TRY(check_trainable(lora));
    return lora->adapter.sharded ? tsr_optimizer_add_fsdp(optimizer, lora->adapter.sharded)
                                 : tsr_optimizer_add_layer(optimizer, lora->adapter.layer);
}

/* Returns whether a module has the matrix A of the module before it, because files have the weights
 * of both as one. */
static bool shares_a(const tsr_lora *lora, size_t module)
{
    char names[2][TSR__LORA_NAME];
    for (size_t i = 0; module > 0 && i < 2; i++)
        if (tsr__lora_parameter_name(lora->stack, &lora->modules[module - i], 'A', names[i]) !=
            TSR_OK)
            return false; /* the names have been found before */
    return module > 0 && strcmp(names[0], names[1]) == 0;
}

tsr_status tsr_lora_get_info(const tsr_lora *lora, tsr_lora_info *out)
{
    TSR__REQUIRE(lora && out, "lora: %s is NULL", lora ? "out" : "lora");
    tsr_lora_info info = {.name = lora->name,
                          .rank = lora->rank,
                          .alpha = lora->alpha,
                          .dropout = lora->dropout,
                          .rank_stabilised = lora->rank_stabilised,
                          .dora = lora->dora,
                          .passes = lora->stack->trained_passes,
                          .trainable = lora->trainable,
                          .enabled = lora->adapter.is_enabled};
    for (size_t i = 0; i < lora->module_count; i++) {
        const tsr__lora_module *m = &lora->modules[i];
        info.targets |= tsr__lora_targets[m->target].flag;
        const int64_t inputs = shares_a(lora, i) ? 0 : m->inputs;
        info.parameters += (uint64_t)(m->rank * (inputs + m->outputs)) *
                           (uint64_t)(m->experts > 0 ? m->experts : 1);
        info.parameters += lora->dora ? (uint64_t)m->outputs : 0;
    }
    TSR__GIVE(tsr_lora_info, &info, out);
    return TSR_OK;
}
