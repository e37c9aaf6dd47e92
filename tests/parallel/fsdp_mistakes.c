/* Sharded parameters: errors, and that the model stays usable after them. */
#include "parallel/fsdp_case.h"

#include <unistd.h>

#include "base/fault.h"
#include "parallel/fsdp/fsdp.h"

CASE(refused, "fsdp: mistakes are errors on all ranks that name the values")
{
    tsr_fsdp *m = NULL;
    tsr_parameter p[2] = {{.struct_size = sizeof(tsr_parameter),
                           .name = "a",
                           .dtype = TSR_F32,
                           .ndim = 1,
                           .global_shape = {8},
                           .shard_dim = -1},
                          {.struct_size = sizeof(tsr_parameter),
                           .name = "a",
                           .dtype = TSR_F32,
                           .ndim = 1,
                           .global_shape = {8},
                           .shard_dim = -1}};
    tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = 2, .parameters = p};
    tsr_fsdp_params params = {
        .struct_size = sizeof params, .group = group, .unit_count = 1, .units = &unit};
#define REFUSED(text)                                                                              \
    do {                                                                                           \
        char want_[512];                                                                           \
        snprintf(want_, sizeof want_, "fsdp_create: %s%s", my_rank > 0 ? "rank 0: " : "", text);   \
        FAILS(tsr_fsdp_create(&params, &m), TSR_ERR_INVALID, want_);                               \
        params = (tsr_fsdp_params){.struct_size = sizeof(tsr_fsdp_params),                         \
                                   .group = group,                                                 \
                                   .unit_count = 1,                                                \
                                   .units = &unit};                                                \
    } while (0)
    params.unit_count = 0;
    REFUSED("there are no units");
    params.optimizer = (tsr_optimizer_kind)9;
    REFUSED("unknown optimizer 9");
    params.reduction = TSR_OP_MAX;
    REFUSED("reduction 4 is neither TSR_OP_SUM nor TSR_OP_AVG");
    params.grad_dtype = TSR_I32;
    REFUSED("grad_dtype is i32; f32, f16 or bf16 is needed");
    params.ahead = 8;
    REFUSED("ahead is 8; -1 to 7 are allowed");
    params.replicas = 2;
    REFUSED("replicas is 2; 0 and 1 are allowed");
    REFUSED("shard: parameters 0 and 1 are both 'a'");
    unit.parameter_count = 0;
    REFUSED("the units have 0 parameters; 1 to 1048576 are allowed");
    unit.parameter_count = 1;
    p[0].dtype = TSR_I32;
    REFUSED("'a' is i32; f32, f16 or bf16 is needed");
    p[0].dtype = TSR_F32;
    tsr_tensor *wrong = tensor_new(TSR_F32, 1, (int64_t[]){9});
    p[0].tensor = wrong;
    REFUSED("'a' is f32 [8], its tensor f32 [9]");
    tsr_tensor_destroy(&wrong);
    p[0].tensor = NULL;
    p[0].struct_size = 0;
    REFUSED("unit 0: tsr_parameter: struct_size is 0; use TSR_INIT(tsr_parameter)");
    p[0].struct_size = sizeof *p;
    unit.struct_size = 0;
    REFUSED("tsr_fsdp_unit: struct_size is 0; use TSR_INIT(tsr_fsdp_unit)");
    unit.struct_size = sizeof unit;

    OK(tsr_fsdp_create(&params, &m));
    tsr_fsdp_shard shard = {0};
    tsr_fsdp_memory memory = {0};
    FAILS(tsr_fsdp_get_shard(m, 0, &shard), TSR_ERR_INVALID,
          "tsr_fsdp_shard: struct_size is 0; use TSR_INIT(tsr_fsdp_shard)");
    FAILS(tsr_fsdp_get_memory(m, &memory), TSR_ERR_INVALID,
          "tsr_fsdp_memory: struct_size is 0; use TSR_INIT(tsr_fsdp_memory)");
    FAILS(tsr_fsdp_begin(m, 1, TSR_PASS_FORWARD), TSR_ERR_INVALID,
          "fsdp_begin: unit 1 is outside 1 units");
    FAILS(tsr_fsdp_end(m, 0), TSR_ERR_INVALID, "fsdp_end: unit 0 is not in use");
    FAILS(tsr_fsdp_forward(m, 0, NULL, NULL, NULL), TSR_ERR_INVALID,
          "fsdp_forward: unit 0 is not a layer");
    OK(tsr_fsdp_begin(m, 0, TSR_PASS_FORWARD));
    FAILS(tsr_fsdp_begin(m, 0, TSR_PASS_FORWARD), TSR_ERR_INVALID, "fsdp_begin: unit 0 is in use");
    FAILS(fsdp_adamw_step(m, tsr_adamw_params()), TSR_ERR_INVALID,
          "optimizer_step: unit 0 is in use");
    OK(tsr_fsdp_end(m, 0));
    CHECK(!tsr_fsdp_parameter(NULL, 0, 0) && !tsr_fsdp_parameter(m, 1, 0) &&
              !tsr_fsdp_parameter(m, -1, 0) && !tsr_fsdp_parameter(m, 0, 1) &&
              !tsr_fsdp_parameter(m, 0, -1),
          "a parameter that does not exist");
    tsr_fsdp_destroy(&m);

    params.optimizer = TSR_OPTIMIZER_NONE;
    OK(tsr_fsdp_create(&params, &m));
    OK(tsr_fsdp_begin(m, 0, TSR_PASS_BACKWARD));
    CHECK(!tsr_fsdp_parameter(m, 0, 0)->grad, "a gradient without an optimizer");
    OK(tsr_fsdp_end(m, 0));
    tsr_fsdp_destroy(&m);
    tsr_fsdp_destroy(&m);
