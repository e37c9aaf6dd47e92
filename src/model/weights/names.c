#include "model/weights/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/config/config.h"

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

const tsr__weight_name *tsr__weight_name_of(const tsr__weights *w, int layer, const char *ours)
{
    return tsr__family_weight(w->family, layer >= 0, ours);
}

tsr__expert_tensors tsr__experts_of_family(const tsr__family *family, bool gguf)
{
    return family->hf_merged_experts && !gguf ? TSR__EXPERTS_MERGED : TSR__EXPERTS_USUAL;
}

bool tsr__weight_has_asterisk(const tsr__weights *w, const tsr__weight_name *name)
{
    return w->experts == TSR__EXPERTS_APART ||
           (w->experts == TSR__EXPERTS_USUAL &&
            strchr(w->files->gguf ? name->gguf : name->hf, '*') != NULL);
}

void tsr__weight_replace(const char *old, const char *new, char text[TSR__WEIGHT_NAME])
{
    char after[TSR__WEIGHT_NAME];
    char *at = strstr(text, old);
    if (!at)
        return;
    snprintf(after, sizeof after, "%s", at + strlen(old));
    snprintf(at, TSR__WEIGHT_NAME - (size_t)(at - text), "%s%s", new, after);
}

/* Makes the name that a parameter has in files with this arrangement of experts. */
static void write_arrangement(const tsr__weights *w, const char *ours, const tsr__weight_name *name,
                              char text[TSR__WEIGHT_NAME])
{
    char *at = strchr(text, '*');
    const bool is_matrix = strstr(ours, ".weight") != NULL;
    switch (w->experts) {
    case TSR__EXPERTS_USUAL:
        break;
    case TSR__EXPERTS_MERGED:
        if (at)
            snprintf(at, TSR__WEIGHT_NAME - (size_t)(at - text), "%s",
                     strcmp(name->ours, "mlp.experts.down") == 0 ? "down_proj" : "gate_up_proj");
        tsr__weight_replace("block_sparse_moe.", "mlp.", text);
        break;
    case TSR__EXPERTS_APART:
        tsr__weight_replace("_exps.", ".*.", text);
        break;
    case TSR__EXPERTS_GATE_UP:
        if (is_matrix) {
            tsr__weight_replace("ffn_gate_exps", "ffn_gate_up_exps", text);
            tsr__weight_replace("ffn_up_exps", "ffn_gate_up_exps", text);
        }
        break;
    }
}

void tsr__weight_write_expert(int64_t expert, char text[TSR__WEIGHT_NAME])
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, expert);
    tsr__weight_replace("*", number, text);
}

void tsr__weight_write_name(const tsr__weights *w, int layer, const char *ours,
                            const tsr__weight_name *name, char text[TSR__WEIGHT_NAME])
{
    const char *ending = strcmp(ours, name->ours) == 0 ? "" : strrchr(ours, '.');
    if (w->files->gguf && layer < 0)
        snprintf(text, TSR__WEIGHT_NAME, "%s%s", name->gguf, ending);
    else if (w->files->gguf)
        snprintf(text, TSR__WEIGHT_NAME, "blk.%d.%s%s", layer, name->gguf, ending);
    else if (starts(ours, "next.") && !w->family->hf_next_inside)
        snprintf(text, TSR__WEIGHT_NAME, "mtp.%s%s", name->hf, ending);
    else if (tsr__config_is_next(w->config, layer) && !w->family->hf_next_inside)
        snprintf(text, TSR__WEIGHT_NAME, "mtp.layers.%d.%s%s", layer - w->config->layers, name->hf,
                 ending);
    else if (layer < 0)
        snprintf(text, TSR__WEIGHT_NAME, "%s%s%s", strcmp(name->ours, "head") == 0 ? "" : w->prefix,
                 name->hf, ending);
    else
        snprintf(text, TSR__WEIGHT_NAME, "%s%s%d.%s%s", w->prefix, w->family->hf_block, layer,
                 name->hf, ending);
    if (w->joined_delta_nets && starts(ours, "delta_net.")) {
        tsr__weight_replace("attn_qkv.", "ssm_in.", text);
        tsr__weight_replace("attn_gate.", "ssm_in.", text);
    }
    write_arrangement(w, ours, name, text);
}

bool tsr__weight_same_name(const tsr__weights *w, const tsr__weight_name *a,
                           const tsr__weight_name *b)
{
    return a && strcmp(w->files->gguf ? a->gguf : a->hf, w->files->gguf ? b->gguf : b->hf) == 0;
}
