/* Files of adapters: PEFT folders and GGUF, those of all families, and adapters merged into the
 * model. */
#include <unistd.h>

#include "model/lora/lora.h"
#include "model/lora_run.h"
#include "model/made.h"
#include "parallel/spmd.h"
#include "tessera/convert.h"

#define PATH TEST_DATA "/model/families/"

/* Reads a list of doubles in base64. */
static void read_doubles(const char *text, double *out, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *bytes = (uint8_t *)out;
    uint32_t bits = 0;
    int have = 0;
    for (size_t n = 0; n < count * sizeof *out && *text && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *text) - digits);
        have += 6;
        if (have >= 8)
            bytes[n++] = (uint8_t)(bits >> (have -= 8));
    }
}

CASE(lora_merge, "lora: with an adapter, without it, and merged")
{
    static double recorded[PROMPT * VOCABULARY];
    static float want[PROMPT * VOCABULARY];
    lora_run r = lora_open_plain("lora_base");
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    CHECK(r.recorded, "%s", error.text);
    json_t *logits = json_object_get(json_object_get(r.recorded, "prompt"), "logits");
    read_doubles(json_string_value(json_object_get(logits, "b64")), recorded, PROMPT * VOCABULARY);
    for (int i = 0; i < PROMPT * VOCABULARY; i++)
        want[i] = (float)recorded[i];
    float *base = lora_prompt_logits(&r);
    OK(tsr_lora_load(FOLDER "lora_final", tsr_lora_params(.stack = r.stack), &r.lora));
    float *adapted = lora_prompt_logits(&r);
    CHECK(lora_largest_difference(adapted, want) < 1e-4, "a logit differs by %g",
          lora_largest_difference(adapted, want));
    CHECK(lora_largest_difference(adapted, base) > 0.1, "the adapter changes nothing");
    tsr_lora_set_enabled(r.lora, false);
    float *off = lora_prompt_logits(&r);
    CHECK(memcmp(off, base, PROMPT * VOCABULARY * sizeof *base) == 0,
          "an adapter that is off changes logits");
    FAILS(tsr_lora_merge(r.lora), TSR_ERR_INVALID, "lora: adapter 'default' is not enabled");
    tsr_lora_set_enabled(r.lora, true);
    OK(tsr_lora_merge(r.lora));
    float *merged = lora_prompt_logits(&r);
    CHECK(lora_largest_difference(merged, want) < 1e-4, "after merging, a logit differs by %g",
          lora_largest_difference(merged, want));
    float *all[] = {base, adapted, off, merged};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    lora_finish(&r);
}

