/* Adapters (lora.h): recorded trainings of PyTorch, on any grid of stages, data and tensor ranks;
 * files; mistakes. */
#include "tessera/lora.h"

#include <jansson.h>
#include <unistd.h>

#include "base/fault.h"
#include "model/lora/lora.h"
#include "model/made.h"
#include "parallel/spmd.h"

#define FOLDER TEST_DATA "/training/lora/"

enum { BATCH = 6, BLOCK = 48, VOCABULARY = 65, WIDTH = 64, TRAIN = 1003854, PASSES = 3 };

static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                            .kind = TSR_PARTITION_UNEVEN};

/* A grid of ranks: rank (stage · data + d) · tensor + t. */
typedef struct grid {
    int stages, data, tensor;
    const double *rates; /* [tensor]; NULL: equal */
    bool recompute, shards, base_shards;
} grid;

typedef struct run {
    grid grid;
    tsr_comm *stages, *data_comm, *tensor_comm;
    tsr_group *data, *tensor;
    int stage, data_rank;
    tsr_partition_params partition;
    tsr_model *model;
    tsr_stack *stack;
    tsr_lora *lora;
    tsr_optimizer *optimizer;
    tsr_pipeline *pipeline;
    char *text;
    json_t *recorded;
    /* the step */
    int step, micro_batches;
    tsr_stack_saved *saved[PASSES];
    tsr_layer_saved *head_saved[PASSES];
    tsr_tensor *dlogits[PASSES];
    bool by_chunks; /* with tsr_stack_head_loss, whose result is dhidden */
    tsr_tensor *dhidden[PASSES];
    double loss;
} run;

/* Grids -------------------------------------------------------------------------------------- */

static bool fits(const grid *g)
{
    return g->stages * g->data * g->tensor == ranks && BATCH % (g->data * g->stages) == 0;
}

static void make_grid(run *r)
{
    const grid *g = &r->grid;
    const int t = my_rank % g->tensor, d = my_rank / g->tensor % g->data,
              s = my_rank / g->tensor / g->data;
    r->stage = s;
    r->data_rank = d;
    r->partition = uneven;
    if (g->rates) {
        r->partition.kind = TSR_PARTITION_WEIGHTED;
        r->partition.rates = g->rates;
    }
    if (ranks > 1) {
        OK(tsr_comm_split(world, s * g->data + d, t, &r->tensor_comm));
        OK(tsr_comm_split(world, s * g->tensor + t, d, &r->data_comm));
        OK(tsr_comm_split(world, d * g->tensor + t, s, &r->stages));
    }
    OK(tsr_group_create(r->tensor_comm, queue, NULL, &r->tensor));
    OK(tsr_group_create(r->data_comm, queue, NULL, &r->data));
    if (g->stages > 1)
        OK(tsr_pipeline_create(tsr_pipeline_params(.comm = r->stages, .stream = queue),
                               &r->pipeline));
}

static tsr_comm *stages_of(const run *r)
{
    return r->grid.stages > 1 ? r->stages : NULL;
}

static void open_base(run *r, const char *base)
{
    tsr_model_file *file = NULL;
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s", base);
    OK(tsr_model_file_open(path, &file));
    OK(tsr_model_open(file,
                      tsr_model_params(.group = r->tensor, .stages = stages_of(r),
                                       .partition = &r->partition, .recompute = r->grid.recompute),
                      &r->model));
    tsr_model_file_close(&file);
    r->stack = tsr_model_stack(r->model);
}

static void finish(run *r)
{
    tsr_optimizer_destroy(&r->optimizer);
    tsr_lora_destroy(&r->lora);
    tsr_model_close(&r->model);
    tsr_pipeline_destroy(&r->pipeline);
    tsr_group_destroy(&r->data);
    tsr_group_destroy(&r->tensor);
    tsr_comm_destroy(&r->stages);
    tsr_comm_destroy(&r->data_comm);
    tsr_comm_destroy(&r->tensor_comm);
    json_decref(r->recorded);
    free(r->text);
}

/* Data --------------------------------------------------------------------------------------- */

static char *read_text(void)
{
    FILE *file = fopen(TEST_TEXT, "rb");
    char *text = calloc(1, 1200000);
    CHECK(file && text && fread(text, 1, 1199999, file) > TRAIN, "%s cannot be read", TEST_TEXT);
    fclose(file);
    return text;
}

static void read_numbers(const char *text, int32_t number[256])
{
    for (int c = 0, next = 0; c < 256; c++)
        number[c] = c > 0 && strchr(text, c) ? next++ : -1;
}

/* Reads the windows of this rank's rows of a micro-batch. */
static void windows(const run *r, int micro_batch, tsr_tensor **x, tsr_tensor **labels)
{
    const int rows = BATCH / r->grid.data / r->micro_batches,
              first = r->data_rank * (BATCH / r->grid.data) + micro_batch * rows;
    int32_t number[256];
    read_numbers(r->text, number);
    double in[BATCH * BLOCK], out[BATCH * BLOCK];
    json_t *offsets = json_array_get(json_object_get(r->recorded, "offsets"), (size_t)r->step);
    for (int i = 0; i < rows * BLOCK; i++) {
        const int64_t at =
            json_integer_value(json_array_get(offsets, (size_t)first + (size_t)(i / BLOCK))) +
            i % BLOCK;
        in[i] = number[(uint8_t)r->text[at]];
        out[i] = number[(uint8_t)r->text[at + 1]];
    }
    *x = tensor_of(TSR_I32, 2, (int64_t[]){rows, BLOCK}, in);
    *labels = tensor_of(TSR_I32, 1, (int64_t[]){(int64_t)rows * BLOCK}, out);
}

/* A step ------------------------------------------------------------------------------------- */

