#define _DEFAULT_SOURCE
#include "parallel/elastic.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/fsdp_steps.h"

#define MS UINT64_C(1000000)
#define TIMEOUT_NS (20000 * MS) /* unless the job says otherwise */
#define ITEMS (ELASTIC_BATCH * ELASTIC_EPOCH)
#define UNITS 3
#define PARAMS 4
#define LEARNING_RATE 0.05
#define MOST_ELEMENTS 128

typedef struct worker {
    elastic_shared *shared;
    const elastic_job *job;
    int number; /* the number of this process */
    tsr_comm *world;
    bool is_first; /* the communicator belongs to ranks.c */
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *group;
    tsr_fsdp *model, *twin; /* twin: a model loaded from a file after the last loss */
    tsr_sampler *sampler;
    int64_t step;
    int sampler_ranks;
    int64_t sampled_from; /* the first step that uses `sampler`; it begins with item `first_item` */
    uint64_t first_item;
    int64_t looked_at; /* the last step before which the ranks looked for processes that join */
    int grows;         /* how often ranks have joined since this process started, itself included */
    int rebuilding;    /* how many times the objects have been rebuilt, this time included */
    bool moving, armed, has_rebuilt;
} worker;

static worker w;

static uint64_t timeout_ns(void)
{
    return w.job->timeout_ns ? w.job->timeout_ns : TIMEOUT_NS;
}

static const struct {
    const char *name;
    int unit, ndim;
    int64_t shape[3];
} shapes[PARAMS] = {{"a.weight", 0, 2, {6, 7}},
                    {"b.scale", 1, 1, {33}},
                    {"b.weight", 1, 3, {2, 3, 4}},
                    {"c.bias", 2, 1, {5}}};

static int64_t count_of(int param)
{
    int64_t count = 1;
    for (int d = 0; d < shapes[param].ndim; d++)
        count *= shapes[param].shape[d];
    return count;
}

static double initial(int param, int64_t i)
{
    return 0.5 * param - 0.03125 * (double)i;
}

static double sample(int64_t index)
{
    return (double)(index * 37 % 101) / 101;
}

/* Losses of ranks ---------------------------------------------------------------------------- */

static const elastic_loss *find_loss(elastic_point point, int64_t at)
{
    static const elastic_loss none;
    for (int i = 0; i < ELASTIC_LOSSES; i++)
        if (w.job->losses[i].point == point && w.job->losses[i].at == at)
            return &w.job->losses[i];
    return &none;
}

static bool is_victim(elastic_point point, int64_t at)
{
    return find_loss(point, at)->victims >> w.number & 1;
}

/* Kills this process if the job has a loss at this point. Returns whether this process must
 * instead get an error while others succeed (`behind`). */
static bool come_to(elastic_point point, int64_t at)
{
    if (is_victim(point, at))
        raise(SIGKILL);
    return find_loss(point, at)->behind >> w.number & 1;
}

/* The linker replaces the following functions of the library by __wrap_…, which kill this process
 * at the points that the job names. */
tsr_status __real_tsr_comm_barrier(tsr_comm *comm, tsr_request **request);
tsr_status __wrap_tsr_comm_barrier(tsr_comm *comm, tsr_request **request);
tsr_status __wrap_tsr_comm_barrier(tsr_comm *comm, tsr_request **request)
{
    if (!w.armed)
        return __real_tsr_comm_barrier(comm, request);
    (void)come_to(POINT_BEFORE_BARRIER, w.step);
    TSR__TRY(__real_tsr_comm_barrier(comm, request));
    _Atomic int *passed = &w.shared->passed[w.step % ELASTIC_PASSED];
    atomic_fetch_add(passed, 1);
    /* A victim waits until all ranks have passed the barrier. */
    for (int ms = 0; ms < 60000 && is_victim(POINT_AFTER_BARRIER, w.step) &&
                     atomic_load(passed) < tsr_comm_size(comm);
         ms++)
        rest_ms(1);
    return come_to(POINT_AFTER_BARRIER, w.step) ? TSR_ERR_PEER_LOST : TSR_OK;
}

tsr_status __real_tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                        const uint64_t *send_counts, void *recv,
                                        const uint64_t *recv_counts, tsr_dtype dtype,
                                        tsr_request **request);
