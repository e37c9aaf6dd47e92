#include "names.h"

#include <stdio.h>
#include <string.h>

typedef enum condition { ALWAYS = 0, WITH_QKV_BIAS, WITH_QK_NORM } condition;

typedef struct renaming {
    const char *ours, *theirs;
    condition when; /* which models have the parameter */
} renaming;

static const renaming gpt2_names[] = {
    {"norm1.weight", "ln_1.weight", ALWAYS},
    {"attention.q.weight", "attn.c_attn.weight", ALWAYS},
    {"attention.k.weight", "attn.c_attn.weight", ALWAYS},
    {"attention.v.weight", "attn.c_attn.weight", ALWAYS},
    {"attention.o.weight", "attn.c_proj.weight", ALWAYS},
    {"norm2.weight", "ln_2.weight", ALWAYS},
    {"mlp.up.weight", "mlp.c_fc.weight", ALWAYS},
    {"mlp.down.weight", "mlp.c_proj.weight", ALWAYS},
};
static const renaming llama_names[] = {
    {"norm1.weight", "input_layernorm.weight", ALWAYS},
    {"attention.q.weight", "self_attn.q_proj.weight", ALWAYS},
    {"attention.k.weight", "self_attn.k_proj.weight", ALWAYS},
    {"attention.v.weight", "self_attn.v_proj.weight", ALWAYS},
    {"attention.q.bias", "self_attn.q_proj.bias", WITH_QKV_BIAS},
    {"attention.k.bias", "self_attn.k_proj.bias", WITH_QKV_BIAS},
    {"attention.v.bias", "self_attn.v_proj.bias", WITH_QKV_BIAS},
    {"attention.q_norm.weight", "self_attn.q_norm.weight", WITH_QK_NORM},
    {"attention.k_norm.weight", "self_attn.k_norm.weight", WITH_QK_NORM},
    {"attention.o.weight", "self_attn.o_proj.weight", ALWAYS},
    {"norm2.weight", "post_attention_layernorm.weight", ALWAYS},
    {"mlp.gate.weight", "mlp.gate_proj.weight", ALWAYS},
    {"mlp.up.weight", "mlp.up_proj.weight", ALWAYS},
    {"mlp.down.weight", "mlp.down_proj.weight", ALWAYS},
};

static bool is_llama(const gpt_config *config)
{
    return config->style == GPT_STYLE_LLAMA;
}

/* Returns the names of a block's parameters. Not every model has all of them. */
static const renaming *block_names(const gpt_config *config, int *count)
{
    if (is_llama(config)) {
        *count = sizeof llama_names / sizeof *llama_names;
        return llama_names;
    }
    *count = sizeof gpt2_names / sizeof *gpt2_names;
    return gpt2_names;
}

static bool has(const gpt_config *config, const renaming *name)
{
    return name->when == ALWAYS || (name->when == WITH_QKV_BIAS && config->qkv_bias) ||
           (name->when == WITH_QK_NORM && config->qk_norm);
}

/* Returns the name of a block's parameter `index` of those that the model has; NULL: there are not
 * so many. */
static const renaming *block_name(const gpt_config *config, int index)
{
    int count;
    const renaming *names = block_names(config, &count);
    for (int i = 0; i < count; i++)
        if (has(config, &names[i]) && index-- == 0)
            return &names[i];
    return NULL;
}

static int names_per_block(const gpt_config *config)
{
    int count = 0;
    while (block_name(config, count))
        count++;
    return count;
}

/* Returns the number of parameters outside blocks. GPT-2: embedding, positions, norm. Llama:
 * embedding, norm and, unless it is the embedding, the head. */
static int names_outside(const gpt_config *config)
{
    return is_llama(config) && config->tied ? 2 : 3;
}

int names_count(const gpt_config *config)
{
    return names_outside(config) + config->layers * names_per_block(config);
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
    const char *const names[2][3] = {{"wte.weight", "wpe.weight", "ln_f.weight"},
                                     {"embed_tokens.weight", "norm.weight", "lm_head.weight"}};
    snprintf(out->name, sizeof out->name, "%s", names[llama][index]);
    if (index == (llama ? 1 : 2))
        set(out, 1, c->width, 1);
    else
        set(out, 2, strcmp(out->name, "wpe.weight") == 0 ? c->block : c->vocabulary, c->width);
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
        {"mlp.up.weight", 2, c->inner, c->width}, {"mlp.down.weight", 2, c->width, c->inner}};
    set(out, 1, c->width, 1); /* a norm of the block */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(inner, shapes[i].name) == 0)
            set(out, shapes[i].ndim, shapes[i].rows, shapes[i].columns);
}

void names_at(const gpt_config *c, int index, gpt_parameter *out)
{
    const int outside = names_outside(c), of_block = names_per_block(c);
    if (index < outside) {
        outside_blocks(c, index, out);
        return;
    }
    const int block = (index - outside) / of_block;
    const char *inner = block_name(c, (index - outside) % of_block)->ours;
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