static void head_loss(run *r, int batch, const tsr_tensor *hidden, tsr_tensor *flat_labels)
{
    const int64_t *shape = tsr_tensor_layout(hidden)->shape;
    tsr_tensor *labels = NULL, *loss = tensor_new(TSR_F32, 1, (int64_t[]){1});
    OK(tsr_tensor_reshape(flat_labels, 2, shape, &labels));
    OK(tsr_fill(queue, loss, 0));
    OK(tsr_stack_head_loss(r->stack, hidden,
                           tsr_head_loss_params(.labels = labels, .scale = 1.0F / (BATCH * BLOCK),
                                                .chunk_tokens = 50, .loss = loss),
                           &r->dhidden[batch]));
    double *value = values_of(loss);
    r->loss += *value;
    free(value);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&loss);
}

static tsr_status forward(void *user, int batch, const tsr_tensor *x, tsr_tensor **y)
{
    run *r = user;
    tsr_tensor *ids, *labels, *hidden = NULL, *logits = NULL, *flat = NULL, *flat_grad = NULL;
    windows(r, batch, &ids, &labels);
    OK(tsr_stack_forward(r->stack, r->stage == 0 ? ids : x, NULL, &r->saved[batch], &hidden));
    tsr_tensor_destroy(&ids);
    if (r->stage < r->grid.stages - 1) {
        *y = hidden;
        tsr_tensor_destroy(&labels);
        return TSR_OK;
    }
    if (r->by_chunks) {
        head_loss(r, batch, hidden, labels);
        tsr_tensor_destroy(&hidden);
        tsr_tensor_destroy(&labels);
        return TSR_OK;
    }
    OK(tsr_stack_head_forward(r->stack, hidden, &r->head_saved[batch], &logits));
    const tsr_layout *layout = tsr_tensor_layout(logits);
    const int64_t shape[2] = {layout->shape[0] * BLOCK, layout->shape[2]};
    tsr_tensor *losses = tensor_new(TSR_F32, 1, shape);
    OK(tsr_tensor_create(gpu, TSR_F32, 3, layout->shape, &r->dlogits[batch]));
    OK(tsr_tensor_reshape(logits, 2, shape, &flat));
    OK(tsr_tensor_reshape(r->dlogits[batch], 2, shape, &flat_grad));
    OK(tsr_vocabulary_cross_entropy(r->tensor, losses, flat_grad, flat, labels, VOCABULARY,
                                    &r->partition, 1.0F / (BATCH * BLOCK)));
    double *each = values_of(losses);
    for (int64_t i = 0; i < shape[0]; i++)
        r->loss += each[i] / (BATCH * BLOCK);
    free(each);
    tsr_tensor *all[] = {labels, hidden, logits, flat, flat_grad, losses};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
    return TSR_OK;
}

static tsr_status backward(void *user, int batch, const tsr_tensor *dy, tsr_tensor **dx)
{
    run *r = user;
    tsr_tensor *dhidden = r->dhidden[batch];
    r->dhidden[batch] = NULL;
    if (r->stage == r->grid.stages - 1 && !r->by_chunks)
        OK(tsr_stack_head_backward(r->stack, r->head_saved[batch], r->dlogits[batch], &dhidden));
    OK(tsr_stack_backward(r->stack, r->saved[batch], dhidden ? dhidden : dy,
                          r->stage == 0 ? NULL : dx));
    tsr_tensor_destroy(&dhidden);
    tsr_tensor_destroy(&r->dlogits[batch]);
    tsr_layer_saved_destroy(&r->head_saved[batch]);
    tsr_stack_saved_destroy(&r->saved[batch]);
    return TSR_OK;
}

static void pass(run *r)
{
    tsr_tensor *y = NULL, *dx = NULL;
    r->loss = 0;
    if (!r->pipeline) {
        for (int batch = 0; batch < r->micro_batches; batch++) {
            OK(forward(r, batch, NULL, &y));
            OK(backward(r, batch, NULL, &dx));
        }
    } else {
        OK(tsr_pipeline_run(
            r->pipeline,
            tsr_pipeline_run_params(.micro_batches = r->micro_batches, .dtype = TSR_F32, .ndim = 3,
                                    .shape = {BATCH / r->grid.data / r->micro_batches, BLOCK,
                                              WIDTH},
                                    .forward = forward, .backward = backward, .user = r)));
    }
    if (r->grid.data > 1) {
        tsr_tensor *sum = tensor_of(TSR_F32, 1, (int64_t[]){1}, &r->loss);
        OK(tsr_group_all_reduce(r->data, sum, TSR_OP_SUM, NULL, NULL));
        double *value = values_of(sum);
        r->loss = *value;
        free(value);
        tsr_tensor_destroy(&sum);
    }
}

static double recorded_at(const run *r, const char *list, int step)
{
    return json_number_value(json_array_get(json_object_get(r->recorded, list), (size_t)step));
}

static void check_relative(const char *what, int step, double got, double want, double tolerance)
{
    CHECK(fabs(got - want) <= tolerance * fabs(want), "step %d: %s is %.9g, not %.9g", step, what,
          got, want);
}

static double optimizer_number(const run *r, const char *key)
{
    return json_number_value(json_object_get(json_object_get(r->recorded, "optimizer"), key));
}

