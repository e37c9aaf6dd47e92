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
    {TSR_LORA_Q, "attention.q.weight"}, {TSR_LORA_K, "attention.k.weight"},
    {TSR_LORA_V, "attention.v.weight"}, {TSR_LORA_O, "attention.o.weight"},
    {TSR_LORA_GATE, "mlp.gate.weight"}, {TSR_LORA_UP, "mlp.up.weight"},
    {TSR_LORA_DOWN, "mlp.down.weight"}, {TSR_LORA_HEAD, "head.weight"},
};

tsr_status tsr__lora_add_module(tsr_lora *lora, int layer, int target, bool *added)
{
    const tsr_model_config *config = lora->stack->config;
    void *modules = lora->modules;
    tsr__parameter p;
    *added = false;
    for (int i = 0; tsr__weights_parameter(config, layer, i, &p); i++) {
        if (strcmp(p.ours, tsr__lora_targets[target].ours) != 0 || p.experts > 0)
            continue;
        TSR__TRY(tsr__grow(&modules, &lora->module_capacity, lora->module_count + 1,
                           sizeof *lora->modules));
        lora->modules = modules;
        lora->modules[lora->module_count++] = (tsr__lora_module){.layer = layer,
                                                                 .target = target,
                                                                 .inputs = p.columns,
                                                                 .outputs = p.rows,
                                                                 .rank = lora->rank,
                                                                 .alpha = lora->alpha};
        *added = true;
        return TSR_OK;
    }
    return TSR_OK;
}

tsr_status tsr__lora_find_place(const tsr_stack *stack, const tsr__lora_module *module, bool gguf,
                                tsr__lora_place *out)
{
    const tsr__model_files files = {.gguf = gguf};
    const tsr__weights weights = {.files = &files,
                                  .config = stack->config,
                                  .family = stack->family,
                                  .prefix = stack->family->hf_prefix};
    tsr__weight place;
    TSR__TRY(tsr__weight_place(&weights, module->layer, tsr__lora_targets[module->target].ours, 0,
                               &place, out->name));
    char *ending = strrchr(out->name, '.');
    if (ending && strcmp(ending, ".weight") == 0)
        *ending = '\0';
    out->first_row = place.first_row;
    out->all_rows = place.all_rows;
    out->interleaved_head = place.interleaved_head;
    return TSR_OK;
}

void tsr__lora_file_name(const tsr__lora_place *place, bool gguf, char which,
                         char out[TSR__LORA_NAME])
{
    if (gguf)
        snprintf(out, TSR__LORA_NAME, "%s.weight.lora_%c", place->name, which - 'A' + 'a');
    else
        snprintf(out, TSR__LORA_NAME, PEFT_PREFIX "%s.lora_%c.weight", place->name, which);
}

tsr_status tsr__lora_parameter_name(const tsr_stack *stack, const tsr__lora_module *module,
                                    char which, char out[TSR__LORA_NAME])
{
    tsr__lora_place place;
    TSR__TRY(tsr__lora_find_place(stack, module, false, &place));
    if (which == 'B' && place.all_rows != module->outputs) { /* some rows of the file's tensor */
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