tsr_status __wrap_tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                        const uint64_t *send_counts, void *recv,
                                        const uint64_t *recv_counts, tsr_dtype dtype,
                                        tsr_request **request);
tsr_status __wrap_tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                        const uint64_t *send_counts, void *recv,
                                        const uint64_t *recv_counts, tsr_dtype dtype,
                                        tsr_request **request)
{
    if (w.moving)
        (void)come_to(POINT_MOVING, w.rebuilding);
    w.moving = true;
    return __real_tsr_comm_all_to_all_v(comm, send, send_counts, recv, recv_counts, dtype, request);
}

tsr_status __real_tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine);
tsr_status __wrap_tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine);
tsr_status __wrap_tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine)
{
    tsr_status status = __real_tsr__checkpoint_agree(comm, who, mine);
    /* Once the shards have been moved, this is the last agreement of tsr_fsdp_rebuild. */
    if (status != TSR_OK || !w.moving || strcmp(who, "fsdp_rebuild") != 0)
        return status;
    if (!come_to(POINT_REBUILT, w.rebuilding))
        return status;
    while (status == TSR_OK)
        status = __real_tsr_comm_barrier(comm, NULL);
    return status;
}

/* The model ---------------------------------------------------------------------------------- */

static tsr_status with_model(tsr_status (*call)(const tsr_fsdp_params *, tsr_fsdp **),
                             tsr_fsdp **model)
{
    static const char *const biases[] = {"bias", NULL}, *const all[] = {"*", NULL};
    const tsr_dtype dtype = w.job->dtype ? w.job->dtype : TSR_F32;
    tsr_parameter params[PARAMS] = {{0}};
    tsr_fsdp_unit units[UNITS];
    for (int u = 0; u < UNITS; u++)
        units[u] = TSR_INIT(tsr_fsdp_unit);
    for (int i = 0; i < PARAMS; i++) {
        float values[MOST_ELEMENTS];
        tsr_tensor *exact;
        tsr_fsdp_unit *unit = &units[shapes[i].unit];
        params[i] = (tsr_parameter){.struct_size = sizeof(tsr_parameter),
                                    .name = shapes[i].name,
                                    .dtype = dtype,
                                    .ndim = shapes[i].ndim,
                                    .shard_dim = -1,
                                    .length = shapes[i].shape[0]};
        memcpy(params[i].global_shape, shapes[i].shape, sizeof shapes[i].shape);
        for (int64_t k = 0; k < count_of(i); k++)
            values[k] = (float)initial(i, k);
        need_ok(tsr_tensor_create(w.device, TSR_F32, shapes[i].ndim, shapes[i].shape, &exact));
        need_ok(tsr_tensor_upload(w.stream, exact, values, (uint64_t)count_of(i) * 4));
        need_ok(
            tsr_tensor_create(w.device, dtype, shapes[i].ndim, shapes[i].shape, &params[i].tensor));
        need_ok(tsr_copy(w.stream, params[i].tensor, exact));
        tsr_tensor_destroy(&exact);
        if (unit->parameter_count++ == 0)
            unit->parameters = &params[i];
    }
    tsr_shard_strategy *strategy = NULL;
    need_ok(tsr_shard_strategy_create(
        tsr_shard_strategy_params(.kind = w.job->layerwise ? TSR_SHARD_LAYERWISE : TSR_SHARD_FULL),
        &strategy));
    tsr_status status = call(
        tsr_fsdp_params(.group = w.group, .unit_count = UNITS, .units = units, .strategy = strategy,
                        .gather = w.job->everywhere ? all : biases, .reduction = TSR_OP_SUM,
                        .replicas = !w.job->no_replicas,
                        .optimizer = w.job->momentum ? TSR_OPTIMIZER_SGD : TSR_OPTIMIZER_ADAMW),
        model);
    tsr_shard_strategy_destroy(&strategy);
    for (int i = 0; i < PARAMS; i++)
        tsr_tensor_destroy(&params[i].tensor);
    return status;
}

