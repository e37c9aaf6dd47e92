/* The mixtures of block formats that llama.cpp's llama-quantize makes. A mixture has one format for
 * most matrices. Those that harm a model most if they are rounded have a better one: attention's
 * values, the second matrix of MLPs, in some mixtures attention's output, and the output head.
 *
 * Source: github.com/ggml-org/llama.cpp, src/llama-quant.cpp, whose choices these are; version
 * 0.7.0 gives the same types to all tensors. */
#include "model/convert/mixture.h"

#include <inttypes.h>
#include <string.h>

#include "tessera/quant.h"

/* Which layers have the better format. */
typedef enum better_layers {
    NO_LAYER,
    ALL_LAYERS,
    FIRST_LAYERS, /* the first `n` */
    FIRST_PART,   /* the first layers / n */
    /* The first and the last eighth, and each third of those between. */
    THIRDS
} better_layers;

typedef struct rule {
    better_layers which;
    int n;
    tsr_dtype better;
    tsr_dtype others; /* in the other layers; 0: the mixture's base */
} rule;

struct tsr__mixture {
    const char *name;
    uint32_t file_type; /* general.file_type of GGUF files */
    tsr_dtype base;
    rule values, down; /* attention's values, also where q, k and v are one matrix; MLP's down */
    /* attention's output; of models with eight experts; 0: base */
    tsr_dtype output, output_of_eight;
};

static const tsr__mixture mixtures[] = {
    {.name = "q3_k_s", .file_type = 11, .base = TSR_Q3_K, .output_of_eight = TSR_Q5_K},
    {.name = "q3_k_m",
     .file_type = 12,
     .base = TSR_Q3_K,
     .values = {FIRST_LAYERS, 2, TSR_Q5_K, TSR_Q4_K},
     .down = {FIRST_PART, 16, TSR_Q5_K, TSR_Q4_K},
     .output = TSR_Q4_K,
     .output_of_eight = TSR_Q5_K},
    {.name = "q3_k_l",
     .file_type = 13,
     .base = TSR_Q3_K,
     .values = {ALL_LAYERS, 0, TSR_Q5_K, 0},
     .down = {ALL_LAYERS, 0, TSR_Q5_K, 0},
     .output = TSR_Q5_K},
    {.name = "q4_k_s",
     .file_type = 14,
     .base = TSR_Q4_K,
     .values = {FIRST_LAYERS, 4, TSR_Q5_K, 0},
     .down = {FIRST_PART, 8, TSR_Q5_K, 0},
     .output_of_eight = TSR_Q5_K},
    {.name = "q4_k_m",
     .file_type = 15,
     .base = TSR_Q4_K,
     .values = {THIRDS, 0, TSR_Q6_K, 0},
     .down = {THIRDS, 0, TSR_Q6_K, 0},
     .output_of_eight = TSR_Q5_K},
    {.name = "q5_k_s", .file_type = 16, .base = TSR_Q5_K},
    {.name = "q5_k_m",
     .file_type = 17,
     .base = TSR_Q5_K,
     .values = {THIRDS, 0, TSR_Q6_K, 0},
     .down = {THIRDS, 0, TSR_Q6_K, 0}},
};

/* The formats for rows that are not whole blocks of 256. If the rows are not whole blocks of 32
 * either, the matrix becomes f16. */
