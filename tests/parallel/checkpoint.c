/* Checkpoints that several ranks write and read. Every grid writes the same file. */
#include "parallel/fsdp_case.h"

#include <unistd.h>

#include "parallel/fsdp/fsdp.h"

/* The same checkpoint on different grids ----------------------------------------------------- */

/* A grid of data × tensor ranks. It consists of the first data · tensor ranks of the job; the other
 * ranks do not take part. */
typedef struct grid {
    int data, tensor;
    bool has_me;
    int data_rank;
    tsr_comm *world, *data_comm, *tensor_comm;
    tsr_group *data_group, *tensor_group;
} grid;

static void grid_make(int data, int tensor, grid *g)
{
    *g = (grid){.data = data, .tensor = tensor, .has_me = my_rank < data * tensor};
    g->data_rank = my_rank / tensor;
    if (ranks > 1) {
        OK(tsr_comm_split(world, g->has_me ? 0 : TSR_COLOUR_NONE, 0, &g->world));
        OK(tsr_comm_split(world, g->has_me ? my_rank % tensor : TSR_COLOUR_NONE, 0, &g->data_comm));
        OK(tsr_comm_split(world, g->has_me ? g->data_rank : TSR_COLOUR_NONE, 0, &g->tensor_comm));
    }
    if (g->has_me) {
        OK(tsr_group_create(g->data_comm, queue, NULL, &g->data_group));
        OK(tsr_group_create(g->tensor_comm, queue, NULL, &g->tensor_group));
    }
}

static void grid_finish(grid *g)
{
    tsr_group_destroy(&g->tensor_group);
    tsr_group_destroy(&g->data_group);
    tsr_comm_destroy(&g->tensor_comm);
    tsr_comm_destroy(&g->data_comm);
    tsr_comm_destroy(&g->world);
}

static void grid_model(const grid *g, const tsr_shard_strategy *strategy, model *m)
{
    model_make(&(model_case){.dtype = TSR_F16,
                             .tensor = g->tensor_group,
                             .sharded = {.group = g->data_group, .strategy = strategy}},
               m);
    m->world = g->world;
}

static void check_file(const char *what, const grid *g, const uint8_t *got, uint64_t size,
                       const uint8_t *want, uint64_t want_size)
{
    CHECK(size == want_size && memcmp(got, want, size) == 0, "%s of %d × %d: another file", what,
          g->data, g->tensor);
}

/* Checks that loading `path` into a model on this grid and saving it gives the same bytes. */
static void through(const grid *g, const char *path, const uint8_t *want, uint64_t want_size)
{
    static const tsr_shard_kind kinds[] = {TSR_SHARD_FULL, TSR_SHARD_LAYERWISE, TSR_SHARD_WEIGHTED};
    for (int k = 0; k < 3 && g->has_me; k++) {
        tsr_shard_strategy *strategy = NULL;
        model m;
        uint64_t size;
        OK(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kinds[k]), &strategy));
        grid_model(g, strategy, &m);
        /* The checkpoint exists as one file and in parts; one strategy loads the parts. */
        OK(fsdp_load(m.sharded, path,
                     tsr_optimizer_file_params(.world = g->world, .parts = k == 1)));
        CHECK(fsdp_steps(m.sharded) == 2, "%lld steps", (long long)fsdp_steps(m.sharded));
        uint8_t *got = model_bytes(&m, &size);
        check_file("loaded and saved", g, got, size, want, want_size);
        free(got);
        model_finish(&m);
        tsr_shard_strategy_destroy(&strategy);
    }
}

static void remove_parts(const char *path, int count)
{
    char name[SHARED_PATH + 64];
    for (int i = 1; i <= count; i++) {
        snprintf(name, sizeof name, "%s-%05d-of-%05d.safetensors", path, i, count);
        CHECK(unlink(name) == 0, "no %s", name);
    }
    snprintf(name, sizeof name, "%s.safetensors.index.json", path);
    CHECK(unlink(name) == 0, "no %s", name);
}

