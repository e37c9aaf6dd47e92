/* The weights of a model that an adapter can have, and their names. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/lora/lora.h"

#define PEFT_PREFIX "base_model.model."

/* Weights of one layer follow each other (tsr__adapters_attach). */
const tsr__lora_target_name tsr__lora_targets[TSR__LORA_TARGETS] = {
    {TSR_LORA_Q, "attention.q.weight"},
    {TSR_LORA_Q, "attention.gate.weight"}, /* rows of one tensor with q */
    {TSR_LORA_K, "attention.k.weight"},
    {TSR_LORA_V, "attention.v.weight"},
    {TSR_LORA_Q, "attention.q_a.weight"},
    {TSR_LORA_Q, "attention.q_b.weight"},
    {TSR_LORA_K, "attention.kv_a.weight"},
    {TSR_LORA_K, "attention.k_b.weight"},
    {TSR_LORA_V, "attention.v_b.weight"},
    {TSR_LORA_O, "attention.o.weight"},
    {TSR_LORA_Q, "delta_net.q.weight"},
    {TSR_LORA_K, "delta_net.k.weight"},
    {TSR_LORA_V, "delta_net.v.weight"},
    {TSR_LORA_GATE, "delta_net.z.weight"},
    {TSR_LORA_O, "delta_net.o.weight"},
    {TSR_LORA_Q, "short_conv.b.weight"},
    {TSR_LORA_K, "short_conv.c.weight"},
    {TSR_LORA_V, "short_conv.x.weight"},
    {TSR_LORA_O, "short_conv.o.weight"},
    {TSR_LORA_GATE, "mlp.gate.weight"},
    {TSR_LORA_UP, "mlp.up.weight"},
    {TSR_LORA_DOWN, "mlp.down.weight"},
    {TSR_LORA_EXPERTS, "mlp.experts.gate.weight"},
    {TSR_LORA_EXPERTS, "mlp.experts.up.weight"},
    {TSR_LORA_EXPERTS, "mlp.experts.down.weight"},
    {TSR_LORA_EXPERTS, "mlp.shared.gate.weight"},
    {TSR_LORA_EXPERTS, "mlp.shared.up.weight"},
    {TSR_LORA_EXPERTS, "mlp.shared.down.weight"},
    {TSR_LORA_HEAD, "head.weight"},
};

static bool is_of_keys(const char *ours)
{
    return strcmp(ours, "attention.k_b.weight") == 0;
}

bool tsr__adapter_is_of_heads(const char *ours)
{
    return is_of_keys(ours) || strcmp(ours, "attention.v_b.weight") == 0;
}

void tsr__adapter_as_linear(tsr__parameter *p)
{
    const int64_t columns = p->columns;
    if (!p->of_heads || p->experts == 0)
        return;
    if (is_of_keys(p->ours)) {
        p->columns = p->rows;
        p->rows = columns;
    }
    p->rows *= p->experts;
    p->experts = 0;
}

void tsr__adapter_place_heads(const tsr_model_config *config, int layer, const char *ours,
                              tsr__weight *place)
{
    const tsr_model_layer *kind = tsr__config_layer(config, layer);
    const tsr_model_latent *latent = kind ? kind->latent : NULL;
    const bool keys = is_of_keys(ours);
    if (!tsr__adapter_is_of_heads(ours))
        return;
    const int64_t both = latent->nope_dim + latent->value_dim,
                  each = keys ? latent->nope_dim : latent->value_dim;
    *place = (tsr__weight){.file = place->file,
                           .first_row = keys ? 0 : latent->nope_dim,
                           .rows = kind->heads * each,
                           .all_rows = kind->heads * both,
                           .columns = latent->kv_lora_rank,
                           .row_step = 1,
                           .row_order = {.run = each, .runs = 1, .group_step = both}};
}

bool tsr__lora_is_latent(const tsr_model_config *config, const tsr__lora_module *module)
{
    const tsr_model_layer *layer = tsr__config_layer(config, module->layer);
    const char *ours = tsr__lora_targets[module->target].ours;
    return layer && layer->latent && strncmp(ours, "attention.", 10) == 0 &&
           strcmp(ours, "attention.o.weight") != 0;
}

bool tsr__lora_find_parameter(const tsr_lora *lora, int layer, int target, tsr__parameter *out)
{
    for (int i = 0; tsr__weights_parameter(lora->stack->config, layer, i, out); i++)
        if (strcmp(out->ours, tsr__lora_targets[target].ours) == 0) {
            tsr__adapter_as_linear(out);
            return true;
        }
    return false;
}

