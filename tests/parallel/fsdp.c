/* Sharded parameters: the bits after training, and the memory that the plan predicts. */
#include "gpu/device/device.h"
#include "parallel/fsdp_case.h"

#include <unistd.h>

#include "parallel/fsdp/fsdp.h"

/* Strategies for dividing parameters --------------------------------------------------------- */

/* A strategy that the test implements: the ranges of each parameter are in the opposite order of
 * the ranks. */
static tsr_status backwards(void *user, const tsr_shard_request *request, tsr_shard_range *ranges)
{
    (void)user;
    for (uint64_t p = 0; p < request->param_count; p++) {
        uint64_t n = (uint64_t)request->ranks, end = request->params[p].count;
        for (uint64_t r = 0; r < n; r++) {
            uint64_t start = request->params[p].count * (n - 1 - r) / n;
            ranges[p * n + r] = (tsr_shard_range){start, end - start};
            end = start;
        }
    }
    return TSR_OK;
}

static const double some_rates[16] = {3, 1, 2, 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const char *const biases[] = {"bias", NULL}, *const the_head[] = {"head", NULL},
                         *const none[] = {NULL};

typedef struct way {
    const char *name;
    tsr_shard_strategy_params strategy;
    bool own, rated;
    const char *const *gather;
    int ahead;
    bool staged;
} way;
static const way ways[] = {
    {.name = "full"},
    {.name = "full, staged", .staged = true},
    {.name = "full, nothing ahead", .ahead = -1},
    {.name = "full, all ahead", .ahead = 3},
    {.name = "full, uneven", .strategy = {.partition = TSR_PARTITION_UNEVEN}},
    {.name = "full, biases gathered", .gather = biases},
    {.name = "layerwise", .strategy = {.kind = TSR_SHARD_LAYERWISE}},
    {.name = "hybrid",
     .strategy = {.kind = TSR_SHARD_HYBRID, .full_layers = none, .layerwise_layers = the_head}},
    {.name = "weighted", .strategy = {.kind = TSR_SHARD_WEIGHTED}, .rated = true},
    {.name = "backwards", .own = true},
};

static tsr_status way_strategy(const way *w, tsr_shard_strategy **out)
{
    tsr_shard_strategy_params params = w->strategy;
    params.struct_size = sizeof params;
    return tsr_shard_strategy_create(&params, out);
}
#define WAYS (sizeof ways / sizeof *ways)

/* Trains the case, and returns the bytes of its model. */
static uint8_t *train(const model_case *base, const way *w, int steps, bool twice, uint64_t *size)
{
    static const tsr_shard_strategy own = {
        .struct_size = sizeof(tsr_shard_strategy), .name = "backwards", .assign = backwards};
    tsr_shard_strategy *strategy = NULL;
    model_case c = *base;
    if (w) {
        OK(way_strategy(w, &strategy));
        c.sharded.strategy = w->own ? &own : strategy;
        c.sharded.rates = w->rated ? some_rates : NULL;
        c.sharded.gather = w->gather;
        c.sharded.ahead = w->ahead;
        c.sharded.group = w->staged ? staged : group;
    } else {
        c.sharded.gather = everything; /* data parallelism only: every rank has all parameters */
    }
    model m;
    model_make(&c, &m);
    for (int i = 0; i < steps; i++) {
        if (twice)
            model_pass(&m, 5000 + 7 * my_rank, 7, 60, 0.01f);
        model_step(&m, i, my_rank, ranks);
    }
    uint8_t *bytes = model_bytes(&m, size);
    model_finish(&m);
    tsr_shard_strategy_destroy(&strategy);
    return bytes;
}

static void check_all_ways(const model_case *c, const char *what, bool twice)
{
    uint64_t size, want_size;
    uint8_t *want = train(c, NULL, 3, twice, &want_size);
    for (size_t i = 0; i < WAYS; i++) {
        uint8_t *got = train(c, &ways[i], 3, twice, &size);
        CHECK(size == want_size && memcmp(got, want, size) == 0,
              "%s, %s: other bits than data parallelism has", what, ways[i].name);
        free(got);
    }
    free(want);
}

CASE(adamw_bits, "fsdp: every strategy gives the bits of data parallelism: AdamW")
{
    check_all_ways(&(model_case){0}, "AdamW", false);
}

CASE(sgd_bits, "fsdp: every strategy gives the bits of data parallelism: SGD, sums")
{
    check_all_ways(
        &(model_case){.sharded = {.optimizer = TSR_OPTIMIZER_SGD, .reduction = TSR_OP_SUM}}, "SGD",
        false);
}

CASE(half_bits,
     "fsdp: every strategy gives the bits of data parallelism: f16 and bf16, with f32 copies")
{
    check_all_ways(&(model_case){.dtype = TSR_F16}, "f16", false);
    check_all_ways(&(model_case){.dtype = TSR_BF16, .sharded = {.grad_dtype = TSR_BF16}}, "bf16",
                   false);
}

CASE(accumulated_bits, "fsdp: several backward passes before a step add up, with the same bits")
{
    check_all_ways(&(model_case){0}, "accumulated", true);
}

CASE(whole_layers, "fsdp: the values of layers that are not deferred are kept")
{
    uint64_t size, want_size;
    uint8_t *want = train(&(model_case){0}, &ways[0], 1, false, &want_size);
    uint8_t *got = train(&(model_case){.whole = true}, &ways[0], 1, false, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "other bits");
    free(got);
    free(want);
}

/* Copies of other ranks' shards -------------------------------------------------------------- */

/* Checks the copy of another rank's shard. That rank sends the shard, for comparison. */
static void check_copy(tsr_fsdp *m, const char *what, const tsr_tensor *own, const tsr_tensor *copy)
{
    uint64_t own_size, size;
    if (!own)
        return;
    uint8_t *mine = bytes_of(own, &own_size), *got = bytes_of(copy, &size),
            *want = malloc(size + 1);
    tsr_request *sending = NULL;
    CHECK(want, "no memory");
    OK(tsr_comm_send(world, mine, own_size, TSR_U8, m->replica.to, 0, &sending));
    OK(tsr_comm_recv(world, want, size, TSR_U8, m->replica.from, 0, NULL));
    OK(tsr_request_wait(&sending));
    CHECK(memcmp(got, want, size) == 0, "%s: the copy of rank %d's shard has other bits", what,
          m->replica.from);
    free(mine);
    free(got);
    free(want);
}

static void check_copies(tsr_fsdp *m, const char *what)
{
    for (int i = 0; i < m->param_count; i++) {
        const tsr__fsdp_param *own = &m->params[i], *copy = &m->replica.params[i];
        if (own->resident)
            continue;
        check_copy(m, what, own->value, copy->value);
        check_copy(m, what, own->master, copy->master);
        check_copy(m, what, own->moment1, copy->moment1);
        check_copy(m, what, own->moment2, copy->moment2);
    }
}

/* Makes steps with different numbers of passes, without any pass, and with a gradient that one rank
 * changes. */
static void pass_of_other_kind(model *m)
{
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    const tsr__fsdp_unit *last = &m->sharded->units[m->sharded->unit_count - 1];
    for (int passes = 1; passes <= 3; passes++) {
        for (int i = 0; i < passes; i++)
            model_pass(m, 5000 + 7 * my_rank, 7, 60, 0.01f);
        model_update(m);
    }
    OK(fsdp_zero_grad(m->sharded));
    for (int i = 0; i < 3; i++)
        model_pass(m, 6000 + 7 * my_rank, 7, 60, 0.01f);
    CHECK(last->sent && last->passes == 3,
          "gradients were not sent after the last pass, before the step");
    for (uint64_t p = 0; my_rank == 0 && p < (uint64_t)m->sharded->param_count; p++) {
        OK(tsr_fsdp_get_shard(m->sharded, p, &shard));
        if (shard.grad)
            OK(tsr_fill(queue, shard.grad, 0.25));
    }
    model_update(m);
    model_pass(m, 7000 + 7 * my_rank, 7, 60, 0.01f);
    OK(fsdp_zero_grad(m->sharded));
    model_update(m);
}

static void copy_through(const way *w, tsr_dtype dtype)
{
    char path[SHARED_PATH];
    tsr_shard_strategy *strategy = NULL;
    model m;
    OK(way_strategy(w, &strategy));
    model_make(&(model_case){.dtype = dtype,
                             .sharded = {.group = group,
                                         .strategy = strategy,
                                         .rates = w->rated ? some_rates : NULL,
                                         .gather = w->gather,
                                         .replicas = 1}},
               &m);
    check_copies(m.sharded, w->name);
    for (int i = 0; i < 2; i++) {
        model_pass(&m, 5000 + 7 * my_rank, 7, 60, 0.01f);
        model_step(&m, i, my_rank, ranks);
    }
    check_copies(m.sharded, w->name);
    pass_of_other_kind(&m);
    check_copies(m.sharded, w->name);
    shared_path(world, "copies", path);
    OK(fsdp_save(m.sharded, path, NULL));
    for (int i = 0; i < m.sharded->param_count; i++)
        OK(tsr_fill(queue, m.sharded->params[i].value, my_rank + 1));
    OK(tsr_fsdp_changed(m.sharded));
    check_copies(m.sharded, w->name);
    OK(fsdp_load(m.sharded, path, NULL));
    check_copies(m.sharded, w->name);
    OK(fsdp_load(m.sharded, path, tsr_optimizer_file_params(.model_only = true)));
    check_copies(m.sharded, w->name);
    unlink(path); /* by whichever rank is first */
    model_finish(&m);
    tsr_shard_strategy_destroy(&strategy);
}

CASE(copies, "fsdp: copies have the bits of their shards after steps, changes and loading")
{
    if (ranks == 1) {
        case_skip("one rank has no copies");
        return;
    }
    for (size_t i = 0; i < WAYS; i++)
        if (!ways[i].own && !ways[i].staged && !ways[i].ahead)
            copy_through(&ways[i], i % 2 ? TSR_BF16 : TSR_F32);
}

/* Unsharded training ------------------------------------------------------------------------- */

/* Trains with the full batch, full layers, and the optimizer on full parameters. */
static void train_unsharded(tsr_group *alone, int steps, double *out[2 * MODEL_LAYERS])
{
    static const int64_t sizes[] = {12, 20, 16, 8};
    static const char *const names[] = {"first", "block.2", "head"};
    tsr_layer *layers[MODEL_LAYERS];
    tsr_tensor *velocity[2 * MODEL_LAYERS] = {NULL};
    for (int i = 0; i < MODEL_LAYERS; i++)
        OK(tsr_column_linear_create(
            tsr_linear_params(.group = alone, .name = names[i], .input_size = sizes[i],
                              .output_size = sizes[i + 1],
                              .init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 7),
                              .bias = true),
            &layers[i]));
    for (int s = 0; s < steps; s++) {
        const int64_t rows = MODEL_ROWS * ranks;
        tsr_layer_saved *saved[MODEL_LAYERS];
        double *values = doubles(rows * 12);
        for (int64_t i = 0; i < rows * 12; i++)
            values[i] = number(50, s * 100 * 12 + i);
        tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){rows, 12}, values), *next = NULL;
        free(values);
        for (int i = 0; i < MODEL_LAYERS; i++) {
            OK(tsr_layer_forward(layers[i], x, &saved[i], &next));
            tsr_tensor_destroy(&x);
            x = next;
        }
        values = doubles(rows * 8);
        for (int64_t i = 0; i < rows * 8; i++)
            values[i] = number(1050, s * 100 * 8 + i);
        tsr_tensor *dy = tensor_of(TSR_F32, 2, (int64_t[]){rows, 8}, values);
        free(values);
        OK(tsr_axpy(queue, dy, 0.5f, x));
        OK(tsr_scale(queue, dy, dy, 1.0f / (float)rows, 0));
        tsr_tensor_destroy(&x);
        for (int i = MODEL_LAYERS - 1; i >= 0; i--) {
            OK(tsr_layer_backward(layers[i], saved[i], dy, &next));
            tsr_tensor_destroy(&dy);
            dy = next;
            tsr_layer_saved_destroy(&saved[i]);
            for (int j = 0; j < 2; j++) {
                const tsr_parameter *p = tsr_layer_parameter(layers[i], j);
                tsr_tensor **v = &velocity[2 * i + j];
                if (!*v)
                    *v = tensor_new(TSR_F32, p->ndim, p->global_shape);
                OK(tsr_sgd_step(queue, p->tensor, p->grad, *v, NULL,
                                tsr_sgd_params(.learning_rate = 0.05f, .momentum = 0.9f,
                                               .weight_decay = 0.01f, .first_step = s == 0)));
            }
            tsr_layer_zero_grad(layers[i]);
        }
        tsr_tensor_destroy(&dy);
    }
    for (int i = 0; i < 2 * MODEL_LAYERS; i++) {
        out[i] = values_of(tsr_layer_parameter(layers[i / 2], i % 2)->tensor);
        tsr_tensor_destroy(&velocity[i]);
    }
    for (int i = 0; i < MODEL_LAYERS; i++)
        tsr_layer_destroy(&layers[i]);
}