static void from_grid(int data, int tensor)
{
    grid g;
    uint64_t size = 0;
    grid_make(data, tensor, &g);
    char path[SHARED_PATH];
    shared_path(world, "grid", path);
    if (g.has_me) {
        model m;
        grid_model(&g, NULL, &m);
        for (int i = 0; i < 2; i++)
            model_step(&m, i, g.data_rank, g.data);
        OK(fsdp_save(m.sharded, path, tsr_optimizer_file_params(.world = g.world)));
        OK(fsdp_save(m.sharded, path, tsr_optimizer_file_params(.world = g.world, .parts = true)));
        model_finish(&m);
    }
    grid_finish(&g);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    uint8_t *want = file_bytes(path, &size);
    CHECK(size > 1000, "%llu bytes", (unsigned long long)size);
    for (int d = 1; d <= ranks; d++)
        for (int t = 1; d * t <= ranks; t++) {
            grid_make(d, t, &g);
            through(&g, path, want, size);
            grid_finish(&g);
        }
    free(want);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0) {
        unlink(path);
        remove_parts(path, data * tensor);
    }
}

CASE(grids, "checkpoint: any grid and strategy resumes from any other, byte for byte")
{
    for (int d = 1; d <= ranks; d++)
        if (ranks % d == 0)
            from_grid(d, ranks / d);
}

CASE(initial_file, "checkpoint: the initial values give the same file for every grid")
{
    uint64_t want_size = 0, size;
    uint8_t *want = NULL;
    char path[SHARED_PATH];
    shared_path(world, "initial", path);
    for (int d = 1; d <= ranks; d++)
        for (int t = 1; d * t <= ranks; t++) {
            grid g;
            grid_make(d, t, &g);
            if (g.has_me) {
                model m;
                grid_model(&g, NULL, &m);
                OK(fsdp_save(m.sharded, path,
                             tsr_optimizer_file_params(.world = g.world, .model_only = true)));
                model_finish(&m);
            }
            if (world)
                OK(tsr_comm_barrier(world, NULL));
            uint8_t *got = file_bytes(path, &size);
            if (!want) {
                want = got;
                want_size = size;
                got = file_bytes(path, &size);
            }
            check_file("first values", &g, got, size, want, want_size);
            free(got);
            grid_finish(&g);
            if (world)
                OK(tsr_comm_barrier(world, NULL));
        }
    free(want);
    if (my_rank == 0)
        unlink(path);
}

CASE(resumed, "checkpoint: resumed training has the bits of uninterrupted training")
{
    char path[SHARED_PATH];
    shared_path(world, "resumed", path);
    uint64_t size, want_size;
    model m;
    model_make(&(model_case){0}, &m);
    for (int i = 0; i < 2; i++)
        model_step(&m, i, my_rank, ranks);
    OK(fsdp_save(m.sharded, path, NULL));
    for (int i = 2; i < 4; i++)
        model_step(&m, i, my_rank, ranks);
    uint8_t *want = model_bytes(&m, &want_size);
    model_finish(&m);

    model_make(&(model_case){0}, &m);
    model_step(&m, 9, my_rank, ranks); /* another step, so that loading must restore the state */
    model_pass(&m, 0, 3, 77, 1);
    OK(fsdp_load(m.sharded, path, NULL));
    for (int i = 2; i < 4; i++)
        model_step(&m, i, my_rank, ranks);
    uint8_t *got = model_bytes(&m, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "other bits");
    model_finish(&m);
    free(got);
    free(want);
    if (my_rank == 0)
        unlink(path);
}

CASE(model_only,
     "checkpoint: a file of parameters only starts a fresh optimizer, and has no optimizer state")
{
    char path[SHARED_PATH];
    shared_path(world, "model", path);
    char want[256];
    uint64_t size, want_size;
    model m;
    model_make(&(model_case){.dtype = TSR_BF16}, &m);
    OK(fsdp_save(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    uint8_t *fresh = model_bytes(&m, &want_size);
    model_step(&m, 0, my_rank, ranks);
    OK(fsdp_load(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    uint8_t *got = model_bytes(&m, &size);
    CHECK(size == want_size && memcmp(got, fresh, size) == 0, "not fresh");
    snprintf(want, sizeof want,
             "optimizer_load: %scheckpoint_metadata: %s: there is no 'tessera.steps'",
             my_rank > 0 ? "rank 0: " : "", path);
    FAILS(fsdp_load(m.sharded, path, NULL), TSR_ERR_NOT_FOUND, want);
    OK(tsr_fsdp_begin(m.sharded, 0, TSR_PASS_FORWARD));
    FAILS(fsdp_save(m.sharded, path, NULL), TSR_ERR_INVALID,
          my_rank > 0 ? "optimizer_save: rank 0: unit 0 is in use"
                      : "optimizer_save: unit 0 is in use");
    OK(tsr_fsdp_end(m.sharded, 0));
    model_finish(&m);
    free(fresh);
    free(got);
    if (my_rank == 0)
        unlink(path);
}