#undef REFUSED
}

CASE(other_plans, "fsdp: different plans are an error")
{
    if (ranks == 1) {
        case_skip("needs two ranks");
        return;
    }
    tsr_parameter p = {.struct_size = sizeof p,
                       .name = "a",
                       .dtype = TSR_F32,
                       .ndim = 1,
                       .global_shape = {8 + my_rank},
                       .shard_dim = -1};
    tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = 1, .parameters = &p};
    tsr_fsdp *m = NULL;
    FAILS(tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = 1, .units = &unit), &m),
          TSR_ERR_INVALID,
          my_rank == 1 ? "fsdp_create: the plan is not the same as on rank 0"
                       : "fsdp_create: rank 1: the plan is not the same as on rank 0");
    CHECK(!m, "no model was created");
}

/* A rank is lost after the ranks have met for one of an optimizer's two models: neither makes the
 * step. If one rank has met for both, both make it. */
static void meet_in_two_models(const tsr_fsdp_params *params, tsr_fsdp **first)
{
    const tsr_adamw_params adamw = *tsr_adamw_params(.learning_rate = 0.1F);
    const tsr__fsdp_step how = {.adamw = &adamw, .scale = {.value = 1}};
    tsr_fsdp *two[2] = {*first, NULL};
    OK(tsr_fsdp_create(params, &two[1]));
    for (int complete = 0; complete < 2; complete++) {
        for (int i = 0; i < 2; i++)
            OK(tsr__fsdp_prepare(two[i], &how));
        for (int i = 0; i <= complete; i++)
            OK(tsr__fsdp_meet(two[i]));
        for (int i = 0; i < 2 && complete && my_rank == 0; i++)
            tsr__fsdp_have_met(two[i]);
        for (int i = 0; i < 2; i++) {
            OK(tsr_fsdp_rebuild(params, &two[i]));
            CHECK(two[i]->steps == complete, "model %d has made %d steps", i, (int)two[i]->steps);
        }
    }
    tsr_fsdp_destroy(&two[1]);
    *first = two[0];
}

