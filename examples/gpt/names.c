#include "names.h"

#include <stdio.h>
#include <string.h>

typedef struct renaming {
    const char *ours, *theirs;
} renaming;

static const renaming gpt2_names[] = {
    {"norm1.weight", "ln_1.weight"},
    {"attention.q.weight", "attn.c_attn.weight"},
    {"attention.k.weight", "attn.c_attn.weight"},
    {"attention.v.weight", "attn.c_attn.weight"},
    {"attention.o.weight", "attn.c_proj.weight"},
    {"norm2.weight", "ln_2.weight"},
    {"mlp.up.weight", "mlp.c_fc.weight"},
    {"mlp.down.weight", "mlp.c_proj.weight"},
};
static const renaming llama_names[] = {
    {"norm1.weight", "input_layernorm.weight"},
    {"attention.q.weight", "self_attn.q_proj.weight"},
    {"attention.k.weight", "self_attn.k_proj.weight"},
    {"attention.v.weight", "self_attn.v_proj.weight"},
    {"attention.o.weight", "self_attn.o_proj.weight"},
    {"norm2.weight", "post_attention_layernorm.weight"},
    {"mlp.gate.weight", "mlp.gate_proj.weight"},
    {"mlp.up.weight", "mlp.up_proj.weight"},
    {"mlp.down.weight", "mlp.down_proj.weight"},
};

static bool is_llama(const gpt_config *config)
{
    return config->style == GPT_STYLE_LLAMA;
}

/* Returns the names of a block's parameters. */
static const renaming *block_names(const gpt_config *config, int *count)
{
    if (is_llama(config)) {
        *count = sizeof llama_names / sizeof *llama_names;
        return llama_names;
    }
    *count = sizeof gpt2_names / sizeof *gpt2_names;
    return gpt2_names;
}

/* The number of parameters outside blocks. GPT-2: embedding, positions, norm. Llama: embedding,
 * norm, head. */
#define OUTSIDE 3

int names_count(const gpt_config *config)
{
    int of_block;
    block_names(config, &of_block);
    return OUTSIDE + config->layers * of_block;
}

static void set(gpt_parameter *out, int ndim, int64_t rows, int64_t columns)
{
    out->ndim = ndim;
    out->rows = rows;
    out->columns = columns;
}

static void outside_blocks(const gpt_config *c, int index, gpt_parameter *out)
{
    bool llama = is_llama(c);
    const char *const names[2][OUTSIDE] = {
        {"wte.weight", "wpe.weight", "ln_f.weight"},
        {"embed_tokens.weight", "norm.weight", "lm_head.weight"}};
    snprintf(out->name, sizeof out->name, "%s", names[llama][index]);
    if (index == (llama ? 1 : 2))
        set(out, 1, c->width, 1);
    else
        set(out, 2, strcmp(out->name, "wpe.weight") == 0 ? c->block : c->vocabulary, c->width);
}

void names_at(const gpt_config *c, int index, gpt_parameter *out)
{
    int of_block;
    const renaming *table = block_names(c, &of_block);
    if (index < OUTSIDE) {
        outside_blocks(c, index, out);
        return;
    }
    int block = (index - OUTSIDE) / of_block;
    const char *inner = table[(index - OUTSIDE) % of_block].ours;
    int64_t kv = (int64_t)c->width / c->heads * c->kv_heads;
    snprintf(out->name, sizeof out->name, is_llama(c) ? "layers.%d.%s" : "h.%d.%s", block, inner);
    if (strncmp(inner, "norm", 4) == 0)
        set(out, 1, c->width, 1);
    else if (strcmp(inner, "attention.k.weight") == 0 || strcmp(inner, "attention.v.weight") == 0)
        set(out, 2, kv, c->width);
    else if (strcmp(inner, "mlp.down.weight") == 0)
        set(out, 2, c->width, c->inner);
    else
        set(out, 2, strncmp(inner, "mlp", 3) == 0 ? c->inner : c->width, c->width);
}

/* Returns the part of a name like "h.3.mlp.up.weight" after the block's number; NULL for a
 * parameter outside blocks. */
static const char *in_block(const char *name, int *block)
{
    int end = 0;
    if ((sscanf(name, "h.%d.%n", block, &end) == 1 && end > 0) ||
        (sscanf(name, "layers.%d.%n", block, &end) == 1 && end > 0))
        return name + end;
    return NULL;
}

int names_block(const gpt_parameter *parameter)
{
    int block;
    return in_block(parameter->name, &block) ? block : -1;
}

