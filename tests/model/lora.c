/* Trainings of adapters (lora.h): those of PyTorch, on any grid of stages, data and tensor ranks;
 * dropout; adapters of the head. Their files: lora_files.c; adapters of experts: lora_experts.c; of
 * single sequences: lora_sequences.c. */
#include "model/lora/lora.h"

#include "base/fault.h"
#include "model/lora_run.h"
#include "parallel/spmd.h"

enum { BATCH = 6, BLOCK = 48, WIDTH = 64, TRAIN = 1003854 };

static bool fits(const lora_grid *g)
{
    return g->stages * g->data * g->tensor == ranks && BATCH % (g->data * g->stages) == 0;
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
static void windows(const lora_run *r, int micro_batch, tsr_tensor **x, tsr_tensor **labels)
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

static void head_loss(lora_run *r, int batch, const tsr_tensor *hidden, tsr_tensor *flat_labels)
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
    lora_run *r = user;
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
    lora_run *r = user;
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

static void pass(lora_run *r)
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

static double recorded_at(const lora_run *r, const char *list, int step)
{
    return json_number_value(json_array_get(json_object_get(r->recorded, list), (size_t)step));
}

static void check_relative(const char *what, int step, double got, double want, double tolerance)
{
    CHECK(fabs(got - want) <= tolerance * fabs(want), "step %d: %s is %.9g, not %.9g", step, what,
          got, want);
}

static double optimizer_number(const lora_run *r, const char *key)
{
    return json_number_value(json_object_get(json_object_get(r->recorded, "optimizer"), key));
}

static void begin_training(lora_run *r, const char *name, const char *base)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, FOLDER "%s_trajectory.json", name);
    r->recorded = json_load_file(path, 0, &error);
    CHECK(r->recorded, "%s: %s", path, error.text);
    r->text = read_text();
    r->micro_batches = r->grid.stages;
    lora_make_grid(r);
    lora_open_base(r, base);
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

static void train(lora_run *r, int steps)
{
    const double clip = optimizer_number(r, "clip");
    for (r->step = 0; r->step < steps; r->step++) {
        double norm = 0;
        pass(r);
        OK(tsr_optimizer_clip(r->optimizer, clip > 0 ? (float)clip : 1e30F,
                              tsr_optimizer_clip_params(.stages = lora_stages_of(r)), &norm));
        if (r->stage == r->grid.stages - 1)
            check_relative("the loss", r->step, r->loss, recorded_at(r, "loss_f64", r->step), 1e-5);
        check_relative("the norm", r->step, norm, recorded_at(r, "grad_norm_f64", r->step), 1e-4);
        OK(tsr_optimizer_step(r->optimizer, (float)recorded_at(r, "lr_used", r->step)));
        OK(tsr_optimizer_zero_grad(r->optimizer));
    }
}

/* Recorded trainings --------------------------------------------------------------------------- */

static void check_final(lora_run *r, const char *final)
{
    const char *folder = lora_scratch();
    char path[256], wanted[512];
    snprintf(path, sizeof path, "%s/last", folder);
    OK(tsr_lora_save(r->lora, path, TSR_LORA_PEFT, lora_stages_of(r)));
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(path, sizeof path, "%s/last/adapter_model.safetensors", folder);
    snprintf(wanted, sizeof wanted, FOLDER "%s/adapter_model.safetensors", final);
    lora_compare_tensors(path, wanted, 1e-3);
    lora_remove_adapter(folder, "last");
}

static void follow(const char *name, const char *base, const char *final, int steps, lora_grid g)
{
    if (!fits(&g))
        return;
    lora_run r = {.grid = g};
    begin_training(&r, name, base);
    train(&r, steps);
    if (final)
        check_final(&r, final);
    lora_finish(&r);
}

CASE(lora_golden, "lora: a recorded training")
{
    static const double rates[] = {3, 1, 1};
    const int steps = 6;
    follow("lora", "lora_base", NULL, steps, (lora_grid){1, 1, ranks, NULL, false, false, false});
    follow("lora", "lora_base", NULL, steps, (lora_grid){1, 1, 3, rates, true, false, false});
    follow("lora", "lora_base", NULL, steps, (lora_grid){2, 1, 1, NULL, true, false, false});
    follow("lora", "lora_base", NULL, steps, (lora_grid){1, 2, 1, NULL, false, true, true});
    follow("lora", "lora_base", NULL, steps, (lora_grid){1, 3, 1, NULL, false, true, true});
    follow("lora", "lora_base", NULL, steps, (lora_grid){1, 2, 2, NULL, true, true, true});
    follow("lora", "lora_base", NULL, steps, (lora_grid){2, 1, 2, NULL, false, false, false});
}