static void begin_training(run *r, const char *name, const char *base)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, FOLDER "%s_trajectory.json", name);
    r->recorded = json_load_file(path, 0, &error);
    CHECK(r->recorded, "%s: %s", path, error.text);
    r->text = read_text();
    r->micro_batches = r->grid.stages;
    make_grid(r);
    open_base(r, base);
    OK(tsr_lora_load(FOLDER "lora_init", tsr_lora_params(.stack = r->stack, .trainable = true),
                     &r->lora));
    if (r->grid.base_shards)
        OK(tsr_stack_shard(r->stack, tsr_fsdp_params(.group = r->data)));
    if (r->grid.shards)
        OK(tsr_lora_shard(r->lora, tsr_fsdp_params(.group = r->data, .reduction = TSR_OP_SUM)));
    OK(tsr_optimizer_create(
        tsr_optimizer_params(.stream = queue, .decay_matrices = true,
                             .adamw = tsr_adamw_params(.beta1 = (float)optimizer_number(r, "beta1"),
                                                       .beta2 = (float)optimizer_number(r, "beta2"),
                                                       .epsilon = 1e-8F,
                                                       .weight_decay =
                                                           (float)optimizer_number(r, "wd"))),
        &r->optimizer));
    OK(tsr_lora_add_to(r->lora, r->optimizer));
}

static void train(run *r, int steps)
{
    const double clip = optimizer_number(r, "clip");
    for (r->step = 0; r->step < steps; r->step++) {
        double norm = 0;
        pass(r);
        OK(tsr_optimizer_clip(r->optimizer, clip > 0 ? (float)clip : 1e30F,
                              tsr_optimizer_clip_params(.stages = stages_of(r)), &norm));
        if (r->stage == r->grid.stages - 1)
            check_relative("the loss", r->step, r->loss, recorded_at(r, "loss_f64", r->step), 1e-5);
        check_relative("the norm", r->step, norm, recorded_at(r, "grad_norm_f64", r->step), 1e-4);
        OK(tsr_optimizer_step(r->optimizer, (float)recorded_at(r, "lr_used", r->step)));
        OK(tsr_optimizer_zero_grad(r->optimizer));
    }
}

/* Files -------------------------------------------------------------------------------------- */

/* A folder for the files of a case, the same on all ranks. */
static const char *scratch(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tessera-lora-XXXXXX");
    CHECK(my_rank != 0 || mkdtemp(folder), "no folder");
    if (ranks > 1)
        OK(tsr_comm_broadcast(world, folder, sizeof folder, TSR_U8, 0, NULL));
    return folder;
}

static void remove_adapter(const char *folder, const char *name)
{
    char path[256];
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank != 0)
        return;
    snprintf(path, sizeof path, "%s/%s/adapter_config.json", folder, name);
    remove(path);
    snprintf(path, sizeof path, "%s/%s/adapter_model.safetensors", folder, name);
    remove(path);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
    rmdir(folder);
}

typedef struct tensors {
    tsr_shard_list *list;
    FILE *file;
} tensors;

static tensors open_tensors(const char *path)
{
    tensors t = {.file = fopen(path, "rb")};
    CHECK(t.file, "%s cannot be opened", path);
    OK(tsr_shard_list_open(path, &t.list));
    return t;
}

static float *read_tensor(const tensors *t, const char *name, int64_t *count)
{
    for (uint64_t i = 0; i < tsr_shard_list_param_count(t->list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(t->list, i);
        if (strcmp(p->name, name) != 0)
            continue;
        *count = p->shape[0] * p->shape[1];
        float *values = calloc((size_t)*count, sizeof *values);
        fseek(t->file, (long)p->offset_bytes, SEEK_SET);
        CHECK(values && fread(values, sizeof *values, (size_t)*count, t->file) == (size_t)*count,
              "%s cannot be read", name);
        return values;
    }
    CHECK(false, "there is no tensor %s", name);
    return NULL;
}

static void close_tensors(tensors *t)
{
    tsr_shard_list_destroy(&t->list);
    fclose(t->file);
}

/* Compares two files of tensors: each differs by at most `tolerance` of its norm. */
static void compare_tensors(const char *path, const char *wanted, double tolerance)
{
    tensors got = open_tensors(path), want = open_tensors(wanted);
    const uint64_t count = tsr_shard_list_param_count(want.list);
    CHECK(tsr_shard_list_param_count(got.list) == count, "%s has %d tensors, not %d", path,
          (int)tsr_shard_list_param_count(got.list), (int)count);
    for (uint64_t i = 0; i < count; i++) {
        const char *name = tsr_shard_list_param(want.list, i)->name;
        int64_t elements, others;
        float *a = read_tensor(&got, name, &others), *b = read_tensor(&want, name, &elements);
        double norm = 0, error = 0;
        CHECK(elements == others, "%s has another shape", name);
        for (int64_t e = 0; e < elements; e++) {
            norm += (double)b[e] * (double)b[e];
            error += ((double)a[e] - (double)b[e]) * ((double)a[e] - (double)b[e]);
        }
        CHECK(sqrt(error) <= tolerance * sqrt(norm), "%s differs by %g of its norm", name,
              sqrt(error / norm));
        free(a);
        free(b);
    }
    close_tensors(&got);
    close_tensors(&want);
}

static void check_final(run *r, const char *final)
{
    const char *folder = scratch();
    char path[256], wanted[512];
    snprintf(path, sizeof path, "%s/last", folder);
    OK(tsr_lora_save(r->lora, path, TSR_LORA_PEFT, stages_of(r)));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(path, sizeof path, "%s/last/adapter_model.safetensors", folder);
    snprintf(wanted, sizeof wanted, FOLDER "%s/adapter_model.safetensors", final);
    compare_tensors(path, wanted, 1e-3);
    remove_adapter(folder, "last");
}

static void follow(const char *name, const char *base, const char *final, int steps, grid g)
{
    if (!fits(&g))
        return;
    run r = {.grid = g};
    begin_training(&r, name, base);
    train(&r, steps);
    if (final)
        check_final(&r, final);
    finish(&r);
}

CASE(lora_golden, "lora: a recorded training")
{
    static const double rates[] = {3, 1, 1};
    const int steps = ranks == 1 ? 20 : 6;
    follow("lora", "lora_base", NULL, steps, (grid){1, 1, ranks, NULL, false, false, false});
    follow("lora", "lora_base", NULL, steps, (grid){1, 1, 3, rates, true, false, false});
    follow("lora", "lora_base", NULL, steps, (grid){2, 1, 1, NULL, true, false, false});
    follow("lora", "lora_base", NULL, steps, (grid){1, 2, 1, NULL, false, true, true});
    follow("lora", "lora_base", NULL, steps, (grid){1, 3, 1, NULL, false, true, true});
    follow("lora", "lora_base", NULL, steps, (grid){1, 2, 2, NULL, true, true, true});
    follow("lora", "lora_base", NULL, steps, (grid){2, 1, 2, NULL, false, false, false});
}

CASE(lora_golden_quantised, "lora: recorded trainings of quantised models")
{
    const int steps = ranks == 1 ? 20 : 5;
    const grid kept = {1, 1, ranks, NULL, false, false, false},
               again = {1, 1, ranks, NULL, true, false, false};
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", NULL, steps, kept);
    follow("qlora_q8_0", "qlora_base_q8_0/base.gguf", NULL, 5, again);
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", NULL, 3,
           (grid){1, ranks, 1, NULL, false, true, true});
}

