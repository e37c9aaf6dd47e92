/* Makes every host allocation fail in turn. Each failure must be reported, and nothing may leak,
 * which the end of the program checks. Also tests ranks that leave, which the others must
 * notice. */
#include "base/fault.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/fsdp_case.h"

/* Creates a group of all ranks, and waits until all of them have it. Otherwise, a rank that leaves
 * it later might make the creation fail on another rank. */
static tsr_group *new_group(tsr_comm *comm, bool force_staging)
{
    tsr_group *of_all = NULL;
    OK(tsr_group_create(comm, queue, tsr_group_params(.force_staging = force_staging), &of_all));
    OK(tsr_comm_barrier(world, NULL));
    return of_all;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status try_ = (call);                                                                  \
        if (try_ != TSR_OK) {                                                                      \
            status = try_;                                                                         \
            goto end;                                                                              \
        }                                                                                          \
    } while (0)

enum { KINDS = 5 };

/* Runs some layers and operations of one kind (0 to KINDS - 1), or of every kind (KINDS), and
 * destroys everything it has created, also after a failure. */
static tsr_status workload(tsr_group *on, int kind, tsr_tensor *x, tsr_tensor *dy,
                           tsr_tensor *indices)
{
    tsr_status status = TSR_OK;
    tsr_layer *layers[KINDS] = {0};
    tsr_layer_saved *saved[KINDS] = {0};
    tsr_tensor *made[12] = {0};
    tsr_request *request = NULL;
    const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                         .kind = TSR_PARTITION_UNEVEN};
    if (kind == 0 || kind == KINDS) {
        TRY(tsr_mlp_create(tsr_mlp_params(.group = on, .name = "mlp", .input_size = 6,
                                          .hidden_size = 7, .output_size = 5, .gated = true,
                                          .partition = &uneven, .activation = TSR_ACT_SILU,
                                          .overlap_parts = 2, .bias = true),
                           &layers[0]));
        TRY(tsr_layer_forward(layers[0], x, &saved[0], &made[0]));
        TRY(tsr_layer_backward(layers[0], saved[0], dy, &made[1]));
        TRY(tsr_layer_gather_parameter(layers[0], 2, &made[2]));
        TRY(tsr_group_all_reduce(on, made[0], TSR_OP_SUM, NULL, &request));
        TRY(tsr_request_wait(&request));
    }
    if (kind == 1 || kind == KINDS) {
        TRY(tsr_column_linear_create(tsr_linear_params(.group = on, .input_size = 6,
                                                       .output_size = 5, .partition = &uneven,
                                                       .output = TSR_LAYOUT_FULL, .bias = true),
                                     &layers[1]));
        TRY(tsr_layer_forward(layers[1], x, &saved[1], &made[3]));
        TRY(tsr_layer_backward(layers[1], saved[1], dy, &made[4]));
    }
    if (kind == 2 || kind == KINDS) {
        TRY(tsr_row_linear_create(tsr_linear_params(.group = on, .input_size = 6, .output_size = 5,
                                                    .partition = &uneven, .input = TSR_LAYOUT_FULL,
                                                    .bias = true),
                                  &layers[2]));
        TRY(tsr_layer_forward(layers[2], x, &saved[2], &made[5]));
        TRY(tsr_layer_backward(layers[2], saved[2], dy, &made[6]));
    }
    if (kind == 3 || kind == KINDS) {
        TRY(tsr_embedding_create(tsr_embedding_params(.group = on, .vocabulary_size = 9, .width = 5,
                                                      .partition = &uneven),
                                 &layers[3]));
        TRY(tsr_layer_forward(layers[3], indices, &saved[3], &made[7]));
        TRY(tsr_layer_backward(layers[3], saved[3], dy, NULL));
    }
    if (kind == 4 || kind == KINDS) {
        TRY(tsr_block_create(
            tsr_block_params(.group = on, .size = 6,
                             .attention = tsr_self_attention_params(
                                     .heads = 4, .kv_heads = 2, .head_dim = 2,
                                     .qk_norm = TSR_QK_NORM_HEADS, .sinks = true,
                                     .rope = tsr_rope_params(.rotary_dim = 2), .partition = &uneven,
                                     .bias = true, .output_bias = true, .causal = true),
                             .mlp = tsr_mlp_params(.hidden_size = 5, .partition = &uneven,
                                                   .bias = true),
                             .recompute = true, .norm = tsr_norm_params(.bias = true)),
            &layers[4]));
        TRY(tsr_block_set_dropout(layers[4], 0.5F, tsr_random_params(.seed = 1)));
        TRY(tsr_layer_forward(layers[4], x, &saved[4], &made[8]));
        TRY(tsr_layer_backward(layers[4], saved[4], x, &made[9]));
    }
    TRY(tsr_stream_wait(queue));
