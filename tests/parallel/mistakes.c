/* What callers get wrong is found before anything has been sent: the group goes on. */
#include "parallel/spmd.h"

static void check_goes_on(tsr_parallel *through)
{
    tsr_tensor *ones = tensor_new(TSR_F32, 1, (int64_t[]){3});
    OK(tsr_fill(queue, ones, 1));
    OK(tsr_parallel_all_reduce(through, ones, TSR_OP_SUM));
    double *got = values_of(ones);
    for (int i = 0; i < 3; i++)
        CHECK(got[i] == ranks, "the sum of ones is %g", got[i]);
    free(got);
    tsr_tensor_destroy(&ones);
}

/* [rows,5] whose elements overlap: row i, column j is element i · step + j · stride of memory. */
static tsr_tensor *repeating(int64_t rows, int64_t step, int64_t stride)
{
    tsr_tensor *memory = tensor_new(TSR_F32, 1, (int64_t[]){rows * step + 5 * stride}), *view;
    const tsr_layout layout = {
        .dtype = TSR_F32, .ndim = 2, .shape = {rows, 5}, .strides = {step, stride}};
    OK(tsr_fill(queue, memory, 1));
    OK(tsr_tensor_view(memory, &layout, &view));
    tsr_tensor_destroy(&memory);
    return view;
}

CASE(repeated_outputs, "an output that repeats elements is refused, and the group goes on")
{
#define REPEATS(op, name, shape)                                                                   \
    op ": " name " is a view " shape " that names an element more than once and cannot be written"
    tsr_parallel *through[] = {group, staged};
    for (int t = 0; t < 4; t++) {
        tsr_parallel *on = through[t / 2];
        const int64_t step = t % 2, stride = 1 - step;
        char text[200];
        tsr_tensor *part = repeating(4, step, stride), *whole = repeating(4 * ranks, step, stride);
        FAILS(tsr_parallel_all_reduce(on, part, TSR_OP_SUM), TSR_ERR_INVALID,
              REPEATS("parallel_all_reduce", "tensor", "[4,5]"));
        FAILS(tsr_parallel_broadcast(on, part, 0), TSR_ERR_INVALID,
              REPEATS("parallel_broadcast", "tensor", "[4,5]"));
        FAILS(tsr_parallel_reduce_scatter(on, part, whole, 0, NULL, TSR_OP_SUM), TSR_ERR_INVALID,
              REPEATS("parallel_reduce_scatter", "out", "[4,5]"));
        snprintf(text, sizeof text, REPEATS("parallel_all_gather", "out", "[%d,5]"), 4 * ranks);
        FAILS(tsr_parallel_all_gather(on, whole, part, 0, NULL), TSR_ERR_INVALID, text);
        check_goes_on(on);
        tsr_tensor_destroy(&part);
        tsr_tensor_destroy(&whole);
    }
#undef REPEATS
}

CASE(repeated_on_one, "where one rank's output repeats elements, the others wait no longer than "
                      "their deadline")
{
    if (ranks == 1)
        return;
    tsr_comm *impatient = NULL;
    tsr_parallel *of_all = NULL;
    tsr_tensor *tensor = my_rank == 0 ? repeating(4, 0, 1) : repeating(4, 5, 1);
    OK(tsr_comm_duplicate(world, &impatient));
    tsr_comm_set_timeout(impatient, UINT64_C(300000000));
    OK(tsr_parallel_create(impatient, queue, NULL, &of_all));
    OK(tsr_comm_barrier(world));
    tsr_status status = tsr_parallel_all_reduce(of_all, tensor, TSR_OP_SUM);
    if (my_rank == 0)
        CHECK(status == TSR_ERR_INVALID, "%s", tsr_status_name(status));
    else
        CHECK(status == TSR_ERR_TIMEOUT || status == TSR_ERR_PEER_LOST, "%s: %s",
              tsr_status_name(status), tsr_last_error());
    OK(tsr_comm_barrier(world));
    tsr_parallel_destroy(&of_all);
    tsr_comm_destroy(&impatient);
    tsr_tensor_destroy(&tensor);
}

CASE(kept_text, "who gives up because of an error can still read it afterwards")
{
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1000});
    for (int destroy = 0; destroy < 2 && ranks > 1; destroy++) {
        tsr_parallel *of_all = NULL;
        tsr_parallel_request *request = NULL;
        OK(tsr_fill(queue, a, 1));
        OK(tsr_parallel_create(world, queue, NULL, &of_all));
        OK(tsr_comm_barrier(world));
        if (my_rank == 0) {
            OK(tsr_parallel_all_reduce_start(of_all, a, TSR_OP_SUM, &request));
            FAILS(tsr_parallel_wait(NULL), TSR_ERR_INVALID, "parallel_wait: request is NULL");
            if (destroy)
                tsr_parallel_destroy(&of_all);
            else
                tsr_parallel_cancel(&request);
            CHECK(strcmp(tsr_last_error(), "parallel_wait: request is NULL") == 0, "it says %s",
                  tsr_last_error());
        }
        OK(tsr_comm_barrier(world));
        tsr_parallel_cancel(&request);
        tsr_parallel_destroy(&of_all);
    }
    tsr_tensor_destroy(&a);
}