CASE(lora_golden_all, "lora: recorded trainings, all steps")
{
    const grid one = {1, 1, ranks, NULL, false, false, false};
    if (!getenv("TEST_ALL_STEPS")) {
        case_skip("takes long; set TEST_ALL_STEPS to run it");
        return;
    }
    follow("lora", "lora_base", "lora_final", 100, one);
    follow("lora_clip", "lora_base", "lora_clip_final", 100, one);
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", "qlora_q4_0_final", 60, one);
    follow("qlora_q8_0", "qlora_base_q8_0/base.gguf", "qlora_q8_0_final", 60, one);
}

/* Files -------------------------------------------------------------------------------------- */

static run open_plain(const char *base)
{
    run r = {.grid = {1, 1, ranks, NULL, false, false, false}};
    make_grid(&r);
    open_base(&r, base);
    return r;
}

/* Computes the logits of the recorded prompt: [24, VOCABULARY]; free() them. */
enum { PROMPT = 24 };
static float *prompt_logits(run *r)
{
    double ids[PROMPT];
    json_t *list = json_object_get(json_object_get(r->recorded, "prompt"), "ids");
    for (size_t i = 0; i < PROMPT; i++)
        ids[i] = json_number_value(json_array_get(list, i));
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){1, PROMPT}, ids), *hidden = NULL,
               *logits = NULL;
    float *out = calloc(PROMPT * VOCABULARY, sizeof *out);
    CHECK(out, "no memory");
    OK(tsr_stack_forward(r->stack, x, NULL, NULL, &hidden));
    OK(tsr_stack_head_forward(r->stack, hidden, NULL, &logits));
    OK(tsr_stack_gather_logits(r->stack, logits, out));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&logits);
    return out;
}

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