CASE(unsharded,
     "fsdp: training equals unsharded training: bit for bit on one rank, otherwise within 2e-6")
{
    const int steps = 5;
    double *want[2 * MODEL_LAYERS];
    model m;
    model_make(&(model_case){.sharded = {.optimizer = TSR_OPTIMIZER_SGD}}, &m);
    train_unsharded(m.alone, steps, want);
    for (int i = 0; i < steps; i++)
        model_step(&m, i, my_rank, ranks);
    for (int u = 0; u < MODEL_LAYERS; u++) {
        OK(tsr_fsdp_begin(m.sharded, u, TSR_PASS_FORWARD));
        for (int j = 0; j < 2; j++) {
            const tsr_parameter *p = tsr_fsdp_parameter(m.sharded, u, j);
            double *got = values_of(p->tensor);
            for (int64_t i = 0; i < count_of(p->ndim, p->global_shape); i++)
                CHECK(ranks == 1 ? got[i] == want[2 * u + j][i]
                                 : fabs(got[i] - want[2 * u + j][i]) <= 2e-6,
                      "%s: element %lld is %.9g, not %.9g", p->name, (long long)i, got[i],
                      want[2 * u + j][i]);
            free(got);
            free(want[2 * u + j]);
        }
        OK(tsr_fsdp_end(m.sharded, u));
    }
    model_finish(&m);
}

