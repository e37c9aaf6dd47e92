/* Pipelines of as many stages as there are ranks, compared with the same layers in one process. */

#include "base/fault.h"
#include "parallel/fsdp_case.h"
#include "parallel/pipeline/schedule.h"

enum { ROWS = 3, MAX_BATCHES = 6, MAX_STAGES = 8 };

/* A stage, which is one linear layer. All stages have the same size. */
typedef struct stage {
    tsr_group *alone;
    tsr_layer *layer;
    tsr_layer_saved *saved[MAX_BATCHES];
    tsr_tensor *inputs[MAX_BATCHES];  /* first stage: its micro-batches */
    tsr_tensor *outputs[MAX_BATCHES]; /* last stage: its results */
    int in_flight, most_in_flight;
    int fail_at;         /* the forward pass that fails; −1: none */
    bool wrong, missing; /* a forward pass creates a tensor of another shape, or none */
} stage;

static void stage_make(stage *s, int number, int64_t size, int batches)
{
    char name[16];
    *s = (stage){.fail_at = -1};
    snprintf(name, sizeof name, "layer.%d", number);
    OK(tsr_group_create(NULL, queue, NULL, &s->alone));
    OK(tsr_column_linear_create(
        tsr_linear_params(.group = s->alone, .name = name, .input_size = size, .output_size = size,
                          .init = tsr_init_params(.seed = 5 + (uint64_t)number), .bias = true),
        &s->layer));
    for (int i = 0; number == 0 && i < batches; i++) {
        double *x = numbers(20 + (uint64_t)i, ROWS * size, TSR_F32);
        s->inputs[i] = tensor_of(TSR_F32, 2, (int64_t[]){ROWS, size}, x);
        free(x);
    }
}

static void stage_finish(stage *s)
{
    for (int i = 0; i < MAX_BATCHES; i++) {
        tsr_layer_saved_destroy(&s->saved[i]);
        tsr_tensor_destroy(&s->inputs[i]);
        tsr_tensor_destroy(&s->outputs[i]);
    }
    tsr_layer_destroy(&s->layer);
    tsr_group_destroy(&s->alone);
}

static tsr_status forward(void *user, int batch, const tsr_tensor *x, tsr_tensor **y)
{
    stage *s = user;
    tsr_tensor *out = NULL;
    CHECK((x == NULL) == (my_rank == 0), "rank %d: x is %p", my_rank, (const void *)x);
    s->most_in_flight = ++s->in_flight > s->most_in_flight ? s->in_flight : s->most_in_flight;
    if (batch == s->fail_at)
        return tsr_layer_forward(NULL, x, NULL, y);
    if (s->missing)
        return TSR_OK;
    if (s->wrong) {
        *y = tensor_new(TSR_F32, 1, (int64_t[]){ROWS});
        return TSR_OK;
    }
    tsr_status status =
        tsr_layer_forward(s->layer, x ? x : s->inputs[batch], &s->saved[batch], &out);
    *(my_rank == ranks - 1 ? &s->outputs[batch] : y) = out;
    return status;
}

static tsr_status backward(void *user, int batch, const tsr_tensor *dy, tsr_tensor **dx)
{
    stage *s = user;
    CHECK((dy == NULL) == (my_rank == ranks - 1), "rank %d: dy is %p", my_rank, (const void *)dy);
    /* The loss is half the sum of the squares of the outputs. */
    tsr_status status = tsr_layer_backward(s->layer, s->saved[batch], dy ? dy : s->outputs[batch],
                                           my_rank > 0 ? dx : NULL);
    s->in_flight--;
    return status;
}

/* The outputs of the last stage, and the gradient of one stage's weight. */
typedef struct results {
    double *outputs, *grad;
} results;

static double *outputs_of(const stage *s, int batches, int64_t size)
{
    double *all = doubles(batches * ROWS * size);
    for (int i = 0; i < batches; i++) {
        double *y = values_of(s->outputs[i]);
        memcpy(all + i * ROWS * size, y, (size_t)(ROWS * size) * sizeof *y);
        free(y);
    }
    return all;
}

