#include "names.h"

#include <stdio.h>
#include <string.h>

/* Which models have a parameter. */
typedef enum condition {
    ALWAYS = 0,
    WITH_NORM_BIAS,
    WITH_QKV_BIAS,
    WITH_OUTPUT_BIAS,
    WITH_MLP_BIAS,
    WITH_QK_NORM,
    NOT_TIED
} condition;

typedef struct renaming {
    const char *ours, *theirs;
    condition when;
    int part, parts; /* `theirs` has several of our parameters: this one's number, and how many */
} renaming;

static const renaming gpt2_outside[] = {
    {"wte.weight", "transformer.wte.weight", ALWAYS, 0, 1},
    {"wpe.weight", "transformer.wpe.weight", ALWAYS, 0, 1},
    {"ln_f.weight", "transformer.ln_f.weight", ALWAYS, 0, 1},
    {"ln_f.bias", "transformer.ln_f.bias", WITH_NORM_BIAS, 0, 1},
    {"lm_head.weight", "lm_head.weight", NOT_TIED, 0, 1},
};
static const renaming gpt2_inside[] = {
    {"norm1.weight", "ln_1.weight", ALWAYS, 0, 1},
    {"norm1.bias", "ln_1.bias", WITH_NORM_BIAS, 0, 1},
    {"attention.q.weight", "attn.c_attn.weight", ALWAYS, 0, 3},
    {"attention.k.weight", "attn.c_attn.weight", ALWAYS, 1, 3},
    {"attention.v.weight", "attn.c_attn.weight", ALWAYS, 2, 3},
    {"attention.q.bias", "attn.c_attn.bias", WITH_QKV_BIAS, 0, 3},
    {"attention.k.bias", "attn.c_attn.bias", WITH_QKV_BIAS, 1, 3},
    {"attention.v.bias", "attn.c_attn.bias", WITH_QKV_BIAS, 2, 3},
    {"attention.o.weight", "attn.c_proj.weight", ALWAYS, 0, 1},
    {"attention.o.bias", "attn.c_proj.bias", WITH_OUTPUT_BIAS, 0, 1},
    {"norm2.weight", "ln_2.weight", ALWAYS, 0, 1},
    {"norm2.bias", "ln_2.bias", WITH_NORM_BIAS, 0, 1},
    {"mlp.up.weight", "mlp.c_fc.weight", ALWAYS, 0, 1},
    {"mlp.up.bias", "mlp.c_fc.bias", WITH_MLP_BIAS, 0, 1},
    {"mlp.down.weight", "mlp.c_proj.weight", ALWAYS, 0, 1},
    {"mlp.down.bias", "mlp.c_proj.bias", WITH_MLP_BIAS, 0, 1},
};
static const renaming llama_outside[] = {
    {"embed_tokens.weight", "model.embed_tokens.weight", ALWAYS, 0, 1},
    {"norm.weight", "model.norm.weight", ALWAYS, 0, 1},
    {"lm_head.weight", "lm_head.weight", NOT_TIED, 0, 1},
};
static const renaming llama_inside[] = {
    {"norm1.weight", "input_layernorm.weight", ALWAYS, 0, 1},
    {"attention.q.weight", "self_attn.q_proj.weight", ALWAYS, 0, 1},
    {"attention.k.weight", "self_attn.k_proj.weight", ALWAYS, 0, 1},
    {"attention.v.weight", "self_attn.v_proj.weight", ALWAYS, 0, 1},
    {"attention.q.bias", "self_attn.q_proj.bias", WITH_QKV_BIAS, 0, 1},
    {"attention.k.bias", "self_attn.k_proj.bias", WITH_QKV_BIAS, 0, 1},
    {"attention.v.bias", "self_attn.v_proj.bias", WITH_QKV_BIAS, 0, 1},
    {"attention.q_norm.weight", "self_attn.q_norm.weight", WITH_QK_NORM, 0, 1},
    {"attention.k_norm.weight", "self_attn.k_norm.weight", WITH_QK_NORM, 0, 1},
    {"attention.o.weight", "self_attn.o_proj.weight", ALWAYS, 0, 1},
    {"attention.o.bias", "self_attn.o_proj.bias", WITH_OUTPUT_BIAS, 0, 1},
    {"norm2.weight", "post_attention_layernorm.weight", ALWAYS, 0, 1},
    {"mlp.gate.weight", "mlp.gate_proj.weight", ALWAYS, 0, 1},
    {"mlp.gate.bias", "mlp.gate_proj.bias", WITH_MLP_BIAS, 0, 1},
    {"mlp.up.weight", "mlp.up_proj.weight", ALWAYS, 0, 1},
    {"mlp.up.bias", "mlp.up_proj.bias", WITH_MLP_BIAS, 0, 1},
    {"mlp.down.weight", "mlp.down_proj.weight", ALWAYS, 0, 1},
    {"mlp.down.bias", "mlp.down_proj.bias", WITH_MLP_BIAS, 0, 1},
};

/* A list of parameters, of which not every model has all. */
typedef struct table {
    const renaming *names;
    int count;
} table;
#define TABLE(names)                                                                               \
    {                                                                                              \
        names, sizeof(names) / sizeof *(names)                                                     \
    }
static const table outside_blocks[] = {
    [GPT_STYLE_GPT2] = TABLE(gpt2_outside), [GPT_STYLE_LLAMA] = TABLE(llama_outside)};
static const table inside_blocks[] = {
    [GPT_STYLE_GPT2] = TABLE(gpt2_inside), [GPT_STYLE_LLAMA] = TABLE(llama_inside)};