/* Finds the place of a weight in files that are arranged as the family's usual ones. */
static tsr_status find_weight(const tsr_stack *stack, const tsr__lora_module *module,
                              int64_t expert, bool gguf, tsr__weight *out,
                              char name[TSR__WEIGHT_NAME])
{
    const tsr__model_files files = {.gguf = gguf};
    const tsr__weights weights = {.files = &files,
                                  .config = stack->config,
                                  .family = stack->family,
                                  .prefix = stack->family->hf_prefix};
    const char *ours = tsr__lora_targets[module->target].ours;
    TSR__TRY(tsr__weight_place(&weights, module->layer, ours, expert, out, name));
    tsr__adapter_place_heads(stack->config, module->layer, ours, out);
    return TSR_OK;
}

tsr_status tsr__lora_add_module(tsr_lora *lora, int layer, int target, const tsr__parameter *p)
{
    const tsr__lora_module module = {.layer = layer,
                                     .target = target,
                                     .inputs = p->columns,
                                     .outputs = p->rows,
                                     .rank = lora->rank,
                                     .experts = p->experts,
                                     .alpha = lora->alpha};
    void *modules = lora->modules;
    char name[TSR__WEIGHT_NAME];
    tsr__weight place;
    TSR__TRY(find_weight(lora->stack, &module, 0, false, &place, name));
    const char *ours = tsr__lora_targets[target].ours;
    if (lora->stack->tiled_delta_nets && strncmp(ours, "delta_net.", 10) == 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "lora: %s cannot have an adapter, because the model keeps blocks of its "
                         "GGUF file in which heads are in another order; a dtype or a folder helps",
                         name);
    if (place.matrices > 0)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "lora: experts of %s cannot have adapters, because its files have those of "
            "all experts in one tensor, %s",
            lora->stack->config->architecture, name);
    TSR__TRY(
        tsr__grow(&modules, &lora->module_capacity, lora->module_count + 1, sizeof *lora->modules));
    lora->modules = modules;
    lora->modules[lora->module_count++] = module;
    return TSR_OK;
}

tsr_status tsr__lora_find_place(const tsr_stack *stack, const tsr__lora_module *module,
                                int64_t expert, bool gguf, tsr__lora_place *out)
{
    tsr__weight place;
    TSR__TRY(find_weight(stack, module, expert, gguf, &place, out->name));
    char *ending = strrchr(out->name, '.');
    if (ending && strcmp(ending, ".weight") == 0)
        *ending = '\0';
    out->first_row = place.first_row;
    out->all_rows = place.all_rows;
    out->interleaved_head = place.interleaved_head;
    out->row_order = place.row_order;
    out->column_order = place.column_order;
    return TSR_OK;
}

void tsr__lora_file_name(const tsr__lora_place *place, bool gguf, char which,
                         char out[TSR__LORA_NAME])
{
    if (which == 'M')
        snprintf(out, TSR__LORA_NAME, PEFT_PREFIX "%s.lora_magnitude_vector", place->name);
    else if (gguf)
        snprintf(out, TSR__LORA_NAME, "%s.weight.lora_%c", place->name, which - 'A' + 'a');
    else
        snprintf(out, TSR__LORA_NAME, PEFT_PREFIX "%s.lora_%c.weight", place->name, which);
}

tsr_status tsr__lora_parameter_name(const tsr_stack *stack, const tsr__lora_module *module,
                                    char which, char out[TSR__LORA_NAME])
{
    tsr__lora_place place;
    TSR__TRY(tsr__lora_find_place(stack, module, 0, false, &place));
    char *first = module->experts > 0 ? strstr(place.name, ".experts.0.") : NULL;
    if (first) /* one parameter has the matrices of all experts */
        memmove(first + 8, first + 10, strlen(first + 10) + 1);
    if (which != 'A' && place.all_rows != module->outputs) { /* some rows of the file's tensor */
        const char *ours = tsr__lora_targets[module->target].ours;
        char *end = place.name + strlen(place.name);
        snprintf(end, sizeof place.name - (size_t)(end - place.name), "%.*s",
                 (int)(strrchr(ours, '.') - strchr(ours, '.')), strchr(ours, '.'));
    }
    tsr__lora_file_name(&place, false, which, out);
    return TSR_OK;
}

float tsr__lora_scale(const tsr_lora *lora, const tsr__lora_module *module)
{
    const double rank = (double)module->rank;
    return (float)(module->alpha / (lora->rank_stabilised ? sqrt(rank) : rank));
}