/* The loss is ½ Σ (w − x)² over all elements and samples, divided by the number of samples. */
static tsr_status pass(tsr_fsdp *model, int64_t samples, double sum)
{
    const float weight = (float)((double)samples / ELASTIC_BATCH);
    tsr_status status = TSR_OK;
    for (int u = 0; u < UNITS && status == TSR_OK; u++) {
        status = tsr_fsdp_begin(model, u, TSR_PASS_FORWARD);
        if (status == TSR_OK)
            status = tsr_fsdp_end(model, u);
    }
    for (int u = UNITS - 1; u >= 0 && status == TSR_OK; u--) {
        status = tsr_fsdp_begin(model, u, TSR_PASS_BACKWARD);
        const tsr_parameter *p;
        for (int i = 0; status == TSR_OK && (p = tsr_fsdp_parameter(model, u, i)); i++)
            need_ok(tsr_scale(w.stream, p->grad, p->tensor, weight, (float)(-sum / ELASTIC_BATCH)));
        if (u == 0 && model == w.model)
            (void)come_to(POINT_BACKWARD, w.step);
        if (status == TSR_OK)
            status = tsr_fsdp_end(model, u);
    }
    return status;
}

static tsr_status update(tsr_fsdp *model)
{
    return w.job->momentum
               ? fsdp_sgd_step(
                     model, tsr_sgd_params(.learning_rate = (float)LEARNING_RATE, .momentum = 0.9f))
               : fsdp_adamw_step(model,
                                 tsr_adamw_params(.learning_rate = (float)LEARNING_RATE,
                                                  .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f));
}

/* Steps -------------------------------------------------------------------------------------- */

static tsr_sampler *new_sampler(int ranks, int rank)
{
    tsr_sampler *sampler;
    need_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = ITEMS, .ranks = ranks, .rank = rank,
                                       .tail = TSR_TAIL_DROP, .seed = 5),
        &sampler));
    return sampler;
}

static tsr_status train(void)
{
    const int64_t mine = ELASTIC_BATCH / tsr_comm_size(w.world);
    int64_t indices[ELASTIC_BATCH];
    uint64_t count;
    double sum = 0;
    if (w.step % ELASTIC_EPOCH == 0) {
        need_ok(tsr_sampler_set_epoch(w.sampler, w.step / ELASTIC_EPOCH));
        w.sampled_from = w.step;
        w.first_item = 0;
    }
    need_ok(tsr_sampler_fill(w.sampler, (uint64_t)mine, indices, NULL, &count));
    need((int64_t)count == mine);
    for (int64_t i = 0; i < mine; i++)
        sum += sample(indices[i]);
    tsr_status status = pass(w.model, mine, sum);
    if (status == TSR_OK) {
        w.armed = true;
        status = update(w.model);
        w.armed = false;
    }
    if (status == TSR_OK && w.twin)
        status = pass(w.twin, mine, sum);
    if (status == TSR_OK && w.twin)
        status = update(w.twin);
    if (status == TSR_OK)
        w.step++;
    return status;
}

/* Files -------------------------------------------------------------------------------------- */

static void path_of(const char *folder, const char *what, int64_t number, size_t size, char *path)
{
    snprintf(path, size, "%s/%s-%lld", folder, what, (long long)number);
}

static void need_equal_files(const char *a, const char *b)
{
    static char bytes[2][65536];
    size_t sizes[2];
    const char *const paths[] = {a, b};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(paths[i], "rb");
        need(file);
        sizes[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        need(sizes[i] > 0 && sizes[i] < sizeof bytes[i]);
        fclose(file);
    }
    if (sizes[0] != sizes[1] || memcmp(bytes[0], bytes[1], sizes[0]) != 0)
        rank_fail("%s and %s differ", a, b);
}

/* Checks the rebuilt model against the file of an undisturbed job, and loads a twin from that
 * file. */
static tsr_status compare_rebuilt(void)
{
    char path[256], other[256];
    path_of(w.job->folder, "rebuilt", w.number, sizeof path, path);
    path_of(w.job->compared, "step", w.step, sizeof other, other);
    TSR__TRY(tsr_comm_broadcast(w.world, path, sizeof path, TSR_U8, 0, NULL));
    TSR__TRY(fsdp_save(w.model, path, NULL));
    need_equal_files(path, other);
    TSR__TRY(with_model(tsr_fsdp_create, &w.twin));
    return fsdp_load(w.twin, other, NULL);
}

static tsr_status compare_twin(void)
{
    char path[256], other[256];
    path_of(w.job->folder, "final", 0, sizeof path, path);
    path_of(w.job->folder, "twin", 0, sizeof other, other);
    TSR__TRY(fsdp_save(w.model, path, NULL));
    TSR__TRY(fsdp_save(w.twin, other, NULL));
    need_equal_files(path, other);
    return TSR_OK;
}

