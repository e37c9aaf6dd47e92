#include "model/made.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/random.h"

const made_family made_families[] = {
    {.type = "llama", .gated = true, .scaling = MADE_LLAMA3, .json = ""},
    {.type = "llama",
     .gated = true,
     .tied = true,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .scaling = MADE_LINEAR,
     .json = ", \"attention_bias\": true, \"mlp_bias\": true"},
    {.type = "mistral", .gated = true, .window = 5, .json = ", \"sliding_window\": 5"},
    {.type = "qwen2",
     .gated = true,
     .qkv_bias = true,
     .tied = true,
     .window = 6,
     .window_from = 1,
     .scaling = MADE_YARN,
     .json = ", \"sliding_window\": 6, \"use_sliding_window\": true, \"max_window_layers\": 1"},
    {.type = "qwen3",
     .gated = true,
     .qk_norm = true,
     .value_dim = 12,
     .json = ", \"head_dim\": 8, \"v_head_dim\": 12"},
    {.type = "gpt2",
     .learned_positions = true,
     .layer_norm = true,
     .tied = true,
     .qkv_bias = true,
     .output_bias = true,
     .mlp_bias = true,
     .transposed = true,
     .fused = true,
     .json = ""},
};
const int made_family_count = (int)(sizeof made_families / sizeof *made_families);

static void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        die("memory");
    return memory;
}

/* Weights ------------------------------------------------------------------------------------ */

static bool is_gpt2(const made_model *m)
{
    return m->family.learned_positions;
}

/* Adds a tensor of random values from middle − spread to middle + spread. It has one dimension if
 * `columns` is 0. */
static void add(made_model *m, uint64_t *state, const char *name, int64_t rows, int64_t columns,
                double middle, double spread)
{
    made_tensor *t = &m->tensors[m->count++];
    const bool block = strncmp(name, "h.", 2) == 0 || strncmp(name, "layers.", 7) == 0;
    const bool flipped = m->family.transposed && block && columns > 0;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->ndim = columns > 0 ? 2 : 1;
    t->shape[0] = flipped ? columns : rows;
    t->shape[1] = flipped ? rows : columns > 0 ? columns : 1;
    t->values = need((size_t)(t->shape[0] * t->shape[1]), sizeof *t->values);
    for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++)
        t->values[i] =
            (float)(middle + spread * ((double)(random_next(state) >> 11) * 0x1p-52 - 1));
}

static void add_in(made_model *m, uint64_t *state, int layer, const char *name, int64_t rows,
                   int64_t columns, double middle, double spread)
{
    char full[96];
    snprintf(full, sizeof full, "%s%d.%s", is_gpt2(m) ? "h." : "layers.", layer, name);
    add(m, state, full, rows, columns, middle, spread);
}

/* Adds a matrix and, if `bias` is set, its bias. */
static void add_linear(made_model *m, uint64_t *state, int layer, const char *name, int64_t rows,
                       int64_t columns, bool bias)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    add_in(m, state, layer, full, rows, columns, 0, 0.4);
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias)
        add_in(m, state, layer, full, rows, 0, 0, 0.5);
}

static void add_norm(made_model *m, uint64_t *state, int layer, const char *name, int64_t size)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    add_in(m, state, layer, full, size, 0, 1, 0.3);
    snprintf(full, sizeof full, "%s.bias", name);
    if (m->family.layer_norm)
        add_in(m, state, layer, full, size, 0, 0, 0.3);
}

static int value_dim(const made_model *m)
{
    return m->family.value_dim > 0 ? m->family.value_dim : MADE_HEAD_DIM;
}

