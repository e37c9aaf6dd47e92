/* random_model FAMILY FOLDER: writes a small model with random weights and 512 tokens in Hugging
 * Face's format, for the tests of training. Each family has something that the others lack: qwen3
 * normalised q and k, heads that together are wider than the model, and YaRN, mistral a window and
 * the frequencies of Llama 3, llama biases of all linear layers, gpt2 what distinguishes GPT-2 from
 * Llama. The tensors of gpt2 have the names without "transformer." that OpenAI's models have at
 * Hugging Face. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/tessera.h"

enum {
    LAYERS = 2,
    WIDTH = 64,
    QKV = 3 * WIDTH,
    HEADS = 4,
    KV_HEADS = 2,
    INNER = 96,
    VOCABULARY = 512,
    CONTEXT = 256,
    MOST = 64
};

typedef struct family {
    const char *name, *class;
    int head_dim;
    bool bias, qk_norm, tied;
    const char *more; /* additional members of config.json, as JSON */
} family;

static const family families[] = {
    {"qwen3", "Qwen3ForCausalLM", 32, false, true, false,
     "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
     "\"original_max_position_embeddings\": 64}"},
    {"mistral", "MistralForCausalLM", 16, false, false, false,
     "\"sliding_window\": 7, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
     "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
     "\"original_max_position_embeddings\": 32}"},
    {"llama", "LlamaForCausalLM", 16, true, false, false,
     "\"attention_bias\": true, \"mlp_bias\": true"},
    {"gpt2", "GPT2LMHeadModel", 16, true, false, true, ""},
};

static bool is_gpt2(const family *f)
{
    return strcmp(f->name, "gpt2") == 0;
}

/* The tensors of the file. */
static tsr_checkpoint_entry entries[MOST];
static char names[MOST][96];
static int count;

static void fail(const char *what)
{
    fprintf(stderr, "random_model: %s\n", what);
    exit(1);
}

/* Returns a number from −1 to 1, the next one of a fixed sequence. */
static float next_number(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (float)(1 << 23) - 1;
}

/* Adds a tensor [rows, columns], or [rows] if columns is 0, with numbers from middle − spread to
 * middle + spread. `layer` is −1 for a tensor outside layers, and layers have names that begin as
 * the format `layers`. */
static void add_named(const char *layers, int layer, const char *name, int64_t rows,
                      int64_t columns, float middle, float spread)
{
    const int64_t elements = rows * (columns ? columns : 1);
    float *data = malloc((size_t)elements * sizeof *data);
    if (!data || count == MOST)
        fail("too many or too large tensors");
    for (int64_t i = 0; i < elements; i++)
        data[i] = middle + spread * next_number();
    char *text = names[count];
    const size_t size = sizeof names[count];
    const int used = layer < 0 ? 0 : snprintf(text, size, "%s%d.", layers, layer);
    snprintf(text + used, size - (size_t)used, "%s", name);
    entries[count] = (tsr_checkpoint_entry){.struct_size = sizeof(tsr_checkpoint_entry),
                                            .name = names[count],
                                            .dtype = TSR_F32,
                                            .ndim = columns ? 2 : 1,
                                            .shape = {rows, columns},
                                            .shard_dim = -1,
                                            .count = (uint64_t)elements,
                                            .data = data};
    count++;
}

static void add(int layer, const char *name, int64_t rows, int64_t columns, float middle,
                float spread)
{
    add_named("model.layers.", layer, name, rows, columns, middle, spread);
}

static void add_gpt2(int layer, const char *name, int64_t rows, int64_t columns, float middle,
                     float spread)
{
    add_named("h.", layer, name, rows, columns, middle, spread);
}

static void add_layer(const family *f, int i)
{
    const int64_t q = (int64_t)HEADS * f->head_dim, kv = (int64_t)KV_HEADS * f->head_dim;
    add(i, "self_attn.q_proj.weight", q, WIDTH, 0, 0.3f);
    add(i, "self_attn.k_proj.weight", kv, WIDTH, 0, 0.3f);
    add(i, "self_attn.v_proj.weight", kv, WIDTH, 0, 0.3f);
    add(i, "self_attn.o_proj.weight", WIDTH, q, 0, 0.3f);
    if (f->bias) {
        add(i, "self_attn.q_proj.bias", q, 0, 0, 0.5f);
        add(i, "self_attn.k_proj.bias", kv, 0, 0, 0.5f);
        add(i, "self_attn.v_proj.bias", kv, 0, 0, 0.5f);
        add(i, "self_attn.o_proj.bias", WIDTH, 0, 0, 0.5f);
        add(i, "mlp.gate_proj.bias", INNER, 0, 0, 0.5f);
        add(i, "mlp.up_proj.bias", INNER, 0, 0, 0.5f);
        add(i, "mlp.down_proj.bias", WIDTH, 0, 0, 0.5f);
    }
    if (f->qk_norm) {
        add(i, "self_attn.q_norm.weight", f->head_dim, 0, 1, 0.5f);
        add(i, "self_attn.k_norm.weight", f->head_dim, 0, 1, 0.5f);
    }
    add(i, "mlp.gate_proj.weight", INNER, WIDTH, 0, 0.3f);
    add(i, "mlp.up_proj.weight", INNER, WIDTH, 0, 0.3f);
    add(i, "mlp.down_proj.weight", WIDTH, INNER, 0, 0.3f);
    add(i, "input_layernorm.weight", WIDTH, 0, 1, 0.1f);
    add(i, "post_attention_layernorm.weight", WIDTH, 0, 1, 0.1f);
}

