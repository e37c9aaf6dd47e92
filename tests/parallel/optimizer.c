/* Optimizers compared with the same steps on the host; their files with and without sharded
 * parameters; and their errors. */
#include "parallel/fsdp_case.h"

#include <unistd.h>

#include "base/fault.h"
#include "parallel/optimizer/optimizer.h"

#define IN 6
#define HIDDEN 8
#define OUT 5
#define ROWS 4
#define OWN 7 /* elements of a tensor that belongs to no layer */

/* The parameters that are trained: an MLP whose hidden size is divided over all ranks, and a
 * tensor. */
typedef struct subject {
    tsr_layer *mlp;
    tsr_tensor *own, *own_grad;
} subject;

static subject subject_new(tsr_dtype dtype)
{
    subject s = {0};
    OK(tsr_mlp_create(
        tsr_mlp_params(.group = group, .name = "mlp", .input_size = IN, .hidden_size = HIDDEN,
                       .output_size = OUT, .dtype = dtype, .activation = TSR_ACT_GELU_TANH,
                       .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                       .bias = true),
        &s.mlp));
    double *values = numbers(3, OWN, dtype);
    s.own = tensor_of(dtype, 1, (int64_t[]){OWN}, values);
    s.own_grad = tensor_new(TSR_F32, 1, (int64_t[]){OWN});
    OK(tsr_fill(queue, s.own_grad, 0));
    free(values);
    return s;
}

static void subject_finish(subject *s)
{
    tsr_layer_destroy(&s->mlp);
    tsr_tensor_destroy(&s->own);
    tsr_tensor_destroy(&s->own_grad);
}

/* Runs a pass that adds gradients, which are the same on all ranks. */
static void subject_pass(subject *s, int step)
{
    double *x_values = numbers(10 + (uint64_t)step, ROWS * IN, TSR_F32);
    double *dy_values = numbers(20 + (uint64_t)step, ROWS * OUT, TSR_F32);
    double *own_values = numbers(30 + (uint64_t)step, OWN, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){ROWS, IN}, x_values), *y = NULL;
    tsr_tensor *dy = tensor_of(TSR_F32, 2, (int64_t[]){ROWS, OUT}, dy_values);
    tsr_tensor *grad = tensor_of(TSR_F32, 1, (int64_t[]){OWN}, own_values);
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(s->mlp, x, &saved, &y));
    OK(tsr_axpy(queue, dy, 0.5f, y));
    OK(tsr_layer_backward(s->mlp, saved, dy, NULL));
    OK(tsr_binary(queue, s->own_grad, s->own_grad, grad, TSR_BINARY_ADD));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&grad);
    free(x_values);
    free(dy_values);
    free(own_values);
}

static float rate(int step)
{
    return 0.01f / (float)(step + 1);
}

static tsr_optimizer_params params_of(tsr_optimizer_kind kind, bool momentum, bool in_place)
{
    static const tsr_adamw_params adamw = {
        .struct_size = sizeof adamw, .epsilon = 1e-3f, .weight_decay = 0.01f};
    static const tsr_sgd_params plain = {.struct_size = sizeof plain, .weight_decay = 0.01f};
    static const tsr_sgd_params nesterov = {
        .struct_size = sizeof nesterov, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true};
    return *tsr_optimizer_params(.stream = queue, .kind = kind, .adamw = &adamw,
                                 .sgd = momentum ? &nesterov : &plain, .in_place = in_place);
}

static tsr_optimizer *optimizer_of(const tsr_optimizer_params *params, const subject *s)
{
    tsr_optimizer *optimizer = NULL;
    OK(tsr_optimizer_create(params, &optimizer));
    OK(tsr_optimizer_add_layer(optimizer, s->mlp));
    OK(tsr_optimizer_add_parameter(
        optimizer, tsr_parameter(.name = "own", .tensor = s->own, .grad = s->own_grad)));
    return optimizer;
}

static void train(tsr_optimizer *optimizer, subject *s, int first, int end)
{
    for (int i = first; i < end; i++) {
        subject_pass(s, i);
        OK(tsr_optimizer_step(optimizer, rate(i)));
        OK(tsr_optimizer_zero_grad(optimizer));
    }
}

/* Steps on the host -------------------------------------------------------------------------- */