static double largest_difference(const float *a, const float *b)
{
    double worst = 0;
    for (int i = 0; i < PROMPT * VOCABULARY; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

CASE(lora_merge, "lora: with an adapter, without it, and merged")
{
    static double recorded[PROMPT * VOCABULARY];
    static float want[PROMPT * VOCABULARY];
    run r = open_plain("lora_base");
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    CHECK(r.recorded, "%s", error.text);
    json_t *logits = json_object_get(json_object_get(r.recorded, "prompt"), "logits");
    read_doubles(json_string_value(json_object_get(logits, "b64")), recorded, PROMPT * VOCABULARY);
    for (int i = 0; i < PROMPT * VOCABULARY; i++)
        want[i] = (float)recorded[i];
    float *base = prompt_logits(&r);
    OK(tsr_lora_load(FOLDER "lora_final", tsr_lora_params(.stack = r.stack), &r.lora));
    float *adapted = prompt_logits(&r);
    CHECK(largest_difference(adapted, want) < 1e-4, "a logit differs by %g",
          largest_difference(adapted, want));
    CHECK(largest_difference(adapted, base) > 0.1, "the adapter changes nothing");
    tsr_lora_set_enabled(r.lora, false);
    float *off = prompt_logits(&r);
    CHECK(memcmp(off, base, PROMPT * VOCABULARY * sizeof *base) == 0,
          "an adapter that is off changes logits");
    FAILS(tsr_lora_merge(r.lora), TSR_ERR_INVALID, "lora: adapter 'default' is not enabled");
    tsr_lora_set_enabled(r.lora, true);
    OK(tsr_lora_merge(r.lora));
    float *merged = prompt_logits(&r);
    CHECK(largest_difference(merged, want) < 1e-4, "after merging, a logit differs by %g",
          largest_difference(merged, want));
    float *all[] = {base, adapted, off, merged};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    finish(&r);
}

/* Checks the names and the order of rows in a GGUF file against a PEFT file. */
static void check_gguf(const char *path)
{
    tensors gguf = open_tensors(path),
            peft = open_tensors(FOLDER "lora_final/adapter_model.safetensors");
    int64_t count, others;
    float *b = read_tensor(&gguf, "blk.1.attn_k.weight.lora_b", &count),
          *want = read_tensor(
              &peft, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight", &others);
    CHECK(count == 32 * 4 && others == count, "%d elements", (int)count);
    for (int row = 0; row < 32; row++) { /* llama.cpp has adjacent pairs: 16 rows for each head */
        const int place = row / 16 * 16 + row % 16 % 8 * 2 + row % 16 / 8;
        CHECK(memcmp(b + place * 4, want + row * 4, 4 * sizeof *b) == 0, "row %d", row);
    }
    free(b);
    free(want);
    b = read_tensor(&gguf, "blk.0.ffn_down.weight.lora_a", &count);
    want =
        read_tensor(&peft, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight", &others);
    CHECK(count == others && memcmp(b, want, (size_t)count * sizeof *b) == 0, "lora_a differs");
    free(b);
    free(want);
    close_tensors(&gguf);
    close_tensors(&peft);
}

CASE(lora_gguf, "lora: GGUF adapters are written and read as llama.cpp does")
{
    run r = open_plain("qlora_base_q8_0/base.gguf");
    const char *folder = scratch();
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
    compare_tensors(again, FOLDER "lora_final/adapter_model.safetensors", 0);
    if (my_rank == 0)
        remove(path);
    remove_adapter(folder, "again");
    FAILS(tsr_lora_merge(r.lora), TSR_ERR_UNSUPPORTED,
          "column_linear layers.0.attention: layers.0.attention.q.weight is q8_0; an "
          "adapter can be merged into floats only");
    finish(&r);
}

/* Mistakes ----------------------------------------------------------------------------------- */

/* A PEFT folder with one module, whose files a case may spoil. */
typedef struct spoilt {
    const char *config;          /* members of adapter_config.json, or NULL */
    const char *name_a, *name_b; /* NULL: the tensor is missing */
    int rows_a, columns_a, rows_b, columns_b;
} spoilt;

#define MODULE "base_model.model.model.layers.0.self_attn.q_proj.lora_"
static const spoilt correct = {
    "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"all-linear\"",
    MODULE "A.weight",
    MODULE "B.weight",
    2,
    64,
    64,
    2};

/* All values are 0, but value number `one` of B is 1, unless it is negative. */
static void write_spoilt_but(const spoilt *s, const char *folder, int one)
{
    char path[256];
    static float zeros[64 * 64], values[64 * 64];
    memset(values, 0, sizeof values);
    if (one >= 0)
        values[one] = 1;
    tsr_checkpoint_entry entries[2];
    int count = 0;
    const struct {
        const char *name;
        int rows, columns;
    } halves[] = {{s->name_a, s->rows_a, s->columns_a}, {s->name_b, s->rows_b, s->columns_b}};
    for (int i = 0; i < 2; i++)
        if (halves[i].name)
            entries[count++] =
                (tsr_checkpoint_entry){.struct_size = sizeof *entries,
                                       .name = halves[i].name,
                                       .dtype = TSR_F32,
                                       .ndim = 2,
                                       .shape = {halves[i].rows, halves[i].columns},
                                       .shard_dim = -1,
                                       .count = (uint64_t)(halves[i].rows * halves[i].columns),
                                       .data = i == 1 ? values : zeros};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    OK(tsr_checkpoint_save(path, NULL, NULL, count, entries, NULL));
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "wb");
    CHECK(file && fprintf(file, "{%s}", s->config) > 0, "%s cannot be written", path);
    fclose(file);
}

static void write_spoilt(const spoilt *s, const char *folder)
{
    write_spoilt_but(s, folder, -1);
}

CASE(lora_mistakes, "lora: mistakes are named, and nothing is attached")
{
    if (ranks > 1) {
        case_skip("one rank reads the same files");
        return;
    }
    run r = open_plain("lora_base");
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    const char *folder = scratch();
    float *base = prompt_logits(&r);
    tsr_lora_params params = TSR_INIT(tsr_lora_params);
    params.stack = r.stack;
#define REFUSED(status, text, ...)                                                                 \
    do {                                                                                           \
        spoilt s = correct;                                                                        \
        __VA_ARGS__;                                                                               \
        write_spoilt(&s, folder);                                                                  \
        FAILS(tsr_lora_load(folder, &params, &r.lora), status, text);                              \
    } while (0)
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: the file has " MODULE "A.weight, but not its other half, " MODULE "B.weight",
            s.name_b = NULL);
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: the file has " MODULE "B.weight, but not its other half, " MODULE "A.weight",
            s.name_a = NULL);
    REFUSED(TSR_ERR_INVALID, "lora: tensor " MODULE "A.weight is [2,32]; the model needs [2,64]",
            s.columns_a = 32);
    REFUSED(TSR_ERR_INVALID, "lora: tensor " MODULE "B.weight is [64,3]; the model needs [64,2]",
            s.columns_b = 3);
    REFUSED(TSR_ERR_INVALID,
            "lora: tensor " MODULE "A.weight has rank 3; adapter_config.json says 2", s.rows_a = 3;
            s.columns_b = 3);
    REFUSED(TSR_ERR_INVALID,
            "lora: the model has no weight for the adapter's tensor "
            "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight (2 layers of llama)",
            s.name_a = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight";
            s.name_b = "base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight");
#define LORA "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4"
    REFUSED(TSR_ERR_UNSUPPORTED,
            "adapter_config.json: modules_to_save is lm_head, which is not supported",
            s.config = LORA ", \"modules_to_save\": [\"lm_head\"]");
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: adapter_config.json says use_dora, but there is no tensor "
            "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
            s.config = LORA ", \"use_dora\": true");
    REFUSED(TSR_ERR_UNSUPPORTED, "adapter_config.json: bias is all, which is not supported",
            s.config = LORA ", \"bias\": \"all\"");
    REFUSED(TSR_ERR_UNSUPPORTED, "adapter_config.json: peft_type is 'IA3'; LORA is supported",
            s.config = "\"peft_type\": \"IA3\"");
    REFUSED(TSR_ERR_UNSUPPORTED,
            "adapter_config.json: rank_pattern has '.*q_proj'; only names of modules are "
            "supported, not regular expressions",
            s.config = LORA ", \"rank_pattern\": {\".*q_proj\": 3}");
    REFUSED(TSR_ERR_INVALID, "adapter_config.json: there is no lora_alpha",
            s.config = "\"peft_type\": \"LORA\", \"r\": 2");
    REFUSED(TSR_ERR_INVALID,
            "adapter_config.json: lora_alpha is 2e+30; a number above 0, at most 1e+30, is needed",
            s.config = "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2e30");
    REFUSED(TSR_ERR_INVALID, "adapter_config.json: alpha_pattern of 'q_proj' is 1e+31",
            s.config = LORA ", \"alpha_pattern\": {\"q_proj\": 1e31}");
#undef REFUSED
    params.alpha = 2e30;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: alpha is 2e+30; a number above 0, at most 1e+30, is needed");
    params.alpha = 0;
    params.rank = -1;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: rank is -1; 1 to 65536 are possible");
    params.rank = 0;
    params.dropout = 1;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: dropout is 1; 0 <= dropout < 1 is needed");
    params.dropout = 0;
    static const char *const lists[] = {"", "2", "1-0", "0-2", "0,", "0-", "x", "0 1", "-1"};
    params.targets = TSR_LORA_Q;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "lora: layers is '%s'; numbers from 0 to 1 and ranges of them, such as 0-3,7, are "
                 "needed",
                 lists[i]);
        params.layers = lists[i];
        FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID, text);
    }
    static const char *const good[] = {"1", "0,1", "0-1"};
    for (int i = 0; i < 3; i++) {
        tsr_lora_info info = TSR_INIT(tsr_lora_info);
        params.layers = good[i];
        OK(tsr_lora_create(&params, &r.lora));
        OK(tsr_lora_get_info(r.lora, &info));
        CHECK(info.parameters == (i == 0 ? 1 : 2) * 8 * (64 + 64), "layers %s: %d parameters",
              good[i], (int)info.parameters);
        tsr_lora_destroy(&r.lora);
    }
    params.layers = NULL;
    params.targets = 512;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: targets is 0x200; of these, 0x1ff are possible");
    float *after = prompt_logits(&r);
    CHECK(memcmp(after, base, PROMPT * VOCABULARY * sizeof *base) == 0,
          "an adapter that was refused changes logits");

    /* What the patterns say counts, and comes back. */
    spoilt s = correct;
    s.config = LORA ", \"use_rslora\": true, \"rank_pattern\": {\"self_attn.q_proj\": 3}, "
                    "\"alpha_pattern\": {\"q_proj\": 6}";
    s.rows_a = s.columns_b = 3;
    write_spoilt(&s, folder);
    params.targets = 0;
    OK(tsr_lora_load(folder, &params, &r.lora));
    OK(tsr_lora_save(r.lora, folder, TSR_LORA_PEFT, NULL));
    tsr_lora_destroy(&r.lora);
    OK(tsr_lora_load(folder, &params, &r.lora));
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    OK(tsr_lora_get_info(r.lora, &info));
    CHECK(info.rank == 2 && info.alpha == 4 && info.rank_stabilised && info.targets == TSR_LORA_Q &&
              info.parameters == 3 * 128,
          "rank %d, alpha %g, targets %u", info.rank, info.alpha, info.targets);
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    remove(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    remove(path);
    rmdir(folder);
    free(base);
    free(after);
    finish(&r);
}