end:
    tsr_request_cancel(&request);
    for (int i = 0; i < KINDS; i++) {
        tsr_layer_saved_destroy(&saved[i]);
        tsr_layer_destroy(&layers[i]);
    }
    for (int i = 0; i < 12; i++)
        tsr_tensor_destroy(&made[i]);
    return status;
}

typedef struct inputs {
    tsr_tensor *x, *dy, *indices;
} inputs;

static inputs new_inputs(void)
{
    inputs in = {tensor_new(TSR_F32, 2, (int64_t[]){4, 6}),
                 tensor_new(TSR_F32, 2, (int64_t[]){4, 5}), tensor_new(TSR_I32, 1, (int64_t[]){4})};
    OK(tsr_fill(queue, in.x, 0.5));
    OK(tsr_fill(queue, in.dy, 1));
    OK(tsr_fill(queue, in.indices, 3));
    return in;
}

static void free_inputs(inputs *in)
{
    tsr_tensor_destroy(&in->x);
    tsr_tensor_destroy(&in->dy);
    tsr_tensor_destroy(&in->indices);
}

CASE(allocations_alone, "every allocation of layers fails in turn, with one rank")
{
    inputs in = new_inputs();
    tsr_group *alone = NULL;
    int full = 0;
    watch_full_batches(true);
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    int allocations = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        OK(workload(alone, kind, in.x, in.dy, in.indices));
        bool reached = true;
        for (uint64_t nth = 0; reached; nth++, allocations++) {
            went_on = false;
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = workload(alone, kind, in.x, in.dy, in.indices);
            const char *site = tsr__fault_site();
            reached = site != NULL;
            tsr__fault_disarm();
            CHECK((status == TSR_ERR_NO_MEMORY) == (reached && !went_on),
                  "kind %d, allocation %llu in %s: %s", kind, (unsigned long long)nth,
                  reached ? site : "none", tsr_status_name(status));
            full += went_on;
        }
    }
    watch_full_batches(false);
    CHECK(allocations > 100, "only %d allocations", allocations);
    CHECK(full < 5, "%d batches went on", full);
    tsr_group_destroy(&alone);
    free_inputs(&in);
}

/* Lets a backward pass fail at allocation `nth`. Before the pass, the gradients hold 1000, but
 * after zero_grad they count as 0. Then runs a second pass, which succeeds. Returns whether the
 * first one has failed. */
static bool retry_backward(tsr_layer *layer, tsr_tensor *x, tsr_tensor *dy, uint64_t nth)
{
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    OK(tsr_layer_backward(layer, saved, dy, NULL)); /* creates the gradients */
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++)
        OK(tsr_fill(queue, tsr_layer_parameter(layer, i)->grad, 1000));
    tsr_layer_zero_grad(layer);
    tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
    tsr_status status = tsr_layer_backward(layer, saved, dy, NULL);
    bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    CHECK((status == TSR_ERR_NO_MEMORY) == reached, "%s", tsr_status_name(status));
    OK(tsr_layer_backward(layer, saved, dy, NULL));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);
    return reached;
}

/* With x of 0.5 and dy of 1 over 4 rows, a pass adds at most 4, and at most two passes have added
 * to the gradient. */
static void check_gradients(const tsr_layer *layer, uint64_t nth)
{
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++) {
        const tsr_parameter *parameter = tsr_layer_parameter(layer, i);
        double *grad = values_of(parameter->grad);
        for (int64_t e = 0; e < tsr_layout_count(tsr_tensor_layout(parameter->grad)); e++)
            CHECK(fabs(grad[e]) <= 8, "%s: allocation %llu: element %lld is %g", parameter->name,
                  (unsigned long long)nth, (long long)e, grad[e]);
        free(grad);
    }
}

