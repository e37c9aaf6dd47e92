#include "parallel/fsdp_case.h"

#include <unistd.h>

#include "parallel/fsdp/fsdp.h"

const char *const everything[] = {"*", NULL};

#define IN 12
#define HIDDEN 20
#define MIDDLE 16
#define OUT 8

static tsr_linear_params params_of(const model_case *c, const model *m, int layer)
{
    static const char *const names[] = {"first", "block.2", "head"};
    static const int64_t sizes[] = {IN, HIDDEN, MIDDLE, OUT};
    static const tsr_partition_params partitions[2] = {
        {.struct_size = sizeof partitions[0], .kind = TSR_PARTITION_EVEN},
        {.struct_size = sizeof partitions[0], .kind = TSR_PARTITION_UNEVEN}};
    static const tsr_init_params init = {
        .struct_size = sizeof init, .kind = TSR_INIT_TORCH, .seed = 7};
    return (tsr_linear_params){.struct_size = sizeof(tsr_linear_params),
                               .group = c->tensor ? c->tensor : m->alone,
                               .name = names[layer],
                               .input_size = sizes[layer],
                               .output_size = sizes[layer + 1],
                               .dtype = c->dtype,
                               .partition = &partitions[c->tensor != NULL],
                               .output = layer == 2 ? TSR_LAYOUT_FULL : TSR_LAYOUT_DEFAULT,
                               .init = &init,
                               .deferred = !c->whole,
                               .bias = true};
}

void model_make(const model_case *c, model *m)
{
    *m = (model){0};
    OK(tsr_group_create(NULL, queue, NULL, &m->alone));
    tsr_fsdp_unit units[MODEL_LAYERS];
    for (int i = 0; i < MODEL_LAYERS; i++) {
        const tsr_linear_params params = params_of(c, m, i);
        OK(i == 1 ? tsr_row_linear_create(&params, &m->layers[i])
                  : tsr_column_linear_create(&params, &m->layers[i]));
        units[i] = *tsr_fsdp_unit(.layer = m->layers[i]);
    }
    tsr_fsdp_params sharded = c->sharded;
    sharded.struct_size = sizeof sharded;
    sharded.unit_count = MODEL_LAYERS;
    sharded.units = units;
    OK(tsr_fsdp_create(&sharded, &m->sharded));
}

void model_finish(model *m)
{
    tsr_fsdp_destroy(&m->sharded);
    for (int i = 0; i < MODEL_LAYERS; i++)
        tsr_layer_destroy(&m->layers[i]);
    tsr_group_destroy(&m->alone);
}

/* Returns rows of a batch, which is the same for any number of ranks. */
static tsr_tensor *rows_of(uint64_t sequence, int64_t first, int64_t rows, int64_t columns)
{
    double *values = doubles(rows * columns);
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = number(sequence, first * columns + i);
    tsr_tensor *tensor = tensor_of(TSR_F32, 2, (int64_t[]){rows, columns}, values);
    free(values);
    return tensor;
}

void model_pass(model *m, int64_t first, int64_t rows, uint64_t sequence, float scale)
{
    tsr_layer_saved *saved[MODEL_LAYERS] = {NULL};
    tsr_tensor *x = rows_of(sequence, first, rows, IN), *next = NULL;
    for (int i = 0; i < MODEL_LAYERS; i++) {
        OK(tsr_fsdp_forward(m->sharded, i, x, &saved[i], &next));
        tsr_tensor_destroy(&x);
        x = next;
    }
    tsr_tensor *dy = rows_of(sequence + 1000, first, rows, OUT);
    /* The loss contains the square of the output, so that gradients depend on the parameters. */
    OK(tsr_axpy(queue, dy, 0.5f, x));
    OK(tsr_scale(queue, dy, dy, scale, 0));
    tsr_tensor_destroy(&x);
    for (int i = MODEL_LAYERS - 1; i >= 0; i--) {
        OK(tsr_fsdp_backward(m->sharded, i, saved[i], dy, i > 0 ? &next : NULL));
        tsr_tensor_destroy(&dy);
        dy = i > 0 ? next : NULL;
        tsr_layer_saved_destroy(&saved[i]);
    }
}

void model_update(model *m)
{
    if (m->sharded->optimizer == TSR_OPTIMIZER_SGD)
        OK(fsdp_sgd_step(m->sharded, tsr_sgd_params(.learning_rate = 0.05f,
                                                    .momentum = m->sharded->momentum ? 0.9f : 0,
                                                    .weight_decay = 0.01f)));
    else
        OK(fsdp_adamw_step(m->sharded, tsr_adamw_params(.learning_rate = 0.01f, .epsilon = 1e-3f,
                                                        .weight_decay = 0.01f)));
}

void model_step(model *m, int64_t step, int data_rank, int data_ranks)
{
    const int64_t batch = MODEL_ROWS * data_ranks;
    model_pass(m, step * 100 + MODEL_ROWS * data_rank, MODEL_ROWS, 50,
               1.0f / (float)(m->sharded->reduction == TSR_OP_SUM ? batch : MODEL_ROWS));
    model_update(m);
}

void shared_path(tsr_comm *comm, const char *name, char path[SHARED_PATH])
{
    int64_t id = getpid();
    if (comm)
        OK(tsr_comm_broadcast(comm, &id, 1, TSR_I64, 0, NULL));
    snprintf(path, SHARED_PATH, "/tmp/tessera-%s-%lld", name, (long long)id);
}

uint8_t *file_bytes(const char *path, uint64_t *size)
{
    FILE *file = fopen(path, "rb");
    CHECK(file, "%s is not there", path);
    uint8_t *data = malloc(1 << 20);
    CHECK(data, "no memory");
    *size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

uint8_t *model_bytes(model *m, uint64_t *size)
{
    tsr_comm *comm = m->world ? m->world : tsr_group_comm(m->sharded->group);
    char path[SHARED_PATH];
    shared_path(comm, "bytes", path);
    OK(fsdp_save(m->sharded, path, tsr_optimizer_file_params(.world = m->world)));
    uint8_t *data = file_bytes(path, size);
    if (comm)
        OK(tsr_comm_barrier(comm, NULL));
    unlink(path); /* by whichever rank is first */
    return data;
}

uint64_t used_bytes(void)
{
    uint64_t used;
    OK(tsr_stream_wait(queue));
    tsr_device_memory_usage(gpu, NULL, &used);
    return used;
}