static void add_layer(made_model *m, uint64_t *state, int layer)
{
    const made_family *f = &m->family;
    const int64_t q = MADE_HEADS * MADE_HEAD_DIM, kv = (int64_t)m->kv_heads * MADE_HEAD_DIM,
                  values = (int64_t)m->kv_heads * value_dim(m),
                  results = (int64_t)MADE_HEADS * value_dim(m);
    add_norm(m, state, layer, is_gpt2(m) ? "ln_1" : "input_layernorm", MADE_WIDTH);
    if (f->fused) {
        add_linear(m, state, layer, "attn.c_attn", q + 2 * kv, MADE_WIDTH, f->qkv_bias);
        add_linear(m, state, layer, "attn.c_proj", MADE_WIDTH, q, f->output_bias);
    } else {
        add_linear(m, state, layer, "self_attn.q_proj", q, MADE_WIDTH, f->qkv_bias);
        add_linear(m, state, layer, "self_attn.k_proj", kv, MADE_WIDTH, f->qkv_bias);
        add_linear(m, state, layer, "self_attn.v_proj", values, MADE_WIDTH, f->qkv_bias);
        add_linear(m, state, layer, "self_attn.o_proj", MADE_WIDTH, results, f->output_bias);
    }
    if (f->qk_norm) {
        add_norm(m, state, layer, "self_attn.q_norm", MADE_HEAD_DIM);
        add_norm(m, state, layer, "self_attn.k_norm", MADE_HEAD_DIM);
    }
    add_norm(m, state, layer, is_gpt2(m) ? "ln_2" : "post_attention_layernorm", MADE_WIDTH);
    if (f->gated)
        add_linear(m, state, layer, "mlp.gate_proj", MADE_HIDDEN, MADE_WIDTH, f->mlp_bias);
    add_linear(m, state, layer, is_gpt2(m) ? "mlp.c_fc" : "mlp.up_proj", MADE_HIDDEN, MADE_WIDTH,
               f->mlp_bias);
    add_linear(m, state, layer, is_gpt2(m) ? "mlp.c_proj" : "mlp.down_proj", MADE_WIDTH,
               MADE_HIDDEN, f->mlp_bias);
}

void made_init(made_model *m, const made_family *family, uint64_t seed)
{
    uint64_t state = seed;
    *m = (made_model){.family = *family, .kv_heads = family->fused ? MADE_HEADS : MADE_KV_HEADS};
    add(m, &state, is_gpt2(m) ? "wte.weight" : "embed_tokens.weight", MADE_VOCABULARY, MADE_WIDTH,
        0, 1);
    if (family->learned_positions)
        add(m, &state, "wpe.weight", MADE_CONTEXT, MADE_WIDTH, 0, 1);
    for (int layer = 0; layer < MADE_LAYERS; layer++)
        add_layer(m, &state, layer);
    add(m, &state, is_gpt2(m) ? "ln_f.weight" : "norm.weight", MADE_WIDTH, 0, 1, 0.3);
    if (family->layer_norm)
        add(m, &state, "ln_f.bias", MADE_WIDTH, 0, 0, 0.3);
    if (!family->tied)
        add(m, &state, "lm_head.weight", MADE_VOCABULARY, MADE_WIDTH, 0, 0.5);
    strcpy(m->folder, "/tmp/tessera-model-XXXXXX");
    if (!mkdtemp(m->folder))
        die(m->folder);
}

void made_finish(made_model *m)
{
    static const char *const files[] = {
        "config.json",           "model.safetensors",     "m.gguf",
        "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00003.gguf",
        "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    char path[160];
    for (size_t i = 0; m->count > 0 && i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", m->folder, files[i]);
        unlink(path);
    }
    if (m->count > 0)
        rmdir(m->folder);
    for (int i = 0; i < m->count; i++)
        free(m->tensors[i].values);
    m->count = 0; /* it may be finished again */
}

made_tensor *made_find(made_model *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    return NULL;
}

void made_remove(made_model *m, const char *name)
{
    made_tensor *t = made_find(m, name);
    free(t->values);
    *t = m->tensors[--m->count];
}

/* Files of Hugging Face ---------------------------------------------------------------------- */

static FILE *create(const made_model *m, const char *name, char path[160])
{
    snprintf(path, 160, "%s/%s", m->folder, name);
    FILE *file = fopen(path, "w");
    if (!file)
        die(path);
    return file;
}

static void put(FILE *file, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        fputc((int)(value >> (8 * i) & 0xff), file);
}

static int64_t elements(const made_tensor *t)
{
    return t->shape[0] * t->shape[1];
}

static const char *scaling_json(made_scaling scaling)
{
    switch (scaling) {
    case MADE_LINEAR:
        return ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}";
    case MADE_LLAMA3:
        return ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
               "\"low_freq_factor\": "
               "1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 256}";
    case MADE_YARN:
        return ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
               "\"original_max_position_embeddings\": 64}";
    case MADE_NONE:
        break;
    }
    return "";
}