enum { PARAMETERS = 5 }; /* 4 of the MLP, and the tensor */

typedef struct by_hand {
    tsr_tensor *moment1[PARAMETERS], *moment2[PARAMETERS], *master[PARAMETERS];
} by_hand;

static tsr_tensor *state_like(const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    tsr_tensor *state = tensor_new(TSR_F32, layout->ndim, layout->shape);
    OK(tsr_fill(queue, state, 0));
    return state;
}

static tsr_tensor *tensor_at(const subject *s, int i)
{
    return i < PARAMETERS - 1 ? tsr_layer_parameter(s->mlp, i)->tensor : s->own;
}

static void by_hand_make(const subject *s, const tsr_optimizer_params *params, by_hand *h)
{
    *h = (by_hand){0};
    for (int i = 0; i < PARAMETERS; i++) {
        tsr_tensor *tensor = tensor_at(s, i);
        if (params->kind == TSR_OPTIMIZER_ADAMW || params->sgd->momentum > 0)
            h->moment1[i] = state_like(tensor);
        if (params->kind == TSR_OPTIMIZER_ADAMW)
            h->moment2[i] = state_like(tensor);
        if (tsr_tensor_layout(tensor)->dtype != TSR_F32 && !params->in_place) {
            h->master[i] = state_like(tensor);
            OK(tsr_copy(queue, h->master[i], tensor));
        }
    }
}

static void by_hand_finish(by_hand *h)
{
    for (int i = 0; i < PARAMETERS; i++) {
        tsr_tensor_destroy(&h->moment1[i]);
        tsr_tensor_destroy(&h->moment2[i]);
        tsr_tensor_destroy(&h->master[i]);
    }
}

static void by_hand_train(subject *s, const tsr_optimizer_params *params, by_hand *h, int steps)
{
    for (int step = 0; step < steps; step++) {
        subject_pass(s, step);
        for (int i = 0; i < PARAMETERS; i++) {
            tsr_tensor *grad =
                i < PARAMETERS - 1 ? tsr_layer_parameter(s->mlp, i)->grad : s->own_grad;
            tsr_adamw_params adamw = *params->adamw;
            tsr_sgd_params sgd = *params->sgd;
            adamw.learning_rate = sgd.learning_rate = rate(step);
            adamw.step = step + 1;
            sgd.first_step = step == 0 && sgd.momentum > 0;
            if (params->kind == TSR_OPTIMIZER_ADAMW)
                OK(tsr_adamw_step(queue, tensor_at(s, i), grad, h->moment1[i], h->moment2[i],
                                  h->master[i], &adamw));
            else
                OK(tsr_sgd_step(queue, tensor_at(s, i), grad, h->moment1[i], h->master[i], &sgd));
        }
        tsr_layer_zero_grad(s->mlp);
        OK(tsr_fill(queue, s->own_grad, 0));
    }
}

static void check_same(const char *what, int parameter, const tsr_tensor *got,
                       const tsr_tensor *want)
{
    CHECK(!got == !want, "parameter %d: %s is %s", parameter, what, got ? "there" : "missing");
    if (!got)
        return;
    uint64_t size, want_size;
    uint8_t *bytes = bytes_of(got, &size), *want_bytes = bytes_of(want, &want_size);
    CHECK(size == want_size && memcmp(bytes, want_bytes, size) == 0,
          "parameter %d: %s has other bits than by hand", parameter, what);
    free(bytes);
    free(want_bytes);
}

static void compare_with_hand(const tsr_optimizer_params *params, tsr_dtype dtype)
{
    subject mine = subject_new(dtype), other = subject_new(dtype);
    tsr_optimizer *optimizer = optimizer_of(params, &mine);
    by_hand h;
    CHECK(optimizer->item_count == PARAMETERS, "%zu parameters", optimizer->item_count);
    by_hand_make(&other, params, &h);
    train(optimizer, &mine, 0, 4);
    by_hand_train(&other, params, &h, 4);
    CHECK(tsr_optimizer_steps(optimizer) == 4, "%lld steps",
          (long long)tsr_optimizer_steps(optimizer));
    for (int i = 0; i < PARAMETERS; i++) {
        const tsr__optimizer_item *item = &optimizer->items[i];
        check_same("the parameter", i, tensor_at(&mine, i), tensor_at(&other, i));
        check_same("moment1", i, item->moment1, h.moment1[i]);
        check_same("moment2", i, item->moment2, h.moment2[i]);
        check_same("the master copy", i, item->master, h.master[i]);
    }
    by_hand_finish(&h);
    tsr_optimizer_destroy(&optimizer);
    CHECK(!optimizer, "the optimizer is not NULL");
    subject_finish(&mine);
    subject_finish(&other);
}