/* Memory that the plan predicts -------------------------------------------------------------- */

#define BIG_UNITS 6
#define BIG_ROWS 96
#define BIG_COLUMNS 512 /* 192 KiB in a unit */

typedef struct peak {
    uint64_t before, most;
} peak;

static void look_at(peak *p)
{
    uint64_t used = used_bytes() - p->before;
    p->most = used > p->most ? used : p->most;
}

/* Trains units of the caller's own parameters. Passes need no memory except the model's, so that
 * the memory can be compared with the plan. */
static void train_big(tsr_fsdp *m, peak *p)
{
    for (int step = 0; step < 2; step++) {
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < BIG_UNITS; i++) {
                int u = pass ? BIG_UNITS - 1 - i : i;
                OK(tsr_fsdp_begin(m, u, pass ? TSR_PASS_BACKWARD : TSR_PASS_FORWARD));
                const tsr_parameter *parameter = tsr_fsdp_parameter(m, u, 0);
                CHECK(parameter->tensor && !parameter->grad == !pass, "memory of a pass");
                if (pass)
                    OK(tsr_fill(queue, parameter->grad, u + 1 + my_rank));
                look_at(p);
                OK(tsr_fsdp_end(m, u));
                CHECK(!parameter->tensor && !parameter->grad, "memory after a pass");
                look_at(p);
            }
        OK(fsdp_adamw_step(m, tsr_adamw_params(.learning_rate = 0.1f)));
        look_at(p);
    }
}