static void write_config(made_model *m)
{
    char path[160];
    const made_family *f = &m->family;
    FILE *file = create(m, "config.json", path);
    if (is_gpt2(m))
        fprintf(
            file,
            "{\"n_layer\": %d, \"n_embd\": %d, \"n_head\": %d, \"n_inner\": %d, \"vocab_size\": "
            "%d, \"n_positions\": %d, \"layer_norm_epsilon\": 1e-3, \"activation_function\": "
            "\"gelu_new\", \"model_type\": \"gpt2\"",
            MADE_LAYERS, MADE_WIDTH, MADE_HEADS, MADE_HIDDEN, MADE_VOCABULARY, MADE_CONTEXT);
    else
        fprintf(file,
                "{\"num_hidden_layers\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, "
                "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, "
                "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-3, \"rope_theta\": 5000, "
                "\"hidden_act\": \"silu\", \"model_type\": \"%s\", \"tie_word_embeddings\": %s%s",
                MADE_LAYERS, MADE_WIDTH, MADE_HEADS, m->kv_heads, MADE_HIDDEN, MADE_VOCABULARY,
                MADE_CONTEXT, f->type, f->tied ? "true" : "false", scaling_json(f->scaling));
    fprintf(file, "%s}", f->json);
    if (fclose(file) != 0)
        die(path);
}

const char *made_write_hf(made_model *m)
{
    static const char *const prefix[] = {"model.", "transformer."};
    char path[160], *header = need(MADE_MOST_TENSORS, 256);
    size_t used = 0;
    int64_t at = 0;
    write_config(m);
    for (int i = 0; i < m->count; i++) {
        const made_tensor *t = &m->tensors[i];
        const bool head = strcmp(t->name, "lm_head.weight") == 0;
        used += (size_t)sprintf(header + used, "%c\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%d",
                                i == 0 ? '{' : ',', head ? "" : prefix[is_gpt2(m)], t->name,
                                (int)t->shape[0]);
        if (t->ndim == 2)
            used += (size_t)sprintf(header + used, ",%d", (int)t->shape[1]);
        used += (size_t)sprintf(header + used, "],\"data_offsets\":[%d,%d]}", (int)at,
                                (int)(at + 4 * elements(t)));
        at += 4 * elements(t);
    }
    strcpy(header + used, "}");
    FILE *file = create(m, "model.safetensors", path);
    put(file, strlen(header), 8);
    fputs(header, file);
    for (int i = 0; i < m->count; i++)
        fwrite(m->tensors[i].values, sizeof(float), (size_t)elements(&m->tensors[i]), file);
    if (fclose(file) != 0)
        die(path);
    free(header);
    return m->folder;
}

/* Files of GGUF ------------------------------------------------------------------------------ */

static void put_text(FILE *file, const char *text)
{
    put(file, strlen(text), 8);
    fputs(text, file);
}

static void put_number(FILE *file, const char *architecture, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    put_text(file, full);
    put(file, 4, 4);
    put(file, value, 4);
}

static void put_real(FILE *file, const char *architecture, const char *key, float value)
{
    char full[96];
    uint32_t bits;
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    put_text(file, full);
    put(file, 6, 4);
    memcpy(&bits, &value, sizeof bits);
    put(file, bits, 4);
}

/* Writes the name of a tensor in GGUF files, as llama.cpp's converter writes it. */
static void gguf_name(const char *name, char out[96])
{
    static const char *const names[][2] = {
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"ln_1", "attn_norm"},
        {"ln_2", "ffn_norm"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.c_proj", "attn_output"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
        {"embed_tokens", "token_embd"},
        {"wte", "token_embd"},
        {"wpe", "position_embd"},
        {"norm", "output_norm"},
        {"ln_f", "output_norm"},
        {"lm_head", "output"},
    };
    int layer = -1, end = 0;
    const char *inner = name, *dot = strrchr(name, '.');
    if (sscanf(name, "layers.%d.%n", &layer, &end) == 1 ||
        sscanf(name, "h.%d.%n", &layer, &end) == 1)
        inner = name + end;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i][0]);
        if (strncmp(names[i][0], inner, length) != 0 || inner + length != dot)
            continue;
        if (layer < 0)
            snprintf(out, 96, "%s%s", names[i][1], dot);
        else
            snprintf(out, 96, "blk.%d.%s%s", layer, names[i][1], dot);
    }
}

