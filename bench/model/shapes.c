/* Shapes of models that can be generated. */
#include <stdio.h>
#include <string.h>

#include "bench/model/model.h"

#define LAYER(width_, hidden_, heads_, kv_heads_)                                                  \
    (&(const tsr_model_layer){.struct_size = sizeof(tsr_model_layer),                              \
                              .heads = (heads_),                                                   \
                              .kv_heads = (kv_heads_),                                             \
                              .head_dim = (width_) / (heads_),                                     \
                              .hidden = (hidden_),                                                 \
                              .gated = true,                                                       \
                              .activation = TSR_ACT_SILU,                                          \
                              .rope =                                                              \
                                  &(const tsr_rope_params){.struct_size = sizeof(tsr_rope_params), \
                                                           .rotary_dim = (width_) / (heads_)}})
#define LLAMA(layers_, width_, hidden_, heads_, kv_heads_, context_)                               \
    {                                                                                              \
        .struct_size = sizeof(tsr_model_config), .architecture = "llama", .layers = (layers_),     \
        .width = (width_), .vocabulary = 32000, .context = (context_), .norm_epsilon = 1e-5,       \
        .norm = TSR_NORM_RMS, .bos = 1, .kind_count = 1,                                           \
        .kinds = (const tsr_model_layer *const[]){LAYER(width_, hidden_, heads_, kv_heads_)},      \
    }

static const bench_model_shape shapes[] = {
    {"llama-1b", LLAMA(22, 2048, 5632, 32, 4, 2048)},   /* TinyLlama 1.1B */
    {"llama-7b", LLAMA(32, 4096, 11008, 32, 32, 4096)}, /* Llama 2 7B */
    {"llama-110m", LLAMA(12, 768, 2048, 12, 12, 1024)}, /* llama2.c's stories110M */
    {"llama-15m", LLAMA(6, 256, 768, 8, 4, 1024)},      /* about as large as stories15M */
};
#define SHAPES (sizeof shapes / sizeof *shapes)

const bench_model_shape *bench_model_shape_find(const char *name)
{
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

/* Writes the names of all shapes, separated by commas, to `text` and returns it. */
static char *all_names(size_t size, char *text)
{
    size_t used = 0;
    for (size_t i = 0; i < SHAPES && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", shapes[i].name);
    return text;
}

bool bench_model_read_shape(void *user, const char *text, char *problem, size_t size)
{
    char names[128];
    const bench_model_shape *shape = bench_model_shape_find(text);
    if (shape == NULL)
        snprintf(problem, size, "takes %s, not '%.40s'", all_names(sizeof names, names), text);
    *(const bench_model_shape **)user = shape;
    return shape != NULL;
}