static void check_memory(const way *w)
{
    tsr_parameter parameters[BIG_UNITS];
    tsr_fsdp_unit units[BIG_UNITS];
    char names[BIG_UNITS][16];
    for (int u = 0; u < BIG_UNITS; u++) {
        snprintf(names[u], sizeof names[u], "layer%d.w", u);
        parameters[u] = (tsr_parameter){.struct_size = sizeof(tsr_parameter),
                                        .name = names[u],
                                        .dtype = TSR_F32,
                                        .ndim = 2,
                                        .global_shape = {BIG_ROWS, BIG_COLUMNS},
                                        .shard_dim = -1};
        units[u] = (tsr_fsdp_unit){.struct_size = sizeof(tsr_fsdp_unit),
                                   .parameter_count = 1,
                                   .parameters = &parameters[u]};
    }
    tsr_shard_strategy *strategy = NULL;
    tsr_fsdp *m = NULL;
    OK(way_strategy(w, &strategy));
    peak p = {used_bytes(), 0};
    OK(tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = BIG_UNITS, .units = units,
                                       .strategy = strategy, .rates = w->rated ? some_rates : NULL,
                                       .gather = w->gather, .ahead = w->ahead),
                       &m));
    train_big(m, &p);

    const uint64_t unit = BIG_ROWS * BIG_COLUMNS * 4;
    tsr_fsdp_memory said = TSR_INIT(tsr_fsdp_memory);
    tsr_shard_rank_total total = TSR_INIT(tsr_shard_rank_total);
    OK(tsr_fsdp_get_memory(m, &said));
    OK(tsr_shard_plan_get_rank_total(tsr_fsdp_plan(m), my_rank, &total));
    CHECK(said.parameter_bytes == total.total_bytes, "%llu bytes, the plan says %llu",
          (unsigned long long)said.parameter_bytes, (unsigned long long)total.total_bytes);
    CHECK(said.gradient_bytes == total.total_bytes && said.optimizer_bytes == 2 * total.total_bytes,
          "gradients and moments");
    const bool slots = ranks > 1 && w->gather != everything;
    const uint64_t ahead = w->ahead < 0 ? 1 : 2;
    CHECK(said.gathered_bytes == (slots ? ahead * unit : 0) &&
              said.unreduced_bytes == said.gathered_bytes,
          "%llu bytes gathered", (unsigned long long)said.gathered_bytes);
    /* Each kind of memory is rounded up to pages, and each shard to 64 bytes. */
    const uint64_t slack = 64 * 4 * BIG_UNITS + 7 * 65536;
    CHECK(p.most >= said.total_bytes && p.most <= said.total_bytes + slack,
          "%s: %llu bytes at the peak, %llu said", w->name, (unsigned long long)p.most,
          (unsigned long long)said.total_bytes);
    tsr_fsdp_destroy(&m);
    tsr_shard_strategy_destroy(&strategy);
}