CASE(rebuilding_mistakes, "fsdp: mistakes in rebuilding are errors that leave the model as it is")
{
    tsr_fsdp *m = NULL;
    if (ranks == 1) {
        case_skip("one rank has no copies");
        return;
    }
    const tsr_parameter p[2] = {{.struct_size = sizeof(tsr_parameter),
                                 .name = "a",
                                 .dtype = TSR_F32,
                                 .ndim = 1,
                                 .global_shape = {8},
                                 .shard_dim = -1},
                                {.struct_size = sizeof(tsr_parameter),
                                 .name = "b",
                                 .dtype = TSR_F32,
                                 .ndim = 1,
                                 .global_shape = {9},
                                 .shard_dim = -1}};
    const tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = 2, .parameters = p};
    tsr_fsdp_params params = {.struct_size = sizeof params,
                              .group = group,
                              .unit_count = 1,
                              .units = &unit,
                              .replicas = 1};
    FAILS(tsr_fsdp_rebuild(NULL, &m), TSR_ERR_INVALID, "fsdp_rebuild: params is NULL");
    FAILS(tsr_fsdp_rebuild(&params, NULL), TSR_ERR_INVALID, "fsdp_rebuild: model is NULL");
    FAILS(tsr_fsdp_rebuild(&params, &m), TSR_ERR_INVALID,
          "fsdp_rebuild: no rank has a model; load a checkpoint");
    OK(tsr_fsdp_create(&params, &m));
    tsr_fsdp_memory memory = TSR_INIT(tsr_fsdp_memory);
    OK(tsr_fsdp_get_memory(m, &memory));
    /* Each element has a value, a gradient and two moments; all ranks together have one copy of
     * each. */
    int64_t copied = (int64_t)memory.replica_bytes;
    OK(tsr_comm_all_reduce(tsr_group_comm(group), &copied, &copied, 1, TSR_I64, TSR_OP_SUM, NULL));
    CHECK(copied == INT64_C(17) * 16, "copies have %lld bytes", (long long)copied);
#define REFUSED(text)                                                                              \
    do {                                                                                           \
        char want_[512];                                                                           \
        snprintf(want_, sizeof want_, "fsdp_rebuild: %s%s", my_rank > 0 ? "rank 0: " : "", text);  \
        tsr_fsdp *before = m;                                                                      \
        FAILS(tsr_fsdp_rebuild(&params, &m), TSR_ERR_INVALID, want_);                              \
        CHECK(m == before, "the model has been replaced");                                         \
        params.units = &unit;                                                                      \
        params.optimizer = TSR_OPTIMIZER_ADAMW;                                                    \
    } while (0)
    params.units = &(tsr_fsdp_unit){
        .struct_size = sizeof(tsr_fsdp_unit), .parameter_count = 1, .parameters = p};
    REFUSED("the units have 1 parameters, the model has 2");
    params.units =
        &(tsr_fsdp_unit){.struct_size = sizeof(tsr_fsdp_unit),
                         .parameter_count = 2,
                         .parameters = (tsr_parameter[]){p[0],
                                                         {.struct_size = sizeof(tsr_parameter),
                                                          .name = "c",
                                                          .dtype = TSR_F32,
                                                          .ndim = 1,
                                                          .global_shape = {9},
                                                          .shard_dim = -1}}};
    REFUSED("parameter 1 is 'c', f32 of 9 elements; the model has 'b', f32 of 9");
    params.optimizer = TSR_OPTIMIZER_SGD;
    REFUSED("optimizer, plain_sgd or in_place is not that of the model");
    OK(tsr_fsdp_rebuild(&params, &m));
    meet_in_two_models(&params, &m);
    tsr_fsdp_destroy(&m);

    params.replicas = my_rank == 1;
    FAILS(tsr_fsdp_create(&params, &m), TSR_ERR_INVALID,
          my_rank == 1 ? "fsdp_create: replicas is not the same as on rank 0"
                       : "fsdp_create: rank 1: replicas is not the same as on rank 0");
#undef REFUSED
}