CASE(lora_peft, "lora: PEFT folders are written as they were read")
{
    run r = open_plain("lora_base");
    const char *folder = scratch();
    char path[256];
    snprintf(path, sizeof path, "%s/again", folder);
    OK(tsr_lora_load(FOLDER "lora_final", tsr_lora_params(.stack = r.stack), &r.lora));
    OK(tsr_lora_save(r.lora, path, TSR_LORA_PEFT, NULL));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(path, sizeof path, "%s/again/adapter_model.safetensors", folder);
    compare_tensors(path, FOLDER "lora_final/adapter_model.safetensors", 0);
    remove_adapter(folder, "again");
    finish(&r);
}

/* One pass of a training with dropout: the loss, and the norm of the gradients. */
static void dropout_pass(run *r, double *loss, double *norm)
{
    pass(r);
    *loss = r->loss;
    OK(tsr_optimizer_clip(r->optimizer, 1e30F, NULL, norm));
    OK(tsr_optimizer_zero_grad(r->optimizer));
}

CASE(lora_dropout, "lora: dropout, and an adapter of the head, with and without recomputation")
{
    double losses[2][2], norms[2][2];
    for (int again = 0; again < 2; again++) {
        run r = {.grid = {1, 1, ranks, NULL, again == 1, false, false}, .micro_batches = 1};
        json_error_t error;
        r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
        r.text = read_text();
        make_grid(&r);
        open_base(&r, "lora_base");
        OK(tsr_lora_create(tsr_lora_params(.stack = r.stack, .trainable = true, .dropout = 0.5,
                                           .rank = 4, .seed = 7,
                                           .targets = TSR_LORA_Q | TSR_LORA_DOWN | TSR_LORA_HEAD),
                           &r.lora));
        OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &r.optimizer));
        OK(tsr_lora_add_to(r.lora, r.optimizer));
        for (int i = 0; i < 2; i++)
            dropout_pass(&r, &losses[again][i], &norms[again][i]);
        /* B is 0, so that masks change gradients only. */
        check_relative("the second loss", 0, losses[again][1], losses[again][0], 1e-6);
        CHECK(norms[again][0] > 0 &&
                  fabs(norms[again][1] - norms[again][0]) > 1e-3 * norms[again][0],
              "the norms are %g and %g: both passes have the same mask", norms[again][0],
              norms[again][1]);
        finish(&r);
    }
    for (int i = 0; i < 2; i++)
        check_relative("the norm with recomputation", i, norms[1][i], norms[0][i], 1e-5);
}