/* Returns the values in the order that GGUF files have. Matrices of GPT-2 are transposed. The
 * rows of q and k of a Llama are interleaved: reshape(heads, 2, head_dim / 2, …).swap(1, 2). */
static float *gguf_values(const made_model *m, const made_tensor *t, int64_t shape[2])
{
    float *out = need((size_t)elements(t), sizeof *out);
    const bool turned = m->family.transposed && t->ndim == 2 && strncmp(t->name, "h.", 2) == 0;
    const bool llama =
        strcmp(m->family.type, "llama") == 0 || strcmp(m->family.type, "mistral") == 0;
    const bool mixed = llama && (strstr(t->name, "q_proj") || strstr(t->name, "k_proj"));
    shape[0] = t->shape[turned ? 1 : 0];
    shape[1] = t->shape[turned ? 0 : 1];
    for (int64_t r = 0; r < shape[0]; r++) {
        for (int64_t c = 0; c < shape[1]; c++) {
            const int64_t half = MADE_HEAD_DIM / 2, head = r / MADE_HEAD_DIM,
                          in = r % MADE_HEAD_DIM,
                          to = mixed ? head * MADE_HEAD_DIM + in % half * 2 + in / half : r;
            out[to * shape[1] + c] =
                turned ? t->values[c * t->shape[1] + r] : t->values[r * shape[1] + c];
        }
    }
    return out;
}

static int write_metadata(const made_model *m, FILE *file)
{
    const made_family *f = &m->family;
    const char *a = strcmp(f->type, "mistral") == 0 ? "llama" : f->type;
    int count = 8;
    if (!file)
        return count + (is_gpt2(m) ? 0 : 1) +
               (f->window > 0 && strcmp(f->type, "mistral") == 0 ? 1 : 0) +
               (f->value_dim > 0 ? 2 : 0) +
               (f->scaling == MADE_LINEAR ? 2
                : f->scaling == MADE_YARN ? 3
                                          : 0);
    put_text(file, "general.architecture");
    put(file, 8, 4);
    put_text(file, a);
    put_number(file, a, "block_count", MADE_LAYERS);
    put_number(file, a, "embedding_length", MADE_WIDTH);
    put_number(file, a, "attention.head_count", MADE_HEADS);
    put_number(file, a, "attention.head_count_kv", (uint32_t)m->kv_heads);
    put_number(file, a, "feed_forward_length", MADE_HIDDEN);
    put_number(file, a, "context_length", MADE_CONTEXT);
    put_real(file, a,
             f->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
             1e-3f);
    if (f->value_dim > 0) {
        put_number(file, a, "attention.key_length", MADE_HEAD_DIM);
        put_number(file, a, "attention.value_length", (uint32_t)f->value_dim);
    }
    if (!is_gpt2(m))
        put_real(file, a, "rope.freq_base", 5000);
    if (f->window > 0 && strcmp(f->type, "mistral") == 0)
        put_number(file, a, "attention.sliding_window", (uint32_t)f->window);
    if (f->scaling == MADE_LINEAR || f->scaling == MADE_YARN) {
        char key[64];
        snprintf(key, sizeof key, "%s.rope.scaling.type", a);
        put_text(file, key);
        put(file, 8, 4);
        put_text(file, f->scaling == MADE_LINEAR ? "linear" : "yarn");
        put_real(file, a, "rope.scaling.factor", f->scaling == MADE_LINEAR ? 2.5f : 4);
        if (f->scaling == MADE_YARN)
            put_number(file, a, "rope.scaling.original_context_length", 64);
    }
    return 0;
}

/* Returns the number of tensors in file `number` of `count`, which has the tensors number, number +
 * count, … */
static uint64_t tensors_in_part(const made_model *m, int number, int count)
{
    return (uint64_t)((m->count - number + count - 1) / count);
}