CASE(other_kinds, "fsdp: different model_only when saving or loading is an error")
{
    if (ranks == 1) {
        case_skip("needs two ranks");
        return;
    }
    model m;
    uint64_t size, size_after;
    char path[SHARED_PATH];
    const tsr_optimizer_file_params mine = {.struct_size = sizeof mine, .model_only = my_rank == 1};
    shared_path(world, "kinds", path);
    model_make(&(model_case){.sharded = {.group = group}}, &m);
    model_step(&m, 0, my_rank, ranks);
    OK(fsdp_save(m.sharded, path, NULL));
    model_step(&m, 1, my_rank, ranks);
    uint8_t *before = model_bytes(&m, &size);
#define WORDS(op)                                                                                  \
    my_rank == 1 ? "optimizer_" op ": model_only is true, not the same as on rank 0"               \
                 : "optimizer_" op ": rank 1: model_only is true, not the same as on rank 0"
    FAILS(fsdp_load(m.sharded, path, &mine), TSR_ERR_INVALID, WORDS("load"));
    FAILS(fsdp_save(m.sharded, path, &mine), TSR_ERR_INVALID, WORDS("save"));
#undef WORDS
    uint8_t *after = model_bytes(&m, &size_after);
    CHECK(size == size_after && memcmp(before, after, size) == 0, "the model has changed");
    free(before);
    free(after);
    OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
    model_finish(&m);
}

CASE(no_slot, "fsdp: using more units than fit in memory is an error")
{
    if (ranks == 1) {
        case_skip("one rank gathers nothing");
        return;
    }
    model m;
    model_make(&(model_case){.sharded = {.ahead = -1}}, &m);
    OK(tsr_fsdp_begin(m.sharded, 1, TSR_PASS_FORWARD));
    FAILS(tsr_fsdp_begin(m.sharded, 0, TSR_PASS_FORWARD), TSR_ERR_INVALID,
          "fsdp_begin: 1 units are in use; there is no memory for another one");
    OK(tsr_fsdp_end(m.sharded, 1));
    OK(tsr_fsdp_begin(m.sharded, 0, TSR_PASS_FORWARD));
    OK(tsr_fsdp_end(m.sharded, 0));
    model_finish(&m);
}

/* Calls that are refused while units are in use ---------------------------------------------- */

/* Checks that element 0 of this rank's shard of a gradient is `want`; 0: there is no gradient. */
static void check_grad(tsr_fsdp *m, uint64_t param, double want)
{
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    OK(tsr_fsdp_get_shard(m, param, &shard));
    if (shard.range.count == 0)
        return;
    CHECK(!shard.grad == (want == 0), "parameter %d: a gradient where there is one", (int)param);
    if (!shard.grad)
        return;
    double *got = values_of(shard.grad);
    CHECK(got[0] == want, "parameter %d: the gradient is %g, not %g", (int)param, got[0], want);
    free(got);
}

/* Creates a model of the caller's two parameters a and b. Each is a unit, or both are one unit. */
static void caller_model(int unit_count, const char *const *gather, tsr_fsdp **out)
{
    static const tsr_parameter p[2] = {{.struct_size = sizeof(tsr_parameter),
                                        .name = "a",
                                        .dtype = TSR_F32,
                                        .ndim = 2,
                                        .global_shape = {16, 4},
                                        .shard_dim = -1},
                                       {.struct_size = sizeof(tsr_parameter),
                                        .name = "b",
                                        .dtype = TSR_F32,
                                        .ndim = 2,
                                        .global_shape = {16, 4},
                                        .shard_dim = -1}};
    const int each = 2 / unit_count;
    const tsr_fsdp_unit units[2] = {*tsr_fsdp_unit(.parameter_count = each, .parameters = &p[0]),
                                    *tsr_fsdp_unit(.parameter_count = each, .parameters = &p[1])};
    OK(tsr_fsdp_create(
        tsr_fsdp_params(.group = group, .unit_count = unit_count, .units = units, .gather = gather),
        out));
}

