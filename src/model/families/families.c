/* The list of families: see family.h. */
#include "model/families/family.h"

#include <stdio.h>
#include <string.h>

static const tsr__family *const families[] = {
    &tsr__family_llama,         &tsr__family_mistral,     &tsr__family_qwen2,
    &tsr__family_qwen3,         &tsr__family_gpt2,        &tsr__family_smollm3,
    &tsr__family_granite,       &tsr__family_olmo2,       &tsr__family_olmo3,
    &tsr__family_gemma2,        &tsr__family_gemma3,      &tsr__family_phi3,
    &tsr__family_ministral3,    &tsr__family_qwen3_moe,   &tsr__family_mixtral,
    &tsr__family_gpt_oss,       &tsr__family_qwen2_moe,   &tsr__family_olmoe,
    &tsr__family_glm4_moe,      &tsr__family_granitemoe,  &tsr__family_minimax_m2,
    &tsr__family_qwen3_next,    &tsr__family_qwen3_5,     &tsr__family_qwen3_5_moe,
    &tsr__family_deepseek_v3,   &tsr__family_deepseek_v2, &tsr__family_kimi_k2,
    &tsr__family_glm4_moe_lite, &tsr__family_gemma4,      &tsr__family_lfm2,
    &tsr__family_lfm2_moe,
};
#define FAMILIES ((int)(sizeof families / sizeof *families))

const tsr__family *tsr__family_by_name(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

const tsr__family *tsr__family_by_gguf(const char *name, bool has_window, bool has_experts)
{
    const tsr__family *found = NULL;
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i]->gguf, name) != 0 ||
            (!families[i]->expert_keys == has_experts && !families[i]->gguf_experts_vary))
            continue;
        if (families[i]->gguf_needs_window && has_window)
            return families[i];
        if (!families[i]->gguf_needs_window && !found)
            found = families[i];
    }
    return found;
}

char *tsr__family_names(size_t size, char *text)
{
    size_t used = 0;
    for (int i = 0; i < FAMILIES && used < size; i++) {
        const int written =
            snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", families[i]->name);
        used += written > 0 ? (size_t)written : 0;
    }
    return text;
}

const tsr__weight_name *tsr__family_weight(const tsr__family *family, bool inside, const char *ours)
{
    const tsr__weight_name *names = inside ? family->inside : family->outside;
    const char *ending = strrchr(ours, '.');
    const bool has_ending =
        ending && (strcmp(ending, ".weight") == 0 || strcmp(ending, ".bias") == 0);
    const size_t length = has_ending ? (size_t)(ending - ours) : strlen(ours);
    const tsr__weight_name *found = NULL;
    for (; names->ours; names++) {
        if (strcmp(names->ours, ours) == 0)
            return names;
        if (strncmp(names->ours, ours, length) == 0 && names->ours[length] == '\0')
            found = names;
    }
    return found;
}