CASE(like_by_hand, "optimizer: AdamW and SGD have the bits of steps by hand, for every dtype")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    for (int d = 0; d < 3; d++) {
        const tsr_optimizer_params kinds[] = {
            params_of(TSR_OPTIMIZER_ADAMW, false, false),
            params_of(TSR_OPTIMIZER_SGD, true, false),
            params_of(TSR_OPTIMIZER_SGD, false, false),
            params_of(TSR_OPTIMIZER_ADAMW, false, true),
        };
        for (int k = 0; k < (dtypes[d] == TSR_F32 ? 3 : 4); k++)
            compare_with_hand(&kinds[k], dtypes[d]);
    }
}

CASE(without_gradient, "optimizer: a layer's parameter without a gradient stays as it is")
{
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
    subject s = subject_new(TSR_F32);
    tsr_optimizer *optimizer = optimizer_of(&params, &s);
    uint64_t size;
    uint8_t *before = bytes_of(tensor_at(&s, 0), &size);
    OK(tsr_optimizer_step(optimizer, 0.1f)); /* before the first backward pass */
    subject_pass(&s, 0);
    OK(tsr_optimizer_zero_grad(optimizer));
    OK(tsr_optimizer_step(optimizer, 0.1f)); /* after zero_grad */
    uint8_t *after = bytes_of(tensor_at(&s, 0), &size);
    CHECK(memcmp(before, after, size) == 0, "the weight has changed");
    CHECK(tsr_optimizer_steps(optimizer) == 2, "%lld steps",
          (long long)tsr_optimizer_steps(optimizer));
    free(before);
    free(after);
    tsr_optimizer_destroy(&optimizer);
    subject_finish(&s);
}

CASE(changed_values, "optimizer: master copies follow values that the program writes")
{
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
    subject s = subject_new(TSR_F16);
    tsr_optimizer *optimizer = optimizer_of(&params, &s);
    OK(tsr_fill(queue, s.own, 0.25));
    OK(tsr_optimizer_changed(optimizer));
    double *master = values_of(optimizer->items[PARAMETERS - 1].master);
    for (int i = 0; i < OWN; i++)
        CHECK(master[i] == 0.25, "element %d is %g", i, master[i]);
    free(master);
    tsr_optimizer_destroy(&optimizer);
    subject_finish(&s);
}

/* Files -------------------------------------------------------------------------------------- */

CASE(resumed_optimizer,
     "optimizer: training resumed from a file has the bits of uninterrupted training")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_BF16};
    for (int d = 0; d < 2; d++) {
        const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
        char path[SHARED_PATH];
        shared_path(world, "resumed-optimizer", path);
        subject s = subject_new(dtypes[d]), other = subject_new(dtypes[d]);
        tsr_optimizer *optimizer = optimizer_of(&params, &s);
        train(optimizer, &s, 0, 2);
        OK(tsr_optimizer_save(optimizer, path, NULL));
        train(optimizer, &s, 2, 4);
        tsr_optimizer *resumed = optimizer_of(&params, &other);
        train(resumed, &other, 5, 6); /* loading must overwrite this state */
        subject_pass(&other, 9);
        OK(tsr_optimizer_load(resumed, path, NULL));
        CHECK(tsr_optimizer_steps(resumed) == 2, "%lld steps",
              (long long)tsr_optimizer_steps(resumed));
        train(resumed, &other, 2, 4);
        for (int i = 0; i < PARAMETERS; i++)
            check_same("the parameter", i, tensor_at(&other, i), tensor_at(&s, i));
        tsr_optimizer_destroy(&optimizer);
        tsr_optimizer_destroy(&resumed);
        subject_finish(&s);
        subject_finish(&other);
        if (world)
            OK(tsr_comm_barrier(world, NULL));
        if (my_rank == 0)
            unlink(path);
    }
}