static bool is_llama(const gpt_config *config)
{
    return config->style == GPT_STYLE_LLAMA;
}

static bool has(const gpt_config *config, const renaming *name)
{
    switch (name->when) {
    case ALWAYS:
        return true;
    case WITH_NORM_BIAS:
        return config->norm_bias;
    case WITH_QKV_BIAS:
        return config->qkv_bias;
    case WITH_OUTPUT_BIAS:
        return config->output_bias;
    case WITH_MLP_BIAS:
        return config->mlp_bias;
    case WITH_QK_NORM:
        return config->qk_norm;
    case NOT_TIED:
        return !config->tied;
    }
    return false;
}

/* Returns parameter `index` of those in a table that the model has; NULL: there are not so many. */
static const renaming *entry_at(const gpt_config *config, const table *tables, int index)
{
    const table *t = &tables[config->style];
    for (int i = 0; i < t->count; i++)
        if (has(config, &t->names[i]) && index-- == 0)
            return &t->names[i];
    return NULL;
}

static int count_entries(const gpt_config *config, const table *tables)
{
    int count = 0;
    while (entry_at(config, tables, count))
        count++;
    return count;
}

static const renaming *find_entry(const gpt_config *config, const table *tables, const char *ours)
{
    const table *t = &tables[config->style];
    int i = 0;
    while (i + 1 < t->count && strcmp(t->names[i].ours, ours) != 0)
        i++;
    return &t->names[i];
}

int names_count(const gpt_config *config)
{
    return count_entries(config, outside_blocks) +
           config->layers * count_entries(config, inside_blocks);
}

static void set(gpt_parameter *out, int ndim, int64_t rows, int64_t columns)
{
    out->ndim = ndim;
    out->rows = rows;
    out->columns = columns;
}

/* Sets the shape of a parameter outside blocks. */
static void outside_a_block(const gpt_config *c, const char *name, gpt_parameter *out)
{
    if (strcmp(name, "wpe.weight") == 0)
        set(out, 2, gpt_config_positions(c), c->width);
    else if (strncmp(name, "ln_f.", 5) == 0 || strncmp(name, "norm.", 5) == 0)
        set(out, 1, c->width, 1);
    else
        set(out, 2, c->vocabulary, c->width);
}

/* Sets the shape of a block's parameter. */
static void in_a_block(const gpt_config *c, const char *inner, gpt_parameter *out)
{
    const int64_t dim = gpt_config_head_dim(c), q = dim * c->heads, kv = dim * c->kv_heads;
    const struct {
        const char *name;
        int ndim;
        int64_t rows, columns;
    } shapes[] = {
        {"attention.q.weight", 2, q, c->width},   {"attention.k.weight", 2, kv, c->width},
        {"attention.v.weight", 2, kv, c->width},  {"attention.q.bias", 1, q, 1},
        {"attention.k.bias", 1, kv, 1},           {"attention.v.bias", 1, kv, 1},
        {"attention.q_norm.weight", 1, dim, 1},   {"attention.k_norm.weight", 1, dim, 1},
        {"attention.o.weight", 2, c->width, q},   {"mlp.gate.weight", 2, c->inner, c->width},
        {"mlp.up.weight", 2, c->inner, c->width}, {"mlp.down.weight", 2, c->width, c->inner},
        {"mlp.gate.bias", 1, c->inner, 1},        {"mlp.up.bias", 1, c->inner, 1}};
    set(out, 1, c->width, 1); /* a norm of the block, or the bias of one of its two outputs */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(inner, shapes[i].name) == 0)
            set(out, shapes[i].ndim, shapes[i].rows, shapes[i].columns);
}

void names_at(const gpt_config *c, int index, gpt_parameter *out)
{
    const int outside = count_entries(c, outside_blocks),
              of_block = count_entries(c, inside_blocks);
    if (index < outside) {
        const char *name = entry_at(c, outside_blocks, index)->ours;
        snprintf(out->name, sizeof out->name, "%s", name);
        outside_a_block(c, name, out);
        return;
    }
    const int block = (index - outside) / of_block;
    const char *inner = entry_at(c, inside_blocks, (index - outside) % of_block)->ours;
    snprintf(out->name, sizeof out->name, is_llama(c) ? "layers.%d.%s" : "h.%d.%s", block, inner);
    in_a_block(c, inner, out);
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
    int block;
    const char *inner = in_block(parameter->name, &block);
    const renaming *entry = inner ? find_entry(config, inside_blocks, inner)
                                  : find_entry(config, outside_blocks, parameter->name);
    *out = (gpt_place){.first_row = entry->part * parameter->rows,
                       .rows = entry->parts * parameter->rows,
                       .is_matrix = inner && !llama && parameter->ndim == 2};
    if (inner)
        snprintf(out->name, sizeof out->name, llama ? "model.layers.%d.%s" : "transformer.h.%d.%s",
                 block, entry->theirs);
    else
        snprintf(out->name, sizeof out->name, "%s", entry->theirs);
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

/* Finds a tensor by its name in a complete model. Files of a model without its head, such as those
 * that OpenAI's GPT-2 has at Hugging Face, have the names without the first component. */
static const tsr_shard_param *find_tensor(const tsr_shard_list *list, const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};
    const tsr_shard_param *found = find_in_list(list, name);
    for (int i = 0; i < 2 && !found; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            found = find_in_list(list, name + strlen(prefixes[i]));
    return found;
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
    const tsr_shard_param *file = find_tensor(list, place->name);
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
        const tsr_shard_param *other = find_tensor(list, "transformer.h.0.attn.c_attn.weight");
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