/* Runs all layers in this process, one micro-batch after the other. */
static results run_alone(int stages, int wanted, int batches, int64_t size)
{
    stage all[MAX_STAGES];
    for (int s = 0; s < stages; s++)
        stage_make(&all[s], s, size, batches);
    stage *last = &all[stages - 1];
    for (int i = 0; i < batches; i++) {
        tsr_tensor *x = NULL, *next;
        for (int s = 0; s < stages; s++) {
            OK(tsr_layer_forward(all[s].layer, s ? x : all[0].inputs[i], &all[s].saved[i], &next));
            tsr_tensor_destroy(&x);
            x = next;
        }
        last->outputs[i] = x;
        tsr_tensor *d = NULL;
        for (int s = stages - 1; s >= 0; s--) {
            OK(tsr_layer_backward(all[s].layer, all[s].saved[i], d ? d : x, &next));
            tsr_tensor_destroy(&d);
            d = next;
        }
        tsr_tensor_destroy(&d);
    }
    results r = {outputs_of(last, batches, size),
                 values_of(tsr_layer_parameter(all[wanted].layer, 0)->grad)};
    for (int s = 0; s < stages; s++)
        stage_finish(&all[s]);
    return r;
}

static tsr_pipeline *pipeline_new(const tsr_group_params *params)
{
    tsr_pipeline *pipeline = NULL;
    OK(tsr_pipeline_create(tsr_pipeline_params(.comm = world, .stream = queue, .group = params),
                           &pipeline));
    return pipeline;
}

static tsr_pipeline_run_params run_params(stage *s, int batches, int64_t size)
{
    return (tsr_pipeline_run_params){.struct_size = sizeof(tsr_pipeline_run_params),
                                     .micro_batches = batches,
                                     .dtype = TSR_F32,
                                     .ndim = 2,
                                     .shape = {ROWS, size},
                                     .forward = forward,
                                     .backward = backward,
                                     .user = s};
}

/* Checks that results are equal to those of one process. The same kernels get the same values,
 * so all bits agree unless ranks have different devices. */
static void check_equal(const char *what, const double *got, const double *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= 1e-5 * (1 + fabs(want[i])),
              "%s: element %lld is %.9g, not %.9g", what, (long long)i, got[i], want[i]);
}

static void check_run(tsr_pipeline *pipeline, int batches, int64_t size)
{
    stage s;
    stage_make(&s, my_rank, size, batches);
    const tsr_pipeline_run_params params = run_params(&s, batches, size);
    OK(tsr_pipeline_run(pipeline, &params));
    results want = run_alone(ranks, my_rank, batches, size);
    double *grad = values_of(tsr_layer_parameter(s.layer, 0)->grad);
    check_equal("the gradient", grad, want.grad, size * size);
    free(grad);
    if (my_rank == ranks - 1) {
        double *outputs = outputs_of(&s, batches, size);
        check_equal("the output", outputs, want.outputs, batches * ROWS * size);
        free(outputs);
    }
    CHECK(s.in_flight == 0 && s.most_in_flight == tsr__pipeline_in_flight(my_rank, ranks, batches),
          "%d micro-batches were in flight, now %d", s.most_in_flight, s.in_flight);
    free(want.outputs);
    free(want.grad);
    stage_finish(&s);
}