/* A part of a unit --------------------------------------------------------------------------------
 */

enum { HEAD_STEPS = 3, SOME = TSR_LORA_Q | TSR_LORA_DOWN | TSR_LORA_HEAD };

/* The losses and norms of a training of an adapter that the head has, too. A step has several
 * passes, and the head has passes of its own, which write the gradients of the head's matrices
 * only. */
static run begin_head(grid g, bool by_chunks, unsigned targets)
{
    run r = {.grid = g, .micro_batches = PASSES, .by_chunks = by_chunks};
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    r.text = read_text();
    make_grid(&r);
    open_base(&r, "lora_base");
    OK(tsr_lora_create(tsr_lora_params(.stack = r.stack, .trainable = true, .rank = 4, .seed = 7,
                                       .targets = targets),
                       &r.lora));
    if (g.shards)
        OK(tsr_lora_shard(r.lora, tsr_fsdp_params(.group = r.data, .reduction = TSR_OP_SUM)));
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .adamw = tsr_adamw_params()),
                            &r.optimizer));
    OK(tsr_lora_add_to(r.lora, r.optimizer));
    return r;
}

static void train_head(grid g, bool by_chunks, unsigned targets, double losses[], double norms[])
{
    run r = begin_head(g, by_chunks, targets);
    for (r.step = 0; r.step < HEAD_STEPS; r.step++) {
        pass(&r);
        losses[r.step] = r.loss;
        OK(tsr_optimizer_clip(r.optimizer, 1e30F,
                              tsr_optimizer_clip_params(.stages = stages_of(&r)), &norms[r.step]));
        OK(tsr_optimizer_step(r.optimizer, 1e-2F));
        OK(tsr_optimizer_zero_grad(r.optimizer));
    }
    finish(&r);
}

CASE(lora_head, "lora: an adapter of the head has the same gradients if it is sharded")
{
    const grid grids[] = {{1, ranks, 1, NULL, false, true, false},
                          {1, 1, ranks, NULL, false, true, true},
                          {ranks, 1, 1, NULL, false, true, false}};
    double losses[2][HEAD_STEPS], norms[2][HEAD_STEPS];
    train_head((grid){1, 1, ranks, NULL, false, false, false}, false, SOME, losses[0], norms[0]);
    for (size_t g = 0; g < (ranks == 1 ? 1 : sizeof grids / sizeof *grids); g++)
        for (int by_chunks = 0; by_chunks < 2; by_chunks++) {
            train_head(grids[g], by_chunks, SOME, losses[1], norms[1]);
            for (int i = 0; i < HEAD_STEPS; i++) {
                if (grids[g].stages == 1 || my_rank == ranks - 1)
                    check_relative("the loss", i, losses[1][i], losses[0][i], 1e-5);
                check_relative("the norm", i, norms[1][i], norms[0][i], 1e-4);
            }
        }
    if (ranks == 1)
        return;
    /* Stages without an adapter have nothing to divide. */
    train_head((grid){1, 1, ranks, NULL, false, false, false}, true, TSR_LORA_HEAD, losses[0],
               norms[0]);
    train_head((grid){ranks, 1, 1, NULL, false, true, false}, true, TSR_LORA_HEAD, losses[1],
               norms[1]);
    for (int i = 0; i < HEAD_STEPS; i++)
        check_relative("the norm of the head's adapter", i, norms[1][i], norms[0][i], 1e-4);
}

CASE(lora_head_fails, "lora: a pass whose gradients cannot be completed leaves none")
{
    if (ranks > 1) {
        case_skip("other ranks would wait");
        return;
    }
    run r = begin_head((grid){1, 1, 1, NULL, false, true, false}, true, SOME);
    tsr_fsdp *sharded = r.lora->adapter.sharded;
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    uint64_t nth = 0;
    for (bool failed = true; failed; nth += failed) {
        OK(tsr_fsdp_begin(sharded, 0, TSR_PASS_BACKWARD));
        OK(tsr_stream_wait(queue)); /* what follows needs new memory for commands */
        tsr__fault_arm(TSR__FAULT_VULKAN, nth, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
        const tsr_status status = tsr_fsdp_end(sharded, 0);
        failed = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        CHECK(status == (failed ? TSR_ERR_NO_MEMORY : TSR_OK), "call %d: %s", (int)nth,
              tsr_status_name(status));
        CHECK(!tsr_fsdp_parameter(sharded, 0, 0)->grad, "call %d: the unit is in use", (int)nth);
        OK(tsr_fsdp_get_shard(sharded, 0, &shard));
        CHECK(!shard.grad == failed, "call %d: %s gradient", (int)nth, failed ? "a" : "no");
    }
    CHECK(nth > 0, "nothing failed");
    double *grad = values_of(shard.grad);
    for (uint64_t i = 0; i < shard.range.count; i++)
        CHECK(grad[i] == 0, "element %d is %g", (int)i, grad[i]);
    free(grad);
    finish(&r);
}

/* Families ---------------------------------------------------------------------------------------
 */

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
        double *all = numbers((uint64_t)i, count_of(2, p->global_shape), TSR_F32),
               *mine = slice_of(all, 2, p->global_shape, p->shard_dim < 0 ? 0 : p->shard_dim,
                                p->offset, p->length);
        tensor_put(p->tensor, mine);
        free(all);
        free(mine);
    }
}

