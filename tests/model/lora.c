/* Adapters (lora.h): recorded trainings of PyTorch, on any grid of stages, data and tensor ranks;
 * files; mistakes. */
#include "tessera/lora.h"

#include <jansson.h>
#include <unistd.h>

#include "parallel/spmd.h"

#define FOLDER TEST_DATA "/training/lora/"

enum { BATCH = 6, BLOCK = 48, VOCABULARY = 65, WIDTH = 64, TRAIN = 1003854 };

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
    tsr_stack_saved *saved[2];
    tsr_layer_saved *head_saved[2];
    tsr_tensor *dlogits[2];
    double loss;
} run;

/* Grids -------------------------------------------------------------------------------------- */

static bool fits(const grid *g)
{
    return g->stages * g->data * g->tensor == ranks;
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
            json_integer_value(json_array_get(offsets, (size_t)(first + i / BLOCK))) + i % BLOCK;
        in[i] = number[(uint8_t)r->text[at]];
        out[i] = number[(uint8_t)r->text[at + 1]];
    }
    *x = tensor_of(TSR_I32, 2, (int64_t[]){rows, BLOCK}, in);
    *labels = tensor_of(TSR_I32, 1, (int64_t[]){(int64_t)rows * BLOCK}, out);
}

/* A step ------------------------------------------------------------------------------------- */

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
    tsr_tensor *dhidden = NULL;
    if (r->stage == r->grid.stages - 1)
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
        OK(forward(r, 0, NULL, &y));
        OK(backward(r, 0, NULL, &dx));
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
    const int steps = ranks == 1 ? 20 : 8;
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
    follow("qlora_q8_0", "qlora_base_q8_0/base.gguf", NULL, steps, again);
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