/* Checks the names and the order of rows in a GGUF file against a PEFT file. */
static void check_gguf(const char *path)
{
    lora_tensors gguf = lora_open_tensors(path),
                 peft = lora_open_tensors(FOLDER "lora_final/adapter_model.safetensors");
    int64_t count, others;
    float *b = lora_read_tensor(&gguf, "blk.1.attn_k.weight.lora_b", &count),
          *want = lora_read_tensor(
              &peft, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight", &others);
    CHECK(count == 32 * 4 && others == count, "%d elements", (int)count);
    for (int row = 0; row < 32; row++) { /* llama.cpp has adjacent pairs: 16 rows for each head */
        const int place = row / 16 * 16 + row % 16 % 8 * 2 + row % 16 / 8;
        CHECK(memcmp(b + place * 4, want + row * 4, 4 * sizeof *b) == 0, "row %d", row);
    }
    free(b);
    free(want);
    b = lora_read_tensor(&gguf, "blk.0.ffn_down.weight.lora_a", &count);
    want = lora_read_tensor(&peft, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
                            &others);
    CHECK(count == others && memcmp(b, want, (size_t)count * sizeof *b) == 0, "lora_a differs");
    free(b);
    free(want);
    lora_close_tensors(&gguf);
    lora_close_tensors(&peft);
}

CASE(lora_gguf, "lora: GGUF adapters are written and read as llama.cpp does")
{
    lora_run r = lora_open_plain("qlora_base_q8_0/base.gguf");
    const char *folder = lora_scratch();
    char path[256], again[256];
    snprintf(path, sizeof path, "%s/adapter.gguf", folder);
    OK(tsr_lora_load(FOLDER "lora_final", tsr_lora_params(.stack = r.stack), &r.lora));
    OK(tsr_lora_save(r.lora, path, TSR_LORA_GGUF, NULL));
    tsr_lora_destroy(&r.lora);
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    check_gguf(path);
    OK(tsr_lora_load(path, tsr_lora_params(.stack = r.stack), &r.lora));
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    OK(tsr_lora_get_info(r.lora, &info));
    CHECK(info.alpha == 8 && info.rank == 4 && info.targets == 127 && info.parameters == 8960,
          "alpha %g, rank %d, targets %u, %d parameters", info.alpha, info.rank, info.targets,
          (int)info.parameters);
    snprintf(again, sizeof again, "%s/again", folder);
    OK(tsr_lora_save(r.lora, again, TSR_LORA_PEFT, NULL));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(again, sizeof again, "%s/again/adapter_model.safetensors", folder);
    lora_compare_tensors(again, FOLDER "lora_final/adapter_model.safetensors", 0);
    if (my_rank == 0)
        remove(path);
    lora_remove_adapter(folder, "again");
    FAILS(tsr_lora_merge(r.lora), TSR_ERR_UNSUPPORTED,
          "column_linear layers.0.attention: layers.0.attention.q.weight is q8_0; an "
          "adapter can be merged into floats only");
    lora_finish(&r);
}

CASE(lora_peft, "lora: PEFT folders are written as they were read")
{
    lora_run r = lora_open_plain("lora_base");
    const char *folder = lora_scratch();
    char path[256];
    snprintf(path, sizeof path, "%s/again", folder);
    OK(tsr_lora_load(FOLDER "lora_final", tsr_lora_params(.stack = r.stack), &r.lora));
    OK(tsr_lora_save(r.lora, path, TSR_LORA_PEFT, NULL));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(path, sizeof path, "%s/again/adapter_model.safetensors", folder);
    lora_compare_tensors(path, FOLDER "lora_final/adapter_model.safetensors", 0);
    lora_remove_adapter(folder, "again");
    lora_finish(&r);
}

/* Families ------------------------------------------------------------------------------------- */

enum { FAMILY_LOGITS = 5 * 512 }; /* the largest vocabulary has 512 tokens */

/* Computes logits of a few tokens; free() them. Those that a vocabulary lacks are 0. */
static float *family_logits(tsr_stack *stack)
{
    double ids[] = {1, 5, 2, 7, 3};
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){1, 5}, ids), *hidden = NULL, *logits = NULL;
    float *out = calloc(FAMILY_LOGITS, sizeof *out);
    CHECK(out, "no memory");
    OK(tsr_stack_forward(stack, x, NULL, NULL, &hidden));
    OK(tsr_stack_head_forward(stack, hidden, NULL, &logits));
    OK(tsr_stack_gather_logits(stack, logits, out));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&logits);
    return out;
}

/* Gives all parameters of an adapter random values, the same for any number of ranks. */
static void fill_adapter(tsr_lora *lora)
{
    for (int i = 0; i < tsr_layer_parameter_count(lora->adapter.layer); i++) {
        const tsr_parameter *p = tsr_layer_parameter(lora->adapter.layer, i);
        double *all = numbers((uint64_t)i, count_of(p->ndim, p->global_shape), TSR_F32),
               *mine = slice_of(all, p->ndim, p->global_shape, p->shard_dim < 0 ? 0 : p->shard_dim,
                                p->offset, p->length);
        tensor_put(p->tensor, mine);
        free(all);
        free(mine);
    }
}