/* Saves an adapter of a model, loads it, and compares the logits. */
static void check_saved(const char *model_path, const char *what, tsr_lora_format format)
{
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_lora *lora = NULL;
    const char *folder = scratch();
    char path[128];
    OK(tsr_model_file_open(model_path, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group), &model));
    tsr_stack *stack = tsr_model_stack(model);
    float *base = family_logits(stack);
    OK(tsr_lora_create(tsr_lora_params(.stack = stack, .rank = 3, .alpha = 1), &lora));
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
    double worst = 0;
    for (int i = 0; i < FAMILY_LOGITS; i++)
        worst = fmax(worst, fabs((double)after[i] - (double)before[i]));
    CHECK(worst <= 1e-5, "%s: a logit of the adapter that was loaded differs by %g", what, worst);
    if (my_rank == 0 && format == TSR_LORA_GGUF)
        remove(path);
    remove_adapter(folder, "a");
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
    check_saved(made_write_hf(&made), family->type, format);
    made_finish(&made);
}

/* Adapters of delta nets, of which files have the rows in other orders, and of q in attention with
 * a gate. */
CASE(lora_delta_nets, "lora: adapters of delta nets and of attention with a gate")
{
    static const char base[] = TEST_DATA "/model/families/qwen35moe/hf",
                      module[] = "base_model.model.model.layers.3.self_attn.q_proj.lora_";
    check_saved(TEST_DATA "/model/families/qwen3next/hf", "qwen3next", TSR_LORA_PEFT);
    check_saved(base, "qwen35moe", TSR_LORA_PEFT);
    if (ranks > 1)
        return;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_lora *lora = NULL;
    const char *folder = scratch();
    char path[256], text[320], a[128], b[128];
    snprintf(a, sizeof a, "%sA.weight", module);
    snprintf(b, sizeof b, "%sB.weight", module);
    OK(tsr_model_file_open(base, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group), &model));
    tsr_lora_params params = *tsr_lora_params(.stack = tsr_model_stack(model));
    const spoilt gated = {"\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, "
                          "\"target_modules\": [\"q_proj\"]",
                          a,
                          b,
                          2,
                          64,
                          192,
                          2};
    write_spoilt_but(&gated, folder, 32 * 2 + 1); /* row 32 is the first of the first head's gate */
    snprintf(text, sizeof text,
             "lora: tensor %sB.weight changes the gate of attention, row 32; that is not supported",
             module);
    FAILS(tsr_lora_load(folder, &params, &lora), TSR_ERR_UNSUPPORTED, text);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    remove(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    remove(path);
    params.rank = 1;
    OK(tsr_lora_create(&params, &lora));
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    FAILS(
        tsr_lora_save(lora, path, TSR_LORA_GGUF, NULL), TSR_ERR_UNSUPPORTED,
        "lora: tensor blk.0.attn_qkv.weight.lora_a: GGUF adapters of delta nets are not supported");
    tsr_lora_destroy(&lora);
    remove(path);
    rmdir(folder);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

CASE(lora_families, "lora: adapters of models of all families")
{
    for (int f = 0; f < made_family_count; f++)
        check_family(&made_families[f], f % 2 ? TSR_LORA_GGUF : TSR_LORA_PEFT);
}

/* Memory -----------------------------------------------------------------------------------------
 */

CASE(lora_allocations, "lora: every allocation of creating and loading fails in turn")
{
    if (ranks > 1) {
        case_skip("other ranks would wait");
        return;
    }
    run r = open_plain("lora_base");
    watch_full_batches(true);
    for (int load = 0; load < 2; load++)
        for (uint64_t nth = 0;; nth++) {
            const tsr_lora_params params = {
                .struct_size = sizeof params, .stack = r.stack, .targets = load ? 0 : TSR_LORA_Q};
            went_on = false;
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            const tsr_status status = load ? tsr_lora_load(FOLDER "lora_final", &params, &r.lora)
                                           : tsr_lora_create(&params, &r.lora);
            const bool reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            tsr_lora_destroy(&r.lora);
            CHECK(!r.stack->adapters, "allocation %d: an adapter is attached", (int)nth);
            if (!reached) {
                OK(status);
                CHECK(nth > 10, "only %d allocations", (int)nth);
                break;
            }
            CHECK((status == TSR_ERR_NO_MEMORY) == !went_on, "allocation %d: %s", (int)nth,
                  tsr_status_name(status));
        }
    watch_full_batches(false);
    finish(&r);
}

CASE(lora_own_stack, "lora: a stack of a training whose frozen layers are sharded and then loaded")
{
    run r = {.grid = {1, ranks == 4 ? 1 : ranks, ranks == 4 ? 4 : 1, NULL, false, true, true},
             .micro_batches = 1};
    json_error_t error;
    tsr_model_file *file = NULL;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    r.text = read_text();
    make_grid(&r);
    OK(tsr_model_file_open(FOLDER "lora_base", &file));
    OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = r.tensor),
                        &r.stack));
    OK(tsr_lora_load(FOLDER "lora_init", tsr_lora_params(.stack = r.stack, .trainable = true),
                     &r.lora));
    OK(tsr_stack_shard(r.stack, tsr_fsdp_params(.group = r.data)));
    OK(tsr_stack_load(r.stack, file));
    OK(tsr_lora_shard(r.lora, tsr_fsdp_params(.group = r.data, .reduction = TSR_OP_SUM)));
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .adamw = tsr_adamw_params()),
                            &r.optimizer));
    OK(tsr_stack_add_to(r.stack, r.optimizer)); /* adds nothing */
    OK(tsr_lora_add_to(r.lora, r.optimizer));
    train(&r, 3);
    tsr_model_file_close(&file);
    tsr_optimizer_destroy(&r.optimizer);
    tsr_lora_destroy(&r.lora);
    tsr_stack_destroy(&r.stack);
    finish(&r);
}