CASE(trains, "pipeline: stages compute what one process computes")
{
    if (ranks > MAX_STAGES) {
        case_skip("%d stages", ranks);
        return;
    }
    tsr_pipeline *pipeline = pipeline_new(NULL);
    check_run(pipeline, 1, 8);
    check_run(pipeline, 2, 5);
    check_run(pipeline, MAX_BATCHES, 16);
    tsr_pipeline_stats stats = TSR_INIT(tsr_pipeline_stats), unset = {.runs = 9};
    OK(tsr_pipeline_get_stats(pipeline, &stats));
    const uint64_t bytes = ROWS * sizeof(float) * (8 + 2 * 5 + MAX_BATCHES * 16);
    const uint64_t neighbours = (uint64_t)(my_rank > 0) + (uint64_t)(my_rank < ranks - 1);
    CHECK(stats.runs == 3 && stats.sent_bytes == bytes * neighbours &&
              stats.received_bytes == bytes * neighbours && stats.wait_ns <= stats.run_ns,
          "%llu runs, %llu bytes sent, %llu received", (unsigned long long)stats.runs,
          (unsigned long long)stats.sent_bytes, (unsigned long long)stats.received_bytes);
    stats.received_bytes = 77;
    stats.struct_size = offsetof(tsr_pipeline_stats, received_bytes); /* without the last field */
    OK(tsr_pipeline_get_stats(pipeline, &stats));
    CHECK(stats.received_bytes == 77, "the end of a shorter struct is written");
    FAILS(tsr_pipeline_get_stats(pipeline, &unset), TSR_ERR_INVALID,
          "tsr_pipeline_stats: struct_size is 0; use TSR_INIT(tsr_pipeline_stats)");
    CHECK(unset.runs == 9, "written");
    FAILS(tsr_pipeline_get_stats(NULL, &stats), TSR_ERR_INVALID,
          "pipeline_get_stats: pipeline is NULL");
    tsr_pipeline_destroy(&pipeline);
}

CASE(trains_staged, "pipeline: stages compute the same through host memory")
{
    if (ranks > MAX_STAGES) {
        case_skip("%d stages", ranks);
        return;
    }
    tsr_pipeline *pipeline =
        pipeline_new(tsr_group_params(.force_staging = true, .piece_bytes = 65536));
    check_run(pipeline, 4, 24);
    tsr_pipeline_destroy(&pipeline);
}

/* Stages without layers: each passes a tensor on after adding 1. */
typedef struct relay {
    int64_t size;
    int calls;
} relay;

static tsr_status relay_forward(void *user, int batch, const tsr_tensor *x, tsr_tensor **y)
{
    relay *r = user;
    tsr_tensor *out = tensor_new(TSR_BF16, 1, &r->size);
    r->calls++;
    OK(tsr_fill(queue, out, batch));
    if (x) {
        double *got = values_of(x);
        for (int64_t i = 0; i < r->size; i++)
            CHECK(got[i] == batch, "micro-batch %d: element %lld is %g", batch, (long long)i,
                  got[i]);
        free(got);
    }
    if (my_rank < ranks - 1)
        *y = out;
    else
        tsr_tensor_destroy(&out);
    return TSR_OK;
}

CASE(forward_only, "pipeline: forward passes only, with tensors larger than the ring")
{
    for (int is_staged = 0; is_staged < 2; is_staged++) {
        tsr_pipeline *pipeline =
            pipeline_new(tsr_group_params(.force_staging = is_staged, .piece_bytes = 65536));
        for (int64_t size = 0; size < 200000; size = 3 * size + 60001) {
            relay r = {.size = size};
            OK(tsr_pipeline_run(pipeline,
                                tsr_pipeline_run_params(.micro_batches = 5, .dtype = TSR_BF16,
                                                        .ndim = 1, .shape = {size},
                                                        .forward = relay_forward, .user = &r)));
            CHECK(r.calls == 5, "%d calls", r.calls);
        }
        tsr_pipeline_destroy(&pipeline);
    }
}