int64_t names_elements(const gpt_config *config)
{
    int64_t sum = 0;
    for (int i = 0; i < names_count(config); i++) {
        gpt_parameter parameter;
        names_at(config, i, &parameter);
        sum += parameter.rows * parameter.columns;
    }
    return sum;
}

void names_find(const gpt_config *config, const gpt_parameter *parameter, gpt_place *out)
{
    bool llama = is_llama(config);
    int block, count, i = 0;
    const char *inner = in_block(parameter->name, &block);
    *out = (gpt_place){.rows = parameter->rows};
    if (!inner) {
        bool is_head = strcmp(parameter->name, "lm_head.weight") == 0;
        snprintf(out->name, sizeof out->name, "%s%s",
                 is_head ? ""
                 : llama ? "model."
                         : "transformer.",
                 parameter->name);
        return;
    }
    const renaming *table = block_names(config, &count);
    while (i + 1 < count && strcmp(table[i].ours, inner) != 0)
        i++;
    snprintf(out->name, sizeof out->name, llama ? "model.layers.%d.%s" : "transformer.h.%d.%s",
             block, table[i].theirs);
    out->is_matrix = !llama && parameter->ndim == 2;
    if (!llama && strcmp(table[i].theirs, "attn.c_attn.weight") == 0) {
        out->first_row = (int64_t)(i - 1) * config->width;
        out->rows = 3 * (int64_t)config->width;
    }
}

/* Files -------------------------------------------------------------------------------------- */

static const tsr_shard_param *find_in_list(const tsr_shard_list *list, const char *name)
{
    const tsr_shard_param *all = tsr_shard_list_param_array(list);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

static void wrong_shape(const char *path, const tsr_shard_param *file,
                        const gpt_parameter *parameter, const gpt_place *place, char *error,
                        size_t error_size)
{
    const int64_t needed[] = {place->rows, parameter->columns};
    char got[128], want[128];
    snprintf(error, error_size, "%s: %s is %s; the model needs %s", path, place->name,
             tsr_shape_format(file->ndim, file->shape, got, sizeof got),
             tsr_shape_format(parameter->ndim, needed, want, sizeof want));
}

static bool is_float(const char *name)
{
    tsr_dtype dtype;
    return tsr_dtype_parse(name, &dtype) == TSR_OK &&
           (dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16);
}

const tsr_shard_param *names_in_file(const char *path, const tsr_shard_list *list,
                                     const gpt_config *config, const gpt_parameter *parameter,
                                     const gpt_place *place, bool *transposed, char *error,
                                     size_t error_size)
{
    const tsr_shard_param *file = find_in_list(list, place->name);
    int64_t columns = parameter->columns;
    if (!file) {
        snprintf(error, error_size, "%s: there is no tensor %s", path, place->name);
        return NULL;
    }
    bool as_linear = file->ndim == parameter->ndim && file->shape[0] == place->rows &&
                     (file->ndim == 1 || file->shape[1] == columns);
    *transposed = place->is_matrix && file->ndim == 2 && file->shape[0] == columns &&
                  file->shape[1] == place->rows;
    /* The shape of a square matrix does not tell whether it is transposed. A matrix of the same
     * file that is not square does. */
    if (as_linear && *transposed) {
        const tsr_shard_param *other = find_in_list(list, "transformer.h.0.attn.c_attn.weight");
        *transposed = other && other->ndim == 2 && other->shape[0] == config->width;
        as_linear = !*transposed;
    }
    if (!as_linear && !*transposed) {
        wrong_shape(path, file, parameter, place, error, error_size);
        return NULL;
    }
    if (!is_float(file->dtype)) {
        snprintf(error, error_size, "%s: %s is %s; the model needs f32, f16 or bf16", path,
                 place->name, file->dtype);
        return NULL;
    }
    return file;
}

bool names_check_file(const char *path, const gpt_config *config, char *error, size_t error_size)
{
    tsr_shard_list *list = NULL;
    bool good = true;
    if (tsr_shard_list_open(path, &list) != TSR_OK) {
        snprintf(error, error_size, "%s", tsr_last_error());
        return false;
    }
    for (int i = 0; good && i < names_count(config); i++) {
        gpt_parameter parameter;
        gpt_place place;
        bool transposed;
        names_at(config, i, &parameter);
        names_find(config, &parameter, &place);
        good = names_in_file(path, list, config, &parameter, &place, &transposed, error,
                             error_size) != NULL;
    }
    tsr_shard_list_destroy(&list);
    return good;
}