CASE(gradients_of_failures, "gradients that count as 0 still do after a failed pass")
{
    inputs in = new_inputs();
    tsr_group *alone = NULL;
    tsr_layer *layers[3] = {0};
    tsr_tensor *x[] = {in.x, in.x, in.indices};
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_column_linear_create(tsr_linear_params(.group = alone, .name = "column", .input_size = 6,
                                                  .output_size = 5, .bias = true),
                                &layers[0]));
    OK(tsr_row_linear_create(tsr_linear_params(.group = alone, .name = "row", .input_size = 6,
                                               .output_size = 5, .bias = true),
                             &layers[1]));
    OK(tsr_embedding_create(
        tsr_embedding_params(.group = alone, .name = "embedding", .vocabulary_size = 9, .width = 5),
        &layers[2]));
    for (int i = 0; i < 3; i++) {
        uint64_t nth = 0;
        while (retry_backward(layers[i], x[i], in.dy, nth)) {
            check_gradients(layers[i], nth);
            nth++;
        }
        CHECK(nth > 1, "layer %d: only %llu allocations", i, (unsigned long long)nth);
        tsr_layer_destroy(&layers[i]);
    }
    tsr_group_destroy(&alone);
    free_inputs(&in);
}

static tsr_status adamw_step(model *m)
{
    return fsdp_adamw_step(m->sharded, tsr_adamw_params(.learning_rate = 0.01f, .epsilon = 1e-3f));
}

/* Runs a step in which the step of parameter `at` fails, so that its gradient is kept, and repeats
 * the call. If there is no such parameter, nothing fails. */
static uint8_t *step_in_two(int at, uint64_t *size)
{
    model m;
    model_make(&(model_case){0}, &m);
    model_pass(&m, 0, MODEL_ROWS, 50, 1);
    if (at < m.sharded->param_count) {
        tsr_tensor **gradient = &m.sharded->params[at].grad, *kept = *gradient;
        *gradient = NULL;
        FAILS(adamw_step(&m), TSR_ERR_INVALID, "adamw_step: gradient is NULL");
        *gradient = kept;
        CHECK(fsdp_steps(m.sharded) == 0, "a step that failed was counted");
    }
    OK(adamw_step(&m));
    CHECK(fsdp_steps(m.sharded) == 1, "%lld steps", (long long)fsdp_steps(m.sharded));
    uint8_t *bytes = model_bytes(&m, size);
    model_finish(&m);
    return bytes;
}

CASE(steps_in_two, "a step that failed halfway is finished by the next call, each parameter once")
{
    enum { PARAMETERS = 2 * MODEL_LAYERS };
    uint64_t want_size, size;
    uint8_t *want = step_in_two(PARAMETERS, &want_size);
    for (int i = 0; i < PARAMETERS; i++) {
        uint8_t *bytes = step_in_two(i, &size);
        CHECK(size == want_size && memcmp(bytes, want, size) == 0, "parameter %d", i);
        free(bytes);
    }
    free(want);
}

CASE(allocations_of_groups, "every allocation of creating a group fails in turn, with one rank")
{
    bool reached = true;
    for (uint64_t nth = 0; reached; nth++) {
        tsr_group *alone = NULL;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_group_create(NULL, queue, NULL, &alone);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        CHECK((status == TSR_ERR_NO_MEMORY) == reached && (alone == NULL) == reached,
              "allocation %llu: %s", (unsigned long long)nth, tsr_status_name(status));
        tsr_group_destroy(&alone);
    }
}