CASE(model_only_optimizer, "optimizer: a file of parameters starts fresh state")
{
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_SGD, true, false);
    char path[SHARED_PATH], want[256];
    shared_path(world, "model-optimizer", path);
    subject s = subject_new(TSR_F16);
    tsr_optimizer *optimizer = optimizer_of(&params, &s);
    OK(tsr_optimizer_save(optimizer, path, tsr_optimizer_file_params(.model_only = true)));
    train(optimizer, &s, 0, 1);
    OK(tsr_optimizer_load(optimizer, path, tsr_optimizer_file_params(.model_only = true)));
    CHECK(tsr_optimizer_steps(optimizer) == 0, "%lld steps",
          (long long)tsr_optimizer_steps(optimizer));
    double *velocity = values_of(optimizer->items[0].moment1);
    CHECK(velocity[0] == 0, "the velocity is %g", velocity[0]);
    free(velocity);
    snprintf(want, sizeof want,
             "optimizer_load: %scheckpoint_metadata: %s: there is no 'tessera.steps'",
             my_rank > 0 ? "rank 0: " : "", path);
    FAILS(tsr_optimizer_load(optimizer, path, NULL), TSR_ERR_NOT_FOUND, want);
    tsr_optimizer_destroy(&optimizer);
    subject_finish(&s);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

/* Every rank has a layer in full, and an FSDP model of all ranks has the same layer. */
CASE(file_of_both, "optimizer: the file is the same with and without sharded parameters")
{
    char path[SHARED_PATH];
    shared_path(world, "both", path);
    tsr_group *alone = NULL;
    tsr_layer *layer = NULL, *deferred = NULL;
    tsr_fsdp *sharded = NULL;
    tsr_optimizer *optimizer = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    tsr_linear_params params = {.struct_size = sizeof params,
                                .group = alone,
                                .name = "linear",
                                .input_size = IN,
                                .output_size = OUT,
                                .dtype = TSR_F16,
                                .output = TSR_LAYOUT_FULL,
                                .bias = true};
    OK(tsr_column_linear_create(&params, &layer));
    params.deferred = true;
    OK(tsr_column_linear_create(&params, &deferred));
    OK(tsr_fsdp_create(
        tsr_fsdp_params(.group = group, .unit_count = 1, .units = tsr_fsdp_unit(.layer = deferred)),
        &sharded));
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    OK(tsr_optimizer_add_layer(optimizer, layer));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){ROWS, IN}), *y = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_fill(queue, x, 0.5));
    OK(tsr_layer_forward(layer, x, &saved, &y));
    OK(tsr_layer_backward(layer, saved, y, NULL));
    OK(tsr_optimizer_step(optimizer, 0.01f));

    uint64_t size, want_size;
    OK(tsr_optimizer_save(optimizer, path, tsr_optimizer_file_params(.world = world)));
    uint8_t *want = file_bytes(path, &want_size);
    OK(fsdp_load(sharded, path, NULL));
    CHECK(fsdp_steps(sharded) == 1, "%lld steps", (long long)fsdp_steps(sharded));
    OK(fsdp_save(sharded, path, NULL));
    uint8_t *got = file_bytes(path, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "another file");
    free(got);
    OK(tsr_optimizer_step(optimizer, 1));
    OK(tsr_optimizer_load(optimizer, path, tsr_optimizer_file_params(.world = world)));
    OK(tsr_optimizer_save(optimizer, path, tsr_optimizer_file_params(.world = world)));
    got = file_bytes(path, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "another file after loading");
    free(got);
    free(want);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_optimizer_destroy(&optimizer);
    tsr_fsdp_destroy(&sharded);
    tsr_layer_destroy(&layer);
    tsr_layer_destroy(&deferred);
    tsr_group_destroy(&alone);
}

/* Failures ----------------------------------------------------------------------------------- */

/* Checks an error whose text starts with `start`. The operations themselves refuse wrong
 * numbers; the text has the optimizer's name instead of theirs. */
static void refused(tsr_status status, const char *start)
{
    CHECK(status == TSR_ERR_INVALID, "%s gave %s", start, tsr_status_name(status));
    CHECK(strncmp(tsr_last_error(), start, strlen(start)) == 0, "%s said %s", start,
          tsr_last_error());
}