CASE(reduces_ends, "pipeline: gradients of the first and the last stage are added")
{
    tsr_pipeline *pipeline = pipeline_new(NULL);
    tsr_tensor *t = tensor_new(TSR_F32, 1, (int64_t[]){3});
    const bool is_end = ranks > 1 && (my_rank == 0 || my_rank == ranks - 1);
    OK(tsr_fill(queue, t, my_rank + 1));
    OK(tsr_pipeline_reduce_ends(pipeline, t));
    double *got = values_of(t);
    CHECK(got[2] == (is_end ? ranks + 1 : my_rank + 1), "%g", got[2]);
    free(got);
    if (is_end)
        FAILS(tsr_pipeline_reduce_ends(pipeline, NULL), TSR_ERR_INVALID,
              "pipeline_reduce_ends: tensor is NULL");
    else
        OK(tsr_pipeline_reduce_ends(pipeline, NULL));
    tsr_tensor_destroy(&t);
    tsr_pipeline_destroy(&pipeline);
}

CASE(refuses, "pipeline: wrong params are refused before anything is sent")
{
    stage s;
    stage_make(&s, my_rank, 4, 2);
    tsr_pipeline *pipeline = pipeline_new(NULL), *none = NULL;
    tsr_pipeline_run_params p = run_params(&s, 2, 4);
    FAILS(tsr_pipeline_create(NULL, &none), TSR_ERR_INVALID, "pipeline_create: params is NULL");
    FAILS(tsr_pipeline_create(tsr_pipeline_params(.comm = world), &none), TSR_ERR_INVALID,
          "pipeline_create: stream is NULL");
    FAILS(tsr_pipeline_run(NULL, &p), TSR_ERR_INVALID, "pipeline_run: pipeline is NULL");
    FAILS(tsr_pipeline_run(pipeline, NULL), TSR_ERR_INVALID, "pipeline_run: params is NULL");
    FAILS(tsr_pipeline_reduce_ends(NULL, NULL), TSR_ERR_INVALID,
          "pipeline_reduce_ends: pipeline is NULL");
    p.micro_batches = 0;
    FAILS(tsr_pipeline_run(pipeline, &p), TSR_ERR_INVALID,
          "pipeline_run: 0 micro-batches; 1 to 1048576 are allowed");
    p = run_params(&s, 2, 4);
    p.forward = NULL;
    FAILS(tsr_pipeline_run(pipeline, &p), TSR_ERR_INVALID, "pipeline_run: forward is NULL");
    if (ranks > 1) {
        p = run_params(&s, 2, 4);
        p.dtype = TSR_I32;
        FAILS(tsr_pipeline_run(pipeline, &p), TSR_ERR_INVALID,
              "pipeline_run: dtype is i32; f32, f16 or bf16 is needed");
        p = run_params(&s, 2, 4);
        p.ndim = 9;
        FAILS(tsr_pipeline_run(pipeline, &p), TSR_ERR_INVALID,
              "pipeline_run: 9 dimensions; 0 to 8 are allowed");
        p = run_params(&s, 2, -4);
        FAILS(tsr_pipeline_run(pipeline, &p), TSR_ERR_INVALID,
              "pipeline_run: dimension 1 has size -4");
    }
    p = run_params(&s, 2, 4); /* the pipeline still works */
    OK(tsr_pipeline_run(pipeline, &p));
    stage_finish(&s);
    tsr_pipeline_destroy(&pipeline);
}

/* One stage fails. Its error must name the pass, and the other stages must get an error before
 * the deadline. */
static void check_failure(int guilty, bool wrong, bool missing, const char *text)
{
    stage s;
    char want[256];
    stage_make(&s, my_rank, 4, 3);
    tsr_pipeline *pipeline = pipeline_new(NULL);
    const tsr_pipeline_run_params params = run_params(&s, 3, 4);
    s.wrong = wrong && my_rank == guilty;
    s.missing = missing && my_rank == guilty;
    s.fail_at = my_rank == guilty && !wrong && !missing ? 1 : -1;
    tsr_status status = tsr_pipeline_run(pipeline, &params);
    if (my_rank == guilty) {
        snprintf(want, sizeof want, text, guilty);
        CHECK(status == TSR_ERR_INVALID && strcmp(tsr_last_error(), want) == 0,
              "%s: \"%s\", not \"%s\"", tsr_status_name(status), tsr_last_error(), want);
        FAILS(tsr_pipeline_run(pipeline, &params), TSR_ERR_INVALID, want);
        FAILS(tsr_pipeline_reduce_ends(pipeline, NULL), TSR_ERR_INVALID, want);
    } else {
        snprintf(want, sizeof want, "pipeline_run: stage %d ", my_rank);
        CHECK(status == TSR_ERR_PEER_LOST, "%s: %s", tsr_status_name(status), tsr_last_error());
        CHECK(strncmp(tsr_last_error(), want, strlen(want)) == 0 &&
                  strstr(tsr_last_error(), "micro-batch"),
              "\"%s\"", tsr_last_error());
    }
    /* All stages have failed before any of them leaves. */
    OK(tsr_comm_barrier(world, NULL));
    tsr_pipeline_destroy(&pipeline);
    stage_finish(&s);
}

