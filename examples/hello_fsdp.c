/* Finds the weights of a linear map from examples, with an optimizer of its own: each rank keeps a
 * shard of the weights, computes the gradients of its part of the batch, and changes its shard. */
#include <stdio.h>
#include <tessera/tessera.h>

enum { ROWS = 120, IN = 16, OUT = 12, STEPS = 40 };
#define RATE 0.9f

typedef struct program {
    tsr_comm *comm;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *world, *alone; /* all ranks; this rank, for a layer that is not divided */
    tsr_layer *layer;
    tsr_fsdp *model;
    int64_t rows; /* of the batch, on this rank */
    tsr_tensor *examples, *answers, *x, *target;
} program;

static int new_tensor(const program *p, int ndim, int64_t first, int64_t second, tsr_tensor **out)
{
    return tsr_tensor_create(p->device, TSR_F32, ndim, (int64_t[]){first, second}, out);
}

static int connect(program *p)
{
    const int failed = tsr_comm_create(NULL, &p->comm) || tsr_device_open(NULL, &p->device) ||
                       tsr_stream_create(p->device, &p->stream) ||
                       tsr_group_create(p->comm, p->stream, NULL, &p->world) ||
                       tsr_group_create(NULL, p->stream, NULL, &p->alone);
    tsr_group_set_default(p->world);
    return failed;
}

/* Rank 0 draws examples and the weights to be found, and all ranks get the same ones. Each rank
 * takes its rows of the batch. */
static int make_examples(program *p)
{
    const int rank = tsr_group_rank(p->world);
    tsr_tensor *wanted = NULL;
    p->rows = ROWS / tsr_group_size(p->world);
    int failed = new_tensor(p, 2, ROWS, IN, &p->examples) || new_tensor(p, 2, OUT, IN, &wanted) ||
                 new_tensor(p, 2, ROWS, OUT, &p->answers);
    if (!failed && rank == 0)
        failed = tsr_random_normal(p->stream, p->examples, 0, 1, tsr_random_params(.seed = 1)) ||
                 tsr_random_normal(p->stream, wanted, 0, 1, tsr_random_params(.seed = 2));
    failed = failed || tsr_group_broadcast(p->world, p->examples, 0, NULL) ||
             tsr_group_broadcast(p->world, wanted, 0, NULL) ||
             tsr_matmul(p->stream, p->answers, p->examples, wanted,
                        tsr_matmul_params(.transpose_b = true)) ||
             tsr_tensor_slice(p->examples, 0, rank * p->rows, (rank + 1) * p->rows, 1, &p->x) ||
             tsr_tensor_slice(p->answers, 0, rank * p->rows, (rank + 1) * p->rows, 1, &p->target);
    tsr_tensor_destroy(&wanted);
    return failed;
}

static int make_model(program *p)
{
    /* The model's group is the default one. */
    return tsr_column_linear_create(tsr_linear_params(.group = p->alone, .name = "map",
                                                      .input_size = IN, .output_size = OUT,
                                                      .bias = true, .deferred = true),
                                    &p->layer) ||
           tsr_fsdp_create(
               tsr_fsdp_params(.unit_count = 1, .units = tsr_fsdp_unit(.layer = p->layer)),
               &p->model);
}

static void print_model(const program *p)
{
    const tsr_parameter *parameter;
    for (int i = 0; (parameter = tsr_fsdp_parameter(p->model, 0, i)) != NULL; i++)
        printf("%s in %d dimension%s\n", parameter->name, parameter->ndim,
               parameter->ndim == 1 ? "" : "s");
}

/* The optimizer: this rank's shards go against their gradients. */
static int step(program *p)
{
    const uint64_t count = tsr_shard_plan_param_count(tsr_fsdp_plan(p->model));
    int failed = 0;
    for (uint64_t i = 0; i < count && !failed; i++) {
        tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
        failed = tsr_fsdp_get_shard(p->model, i, &shard);
        if (!failed && shard.grad)
            failed = tsr_axpy(p->stream, shard.value, -RATE, shard.grad) ||
                     tsr_fill(p->stream, shard.grad, 0);
    }
    return failed || tsr_fsdp_changed(p->model);
}

/* Computes y, the difference from the answers. With `train`, also makes a step. */
static int pass(program *p, bool train, tsr_tensor **y)
{
    tsr_layer_saved *saved = NULL;
    tsr_tensor *dy = NULL;
    int failed = tsr_fsdp_forward(p->model, 0, p->x, train ? &saved : NULL, y) ||
                 tsr_axpy(p->stream, *y, -1, p->target);
    if (train && !failed)
        failed = new_tensor(p, 2, p->rows, OUT, &dy) ||
                 tsr_scale(p->stream, dy, *y, 1.0f / (float)ROWS, 0) ||
                 tsr_fsdp_backward(p->model, 0, saved, dy, NULL) || step(p);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&dy);
    return failed;
}

/* Measures how wrong the answers are. Each rank gets the sums over all rows of some columns, and
 * then all ranks get all sums. */
static int measure(program *p, float sums[OUT])
{
    tsr_tensor *y = NULL, *mine = NULL, *part = NULL, *all = NULL;
    int failed = pass(p, false, &y) || tsr_binary(p->stream, y, y, y, TSR_BINARY_MUL) ||
                 new_tensor(p, 1, OUT, 0, &mine) ||
                 new_tensor(p, 1, OUT / tsr_group_size(p->world), 0, &part) ||
                 new_tensor(p, 1, OUT, 0, &all) ||
                 tsr_reduce(p->stream, mine, y, 0, TSR_REDUCE_SUM, false) ||
                 tsr_group_reduce_scatter(p->world, part, mine, 0, TSR_OP_SUM, NULL, NULL) ||
                 tsr_group_all_gather(p->world, all, part, 0, NULL, NULL) ||
                 tsr_tensor_download(p->stream, all, sums, OUT * sizeof *sums);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&mine);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&all);
    return failed;
}

static int train(program *p)
{
    int failed = 0;
    for (int i = 0; i <= STEPS && !failed; i++) {
        float sums[OUT], worst = 0;
        tsr_tensor *y = NULL;
        if (i % 10 == 0) {
            failed = measure(p, sums);
            for (int c = 0; c < OUT; c++)
                worst = sums[c] > worst ? sums[c] : worst;
            if (!failed && tsr_group_rank(tsr_group_default()) == 0)
                printf("step %3d  loss %.6f\n", i, (double)(worst / ROWS));
        }
        failed = failed || pass(p, true, &y);
        tsr_tensor_destroy(&y);
    }
    return failed;
}

int main(void)
{
    program p = {.rows = 0};
    int failed = connect(&p) || make_examples(&p) || make_model(&p);
    if (!failed && tsr_group_rank(p.world) == 0)
        print_model(&p);
    failed = failed || train(&p);
    if (failed)
        fprintf(stderr, "hello_fsdp: %s\n", tsr_last_error());
    tsr_fsdp_destroy(&p.model);
    tsr_layer_destroy(&p.layer);
    tsr_tensor_destroy(&p.x);
    tsr_tensor_destroy(&p.target);
    tsr_tensor_destroy(&p.examples);
    tsr_tensor_destroy(&p.answers);
    tsr_group_destroy(&p.alone);
    tsr_group_destroy(&p.world);
    tsr_stream_destroy(&p.stream);
    tsr_device_close(&p.device);
    tsr_comm_destroy(&p.comm);
    return failed || fflush(stdout) != 0;
}
