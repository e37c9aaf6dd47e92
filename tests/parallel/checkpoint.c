/* Checkpoints that several ranks write and read: of one file for every grid, and of no file where
 * one of them fails. */
#include "parallel/sharded_case.h"

#include <errno.h>
#include <unistd.h>

#include "base/fault.h"
#include "parallel/sharded/sharded.h"

/* Grids -----------------------------------------------------------------------------------------
 */

/* The first `data` × `tensor` ranks; the others have no part in it. */
typedef struct grid {
    int data, tensor;
    bool has_me;
    int data_rank;
    tsr_comm *world, *data_comm, *tensor_comm;
    tsr_parallel *data_group, *tensor_group;
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
        OK(tsr_parallel_create(g->data_comm, queue, NULL, &g->data_group));
        OK(tsr_parallel_create(g->tensor_comm, queue, NULL, &g->tensor_group));
    }
}

static void grid_finish(grid *g)
{
    tsr_parallel_destroy(&g->tensor_group);
    tsr_parallel_destroy(&g->data_group);
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

/* What is in `path`, through a model on this grid, is the same again. */
static void through(const grid *g, const char *path, const uint8_t *want, uint64_t want_size)
{
    static const tsr_shard_kind kinds[] = {TSR_SHARD_FULL, TSR_SHARD_LAYERWISE, TSR_SHARD_WEIGHTED};
    for (int k = 0; k < 3 && g->has_me; k++) {
        tsr_shard_strategy *strategy = NULL;
        model m;
        uint64_t size;
        OK(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kinds[k]), &strategy));
        grid_model(g, strategy, &m);
        OK(tsr_sharded_load(m.sharded, path, tsr_sharded_file_params(.world = g->world)));
        CHECK(tsr_sharded_steps(m.sharded) == 2, "%lld steps",
              (long long)tsr_sharded_steps(m.sharded));
        uint8_t *got = model_bytes(&m, &size);
        check_file("loaded and saved", g, got, size, want, want_size);
        free(got);
        model_finish(&m);
        tsr_shard_strategy_destroy(&strategy);
    }
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
        OK(tsr_sharded_save(m.sharded, path, tsr_sharded_file_params(.world = g.world)));
        model_finish(&m);
    }
    grid_finish(&g);
    if (world)
        OK(tsr_comm_barrier(world));
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
        OK(tsr_comm_barrier(world));
    if (my_rank == 0)
        unlink(path);
}

CASE(grids, "checkpoint: any grid and strategy resumes from any other, byte for byte")
{
    for (int d = 1; d <= ranks; d++)
        if (ranks % d == 0)
            from_grid(d, ranks / d);
}

CASE(initial_file, "checkpoint: the first values are one file for every grid")
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
                OK(tsr_sharded_save(m.sharded, path,
                                    tsr_sharded_file_params(.world = g.world, .model_only = true)));
                model_finish(&m);
            }
            if (world)
                OK(tsr_comm_barrier(world));
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
                OK(tsr_comm_barrier(world));
        }
    free(want);
    if (my_rank == 0)
        unlink(path);
}