CASE(fails_everywhere, "pipeline: a failing stage fails the others, with sentences")
{
    if (ranks == 1) {
        case_skip("one stage");
        return;
    }
    for (int guilty = 0; guilty < ranks; guilty += ranks - 1)
        check_failure(guilty, false, false,
                      "pipeline_run: stage %d, forward pass of micro-batch 1: layer_forward: layer "
                      "is NULL");
    check_failure(0, true, false,
                  "pipeline_run: stage %d, micro-batch 0: y is f32 [3]; f32 [3,4] is sent");
    check_failure(0, false, true,
                  "pipeline_run: stage %d, micro-batch 0: y is NULL; f32 [3,4] is sent");
}

CASE(allocations, "pipeline: every allocation of one stage fails in turn")
{
    if (ranks > 1) {
        case_skip("for one rank");
        return;
    }
    bool reached = true;
    for (uint64_t nth = 0; reached; nth++) {
        stage s;
        tsr_pipeline *pipeline = NULL;
        stage_make(&s, 0, 4, 2);
        const tsr_pipeline_run_params params = run_params(&s, 2, 4);
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_pipeline_create(tsr_pipeline_params(.stream = queue), &pipeline);
        if (status == TSR_OK)
            status = tsr_pipeline_run(pipeline, &params);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        CHECK((status == TSR_ERR_NO_MEMORY) == reached, "allocation %llu: %s",
              (unsigned long long)nth, tsr_status_name(status));
        tsr_pipeline_destroy(&pipeline);
        stage_finish(&s);
    }
}

/* The parameters of stages. Each stage has one of its own; the first and the last stage also have
 * `tied`. */
typedef struct parts {
    tsr_tensor *own, *tied, *grad_own, *grad_tied;
    char name[16];
    tsr_optimizer *optimizer;
} parts;

enum { OWN = 5, TIED_ROWS = 2, TIED_COLUMNS = 3 };

static bool has_tied(void)
{
    return my_rank == 0 || my_rank == ranks - 1;
}

static void parts_make(parts *p)
{
    const int64_t own[] = {OWN}, tied[] = {TIED_ROWS, TIED_COLUMNS};
    double *values = numbers(40 + (uint64_t)my_rank, OWN, TSR_F32);
    *p = (parts){0};
    snprintf(p->name, sizeof p->name, "stage.%d", my_rank);
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &p->optimizer));
    p->own = tensor_of(TSR_F32, 1, own, values);
    p->grad_own = tensor_of(TSR_F32, 1, own, values);
    free(values);
    values = numbers(39, TIED_ROWS * TIED_COLUMNS, TSR_F32);
    p->tied = tensor_of(TSR_F32, 2, tied, values);
    p->grad_tied = tensor_of(TSR_F32, 2, tied, values);
    free(values);
    if (has_tied())
        OK(tsr_optimizer_add_parameter(
            p->optimizer, tsr_parameter(.name = "tied", .tensor = p->tied, .grad = p->grad_tied)));
    OK(tsr_optimizer_add_parameter(
        p->optimizer, tsr_parameter(.name = p->name, .tensor = p->own, .grad = p->grad_own)));
}