static tsr_status save_step(void)
{
    char path[256];
    path_of(w.job->folder, "step", w.step, sizeof path, path);
    return fsdp_save(w.model, path, NULL);
}

/* Rebuilding after a change of the ranks ----------------------------------------------------- */

static void use(tsr_comm *comm)
{
    if (w.is_first)
        rank_destroy();
    else
        tsr_comm_destroy(&w.world);
    w.is_first = false;
    w.world = comm;
    tsr_comm_set_timeout(comm, timeout_ns());
}

/* Uses this sampler, which is at the current step. */
static void use_sampler(tsr_sampler *sampler)
{
    w.sampler = sampler;
    w.sampler_ranks = tsr_comm_size(w.world);
    w.sampled_from = w.step;
    w.first_item = tsr_sampler_position(sampler);
}

/* Divides the rest of the epoch among the ranks. */
static tsr_status rebuild_sampler(void)
{
    struct {
        uint8_t bytes[TSR_SAMPLER_STATE_BYTES];
        uint64_t size;
        int64_t looked_at;
    } state = {{0}, 0, w.looked_at};
    const int rank = tsr_comm_rank(w.world), ranks = tsr_comm_size(w.world);
    if (rank == 0) {
        const int64_t each = ELASTIC_BATCH / w.sampler_ranks;
        const uint64_t before = w.first_item + (uint64_t)((w.step - w.sampled_from) * each);
        size_t size;
        need_ok(tsr_sampler_save(w.sampler, before, sizeof state.bytes, state.bytes, &size));
        state.size = size;
    }
    TSR__TRY(tsr_comm_broadcast(w.world, &state, sizeof state, TSR_U8, 0, NULL));
    tsr_sampler *next = new_sampler(ranks, rank);
    need_ok(tsr_sampler_resume(next, state.bytes, state.size));
    tsr_sampler_destroy(&w.sampler);
    use_sampler(next);
    w.looked_at = state.looked_at;
    return TSR_OK;
}

/* Rebuilds all objects for the ranks of the current communicator. */
static tsr_status rebuild(void)
{
    tsr_group *old = w.group;
    w.group = NULL;
    tsr_status status = tsr_group_create(
        w.world, w.stream, tsr_group_params(.force_staging = w.job->staged), &w.group);
    if (status == TSR_OK) {
        w.rebuilding++;
        w.moving = false;
        status = with_model(tsr_fsdp_rebuild, &w.model);
        w.moving = false;
        if (w.job->refused) {
            need_error(status, TSR_ERR_NOT_FOUND, w.job->refused);
            tsr_fsdp_destroy(&w.model);
            tsr_group_destroy(&old);
            return status;
        }
    }
    if (status != TSR_OK) {
        if (status != TSR_ERR_PEER_LOST && status != TSR_ERR_TIMEOUT)
            rank_fail("rebuilding: %s: %s", tsr_status_name(status), tsr_last_error());
        tsr_group_destroy(&w.group);
        w.group = old;
        return status;
    }
    tsr_group_destroy(&old);
    need(w.step == 0 || (fsdp_steps(w.model) >= w.step && fsdp_steps(w.model) <= w.step + 1));
    w.step = fsdp_steps(w.model);
    TSR__TRY(rebuild_sampler());
    /* After the first loss, sums are added in another order than in the undisturbed job, so only
     * the first rebuilt model is compared. */
    const bool is_first = !w.has_rebuilt;
    if (is_first)
        atomic_store(&w.shared->resumed_at, (int)w.step);
    w.has_rebuilt = true;
    tsr_fsdp_destroy(&w.twin);
    return w.job->compared && is_first ? compare_rebuilt() : TSR_OK;
}

static tsr_status join(bool *is_out)
{
    tsr_comm *comm;
    tsr_fsdp_destroy(&w.model);
    tsr_sampler_destroy(&w.sampler);
    w.step = 0;
    TSR__TRY(tsr_comm_create(
        tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_JOIN, .timeout_ns = 4000 * MS), &comm));
    *is_out = false;
    use(comm);
    return rebuild();
}

/* Continues with the ranks that are left. If this process is no longer a member, joins them
 * again. Returns false if this process cannot continue. */