CASE(resumed, "checkpoint: training goes on as if it had not been interrupted")
{
    char path[SHARED_PATH];
    shared_path(world, "resumed", path);
    uint64_t size, want_size;
    model m;
    model_make(&(model_case){0}, &m);
    for (int i = 0; i < 2; i++)
        model_step(&m, i, my_rank, ranks);
    OK(tsr_sharded_save(m.sharded, path, NULL));
    for (int i = 2; i < 4; i++)
        model_step(&m, i, my_rank, ranks);
    uint8_t *want = model_bytes(&m, &want_size);
    model_finish(&m);

    model_make(&(model_case){0}, &m);
    model_step(&m, 9, my_rank, ranks); /* something else meanwhile */
    model_pass(&m, 0, 3, 77, 1);
    OK(tsr_sharded_load(m.sharded, path, NULL));
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

CASE(model_only, "checkpoint: a model by itself starts a fresh optimizer, and is no whole state")
{
    char path[SHARED_PATH];
    shared_path(world, "model", path);
    char want[256];
    uint64_t size, want_size;
    model m;
    model_make(&(model_case){.dtype = TSR_BF16}, &m);
    OK(tsr_sharded_save(m.sharded, path, tsr_sharded_file_params(.model_only = true)));
    uint8_t *fresh = model_bytes(&m, &want_size);
    model_step(&m, 0, my_rank, ranks);
    OK(tsr_sharded_load(m.sharded, path, tsr_sharded_file_params(.model_only = true)));
    uint8_t *got = model_bytes(&m, &size);
    CHECK(size == want_size && memcmp(got, fresh, size) == 0, "not fresh");
    snprintf(want, sizeof want,
             "sharded_load: %scheckpoint_metadata: %s: there is no 'tessera.steps'",
             my_rank > 0 ? "rank 0: " : "", path);
    FAILS(tsr_sharded_load(m.sharded, path, NULL), TSR_ERR_NOT_FOUND, want);
    OK(tsr_sharded_begin(m.sharded, 0, TSR_PASS_FORWARD));
    FAILS(tsr_sharded_save(m.sharded, path, NULL), TSR_ERR_INVALID,
          my_rank > 0 ? "sharded_save: rank 0: unit 0 is in use"
                      : "sharded_save: unit 0 is in use");
    OK(tsr_sharded_end(m.sharded, 0));
    model_finish(&m);
    free(fresh);
    free(got);
    if (my_rank == 0)
        unlink(path);
}

/* Entries ---------------------------------------------------------------------------------------
 */

CASE(strided, "checkpoint: tensors with gaps, and memory of the host")
{
    char path[SHARED_PATH];
    shared_path(world, "strided", path);
    const int64_t shape[2] = {6, 5};
    double *values = numbers(3, 30, TSR_F16);
    int32_t host[3] = {my_rank, my_rank + 1, my_rank + 2}, read[3] = {0};
    tsr_tensor *tensor = tensor_with_gaps(TSR_F16, 2, shape);
    tensor_put(tensor, values);
    tsr_checkpoint_entry entries[] = {{.name = "gaps",
                                       .dtype = TSR_F16,
                                       .ndim = 2,
                                       .shape = {6, 5},
                                       .shard_dim = -1,
                                       .count = 30,
                                       .tensor = tensor},
                                      {.name = "each",
                                       .dtype = TSR_I32,
                                       .ndim = 2,
                                       .shape = {ranks, 3},
                                       .shard_dim = 0,
                                       .offset = my_rank,
                                       .length = 1,
                                       .count = 3,
                                       .data = host}};
    OK(tsr_checkpoint_save(path, world, queue, 2, entries, NULL));
    OK(tsr_fill(queue, tensor, 0));
    entries[1].data = read;
    OK(tsr_checkpoint_load(path, world, queue, 2, entries, NULL));
    double *got = values_of(tensor);
    for (int i = 0; i < 30; i++)
        CHECK(got[i] == values[i], "element %d is %g, not %g", i, got[i], values[i]);
    CHECK(memcmp(host, read, sizeof host) == 0, "another rank's part");
    free(got);
    free(values);
    tsr_tensor_destroy(&tensor);
    if (world)
        OK(tsr_comm_barrier(world));
    if (my_rank == 0)
        unlink(path);
}

/* The text as rank `of` and as the others say it. */
static const char *said_by(int of, const char *text)
{
    static char said[512];
    char rank[24] = "";
    if (my_rank != of)
        snprintf(rank, sizeof rank, "rank %d: ", of);
    snprintf(said, sizeof said, "checkpoint_save: %s%s", rank, text);
    return said;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

CASE(disagreement, "checkpoint: ranks that do not fit together write nothing")
{
    if (ranks == 1) {
        case_skip("it takes two");
        return;
    }
    char path[SHARED_PATH];
    shared_path(world, "none", path);
    float data[8] = {0};
    const tsr_checkpoint_entry good = {.name = "x",
                                       .dtype = TSR_F32,
                                       .ndim = 1,
                                       .shape = {8},
                                       .shard_dim = -1,
                                       .count = 8,
                                       .data = data};
    tsr_checkpoint_entry e = good;
    const bool other = my_rank == 1;
#define NOT_SAVED(count, params, text)                                                             \
    FAILS(tsr_checkpoint_save(path, world, NULL, count, &e, params), TSR_ERR_INVALID, text);       \
    e = good
    NOT_SAVED(other ? 0 : 1, NULL, said_by(1, "0 entries, and rank 0 has 1"));
    e.name = other ? "y" : "x";
    NOT_SAVED(1, NULL, said_by(1, "entry 0, 'y' f32 [8], is another on rank 0"));
    e.shape[0] = other ? 9 : 8;
    e.count = other ? 9 : 8;
    float more[9] = {0};
    e.data = more;
    NOT_SAVED(1, NULL, said_by(1, "entry 0, 'x' f32 [9], is another on rank 0"));
    e.data = other ? NULL : data;
    NOT_SAVED(1, NULL, said_by(1, "'x' has no memory"));
    const char *const metadata[] = {"epoch", other ? "1" : "2", NULL};
    NOT_SAVED(1, tsr_checkpoint_params(.metadata = metadata),
              said_by(1, "this rank's metadata is, which rank 0 has otherwise"));
    /* All ranks see these at once. */
    e.shard_dim = 0;
    e.offset = my_rank > 0;
    e.length = 7;
    e.count = 7;
    NOT_SAVED(1, NULL,
              "checkpoint_save: 'x': the parts of rank 0 and rank 1 overlap, and are not the same");
    e.first = my_rank > 0 ? 5 : 0;
    e.count = my_rank > 0 ? 3 : 4;
    NOT_SAVED(1, NULL, "checkpoint_save: 'x': no rank has elements 4 to 4 of a part");
    e.first = my_rank > 0 ? 3 : 0;
    e.count = my_rank > 0 ? 5 : 4;
    NOT_SAVED(1, NULL,
              "checkpoint_save: 'x': the parts of rank 0 and rank 1 overlap, and are not the same");
    CHECK(!exists(path), "%s is there", path);
    OK(tsr_checkpoint_save(path, world, NULL, 1, &good, NULL));
    CHECK(exists(path), "%s is not there", path);
    OK(tsr_comm_barrier(world));
    if (my_rank == 0)
        unlink(path);
}

CASE(one_fails, "checkpoint: where one rank's disk fails, all say so, and the file stays")
{
    char path[SHARED_PATH];
    shared_path(world, "fails", path);
    const int last = ranks - 1;
    int32_t data[4] = {1, 1, 1, 1};
    tsr_checkpoint_entry e = {.name = "x",
                              .dtype = TSR_I32,
                              .ndim = 2,
                              .shape = {ranks, 4},
                              .shard_dim = 0,
                              .offset = my_rank,
                              .length = 1,
                              .count = 4,
                              .data = data};
    OK(tsr_checkpoint_save(path, world, NULL, 1, &e, NULL));
    for (int i = 0; i < 4; i++)
        data[i] = 2;
    for (uint64_t nth = 0;; nth++) {
        if (my_rank == last)
            tsr__fault_arm(TSR__FAULT_IO, nth, EIO);
        tsr_status status = tsr_checkpoint_save(path, world, NULL, 1, &e, NULL);
        int32_t reached = my_rank == last && tsr__fault_site() != NULL;
        int32_t named = reached && strstr(tsr__fault_site(), "folder") != NULL;
        tsr__fault_disarm();
        if (world) {
            OK(tsr_comm_broadcast(world, &reached, 1, TSR_I32, last));
            OK(tsr_comm_broadcast(world, &named, 1, TSR_I32, last));
        }
        if (!reached) {
            OK(status);
            CHECK(nth >= (ranks > 1 ? 3 : 6), "only %llu calls", (unsigned long long)nth);
            break;
        }
        CHECK(status == TSR_ERR_IO, "call %llu: %s", (unsigned long long)nth,
              tsr_status_name(status));
        CHECK(strstr(tsr_last_error(), my_rank == last ? "checkpoint_save: cannot" : "rank "),
              "said %s", tsr_last_error());
        int32_t old[4] = {0};
        tsr_checkpoint_entry again = e;
        again.data = old;
        OK(tsr_checkpoint_load(path, world, NULL, 1, &again, NULL));
        CHECK(named || (old[0] == 1 && old[3] == 1), "the file has changed");
        char partial[96];
        snprintf(partial, sizeof partial, "%s.partial", path);
        if (world)
            OK(tsr_comm_barrier(world));
        CHECK(!exists(partial), "%s is there", partial);
    }
    if (world)
        OK(tsr_comm_barrier(world));
    if (my_rank == 0)
        unlink(path);
}