static const struct {
    tsr_dtype wanted, instead;
} fallbacks[] = {{TSR_Q3_K, TSR_Q4_0},
                 {TSR_Q4_K, TSR_Q5_0},
                 {TSR_Q5_K, TSR_Q5_1},
                 {TSR_Q6_K, TSR_Q8_0},
                 {TSR_Q8_0, TSR_F16}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *tsr_convert_mixture_at(int index)
{
    return index >= 0 && (size_t)index < COUNT(mixtures) ? mixtures[index].name : NULL;
}

uint32_t tsr__mixture_file_type(const tsr__mixture *mixture)
{
    return mixture->file_type;
}

tsr_status tsr__mixture_find(const tsr_convert_params *params, const tsr__mixture **out)
{
    if (!params->mixture)
        return TSR_OK;
    TSR__REQUIRE(params->dtype == 0, "convert: both a dtype, %s, and a mixture, %s, are given",
                 tsr_dtype_name(params->dtype), params->mixture);
    for (size_t i = 0; i < COUNT(mixtures); i++)
        if (strcmp(mixtures[i].name, params->mixture) == 0) {
            *out = &mixtures[i];
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "convert: unknown mixture '%.40s'", params->mixture);
}

/* The model, as far as the choice depends on it. */
typedef struct model {
    const tsr__mixture *mixture;
    int layers;
    int64_t experts;
    bool tied;         /* the embedding is the output head, too */
    bool shares_eight; /* one of the large models in which many heads share each value */
    int values_seen,
        values_count; /* matrices of attention's values, of which layers may have none */
} model;

static bool is_better(const rule *r, int index, int count)
{
    const int eighth = count / 8;
    switch (r->which) {
    case ALL_LAYERS:
        return true;
    case FIRST_LAYERS:
        return index < r->n;
    case FIRST_PART:
        return index < count / r->n;
    case THIRDS:
        return index < eighth || index >= 7 * count / 8 || (index - eighth) % 3 == 2;
    case NO_LAYER:
        break;
    }
    return false;
}

static tsr_dtype apply(const rule *r, tsr_dtype base, int index, int count)
{
    if (is_better(r, index, count))
        return r->better;
    return r->others != 0 ? r->others : base;
}

static bool is_values(const char *name)
{
    return strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight") ||
           strstr(name, "attn_kv_b.weight");
}

static tsr_dtype choose_values(model *m)
{
    const tsr_dtype base = m->mixture->base,
                    chosen = apply(&m->mixture->values, base, m->values_seen++, m->values_count);
    if (m->experts == 8)
        return TSR_Q8_0;
    return m->shares_eight && (chosen == TSR_Q3_K || chosen == TSR_Q4_K) ? TSR_Q5_K : chosen;
}

static tsr_dtype choose(model *m, const tsr__converted *t)
{
    const tsr__mixture *x = m->mixture;
    if (strcmp(t->name, "output.weight") == 0 ||
        (m->tied && strcmp(t->name, "token_embd.weight") == 0))
        return t->columns % 256 == 0 ? TSR_Q6_K : TSR_Q8_0;
    if (is_values(t->name))
        return choose_values(m);
    if (strstr(t->name, "attn_k.weight") && m->experts == 8)
        return TSR_Q8_0;
    if (strstr(t->name, "ffn_down"))
        return apply(&x->down, x->base, t->layer, m->layers);
    if (strstr(t->name, "attn_output.weight")) {
        const tsr_dtype output = m->experts == 8 ? x->output_of_eight : x->output;
        return output != 0 ? output : x->base;
    }
    return x->base;
}

/* Returns the format itself or, if the rows are not whole blocks of it, the one in its place. */
static tsr_dtype fit(tsr_dtype wanted, int64_t columns)
{
    const tsr_quant_format *format = tsr_quant_format_of(wanted);
    if (!format || columns % format->block_count == 0)
        return wanted;
    for (size_t i = 0; i < COUNT(fallbacks); i++)
        if (fallbacks[i].wanted == wanted)
            return fit(fallbacks[i].instead, columns);
    return TSR_F16;
}

static model describe(const tsr__conversion *c)
{
    const tsr_model_config *config = c->config;
    const char *gguf = c->target.family->gguf;
    const tsr_model_layer *layer = config->kinds[config->layer_kinds ? config->layer_kinds[0] : 0];
    model m = {.mixture = c->mixture, .layers = config->layers, .tied = config->tied};
    for (int i = 0; i < config->kind_count; i++)
        if (config->kinds[i]->experts)
            m.experts = config->kinds[i]->experts->count;
    m.shares_eight =
        config->layers == 80 && ((strcmp(gguf, "llama") == 0 && layer->heads != layer->kv_heads) ||
                                 strcmp(gguf, "qwen2") == 0);
    for (size_t i = 0; i < c->count; i++)
        m.values_count += is_values(c->tensors[i].name);
    return m;
}

void tsr__mixture_choose(tsr__conversion *c)
{
    model m = describe(c);
    const tsr__converted *kept = NULL, *smaller = NULL; /* the first of each */
    uint64_t smaller_count = 0, matrices = 0;
    for (size_t i = 0; i < c->count; i++) {
        tsr__converted *t = &c->tensors[i];
        if (!t->is_matrix || t->ndim < 2)
            continue;
        const tsr_dtype wanted = choose(&m, t);
        t->dtype = fit(wanted, t->columns);
        matrices++;
        if (t->dtype == wanted)
            continue;
        if (t->dtype == TSR_F16) {
            c->stats.kept++;
            kept = kept ? kept : t;
        } else {
            smaller_count++;
            smaller = smaller ? smaller : t;
        }
    }
    if (smaller)
        tsr__conversion_note(c,
                             "%" PRIu64 " of %" PRIu64 " matrices have blocks of 32 elements (%s "
                             "is %s), because their rows, here of %" PRId64
                             " elements, are not whole blocks of 256",
                             smaller_count, matrices, smaller->name, tsr_dtype_name(smaller->dtype),
                             smaller->columns);
    if (kept)
        tsr__conversion_note(c,
                             "%" PRIu64 " of %" PRIu64 " matrices are f16, because their rows are "
                             "not whole blocks of 32 elements: those of %s have %" PRId64,
                             c->stats.kept, matrices, kept->name, kept->columns);
}