/* Writes the header of file `number` of `count`. As with llama.cpp's gguf-split, only the first
 * file has the model's metadata. */
static void write_gguf_head(const made_model *m, FILE *file, int number, int count)
{
    const uint64_t model_keys = number == 0 ? (uint64_t)write_metadata(m, NULL) : 0;
    fputs("GGUF", file);
    put(file, 3, 4);
    put(file, tensors_in_part(m, number, count), 8);
    put(file, model_keys + (count > 1 ? 3 : 0), 8);
    if (number == 0)
        write_metadata(m, file);
    if (count == 1)
        return;
    const char *const names[] = {"split.no", "split.count", "split.tensors.count"};
    const int values[] = {number, count, m->count};
    for (int i = 0; i < 3; i++) {
        put_text(file, names[i]);
        put(file, 4, 4); /* u32 */
        put(file, (uint64_t)values[i], 4);
    }
}

static void write_gguf_part(const made_model *m, int number, int count, char path[160])
{
    char file_name[64] = "m.gguf";
    if (count > 1)
        snprintf(file_name, sizeof file_name, "m-%05d-of-%05d.gguf", number + 1, count);
    FILE *file = create(m, file_name, path);
    uint64_t at = 0;
    write_gguf_head(m, file, number, count);
    for (int i = number; i < m->count; i += count) {
        char name[96] = "?";
        int64_t shape[2];
        const made_tensor *t = &m->tensors[i];
        free(gguf_values(m, t, shape));
        gguf_name(t->name, name);
        put_text(file, name);
        put(file, (uint64_t)t->ndim, 4);
        if (t->ndim == 2)
            put(file, (uint64_t)shape[1], 8);
        put(file, (uint64_t)shape[0], 8);
        put(file, 0, 4);
        put(file, at, 8);
        at += ((uint64_t)elements(t) * 4 + 31) / 32 * 32;
    }
    while (ftell(file) % 32 != 0)
        fputc(0, file);
    for (int i = number; i < m->count; i += count) {
        int64_t shape[2];
        float *values = gguf_values(m, &m->tensors[i], shape);
        fwrite(values, sizeof *values, (size_t)elements(&m->tensors[i]), file);
        free(values);
        while (ftell(file) % 32 != 0)
            fputc(0, file);
    }
    if (fclose(file) != 0)
        die(path);
}

const char *made_write_gguf(made_model *m, int parts)
{
    static char path[160];
    for (int number = parts; number-- > 0;) /* the first file is last: its path is returned */
        write_gguf_part(m, number, parts, path);
    return path;
}

/* Logits ------------------------------------------------------------------------------------- */