static void begin_backward(tsr_fsdp *m, int unit, double grad)
{
    OK(tsr_fsdp_begin(m, unit, TSR_PASS_BACKWARD));
    for (int i = 0; tsr_fsdp_parameter(m, unit, i); i++)
        OK(tsr_fill(queue, tsr_fsdp_parameter(m, unit, i)->grad, grad));
}

static void look_while_in_use(const char *const *gather)
{
    tsr_fsdp *m = NULL;
    caller_model(2, gather, &m);
    for (int pass = 1; pass <= 2; pass++) {
        begin_backward(m, 1, 2);
        check_grad(m, 0, 3 * (pass - 1));
        check_grad(m, 1, 2 * (pass - 1));
        OK(tsr_fsdp_end(m, 1));
        begin_backward(m, 0, 3);
        check_grad(m, 1, 2 * pass);
        check_grad(m, 0, 3 * (pass - 1));
        OK(tsr_fsdp_end(m, 0));
        /* tsr_fsdp_get_shard waits for the gradients of the last pass, even while units are in
         * use. */
        OK(tsr_fsdp_begin(m, 0, TSR_PASS_FORWARD));
        check_grad(m, 0, 3 * pass);
        OK(tsr_fsdp_end(m, 0));
    }
    begin_backward(m, 0, 1);
    FAILS(fsdp_zero_grad(m), TSR_ERR_INVALID, "optimizer_zero_grad: unit 0 is in use");
    FAILS(tsr_fsdp_changed(m), TSR_ERR_INVALID, "fsdp_changed: unit 0 is in use");
    FAILS(fsdp_adamw_step(m, tsr_adamw_params(.learning_rate = 1)), TSR_ERR_INVALID,
          "optimizer_step: unit 0 is in use");
    OK(tsr_fsdp_end(m, 0));
    check_grad(m, 0, 7);
    tsr_fsdp_destroy(&m);
}

CASE(in_use, "fsdp: reading shards while units are in use changes nothing")
{
    look_while_in_use(NULL);
    look_while_in_use(everything);
}

/* Steps with wrong numbers ------------------------------------------------------------------- */

static void wrong_sgd(tsr_fsdp *m)
{
    FAILS(fsdp_sgd_step(m, tsr_sgd_params(.learning_rate = -1)), TSR_ERR_INVALID,
          "optimizer_step: learning_rate is -1; it must be finite and at least 0");
    FAILS(fsdp_sgd_step(m, tsr_sgd_params(.nesterov = true)), TSR_ERR_INVALID,
          "optimizer_create: nesterov needs momentum > 0 and dampening 0; they are 0 and 0");
}

static void wrong_adamw(tsr_fsdp *m)
{
    FAILS(fsdp_adamw_step(m, tsr_adamw_params(.learning_rate = INFINITY)), TSR_ERR_INVALID,
          "optimizer_step: learning_rate is inf; it must be finite and at least 0");
    FAILS(fsdp_adamw_step(m, tsr_adamw_params(.beta2 = 1)), TSR_ERR_INVALID,
          "optimizer_create: beta2 is 1; 0 <= beta2 < 1 is needed");
}

/* Checks that wrong numbers are refused without a gradient, and with a gradient that has elements
 * only on rank 0. */
static void refuse_numbers(tsr_optimizer_kind optimizer, void (*wrong)(tsr_fsdp *m))
{
    tsr_parameter p = {.struct_size = sizeof p,
                       .name = "a",
                       .dtype = TSR_F32,
                       .ndim = 1,
                       .global_shape = {1},
                       .shard_dim = -1};
    tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = 1, .parameters = &p};
    tsr_fsdp_params params = {.struct_size = sizeof params,
                              .group = group,
                              .unit_count = 1,
                              .units = &unit,
                              .optimizer = optimizer};
    tsr_fsdp *m = NULL;
    OK(tsr_fsdp_create(&params, &m));
    wrong(m);
    begin_backward(m, 0, 1);
    OK(tsr_fsdp_end(m, 0));
    wrong(m);
    CHECK(fsdp_steps(m) == 0, "%lld steps", (long long)fsdp_steps(m));
    check_grad(m, 0, 1);
    OK(optimizer == TSR_OPTIMIZER_SGD ? fsdp_sgd_step(m, tsr_sgd_params())
                                      : fsdp_adamw_step(m, tsr_adamw_params()));
    CHECK(fsdp_steps(m) == 1, "%lld steps", (long long)fsdp_steps(m));
    tsr_fsdp_destroy(&m);
}