CASE(lora_golden_quantised, "lora: recorded trainings of quantised models")
{
    const int steps = 5;
    const lora_grid kept = {1, 1, ranks, NULL, false, false, false},
                    again = {1, 1, ranks, NULL, true, false, false};
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", NULL, steps, kept);
    follow("qlora_q8_0", "qlora_base_q8_0/base.gguf", NULL, 5, again);
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", NULL, 3,
           (lora_grid){1, ranks, 1, NULL, false, true, true});
}

CASE(lora_golden_all, "lora: recorded trainings, all steps")
{
    const lora_grid one = {1, 1, ranks, NULL, false, false, false};
    if (!getenv("TEST_ALL_STEPS")) {
        case_skip("takes long; set TEST_ALL_STEPS to run it");
        return;
    }
    follow("lora", "lora_base", "lora_final", 100, one);
    follow("lora_clip", "lora_base", "lora_clip_final", 100, one);
    follow("qlora_q4_0", "qlora_base_q4_0/base.gguf", "qlora_q4_0_final", 60, one);
    follow("qlora_q8_0", "qlora_base_q8_0/base.gguf", "qlora_q8_0_final", 60, one);
}

/* Other trainings ------------------------------------------------------------------------------ */

/* One pass of a training with dropout: the loss, and the norm of the gradients. */
static void dropout_pass(lora_run *r, double *loss, double *norm)
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
        lora_run r = {.grid = {1, 1, ranks, NULL, again == 1, false, false}, .micro_batches = 1};
        json_error_t error;
        r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
        r.text = read_text();
        lora_make_grid(&r);
        lora_open_base(&r, "lora_base");
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
        lora_finish(&r);
    }
    for (int i = 0; i < 2; i++)
        check_relative("the norm with recomputation", i, norms[1][i], norms[0][i], 1e-5);
}

/* A part of a unit --------------------------------------------------------------------------------
 */

enum { HEAD_STEPS = 2, SOME = TSR_LORA_Q | TSR_LORA_DOWN | TSR_LORA_HEAD };

/* The losses and norms of a training of an adapter that the head has, too. A step has several
 * passes, and the head has passes of its own, which write the gradients of the head's matrices
 * only. */
static lora_run begin_head(lora_grid g, bool by_chunks, unsigned targets)
{
    lora_run r = {.grid = g, .micro_batches = PASSES, .by_chunks = by_chunks};
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    r.text = read_text();
    lora_make_grid(&r);
    lora_open_base(&r, "lora_base");
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

static void train_head(lora_grid g, bool by_chunks, unsigned targets, double losses[],
                       double norms[])
{
    lora_run r = begin_head(g, by_chunks, targets);
    for (r.step = 0; r.step < HEAD_STEPS; r.step++) {
        pass(&r);
        losses[r.step] = r.loss;
        OK(tsr_optimizer_clip(r.optimizer, 1e30F,
                              tsr_optimizer_clip_params(.stages = lora_stages_of(&r)),
                              &norms[r.step]));
        OK(tsr_optimizer_step(r.optimizer, 1e-2F));
        OK(tsr_optimizer_zero_grad(r.optimizer));
    }
    lora_finish(&r);
}

CASE(lora_head, "lora: an adapter of the head has the same gradients if it is sharded")
{
    const lora_grid grids[] = {{1, ranks, 1, NULL, false, true, false},
                               {1, 1, ranks, NULL, false, true, true},
                               {ranks, 1, 1, NULL, false, true, false}};
    double losses[2][HEAD_STEPS], norms[2][HEAD_STEPS];
    train_head((lora_grid){1, 1, ranks, NULL, false, false, false}, false, SOME, losses[0],
               norms[0]);
    for (int g = 0; g < (ranks == 1 ? 2 : 3); g++) {
        train_head(grids[g], g != 1, SOME, losses[1], norms[1]);
        for (int i = 0; i < HEAD_STEPS; i++) {
            if (grids[g].stages == 1 || my_rank == ranks - 1)
                check_relative("the loss", i, losses[1][i], losses[0][i], 1e-5);
            check_relative("the norm", i, norms[1][i], norms[0][i], 1e-4);
        }
    }
    if (ranks == 1)
        return;
    /* Stages without an adapter have nothing to divide. */
    train_head((lora_grid){1, 1, ranks, NULL, false, false, false}, true, TSR_LORA_HEAD, losses[0],
               norms[0]);
    train_head((lora_grid){ranks, 1, 1, NULL, false, true, false}, true, TSR_LORA_HEAD, losses[1],
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
    lora_run r = begin_head((lora_grid){1, 1, 1, NULL, false, true, false}, true, SOME);
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
    lora_finish(&r);
}

CASE(lora_own_stack, "lora: a stack of a training whose frozen layers are sharded and then loaded")
{
    lora_run r = {.grid = {1, ranks == 4 ? 1 : ranks, ranks == 4 ? 4 : 1, NULL, false, true, true},
                  .micro_batches = 1};
    json_error_t error;
    tsr_model_file *file = NULL;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    r.text = read_text();
    lora_make_grid(&r);
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
    lora_finish(&r);
}