static bool go_on(bool is_out)
{
    const double from = seconds_now();
    const bool was_out = is_out;
    tsr_status status = TSR_ERR_PEER_LOST;
    while (status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT) {
        tsr_comm *smaller;
        if (is_out) {
            status = join(&is_out);
            continue;
        }
        status =
            tsr_comm_shrink(w.world, tsr_comm_shrink_params(.timeout_ns = timeout_ns()), &smaller);
        if (status == TSR_OK) {
            atomic_fetch_add(&w.shared->shrinks, 1);
            use(smaller);
            status = rebuild();
        } else if (status == TSR_ERR_PEER_LOST) {
            atomic_fetch_add(&w.shared->left_out, 1);
            is_out = true; /* the others have continued without this rank */
        }
    }
    const int ms = (int)(1e3 * (seconds_now() - from));
    if (!was_out && ms > atomic_load(&w.shared->worst_ms))
        atomic_store(&w.shared->worst_ms, ms);
    return status == TSR_OK;
}

static tsr_status grow(uint64_t timeout_ns)
{
    tsr_comm *larger;
    const tsr_status status =
        tsr_comm_grow(w.world, tsr_comm_grow_params(.timeout_ns = timeout_ns), &larger);
    if (status != TSR_OK)
        return tsr_comm_status(w.world);
    atomic_fetch_add(&w.shared->grows, 1);
    w.grows++;
    use(larger);
    return rebuild();
}

/* The training loop -------------------------------------------------------------------------- */

/* Computes the parameters in double precision, and checks that the model is close. */
static tsr_status check_values(void)
{
    const int64_t steps = w.step;
    double *means = calloc((size_t)steps + 1, sizeof *means);
    tsr_sampler *all = new_sampler(1, 0);
    need(means);
    for (int64_t s = 0; s < steps; s++) {
        if (s % ELASTIC_EPOCH == 0)
            need_ok(tsr_sampler_set_epoch(all, s / ELASTIC_EPOCH));
        for (int i = 0; i < ELASTIC_BATCH; i++) {
            int64_t index;
            uint64_t got;
            need_ok(tsr_sampler_next(all, 1, &index, NULL, &got));
            need(got == 1);
            means[s] += sample(index) / ELASTIC_BATCH;
        }
    }
    tsr_sampler_destroy(&all);
    for (int p = 0, u = 0, i = 0; p < PARAMS; p++) {
        float got[MOST_ELEMENTS];
        tsr_tensor *exact;
        if (shapes[p].unit != u)
            i = 0;
        u = shapes[p].unit;
        TSR__TRY(tsr_fsdp_begin(w.model, u, TSR_PASS_FORWARD));
        need_ok(tsr_tensor_create(w.device, TSR_F32, shapes[p].ndim, shapes[p].shape, &exact));
        need_ok(tsr_copy(w.stream, exact, tsr_fsdp_parameter(w.model, u, i++)->tensor));
        need_ok(tsr_tensor_download(w.stream, exact, got, (uint64_t)count_of(p) * 4));
        tsr_tensor_destroy(&exact);
        TSR__TRY(tsr_fsdp_end(w.model, u));
        for (int64_t k = 0; k < count_of(p); k++) {
            double value = initial(p, k), m = 0, v = 0;
            for (int64_t s = 0; s < steps; s++) {
                const double g = value - means[s];
                if (w.job->momentum) {
                    m = s == 0 ? g : 0.9 * m + g;
                    value -= LEARNING_RATE * m;
                    continue;
                }
                m = 0.9 * m + 0.1 * g;
                v = 0.99 * v + 0.01 * g * g;
                const double scale = sqrt(1 - pow(0.99, (double)s + 1));
                value -=
                    LEARNING_RATE / (1 - pow(0.9, (double)s + 1)) * m / (sqrt(v) / scale + 1e-3);
            }
            const double tolerance = w.job->dtype ? 0.02 : 5e-5;
            if (!(fabs(got[k] - value) <= tolerance))
                rank_fail("step %lld: '%s'[%lld] is %.9g, not %.9g", (long long)steps,
                          shapes[p].name, (long long)k, (double)got[k], value);
        }
    }
    free(means);
    return TSR_OK;
}