CASE(numbers_of_steps, "fsdp: wrong numbers are errors even if there is nothing to step")
{
    refuse_numbers(TSR_OPTIMIZER_ADAMW, wrong_adamw);
    refuse_numbers(TSR_OPTIMIZER_SGD, wrong_sgd);
}

/* Passes that fail --------------------------------------------------------------------------- */

static void check_unused(const tsr_fsdp *m, const char *what)
{
    for (int u = 0; u < m->unit_count; u++) {
        CHECK(!m->units[u].in_use, "%s: unit %d is in use", what, u);
        for (int i = 0; tsr_fsdp_parameter(m, u, i); i++)
            CHECK(!tsr_fsdp_parameter(m, u, i)->tensor && !tsr_fsdp_parameter(m, u, i)->grad,
                  "%s: a parameter of unit %d still has memory", what, u);
    }
}

/* Runs passes of the last layer. Each is first tried with a tensor of a wrong shape and, on a
 * single rank, with each allocation failing in turn. If `fails` is false, nothing fails. Returns
 * the bytes of the model after a step. */
static uint8_t *step_with_failures(bool fails, uint64_t *size)
{
    const int last = MODEL_LAYERS - 1;
    model m;
    tsr_tensor *y = NULL, *dx = NULL;
    tsr_layer_saved *saved = NULL;
    model_make(&(model_case){.dtype = TSR_BF16}, &m);
    tsr_tensor *x = tensor_new(TSR_BF16, 2, (int64_t[]){3, 16}),
               *wrong = tensor_new(TSR_BF16, 2, (int64_t[]){3, 15});
    OK(tsr_fill(queue, x, 0.5));
    if (fails) {
        CHECK(tsr_fsdp_forward(m.sharded, last, wrong, &saved, &y) == TSR_ERR_INVALID && !saved &&
                  !y,
              "a wrong x");
        check_unused(m.sharded, "a wrong x");
    }
    for (uint64_t nth = 0; fails && ranks == 1; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        const tsr_status status = tsr_fsdp_forward(m.sharded, last, x, &saved, &y);
        const bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        check_unused(m.sharded, "no memory in a forward pass");
        tsr_layer_saved_destroy(&saved);
        tsr_tensor_destroy(&y);
        if (status == TSR_OK && !reached)
            break;
    }
    OK(tsr_fsdp_forward(m.sharded, last, x, &saved, &y));
    if (fails) {
        CHECK(tsr_fsdp_backward(m.sharded, last, saved, wrong, &dx) == TSR_ERR_INVALID && !dx,
              "a wrong dy");
        check_unused(m.sharded, "a wrong dy");
    }
    for (uint64_t nth = 0; fails && ranks == 1; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        const tsr_status status = tsr_fsdp_backward(m.sharded, last, saved, y, &dx);
        const bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        check_unused(m.sharded, "no memory in a backward pass");
        CHECK(!dx == (status != TSR_OK), "dx after %s", tsr_status_name(status));
        tsr_tensor_destroy(&dx);
        if (status == TSR_OK)
            OK(fsdp_zero_grad(m.sharded));
        if (status == TSR_OK && !reached)
            break;
    }
    OK(tsr_fsdp_backward(m.sharded, last, saved, y, &dx));
    OK(fsdp_adamw_step(m.sharded, tsr_adamw_params(.learning_rate = 0.1f)));
    uint8_t *bytes = model_bytes(&m, size);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor *all[] = {x, wrong, y, dx};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    model_finish(&m);
    return bytes;
}