CASE(memory, "fsdp: peak memory per rank is that of the plan and of two units")
{
    for (size_t i = 0; i < WAYS; i++)
        if (!ways[i].own && ways[i].ahead <= 0)
            check_memory(&ways[i]);
    check_memory(&(way){.name = "data parallelism", .gather = everything});
}

int adamw_steps; /* calls since it was last set to 0 */
int adamw_failing_step = -1;
tsr_status __real_tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                  const tsr_tensor *gradient, tsr_tensor *moment1,
                                  tsr_tensor *moment2, tsr_tensor *master,
                                  const tsr_adamw_params *params, tsr__gradient_scale scale);
tsr_status __wrap_tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                  const tsr_tensor *gradient, tsr_tensor *moment1,
                                  tsr_tensor *moment2, tsr_tensor *master,
                                  const tsr_adamw_params *params, tsr__gradient_scale scale);

tsr_status __wrap_tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                  const tsr_tensor *gradient, tsr_tensor *moment1,
                                  tsr_tensor *moment2, tsr_tensor *master,
                                  const tsr_adamw_params *params, tsr__gradient_scale scale)
{
    if (adamw_steps++ == adamw_failing_step)
        return TSR_ERR_NO_MEMORY;
    return __real_tsr__adamw_step(stream, parameter, gradient, moment1, moment2, master, params,
                                  scale);
}