/* Sets *finish to whether all ranks must end now. */
static tsr_status must_finish(bool *finish)
{
    int32_t told = w.job->steps ? w.step >= w.job->steps : atomic_load(&w.shared->finish);
    TSR__TRY(tsr_comm_all_reduce(w.world, &told, &told, 1, TSR_I32, TSR_OP_MAX, NULL));
    *finish = told != 0;
    return TSR_OK;
}

static tsr_status look_for_newcomers(void)
{
    /* Another program may use the port for a while, so growing is tried several times. */
    for (int i = 0; i < 10 && w.job->joins_at && w.step == w.job->joins_at && w.grows == 0; i++)
        TSR__TRY(grow(5000 * MS));
    if (!w.job->always_grows || w.step % 8 != 4 || w.looked_at == w.step)
        return TSR_OK;
    w.looked_at = w.step;
    return grow(50 * MS);
}

static tsr_status turn(bool *finish)
{
    TSR__TRY(look_for_newcomers());
    TSR__TRY(must_finish(finish));
    if (!*finish && w.job->folder && !w.job->compared)
        TSR__TRY(save_step());
    if (!*finish) {
        TSR__TRY(train());
        atomic_store(&w.shared->rank[w.number], tsr_comm_rank(w.world));
        atomic_store(&w.shared->ranks[w.number], tsr_comm_size(w.world));
        return TSR_OK;
    }
    TSR__TRY(check_values());
    return w.twin ? compare_twin() : TSR_OK;
}

static bool live(bool joined)
{
    bool finish = false;
    tsr_status status = TSR_OK;
    if (joined)
        status = w.world ? rebuild() : TSR_ERR_PEER_LOST;
    if (status != TSR_OK && !go_on(!w.world))
        return false;
    while (!finish) {
        status = turn(&finish);
        if (status == TSR_OK)
            continue;
        if (status != TSR_ERR_PEER_LOST && status != TSR_ERR_TIMEOUT)
            rank_fail("step %lld: %s: %s", (long long)w.step, tsr_status_name(status),
                      tsr_last_error());
        finish = false;
        if (!go_on(false))
            return false;
    }
    return true;
}

static void run(tsr_comm *comm, const elastic_job *job, bool joined)
{
    w = (worker){.shared = ranks_shared(), .job = job, .world = comm, .is_first = comm != NULL};
    w.number = joined ? job->ranks + atomic_fetch_add(&w.shared->joined, 1) : tsr_comm_rank(comm);
    w.grows = joined;
    if (comm)
        tsr_comm_set_timeout(comm, timeout_ns());
    need_ok(tsr_device_open(tsr_device_params(.force_staging = w.job->staged && w.number % 2),
                            &w.device));
    need_ok(tsr_stream_create(w.device, &w.stream));
    if (!joined) {
        need_ok(tsr_group_create(comm, w.stream, tsr_group_params(.force_staging = w.job->staged),
                                 &w.group));
        need_ok(with_model(tsr_fsdp_create, &w.model));
        use_sampler(new_sampler(tsr_comm_size(comm), tsr_comm_rank(comm)));
    }
    if (live(joined)) {
        atomic_store(&w.shared->final_ranks, tsr_comm_size(w.world));
        atomic_store(&w.shared->final_steps, (int)w.step);
    }
    tsr_fsdp_destroy(&w.twin);
    tsr_fsdp_destroy(&w.model);
    tsr_sampler_destroy(&w.sampler);
    tsr_group_destroy(&w.group);
    tsr_stream_destroy(&w.stream);
    tsr_device_close(&w.device);
    if (!w.is_first)
        tsr_comm_destroy(&w.world);
}

void elastic_rank(tsr_comm *comm, void *user)
{
    run(comm, user, false);
}

void elastic_join(tsr_comm *comm, void *user)
{
    run(comm, user, true);
}

/* Functions that run in the test ------------------------------------------------------------- */

void elastic_start(elastic_job *job)
{
    ranks_start(
        &(ranks_job){.size = job->ranks, .hosts = job->hosts, .run = elastic_rank, .user = job});
}

void elastic_wait(int processes, unsigned killed)
{
    ranks_wait();
    for (int i = 0; i < processes; i++) {
        if (killed >> i & 1)
            ck_assert_int_eq(ranks_record(i)->wait_status, SIGKILL);
        else
            ranks_check(i);
    }
}