static void parts_finish(parts *p)
{
    tsr_optimizer_destroy(&p->optimizer);
    tsr_tensor_destroy(&p->own);
    tsr_tensor_destroy(&p->tied);
    tsr_tensor_destroy(&p->grad_own);
    tsr_tensor_destroy(&p->grad_tied);
}

static double squares_of(uint64_t sequence, int64_t count)
{
    double *values = numbers(sequence, count, TSR_F32), sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    free(values);
    return sum;
}

CASE(norm,
     "pipeline: the norm counts the elements of all stages, and those of a tied parameter once")
{
    static const char *const elsewhere[] = {"other", "tied", NULL};
    parts p;
    double got, want = squares_of(39, TIED_ROWS * TIED_COLUMNS);
    for (int s = 0; s < ranks; s++)
        want += squares_of(40 + (uint64_t)s, OWN);
    parts_make(&p);
    OK(tsr_optimizer_clip(
        p.optimizer, 1,
        tsr_optimizer_clip_params(.stages = world,
                                  .counted_elsewhere = my_rank > 0 ? elsewhere : NULL),
        &got));
    CHECK(fabs(got - sqrt(want)) <= 2e-6 * got, "the norm is %.9g, not %.9g", got, sqrt(want));
    if (ranks > 1) { /* one stage fails, and the errors of the others say so */
        tsr__fault_arm(my_rank == 1 ? TSR__FAULT_ALLOC : TSR__FAULT_NONE, 0, 0);
        tsr_status status =
            tsr_optimizer_clip(p.optimizer, 1, tsr_optimizer_clip_params(.stages = world), &got);
        tsr__fault_disarm();
        CHECK(status == (my_rank == 1 ? TSR_ERR_NO_MEMORY : TSR_ERR_INVALID), "%s: %s",
              tsr_status_name(status), tsr_last_error());
    }
    parts_finish(&p);
}

static void set_entry(tsr_checkpoint_entry *entry, char name[40], const char *prefix, int number,
                      float *data)
{
    const bool own = number >= 0;
    if (own)
        snprintf(name, 40, "%sstage.%d", prefix, number);
    else
        snprintf(name, 40, "%stied", prefix);
    *entry = (tsr_checkpoint_entry){.struct_size = sizeof(tsr_checkpoint_entry),
                                    .name = name,
                                    .dtype = TSR_F32,
                                    .ndim = own ? 1 : 2,
                                    .shape = {own ? OWN : TIED_ROWS, own ? 0 : TIED_COLUMNS},
                                    .shard_dim = -1,
                                    .count = own ? OWN : TIED_ROWS * TIED_COLUMNS,
                                    .data = data};
}

/* Saves the parameters of all stages from the host memory of one process, for a comparison of
 * the files. */
static void save_whole(const char *path)
{
    static const char *const prefixes[] = {"", "optimizer.moment1.", "optimizer.moment2."};
    const char *const steps[] = {"tessera.steps", "0", NULL};
    float zeros[TIED_ROWS * TIED_COLUMNS] = {0}, data[MAX_STAGES + 1][TIED_ROWS * TIED_COLUMNS];
    tsr_checkpoint_entry entries[3 * (MAX_STAGES + 1)];
    char names[3 * (MAX_STAGES + 1)][40];
    int count = 0;
    for (int s = -1; s < ranks; s++) {
        double *values = numbers((uint64_t)s + 40, TIED_ROWS * TIED_COLUMNS, TSR_F32);
        for (int i = 0; i < TIED_ROWS * TIED_COLUMNS; i++)
            data[s + 1][i] = (float)values[i];
        free(values);
        for (int k = 0; k < 3; k++, count++)
            set_entry(&entries[count], names[count], prefixes[k], s, k == 0 ? data[s + 1] : zeros);
    }
    OK(tsr_checkpoint_save(path, NULL, NULL, count, entries,
                           tsr_checkpoint_params(.metadata = steps)));
}