static void check_chunks(const model_case *c)
{
    model m[2];
    uint64_t size[2], *most = &tsr_stream_device(queue)->info.max_allocation_bytes, usual = *most;
    uint8_t *bytes[2];
    int stepped[2];
    for (int i = 0; i < 2; i++) {
        *most = i == 1 ? 512 : usual;
        model_make(c, &m[i]);
        *most = usual;
        adamw_steps = 0;
        for (int step = 0; step < 3; step++)
            model_step(&m[i], step, 0, 1);
        stepped[i] = adamw_steps;
        bytes[i] = model_bytes(&m[i], &size[i]);
    }
    CHECK(m[0].sharded->pools.state.count == 1 && m[1].sharded->pools.state.count > 1,
          "%zu and %zu chunks", m[0].sharded->pools.state.count, m[1].sharded->pools.state.count);
    if (c->sharded.optimizer == TSR_OPTIMIZER_ADAMW) {
        CHECK(stepped[0] == 3, "%d launches for three steps", stepped[0]);
        CHECK(ranks > 1 || stepped[1] > 3, "%d launches over several chunks", stepped[1]);
    }
    CHECK(size[0] == size[1] && memcmp(bytes[0], bytes[1], size[0]) == 0, "other values");
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        model_finish(&m[i]);
    }
}

/* The size of one allocation is limited while the second model is created. The number of chunks
 * decides how many parameters are stepped together, and the bits must not depend on it. */
CASE(chunks, "fsdp: shards that exceed one allocation use several; others are stepped together")
{
    check_chunks(&(model_case){.dtype = TSR_F32});
    check_chunks(&(model_case){.dtype = TSR_BF16});
    check_chunks(&(model_case){.sharded = {.optimizer = TSR_OPTIMIZER_SGD}});
}

/* Memory for units that are gathered ahead --------------------------------------------------- */

CASE(ahead,
     "fsdp: the next unit is gathered while one is used, and a gathered one is not gathered again")
{
    model m;
    model_make(&(model_case){0}, &m);
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    if (ranks == 1) {
        case_skip("there is nothing to gather");
    } else {
        const tsr__fsdp_unit *u = m.sharded->units;
        OK(tsr_fsdp_begin(m.sharded, 0, TSR_PASS_FORWARD));
        CHECK(u[0].slot >= 0 && u[1].slot >= 0 && u[2].slot < 0, "0 and 1 are there");
        OK(tsr_fsdp_end(m.sharded, 0));
        OK(tsr_fsdp_begin(m.sharded, 1, TSR_PASS_FORWARD));
        CHECK(u[0].slot < 0 && u[1].slot >= 0 && u[2].slot >= 0, "1 and 2 are there");
        OK(tsr_fsdp_end(m.sharded, 1));
        OK(tsr_fsdp_begin(m.sharded, 2, TSR_PASS_FORWARD));
        OK(tsr_fsdp_end(m.sharded, 2));
        tsr_group_reset_stats(group);
        OK(tsr_fsdp_begin(m.sharded, 2, TSR_PASS_FORWARD));
        OK(tsr_fsdp_end(m.sharded, 2));
        OK(tsr_group_get_stats(group, &stats));
        CHECK(stats.operations == 0, "%llu operations for what was there",
              (unsigned long long)stats.operations);
        OK(tsr_fsdp_begin(m.sharded, 2, TSR_PASS_BACKWARD));
        CHECK(u[1].slot >= 0, "1 is there in the backward pass");
        OK(tsr_fsdp_end(m.sharded, 2));
        OK(fsdp_zero_grad(m.sharded));
        OK(tsr_fsdp_changed(m.sharded));
        CHECK(u[0].slot < 0 && u[1].slot < 0 && u[2].slot < 0, "nothing is there");
    }
    model_finish(&m);
}