CASE(optimizer_mistakes, "optimizer: mistakes are errors that name the values")
{
    tsr_optimizer *optimizer = NULL;
    FAILS(tsr_optimizer_create(NULL, &optimizer), TSR_ERR_INVALID,
          "optimizer_create: params is NULL");
    FAILS(tsr_optimizer_create(tsr_optimizer_params(.stream = NULL), &optimizer), TSR_ERR_INVALID,
          "optimizer_create: stream is NULL");
    FAILS(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = (tsr_optimizer_kind)3),
                               &optimizer),
          TSR_ERR_INVALID, "optimizer_create: unknown kind 3");
    refused(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = TSR_OPTIMIZER_SGD,
                                                      .sgd = tsr_sgd_params(.nesterov = true)),
                                 &optimizer),
            "optimizer_create: nesterov");
    CHECK(!optimizer, "there is an optimizer");

    subject s = subject_new(TSR_F32);
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
    optimizer = optimizer_of(&params, &s);
    FAILS(tsr_optimizer_add_layer(optimizer, NULL), TSR_ERR_INVALID,
          "optimizer_add_layer: layer is NULL");
    FAILS(tsr_optimizer_add_layer(optimizer, s.mlp), TSR_ERR_INVALID,
          "optimizer_add_layer: mlp mlp has been added before");
    tsr_layer *deferred = NULL;
    OK(tsr_column_linear_create(tsr_linear_params(.group = group, .name = "later", .input_size = 3,
                                                  .output_size = ranks, .deferred = true,
                                                  .bias = true),
                                &deferred));
    FAILS(tsr_optimizer_add_layer(optimizer, deferred), TSR_ERR_INVALID,
          "optimizer_add_layer: 'later.weight' has no memory");
    tsr_layer_destroy(&deferred);
    tsr_tensor *indices = tensor_new(TSR_I32, 1, (int64_t[]){OWN});
    FAILS(tsr_optimizer_add_parameter(
              optimizer, tsr_parameter(.name = "i", .tensor = indices, .grad = s.own_grad)),
          TSR_ERR_INVALID, "optimizer_add_parameter: 'i' is i32; f32, f16 or bf16 is needed");
    tsr_tensor_destroy(&indices);
    tsr_tensor *grad = tensor_new(TSR_F32, 1, (int64_t[]){OWN + 1});
    FAILS(tsr_optimizer_add_parameter(optimizer,
                                      tsr_parameter(.name = "o", .tensor = s.own, .grad = grad)),
          TSR_ERR_INVALID, "optimizer_add_parameter: 'o' is [7], its gradient [8]");
    tsr_tensor_destroy(&grad);
    FAILS(tsr_optimizer_add_parameter(optimizer, &(tsr_parameter){.name = "o"}), TSR_ERR_INVALID,
          "tsr_parameter: struct_size is 0; use TSR_INIT(tsr_parameter)");
    FAILS(tsr_optimizer_add_parameter(optimizer, NULL), TSR_ERR_INVALID,
          "optimizer_add_parameter: parameter is NULL");
    FAILS(
        tsr_optimizer_add_parameter(optimizer, tsr_parameter(.tensor = s.own, .grad = s.own_grad)),
        TSR_ERR_INVALID, "optimizer_add_parameter: the parameter has no name");
    FAILS(tsr_optimizer_add_parameter(optimizer, tsr_parameter(.name = "o", .grad = s.own_grad)),
          TSR_ERR_INVALID, "optimizer_add_parameter: 'o' has no memory");
    FAILS(tsr_optimizer_add_parameter(optimizer, tsr_parameter(.name = "o", .tensor = s.own)),
          TSR_ERR_INVALID, "optimizer_add_parameter: 'o' has no gradient");
    FAILS(tsr_optimizer_add_parameter(optimizer, tsr_parameter(.name = "o", .tensor = s.own,
                                                               .grad = s.own_grad, .dtype = TSR_F32,
                                                               .ndim = 1, .global_shape = {20},
                                                               .shard_dim = 0, .length = 6)),
          TSR_ERR_INVALID, "optimizer_add_parameter: 'o': a tensor [7] is not this part of [20]");
    CHECK(optimizer->item_count == PARAMETERS, "%zu parameters", optimizer->item_count);
    refused(tsr_optimizer_step(optimizer, -1), "optimizer_step: learning_rate is -1");
    FAILS(tsr_optimizer_step(NULL, 1), TSR_ERR_INVALID, "optimizer_step: optimizer is NULL");
    CHECK(tsr_optimizer_steps(optimizer) == 0, "a step was counted");

    model m;
    model_make(&(model_case){.sharded = {.optimizer = TSR_OPTIMIZER_SGD}}, &m);
    FAILS(tsr_optimizer_add_fsdp(optimizer, m.sharded), TSR_ERR_INVALID,
          "optimizer_add_fsdp: the optimizer is AdamW, the model was created for SGD");
    model_finish(&m);
    model_make(&(model_case){.sharded = {.optimizer = TSR_OPTIMIZER_SGD, .plain_sgd = true}}, &m);
    FAILS(fsdp_sgd_step(m.sharded, tsr_sgd_params(.momentum = 0.5f)), TSR_ERR_INVALID,
          "optimizer_add_fsdp: momentum is 0.5, but the model was created with plain_sgd");
    OK(fsdp_sgd_step(m.sharded, tsr_sgd_params()));
    model_finish(&m);
    model_make(&(model_case){0}, &m);
    OK(tsr_optimizer_add_fsdp(optimizer, m.sharded));
    FAILS(tsr_optimizer_add_fsdp(optimizer, m.sharded), TSR_ERR_INVALID,
          "optimizer_add_fsdp: the model has been added before");
    OK(fsdp_adamw_step(m.sharded, tsr_adamw_params(.learning_rate = 0)));
    FAILS(tsr_optimizer_save(optimizer, "/tmp/none", NULL), TSR_ERR_INVALID,
          my_rank > 0 ? "optimizer_save: rank 0: an FSDP model has done 1 steps, the optimizer 0"
                      : "optimizer_save: an FSDP model has done 1 steps, the optimizer 0");
    tsr_optimizer_destroy(&optimizer);
    tsr_optimizer_destroy(&optimizer);
    tsr_optimizer_destroy(NULL);
    model_finish(&m);
    subject_finish(&s);
}