static const float *values_in(made_model *m, int layer, const char *name)
{
    char full[96];
    if (layer >= 0)
        snprintf(full, sizeof full, "%s%d.%s", is_gpt2(m) ? "h." : "layers.", layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    const made_tensor *t = made_find(m, full);
    return t ? t->values : NULL;
}

/* Computes y[rows] = W x + bias with the rows of the matrix from `first` on. The matrix has the
 * layout of the file, and `all` rows. */
static void linear(made_model *m, int layer, const char *name, int first, int rows, int all,
                   int columns, const double *x, double *y)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const float *w = values_in(m, layer, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = values_in(m, layer, full);
    const bool flipped = m->family.transposed && layer >= 0;
    for (int r = 0; r < rows; r++) {
        double sum = bias ? (double)bias[first + r] : 0;
        for (int c = 0; c < columns; c++)
            sum += x[c] * (double)(flipped ? w[c * all + first + r] : w[(first + r) * columns + c]);
        y[r] = sum;
    }
}

static void normalise(made_model *m, int layer, const char *name, int size, const double *x,
                      double *y)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const float *weight = values_in(m, layer, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = values_in(m, layer, full);
    double mean = 0, sum = 0;
    for (int i = 0; i < size && m->family.layer_norm; i++)
        mean += x[i] / size;
    for (int i = 0; i < size; i++)
        sum += (x[i] - mean) * (x[i] - mean) / size;
    for (int i = 0; i < size; i++)
        y[i] = (x[i] - mean) / sqrt(sum + 1e-3) * (double)weight[i] + (bias ? (double)bias[i] : 0);
}

static const double pi = 3.14159265358979323846;

static double frequency(made_scaling scaling, int i)
{
    const int dim = MADE_HEAD_DIM;
    const double theta = 5000, f = pow(theta, -2.0 * i / dim);
    if (scaling == MADE_LINEAR)
        return f / 2.5;
    if (scaling == MADE_LLAMA3) {
        const double wave = 2 * pi / f, smooth = (256 / wave - 1) / 3;
        return wave < 64 ? f : wave > 256 ? f / 8 : (1 - smooth) * f / 8 + smooth * f;
    }
    if (scaling == MADE_YARN) {
        double low = floor(dim * log(64 / (32 * 2 * pi)) / (2 * log(theta)));
        double high = ceil(dim * log(64 / (1 * 2 * pi)) / (2 * log(theta)));
        low = fmax(low, 0);
        high = fmin(high, dim - 1);
        const double ramp = fmin(1, fmax(0, (i - low) / (high > low ? high - low : 0.001)));
        return f / 4 * ramp + f * (1 - ramp);
    }
    return f;
}

static void turn(const made_model *m, double *head, int position)
{
    const double scale = m->family.scaling == MADE_YARN ? 0.1 * log(4) + 1 : 1;
    for (int i = 0; i < MADE_HEAD_DIM / 2 && !is_gpt2(m); i++) {
        const double angle = position * frequency(m->family.scaling, i), u = head[i],
                     w = head[i + MADE_HEAD_DIM / 2];
        head[i] = (u * cos(angle) - w * sin(angle)) * scale;
        head[i + MADE_HEAD_DIM / 2] = (u * sin(angle) + w * cos(angle)) * scale;
    }
}

enum { Q = MADE_HEADS * MADE_HEAD_DIM, MOST_RESULTS = MADE_HEADS * MADE_MOST_VALUES };

/* The q, k and v of all tokens in one layer. */
typedef struct projections {
    double q[MADE_CONTEXT][Q], k[MADE_CONTEXT][Q], v[MADE_CONTEXT][MOST_RESULTS];
} projections;

static void project(made_model *m, int layer, int at, const double *x, projections *p)
{
    const int kv = m->kv_heads * MADE_HEAD_DIM, all = Q + 2 * kv,
              values = m->kv_heads * value_dim(m);
    if (m->family.fused) {
        linear(m, layer, "attn.c_attn", 0, Q, all, MADE_WIDTH, x, p->q[at]);
        linear(m, layer, "attn.c_attn", Q, kv, all, MADE_WIDTH, x, p->k[at]);
        linear(m, layer, "attn.c_attn", Q + kv, kv, all, MADE_WIDTH, x, p->v[at]);
    } else {
        linear(m, layer, "self_attn.q_proj", 0, Q, Q, MADE_WIDTH, x, p->q[at]);
        linear(m, layer, "self_attn.k_proj", 0, kv, kv, MADE_WIDTH, x, p->k[at]);
        linear(m, layer, "self_attn.v_proj", 0, values, values, MADE_WIDTH, x, p->v[at]);
    }
    for (int h = 0; h < MADE_HEADS; h++) {
        double *q = p->q[at] + h * MADE_HEAD_DIM, *k = p->k[at] + h * MADE_HEAD_DIM;
        if (m->family.qk_norm)
            normalise(m, layer, "self_attn.q_norm", MADE_HEAD_DIM, q, q);
        turn(m, q, at);
        if (h >= m->kv_heads)
            continue;
        if (m->family.qk_norm)
            normalise(m, layer, "self_attn.k_norm", MADE_HEAD_DIM, k, k);
        turn(m, k, at);
    }
}

static void attend(made_model *m, int layer, int at, const projections *p, double *out)
{
    const made_family *f = &m->family;
    const int window = f->window > 0 && layer >= f->window_from ? f->window : MADE_CONTEXT;
    for (int h = 0; h < MADE_HEADS; h++) {
        const int head = h * m->kv_heads / MADE_HEADS, kv = head * MADE_HEAD_DIM,
                  q = h * MADE_HEAD_DIM, values = value_dim(m);
        double sum = 0, *y = out + (int64_t)h * values;
        memset(y, 0, (size_t)values * sizeof *y);
        for (int j = at - window + 1 > 0 ? at - window + 1 : 0; j <= at; j++) {
            double score = 0;
            for (int d = 0; d < MADE_HEAD_DIM; d++)
                score += p->q[at][q + d] * p->k[j][kv + d];
            const double weight = exp(score / sqrt(MADE_HEAD_DIM));
            sum += weight;
            for (int d = 0; d < values; d++)
                y[d] += weight * p->v[j][head * values + d];
        }
        for (int d = 0; d < values; d++)
            y[d] /= sum;
    }
}

static void mlp(made_model *m, int layer, const double *x, double *y)
{
    double gate[MADE_HIDDEN], up[MADE_HIDDEN];
    const bool gpt2 = is_gpt2(m);
    linear(m, layer, gpt2 ? "mlp.c_fc" : "mlp.up_proj", 0, MADE_HIDDEN, MADE_HIDDEN, MADE_WIDTH, x,
           up);
    if (m->family.gated)
        linear(m, layer, "mlp.gate_proj", 0, MADE_HIDDEN, MADE_HIDDEN, MADE_WIDTH, x, gate);
    for (int i = 0; i < MADE_HIDDEN; i++)
        up[i] = m->family.gated
                    ? gate[i] / (1 + exp(-gate[i])) * up[i]
                    : up[i] / 2 * (1 + tanh(sqrt(2 / pi) * (up[i] + 0.044715 * pow(up[i], 3))));
    linear(m, layer, gpt2 ? "mlp.c_proj" : "mlp.down_proj", 0, MADE_WIDTH, MADE_WIDTH, MADE_HIDDEN,
           up, y);
}

static void run_layer(made_model *m, int layer, int count, double (*x)[MADE_WIDTH])
{
    static projections p;
    const bool gpt2 = is_gpt2(m);
    double normed[MADE_WIDTH], heads[MOST_RESULTS], y[MADE_WIDTH];
    for (int t = 0; t < count; t++) {
        normalise(m, layer, gpt2 ? "ln_1" : "input_layernorm", MADE_WIDTH, x[t], normed);
        project(m, layer, t, normed, &p);
    }
    for (int t = 0; t < count; t++) {
        attend(m, layer, t, &p, heads);
        linear(m, layer, gpt2 ? "attn.c_proj" : "self_attn.o_proj", 0, MADE_WIDTH, MADE_WIDTH,
               MADE_HEADS * value_dim(m), heads, y);
        for (int i = 0; i < MADE_WIDTH; i++)
            x[t][i] += y[i];
        normalise(m, layer, gpt2 ? "ln_2" : "post_attention_layernorm", MADE_WIDTH, x[t], normed);
        mlp(m, layer, normed, y);
        for (int i = 0; i < MADE_WIDTH; i++)
            x[t][i] += y[i];
    }
}

void made_logits(made_model *m, int count, const int32_t *ids, double *logits)
{
    static double x[MADE_CONTEXT][MADE_WIDTH];
    double normed[MADE_WIDTH];
    const char *table = is_gpt2(m) ? "wte" : "embed_tokens";
    const float *embedding = values_in(m, -1, is_gpt2(m) ? "wte.weight" : "embed_tokens.weight"),
                *positions = values_in(m, -1, "wpe.weight");
    for (int t = 0; t < count; t++)
        for (int i = 0; i < MADE_WIDTH; i++)
            x[t][i] = (double)embedding[ids[t] * MADE_WIDTH + i] +
                      (positions ? (double)positions[t * MADE_WIDTH + i] : 0);
    for (int layer = 0; layer < MADE_LAYERS; layer++)
        run_layer(m, layer, count, x);
    for (int t = 0; t < count; t++) {
        normalise(m, -1, is_gpt2(m) ? "ln_f" : "norm", MADE_WIDTH, x[t], normed);
        linear(m, -1, m->family.tied ? table : "lm_head", 0, MADE_VOCABULARY, MADE_VOCABULARY,
               MADE_WIDTH, normed, logits + t * MADE_VOCABULARY);
    }
}