/* Returns the largest difference between logits of a few tokens. */
static double largest_of(const float *a, const float *b)
{
    double worst = 0;
    for (int i = 0; i < FAMILY_LOGITS; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

/* Adds an adapter to the weights of a model's files, and compares the logits of the new model. */
static void check_merged(const tsr_model_file *source, const char *adapter, const char *folder,
                         const float *want)
{
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    char path[144];
    snprintf(path, sizeof path, "%s/merged.gguf", folder);
    if (my_rank == 0)
        OK(tsr_model_convert(source, path, tsr_convert_params(.adapter = adapter, .dtype = TSR_F32),
                             NULL));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    OK(tsr_model_file_open(path, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group, .dtype = TSR_F32), &model));
    float *merged = family_logits(tsr_model_stack(model));
    CHECK(largest_of(merged, want) <= 1e-3,
          "%s: after adding it to the weights, a logit differs by %g", adapter,
          largest_of(merged, want));
    free(merged);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
    if (my_rank == 0)
        remove(path);
}

/* What check_saved does besides: `dora`, the adapter has magnitudes; `merges`, it is added to the
 * model's weights. */
typedef struct saved_form {
    tsr_lora_format format;
    bool dora, merges;
} saved_form;

/* Saves an adapter of a model, loads it, and compares the logits. */
static void check_saved(const char *model_path, const char *what, saved_form form)
{
    const tsr_lora_format format = form.format;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_lora *lora = NULL;
    const char *folder = lora_scratch();
    char path[128];
    OK(tsr_model_file_open(model_path, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group, .dtype = form.merges ? TSR_F32 : 0),
                      &model));
    tsr_stack *stack = tsr_model_stack(model);
    float *base = family_logits(stack);
    OK(tsr_lora_create(tsr_lora_params(.stack = stack, .rank = 3, .alpha = 1, .dora = form.dora),
                       &lora));
    fill_adapter(lora);
    float *before = family_logits(stack);
    CHECK(memcmp(base, before, FAMILY_LOGITS * sizeof *base) != 0,
          "%s: the adapter changes nothing", what);
    snprintf(path, sizeof path, "%s/a", folder);
    OK(tsr_lora_save(lora, path, format, NULL));
    tsr_lora_destroy(&lora);
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    OK(tsr_lora_load(path, tsr_lora_params(.stack = stack), &lora));
    float *after = family_logits(stack);
    const double worst = largest_of(after, before);
    CHECK(worst <= 1e-5, "%s: a logit of the adapter that was loaded differs by %g", what, worst);
    if (form.merges)
        check_merged(file, path, folder, before);
    if (my_rank == 0 && format == TSR_LORA_GGUF)
        remove(path);
    lora_remove_adapter(folder, "a");
    free(base);
    free(before);
    free(after);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
}

static void check_family(const made_family *family, tsr_lora_format format)
{
    made_model made;
    made_init(&made, family, 5);
    check_saved(made_write_hf(&made), family->type, (saved_form){.format = format});
    made_finish(&made);
}

/* Adapters of delta nets, of which files have the rows in other orders, and of q in attention with
 * a gate. */
CASE(lora_delta_nets, "lora: adapters of delta nets and of attention with a gate")
{
    check_saved(PATH "qwen3next/hf", "qwen3next", (saved_form){TSR_LORA_GGUF, .merges = true});
    check_saved(PATH "qwen3next/hf", "qwen3next", (saved_form){TSR_LORA_PEFT, .dora = true});
    check_saved(PATH "qwen35moe/hf", "qwen35moe", (saved_form){TSR_LORA_PEFT, .merges = true});
    check_saved(PATH "qwen35moe/hf", "qwen35moe", (saved_form){TSR_LORA_GGUF, .merges = true});
}

CASE(lora_families, "lora: adapters of models of all families")
{
    for (int f = 0; f < made_family_count; f++)
        check_family(&made_families[f], f % 2 ? TSR_LORA_GGUF : TSR_LORA_PEFT);
}