/* Hugging Face has the matrices of GPT-2's layers as [in, out]. */
static void add_gpt2_layer(int i)
{
    add_gpt2(i, "ln_1.weight", WIDTH, 0, 1, 0.1f);
    add_gpt2(i, "ln_1.bias", WIDTH, 0, 0, 0.5f);
    add_gpt2(i, "attn.c_attn.weight", WIDTH, QKV, 0, 0.3f);
    add_gpt2(i, "attn.c_attn.bias", QKV, 0, 0, 0.5f);
    add_gpt2(i, "attn.c_proj.weight", WIDTH, WIDTH, 0, 0.3f);
    add_gpt2(i, "attn.c_proj.bias", WIDTH, 0, 0, 0.5f);
    add_gpt2(i, "ln_2.weight", WIDTH, 0, 1, 0.1f);
    add_gpt2(i, "ln_2.bias", WIDTH, 0, 0, 0.5f);
    add_gpt2(i, "mlp.c_fc.weight", WIDTH, INNER, 0, 0.3f);
    add_gpt2(i, "mlp.c_fc.bias", INNER, 0, 0, 0.5f);
    add_gpt2(i, "mlp.c_proj.weight", INNER, WIDTH, 0, 0.3f);
    add_gpt2(i, "mlp.c_proj.bias", WIDTH, 0, 0, 0.5f);
}

static void add_gpt2_model(void)
{
    add_gpt2(-1, "wte.weight", VOCABULARY, WIDTH, 0, 0.5f);
    add_gpt2(-1, "wpe.weight", CONTEXT, WIDTH, 0, 0.5f);
    for (int i = 0; i < LAYERS; i++)
        add_gpt2_layer(i);
    add_gpt2(-1, "ln_f.weight", WIDTH, 0, 1, 0.1f);
    add_gpt2(-1, "ln_f.bias", WIDTH, 0, 0, 0.5f);
}

static void add_model(const family *f)
{
    add(-1, "model.embed_tokens.weight", VOCABULARY, WIDTH, 0, 1);
    for (int i = 0; i < LAYERS; i++)
        add_layer(f, i);
    add(-1, "model.norm.weight", WIDTH, 0, 1, 0.1f);
    if (!f->tied)
        add(-1, "lm_head.weight", VOCABULARY, WIDTH, 0, 0.5f);
}

static void write_gpt2_config(FILE *file)
{
    fprintf(file,
            "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], "
            "\"activation_function\": \"gelu_new\", \"n_layer\": %d, \"n_embd\": %d, "
            "\"n_head\": %d, \"n_inner\": %d, \"vocab_size\": %d, \"n_positions\": %d, "
            "\"layer_norm_epsilon\": 1e-5, \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
            LAYERS, WIDTH, HEADS, INNER, VOCABULARY, CONTEXT);
}

static void write_usual_config(const family *f, FILE *file)
{
    fprintf(file,
            "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], \"hidden_act\": \"silu\", "
            "\"num_hidden_layers\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, "
            "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-6, "
            "\"rope_theta\": 10000.0, \"bos_token_id\": 1, \"eos_token_id\": 2, "
            "\"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\", %s}\n",
            f->name, f->class, LAYERS, WIDTH, HEADS, KV_HEADS, f->head_dim, INNER, VOCABULARY,
            CONTEXT, f->tied ? "true" : "false", f->more);
}

static void write_config(const family *f, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    if (!file)
        fail("config.json cannot be written");
    if (is_gpt2(f))
        write_gpt2_config(file);
    else
        write_usual_config(f, file);
    if (fclose(file) != 0)
        fail("config.json cannot be written");
}

int main(int argc, char **argv)
{
    const family *f = NULL;
    char path[4096];
    for (size_t i = 0; argc == 3 && i < sizeof families / sizeof *families; i++)
        if (strcmp(argv[1], families[i].name) == 0)
            f = &families[i];
    if (!f)
        fail("usage: random_model qwen3|mistral|llama|gpt2 FOLDER");
    if (is_gpt2(f))
        add_gpt2_model();
    else
        add_model(f);
    write_config(f, argv[2]);
    snprintf(path, sizeof path, "%s/model.safetensors", argv[2]);
    if (tsr_checkpoint_save(path, NULL, NULL, count, entries, NULL) != TSR_OK)
        fail(tsr_last_error());
    for (int i = 0; i < count; i++)
        free(entries[i].data);
    return 0;
}