/* An optimizer that makes no steps loads what another one has saved, in a sharded and in a whole
 * model, and saves it again. */
CASE(no_steps, "optimizer: the kind NONE loads and saves, and refuses steps")
{
    char path[SHARED_PATH];
    shared_path(world, "no-steps", path);
    model m;
    model_make(&(model_case){.dtype = TSR_BF16}, &m);
    model_step(&m, 0, my_rank, ranks);
    OK(fsdp_save(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    uint64_t size, want_size;
    uint8_t *want = file_bytes(path, &want_size);
    model_finish(&m);
    if (world)
        OK(tsr_comm_barrier(world, NULL));

    model_make(&(model_case){.dtype = TSR_BF16, .sharded = {.optimizer = TSR_OPTIMIZER_NONE}}, &m);
    OK(fsdp_load(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    OK(fsdp_save(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    uint8_t *got = file_bytes(path, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "another file");
    free(got);
    free(want);

    tsr_optimizer *optimizer = NULL;
    tsr_tensor *own = tensor_new(TSR_F16, 1, (int64_t[]){OWN});
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = TSR_OPTIMIZER_NONE),
                            &optimizer));
    OK(tsr_optimizer_add_fsdp(optimizer, m.sharded));
    OK(tsr_fill(queue, own, 3));
    OK(tsr_optimizer_add_parameter(optimizer, tsr_parameter(.name = "own", .tensor = own)));
    OK(tsr_optimizer_save(optimizer, path, NULL));
    OK(tsr_fill(queue, own, 0));
    OK(tsr_optimizer_load(optimizer, path, NULL));
    double *values = values_of(own);
    CHECK(values[0] == 3, "%g was loaded", values[0]);
    free(values);
    FAILS(tsr_optimizer_step(optimizer, 1), TSR_ERR_INVALID,
          "optimizer_step: the optimizer's kind is TSR_OPTIMIZER_NONE");
    FAILS(tsr_optimizer_clip(optimizer, 1, NULL, NULL), TSR_ERR_INVALID,
          "optimizer_clip: the optimizer's kind is TSR_OPTIMIZER_NONE");
    tsr_optimizer_destroy(&optimizer);
    tsr_tensor_destroy(&own);
    model_finish(&m);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

/* Runs a step in which the step of parameter `failing` fails, and then repeats the call. */
static void step_in_two_calls(int failing, uint8_t *bytes[PARAMETERS], uint64_t sizes[PARAMETERS])
{
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
    subject s = subject_new(TSR_F16);
    tsr_optimizer *optimizer = optimizer_of(&params, &s);
    subject_pass(&s, 0);
    adamw_steps = 0;
    adamw_failing_step = failing;
    tsr_status status = tsr_optimizer_step(optimizer, 0.01f);
    adamw_failing_step = -1;
    CHECK(status == (failing < 0 ? TSR_OK : TSR_ERR_NO_MEMORY), "%s", tsr_status_name(status));
    CHECK(tsr_optimizer_steps(optimizer) == (failing < 0), "a step that failed was counted");
    if (failing >= 0)
        OK(tsr_optimizer_step(optimizer, 0.01f));
    CHECK(tsr_optimizer_steps(optimizer) == 1, "%lld steps",
          (long long)tsr_optimizer_steps(optimizer));
    for (int i = 0; i < PARAMETERS; i++)
        bytes[i] = bytes_of(tensor_at(&s, i), &sizes[i]);
    tsr_optimizer_destroy(&optimizer);
    subject_finish(&s);
}

CASE(halfway, "optimizer: a step that failed halfway is finished by the next call")
{
    uint8_t *want[PARAMETERS], *got[PARAMETERS];
    uint64_t want_sizes[PARAMETERS], sizes[PARAMETERS];
    step_in_two_calls(-1, want, want_sizes);
    for (int failing = 0; failing < PARAMETERS; failing++) {
        step_in_two_calls(failing, got, sizes);
        for (int i = 0; i < PARAMETERS; i++) {
            CHECK(sizes[i] == want_sizes[i] && memcmp(got[i], want[i], sizes[i]) == 0,
                  "step %d failed: parameter %d has other bits", failing, i);
            free(got[i]);
        }
    }
    for (int i = 0; i < PARAMETERS; i++)
        free(want[i]);
}

static tsr_status everything_once(subject *s, const char *path)
{
    const tsr_optimizer_params params = params_of(TSR_OPTIMIZER_ADAMW, false, false);
    tsr_optimizer *optimizer = NULL;
    tsr_status status = tsr_optimizer_create(&params, &optimizer);
    if (status == TSR_OK) {
        status = tsr_optimizer_add_layer(optimizer, s->mlp);
        const size_t count = optimizer->item_count;
        CHECK(count == (status == TSR_OK ? PARAMETERS - 1 : 0), "%zu parameters", count);
    }
    if (status == TSR_OK)
        status = tsr_optimizer_add_parameter(
            optimizer, tsr_parameter(.name = "own", .tensor = s->own, .grad = s->own_grad));
    if (status == TSR_OK)
        status = tsr_optimizer_clip(optimizer, 1, NULL, NULL);
    if (status == TSR_OK)
        status = tsr_optimizer_step(optimizer, 0.01f);
    if (status == TSR_OK)
        status = tsr_optimizer_zero_grad(optimizer);
    if (status == TSR_OK)
        status = tsr_optimizer_save(optimizer, path, NULL);
    if (status == TSR_OK)
        status = tsr_optimizer_load(optimizer, path, NULL);
    if (status == TSR_OK)
        status = tsr_stream_wait(queue);
    tsr_optimizer_destroy(&optimizer);
    return status;
}

CASE(optimizer_allocations, "optimizer: every allocation fails in turn, without leaks")
{
    if (ranks > 1) {
        case_skip("one rank is enough");
        return;
    }
    char path[SHARED_PATH];
    shared_path(world, "allocations-optimizer", path);
    subject s = subject_new(TSR_F16);
    subject_pass(&s, 0);
    OK(everything_once(&s, path));
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = everything_once(&s, path);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        CHECK((status == TSR_ERR_NO_MEMORY) == reached, "allocation %llu: %s: %s",
              (unsigned long long)nth, tsr_status_name(status), tsr_last_error());
    }
    CHECK(nth > 50, "only %llu allocations", (unsigned long long)nth);
    unlink(path);
    subject_finish(&s);
}