CASE(failed_passes, "fsdp: a pass that fails leaves no unit in use and no gradient")
{
    uint64_t size, want_size;
    uint8_t *want = step_with_failures(false, &want_size);
    uint8_t *got = step_with_failures(true, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "other bits");
    free(got);
    free(want);
}

/* Out of memory ------------------------------------------------------------------------------ */

CASE(allocations, "fsdp: every allocation fails in turn, without leaks")
{
    if (ranks > 1) {
        case_skip("other ranks would wait");
        return;
    }
    watch_full_batches(true);
    for (uint64_t nth = 0;; nth++) {
        tsr_parameter p = {.struct_size = sizeof p,
                           .name = "a",
                           .dtype = TSR_F16,
                           .ndim = 2,
                           .global_shape = {3, 5},
                           .shard_dim = -1};
        tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = 1, .parameters = &p};
        tsr_fsdp *m = NULL;
        went_on = false;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status =
            tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = 1, .units = &unit), &m);
        for (int i = 0; i < 2 && status == TSR_OK; i++) {
            status = tsr_fsdp_begin(m, 0, TSR_PASS_BACKWARD);
            if (status != TSR_OK)
                break;
            const tsr_parameter *seen = tsr_fsdp_parameter(m, 0, 0);
            status = tsr_fill(queue, seen->grad, 1);
            tsr_status ended = tsr_fsdp_end(m, 0);
            status = status == TSR_OK ? ended : status;
        }
        if (status == TSR_OK)
            status = fsdp_adamw_step(m, tsr_adamw_params(.learning_rate = 1));
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        tsr_fsdp_destroy(&m);
        if (!reached) {
            OK(status);
            CHECK(nth > 20, "only %llu allocations", (unsigned long long)nth);
            watch_full_batches(false);
            return;
        }
        CHECK((status == TSR_ERR_NO_MEMORY) == !went_on, "allocation %llu: %s",
              (unsigned long long)nth, tsr_status_name(status));
        OK(tsr_stream_wait(queue));
    }
}

/* The second backward pass before a step needs memory for its own gradients. An allocation fails
 * when the reduction of this pass starts, so the pass fails on all ranks. The next pass
 * succeeds. */
static void fail_reduction(const char *const *gather, uint64_t nth)
{
    const uint64_t before = used_bytes();
    tsr_fsdp *m = NULL;
    caller_model(1, gather, &m);
    begin_backward(m, 0, 1);
    OK(tsr_fsdp_end(m, 0));
    check_grad(m, 0, 1);
    begin_backward(m, 0, 2);
    tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
    tsr_status status = tsr_fsdp_end(m, 0);
    tsr__fault_disarm();
    CHECK(status == TSR_ERR_NO_MEMORY, "allocation %d: %s", (int)nth, tsr_status_name(status));
    for (int i = 0; i < 2; i++)
        CHECK(!tsr_fsdp_parameter(m, 0, i)->grad, "parameter %d still has a gradient", i);
    begin_backward(m, 0, 4);
    OK(tsr_fsdp_end(m, 0));
    for (uint64_t i = 0; i < 2; i++)
        check_grad(m, i, 5);
    tsr_fsdp_destroy(&m);
    CHECK(used_bytes() == before, "allocation %d: device memory is still in use", (int)nth);
}

CASE(failed_reduction, "fsdp: a pass whose reduction fails leaves no gradient")
{
    if (ranks == 1) {
        case_skip("one rank reduces nothing");
        return;
    }
    /* How many allocations succeed before one fails. For the largest numbers, the reduction of
     * the first parameter is already in progress. */
    const uint64_t sharded[] = {0, 1, 2, 5, 9, 12}, gathered[] = {0, 1, 2, 4, 6};
    for (size_t i = 0; i < sizeof sharded / sizeof *sharded; i++)
        fail_reduction(NULL, sharded[i]);
    for (size_t i = 0; i < sizeof gathered / sizeof *gathered; i++)
        fail_reduction(everything, gathered[i]);
}