CASE(one_fails, "if one rank fails, the others get an error, and so do all later calls")
{
    inputs in = new_inputs();
    if (ranks > 1)
        for (int nth = 3; nth < 1000; nth += 29) {
            tsr_group *of_all = new_group(world, nth % 2 == 0);
            if (my_rank == 0)
                tsr__fault_arm(TSR__FAULT_ALLOC, (uint64_t)nth, 0);
            tsr_status status = workload(of_all, KINDS, in.x, in.dy, in.indices);
            bool reached = my_rank == 0 && tsr__fault_site() != NULL;
            tsr__fault_disarm();
            CHECK(my_rank > 0 || !reached || status != TSR_OK, "rank 0 did not notice");
            /* If a rank has failed, it destroys its group, and then no rank can continue. */
            if (status != TSR_OK)
                tsr_group_destroy(&of_all);
            else
                status = tsr_group_all_reduce(of_all, in.x, TSR_OP_SUM, NULL, NULL);
            tsr_group_destroy(&of_all);
            CHECK(my_rank == 0 || status == TSR_OK || status == TSR_ERR_PEER_LOST, "%s: %s",
                  tsr_status_name(status), tsr_last_error());
            int64_t failed[2] = {reached, status == TSR_OK};
            OK(tsr_comm_all_reduce(world, failed, failed, 2, TSR_I64, TSR_OP_SUM, NULL));
            CHECK(failed[0] == 0 || failed[1] == 0, "allocation %d: %lld ranks went on", nth,
                  (long long)failed[1]);
        }
    free_inputs(&in);
}

CASE(cancelling, "a request that is cancelled fails the group on all ranks")
{
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1000});
    OK(tsr_fill(queue, a, 1));
    for (int i = 0; i < 2 && ranks > 1; i++) {
        tsr_group *of_all = new_group(world, i == 1);
        tsr_request *request = NULL;
        if (my_rank == 0) {
            OK(tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, &request));
            tsr_request_cancel(&request);
            CHECK(!request, "the request is still there");
            FAILS(tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, NULL), TSR_ERR_PEER_LOST,
                  "group: rank 0 cancelled a request");
        } else {
            tsr_status status = TSR_OK;
            for (int k = 0; k < 3 && status == TSR_OK; k++)
                status = tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, NULL);
            CHECK(status == TSR_ERR_PEER_LOST, "%s: %s", tsr_status_name(status), tsr_last_error());
            char text[600];
            snprintf(text, sizeof text, "%s", tsr_last_error());
            FAILS(tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, NULL), TSR_ERR_PEER_LOST, text);
        }
        tsr_group_destroy(&of_all);
        OK(tsr_comm_barrier(world, NULL));
    }
    tsr_tensor_destroy(&a);
}

CASE(left_requests, "requests of a destroyed group fail")
{
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1000});
    if (ranks > 1) {
        tsr_group *of_all = new_group(world, false);
        tsr_request *request = NULL;
        OK(tsr_fill(queue, a, 1));
        /* Only rank 0 starts an operation. */
        if (my_rank == 0)
            OK(tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, &request));
        OK(tsr_comm_barrier(world, NULL));
        tsr_group_destroy(&of_all);
        if (my_rank == 0)
            FAILS(tsr_request_wait(&request), TSR_ERR_PEER_LOST,
                  "group: rank 0 destroyed its group while requests were in progress");
        OK(tsr_comm_barrier(world, NULL));
    }
    tsr_tensor_destroy(&a);
}

CASE(too_late, "if a rank does not take part, the timeout error names it")
{
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1000});
    if (ranks > 1) {
        tsr_comm *impatient = NULL;
        tsr_group *of_all = NULL;
        OK(tsr_fill(queue, a, 1));
        OK(tsr_comm_duplicate(world, &impatient));
        OK(tsr_comm_barrier(world,
                            NULL)); /* all ranks have the duplicate before its timeout is short */
        tsr_comm_set_timeout(impatient, UINT64_C(2000000000));
        of_all = new_group(impatient, false);
        OK(tsr_comm_barrier(impatient, NULL));
        tsr_comm_destroy(&impatient);
        if (my_rank > 0) {
            tsr_status status = tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, NULL);
            CHECK(status == TSR_ERR_TIMEOUT || status == TSR_ERR_PEER_LOST, "%s: %s",
                  tsr_status_name(status), tsr_last_error());
            CHECK(strstr(tsr_last_error(), "all_reduce"), "%s", tsr_last_error());
        }
        OK(tsr_comm_barrier(world, NULL));
        tsr_group_destroy(&of_all);
    }
    tsr_tensor_destroy(&a);
}