static void compare_files(const char *path, const char *whole)
{
    uint64_t size, whole_size;
    uint8_t *a = file_bytes(path, &size), *b = file_bytes(whole, &whole_size);
    CHECK(size == whole_size && memcmp(a, b, size) == 0, "files of %llu and %llu bytes differ",
          (unsigned long long)size, (unsigned long long)whole_size);
    free(a);
    free(b);
    remove(whole);
}

CASE(saves, "pipeline: a checkpoint of stages is that of one process")
{
    char path[SHARED_PATH], whole[SHARED_PATH];
    parts p;
    if (ranks > MAX_STAGES) {
        case_skip("%d stages", ranks);
        return;
    }
    shared_path(world, "stages", path);
    shared_path(world, "whole", whole);
    parts_make(&p);
    OK(tsr_optimizer_save(p.optimizer, path,
                          tsr_optimizer_file_params(.world = world, .stages = world)));
    if (my_rank == 0) {
        save_whole(whole);
        compare_files(path, whole);
    }
    OK(tsr_fill(queue, p.own, 7));
    OK(tsr_optimizer_load(p.optimizer, path, tsr_optimizer_file_params(.world = world)));
    double *got = values_of(p.own), *want = numbers(40 + (uint64_t)my_rank, OWN, TSR_F32);
    CHECK(memcmp(got, want, OWN * sizeof *got) == 0, "loaded %g, not %g", got[0], want[0]);
    free(got);
    free(want);
    parts_finish(&p);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        remove(path);
}

CASE(merging_fails, "pipeline: every allocation of saving stages fails in turn")
{
    char path[SHARED_PATH];
    float data[4] = {0};
    tsr_comm *single = NULL;
    if (ranks > 1) {
        case_skip("for one rank");
        return;
    }
    OK(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &single));
    shared_path(world, "merging", path);
    const tsr_checkpoint_entry entries[] = {
        {sizeof *entries, "a", TSR_F32, 1, {4}, -1, 0, 0, 0, 4, NULL, data},
        {sizeof *entries, "b", TSR_F32, 2, {2, 2}, -1, 0, 0, 0, 4, NULL, data},
    };
    bool reached = true;
    uint64_t nth = 0;
    for (; reached; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_checkpoint_save(path, single, NULL, 2, entries,
                                                tsr_checkpoint_params(.stages = single));
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        CHECK((status == TSR_ERR_NO_MEMORY) == reached, "allocation %llu: %s",
              (unsigned long long)nth, tsr_status_name(status));
    }
    CHECK(nth > 8, "only %llu allocations", (unsigned long long)nth);
    remove(path);
    tsr_comm_destroy(&single);
}

CASE(differing, "pipeline: stages that describe an entry differently are refused")
{
    char path[SHARED_PATH], text[256];
    float data[8] = {0};
    if (ranks < 2) {
        case_skip("one stage");
        return;
    }
    shared_path(world, "differing", path);
    const int64_t size = my_rank == 1 ? 4 : 3;
    const tsr_checkpoint_entry entry = {.struct_size = sizeof(tsr_checkpoint_entry),
                                        .name = "x",
                                        .dtype = TSR_F32,
                                        .ndim = 1,
                                        .shape = {size},
                                        .shard_dim = -1,
                                        .count = (uint64_t)size,
                                        .data = data};
    tsr_status status =
        tsr_checkpoint_save(path, world, NULL, 1, &entry, tsr_checkpoint_params(.stages = world));
    snprintf(text, sizeof text,
             "checkpoint_save: %s'x' is f32 [3] with shard_dim -1 in stage 0, and f32 [4] with "
             "shard_dim -1 in stage 1",
             my_rank == 0 ? "" : "rank 0: ");
    CHECK(status == TSR_ERR_INVALID && strcmp(tsr_last_error(), text) == 0, "%s: %s",
          tsr_status_name(status), tsr_last_error());
    CHECK(!fopen(path, "r"), "%s exists", path);
}