CASE(shards, "fsdp: shards are those of the plan, and values written to them are used")
{
    model m;
    model_make(&(model_case){.dtype = TSR_F16}, &m);
    const tsr_shard_plan *plan = tsr_fsdp_plan(m.sharded);
    for (uint64_t i = 0; i < tsr_shard_plan_param_count(plan); i++) {
        tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
        tsr_shard_range range;
        OK(tsr_fsdp_get_shard(m.sharded, i, &shard));
        OK(tsr_shard_plan_range(plan, i, my_rank, &range));
        CHECK(shard.range.start == range.start && shard.range.count == range.count, "range");
        CHECK(!shard.grad, "no gradient yet");
        CHECK(!shard.value == (range.count == 0), "a value where there is one");
        if (shard.value)
            OK(tsr_fill(queue, shard.value, 3));
    }
    OK(tsr_fsdp_changed(m.sharded));
    for (int u = 0; u < MODEL_LAYERS; u++) {
        OK(tsr_fsdp_begin(m.sharded, u, TSR_PASS_FORWARD));
        for (int j = 0; tsr_fsdp_parameter(m.sharded, u, j); j++) {
            const tsr_parameter *p = tsr_fsdp_parameter(m.sharded, u, j);
            double *values = values_of(p->tensor);
            for (int64_t i = 0; i < count_of(p->ndim, p->global_shape); i++)
                CHECK(values[i] == 3, "%s: element %lld is %g", p->name, (long long)i, values[i]);
            free(values);
        }
        OK(tsr_fsdp_end(m.sharded, u));
    }
    for (int i = 0; i < m.sharded->param_count; i++)
        if (m.sharded->params[i].range.count > 0) {
            double *values = values_of(m.sharded->params[i].master);
            CHECK(values[0] == 3, "the f32 copy is %g", values[0]);
            free(values);
        }
    model_finish(&m);
}

/* Parameters may have dimensions of size 0, even if nothing else in the unit needs memory. */
CASE(nothing, "fsdp: units whose parameters have no elements are used and stepped")
{
    const tsr_parameter empty[] = {{.struct_size = sizeof(tsr_parameter),
                                    .name = "empty.weight",
                                    .dtype = TSR_F32,
                                    .ndim = 2,
                                    .global_shape = {0, 5},
                                    .shard_dim = -1},
                                   {.struct_size = sizeof(tsr_parameter),
                                    .name = "empty.bias",
                                    .dtype = TSR_F16,
                                    .ndim = 1,
                                    .global_shape = {0},
                                    .shard_dim = -1}};
    tsr_fsdp *m = NULL;
    OK(tsr_fsdp_create(
        tsr_fsdp_params(.group = group, .unit_count = 1,
                        .units = tsr_fsdp_unit(.parameter_count = 2, .parameters = empty)),
        &m));
    for (int pass = TSR_PASS_FORWARD; pass <= TSR_PASS_BACKWARD; pass++) {
        OK(tsr_fsdp_begin(m, 0, (tsr_pass)pass));
        for (int i = 0; i < 2; i++) {
            const tsr_parameter *p = tsr_fsdp_parameter(m, 0, i);
            CHECK(p->tensor && tsr_layout_count(tsr_tensor_layout(p->tensor)) == 0, "%s", p->name);
            CHECK(!p->grad == (pass == TSR_PASS_FORWARD), "%s's gradient", p->name);
        }
        OK(tsr_fsdp_end(m, 0));
    }
    OK(fsdp_adamw_step(m, tsr_adamw_params(.learning_rate = 1)));
    tsr_fsdp_destroy(&m);
}
