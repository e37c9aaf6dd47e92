/* Compares collective operations on tensors with arithmetic on the host. */
#include "parallel/group/group.h"
#include "parallel/spmd.h"

#include "support/gpu.h"

static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_U8};

/* Returns the values of rank `rank`'s tensor. They are small integers, so that sums are exact in
 * every dtype. */
static double *whole_numbers(uint64_t sequence, int rank, int64_t count)
{
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = floor(8 + 8 * number(sequence * 64 + (uint64_t)rank, i)) / 2 * 2;
    for (int64_t i = 0; i < count; i++)
        values[i] = floor(values[i] / 2);
    return values;
}

static double *sum_of_ranks(uint64_t sequence, int64_t count)
{
    double *sum = doubles(count);
    for (int r = 0; r < ranks; r++) {
        double *values = whole_numbers(sequence, r, count);
        for (int64_t i = 0; i < count; i++)
            sum[i] += values[i];
        free(values);
    }
    return sum;
}

static void check_same(const char *what, const tsr_tensor *tensor, const double *want)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    double *got = values_of(tensor);
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        CHECK(got[i] == want[i], "%s %s: element %lld is %g, not %g", what,
              tsr_dtype_name(layout->dtype), (long long)i, got[i], want[i]);
    free(got);
}

static tsr_tensor *some_tensor(bool gaps, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    return gaps ? tensor_with_gaps(dtype, ndim, shape) : tensor_new(dtype, ndim, shape);
}

typedef struct sized {
    int ndim;
    int64_t shape[3];
} sized;
static const sized shapes[] = {{1, {1}},     {1, {1000}},     {2, {3, 5}},    {3, {4, 7, 6}},
                               {1, {50001}}, {2, {300, 301}}, {3, {2, 0, 4}}, {0, {0}}};

static void all_reduce_case(tsr_group *through, const sized *s, tsr_dtype dtype, bool gaps,
                            uint64_t sequence)
{
    int64_t count = count_of(s->ndim, s->shape);
    tsr_tensor *tensor = some_tensor(gaps, dtype, s->ndim, s->shape);
    double *mine = whole_numbers(sequence, my_rank, count), *want = sum_of_ranks(sequence, count);
    tensor_put(tensor, mine);
    /* The operation must see work recorded before it, and work recorded after it must see the
     * result. */
    if (dtype != TSR_U8 && dtype != TSR_I32)
        OK(tsr_scale(queue, tensor, tensor, 1, 1));
    OK(tsr_group_all_reduce(through, tensor, TSR_OP_SUM, NULL, NULL));
    if (dtype != TSR_U8 && dtype != TSR_I32)
        OK(tsr_scale(queue, tensor, tensor, 1, -(float)ranks));
    check_same("all-reduce", tensor, want);
    tsr_tensor_destroy(&tensor);
    free(mine);
    free(want);
}

CASE(all_reduce, "all-reduce operation sums results across ranks")
{
    uint64_t sequence = 1;
    tsr_group *through[] = {group, staged};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int gaps = 0; gaps < 2; gaps++) {
                sequence++;
                all_reduce_case(through[t], &shapes[i], dtypes[sequence % 5], gaps != 0, sequence);
            }
}

CASE(reductions, "every reduction of the communicator works on tensors")
{
    static const tsr_op ops[] = {TSR_OP_SUM, TSR_OP_AVG, TSR_OP_MIN, TSR_OP_MAX, TSR_OP_PROD};
    tsr_group *through[] = {group, staged};
    for (int i = 0; i < 10; i++) {
        double mine = my_rank + 1, want = 0, factorial = 1;
        for (int r = 0; r < ranks; r++) {
            want += r + 1;
            factorial *= r + 1;
        }
        tsr_op op = ops[i % 5];
        want = op == TSR_OP_AVG    ? want / ranks
               : op == TSR_OP_MIN  ? 1
               : op == TSR_OP_MAX  ? ranks
               : op == TSR_OP_PROD ? factorial
                                   : want;
        tsr_tensor *tensor = tensor_of(TSR_F32, 1, (int64_t[]){1}, &mine);
        OK(tsr_group_all_reduce(through[i / 5], tensor, op, NULL, NULL));
        check_same("reduction", tensor, &want);
        tsr_tensor_destroy(&tensor);
    }
}

CASE(broadcast, "broadcast gives every rank the root's tensor")
{
    uint64_t sequence = 100;
    tsr_group *through[] = {group, staged};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const sized *s = &shapes[i];
            int64_t count = count_of(s->ndim, s->shape);
            int root = (int)(i % (size_t)ranks);
            tsr_tensor *tensor = some_tensor(i & 1, dtypes[i % 5], s->ndim, s->shape);
            double *mine = whole_numbers(++sequence, my_rank, count);
            double *want = whole_numbers(sequence, root, count);
            tensor_put(tensor, mine);
            OK(tsr_group_broadcast(through[t], tensor, root, NULL));
            check_same("broadcast", tensor, want);
            tsr_tensor_destroy(&tensor);
            free(mine);
            free(want);
        }
}

/* Returns the size of rank r's part along the divided dimension. */
static int64_t part_size(int kind, int r)
{
    return kind == 0 ? 3 : kind == 1 ? (r * 7 + 2) % 5 : r == ranks - 1 ? 20000 : 100;
}

typedef struct divided {
    int ndim, dim;
    int64_t whole[3], part[3];
    int64_t sizes[64], start;
} divided;

static divided divide(int ndim, int dim, int kind, int64_t other)
{
    divided d = {.ndim = ndim, .dim = dim};
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++) {
        d.sizes[r] = part_size(kind, r);
        if (r == my_rank)
            d.start = sum;
        sum += d.sizes[r];
    }
    for (int i = 0; i < ndim; i++) {
        d.whole[i] = i == dim ? sum : other + i;
        d.part[i] = i == dim ? d.sizes[my_rank] : d.whole[i];
    }
    return d;
}

static void gather_case(tsr_group *through, const divided *d, bool equal, tsr_dtype dtype, int form,
                        uint64_t sequence)
{
    int64_t count = count_of(d->ndim, d->whole);
    double *want = whole_numbers(sequence, 0, count);
    double *mine = slice_of(want, d->ndim, d->whole, d->dim, d->start, d->sizes[my_rank]);
    tsr_tensor *out = some_tensor(form == 1, dtype, d->ndim, d->whole), *in = NULL;
    if (form == 2)
        OK(tsr_tensor_slice(out, d->dim, d->start, d->start + d->sizes[my_rank], 1, &in));
    else
        in = some_tensor(form == 3, dtype, d->ndim, d->part);
    tensor_put(in, mine);
    OK(tsr_group_all_gather(through, out, in, d->dim - (form == 0 ? d->ndim : 0),
                            tsr_collective_params(.sizes = equal ? NULL : d->sizes), NULL));
    check_same("all-gather", out, want);
    check_same("what was gathered", in, mine);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
    free(mine);
    free(want);
}

static void scatter_case(tsr_group *through, const divided *d, bool equal, tsr_dtype dtype,
                         int form, uint64_t sequence)
{
    int64_t count = count_of(d->ndim, d->whole);
    double *sum = sum_of_ranks(sequence, count), *mine = whole_numbers(sequence, my_rank, count);
    double *want = slice_of(sum, d->ndim, d->whole, d->dim, d->start, d->sizes[my_rank]);
    tsr_tensor *in = some_tensor(form == 1, dtype, d->ndim, d->whole), *out = NULL;
    if (form == 2)
        OK(tsr_tensor_slice(in, d->dim, d->start, d->start + d->sizes[my_rank], 1, &out));
    else
        out = some_tensor(form == 3, dtype, d->ndim, d->part);
    tensor_put(in, mine);
    OK(tsr_group_reduce_scatter(through, out, in, d->dim - (form == 0 ? d->ndim : 0), TSR_OP_SUM,
                                tsr_collective_params(.sizes = equal ? NULL : d->sizes), NULL));
    check_same("reduce-scatter", out, want);
    if (form != 2)
        check_same("what was scattered", in, mine);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
    free(mine);
    free(sum);
    free(want);
}

static void all_divisions(void (*test)(tsr_group *, const divided *, bool, tsr_dtype, int,
                                       uint64_t))
{
    uint64_t sequence = 1000;
    tsr_group *through[] = {group, staged};
    for (int t = 0; t < 2; t++)
        for (int ndim = 1; ndim <= 3; ndim++)
            for (int dim = 0; dim < ndim; dim++)
                for (int kind = 0; kind < 3; kind++) {
                    divided d = divide(ndim, dim, kind, kind == 2 ? 1 : 4);
                    ++sequence;
                    test(through[t], &d, kind == 0, dtypes[sequence % 5], (int)(sequence % 4),
                         sequence);
                }
}

CASE(all_gather, "all-gather along any dimension, of equal, unequal and empty parts")
{
    all_divisions(gather_case);
}

CASE(reduce_scatter, "reduce-scatter along any dimension, of equal, unequal and empty parts")
{
    all_divisions(scatter_case);
}

CASE(bits_agree, "direct and staged sums have the same bits")
{
    enum { COUNT = 70001 };
    for (int i = 0; i < 3; i++) {
        uint64_t size_bytes;
        int64_t shape[] = {COUNT};
        double *mine = numbers(7 + (uint64_t)my_rank, COUNT, dtypes[i]);
        tsr_tensor *a = tensor_of(dtypes[i], 1, shape, mine);
        tsr_tensor *b = tensor_of(dtypes[i], 1, shape, mine);
        OK(tsr_group_all_reduce(group, a, TSR_OP_SUM, NULL, NULL));
        OK(tsr_group_all_reduce(staged, b, TSR_OP_SUM, NULL, NULL));
        uint8_t *x = bytes_of(a, &size_bytes), *y = bytes_of(b, &size_bytes);
        CHECK(memcmp(x, y, size_bytes) == 0, "%s differs", tsr_dtype_name(dtypes[i]));
        free(x);
        free(y);
        free(mine);
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
    }
}

CASE(requests, "requests end in any order, and those of other groups progress too")
{
    enum { REQUESTS = 150 }; /* more than a communicator can have in progress at one time */
    tsr_tensor *tensors[REQUESTS];
    tsr_request *requests[REQUESTS] = {0};
    const int64_t shape[] = {3000};
    for (int i = 0; i < REQUESTS; i++) {
        tensors[i] = tensor_new(TSR_F32, 1, shape);
        OK(tsr_fill(queue, tensors[i], i + my_rank));
        OK(tsr_group_all_reduce(i % 3 ? group : staged, tensors[i], TSR_OP_SUM, NULL,
                                &requests[i]));
    }
    /* Each rank waits in a different order. */
    for (int k = 0; k < REQUESTS; k++) {
        int i = (k * 7 + my_rank * 11) % REQUESTS;
        bool done = false;
        if (k % 2)
            OK(tsr_request_wait(&requests[i]));
        while (k % 2 == 0 && !done)
            OK(tsr_request_test(&requests[i], &done));
        CHECK(!requests[i], "a request that is over is still there");
        double *got = values_of(tensors[i]), want = 0;
        for (int r = 0; r < ranks; r++)
            want += i + r;
        CHECK(got[0] == want && got[2999] == want, "request %d gave %g, not %g", i, got[0], want);
        free(got);
    }
    for (int i = 0; i < REQUESTS; i++)
        tsr_tensor_destroy(&tensors[i]);
    OK(tsr_request_wait(&requests[0]));
}

CASE(other_streams, "an operation waits for what other streams do with its tensor")
{
    tsr_stream *other = NULL;
    OK(tsr_stream_create(gpu, &other));
    const int64_t size = 160;
    tsr_tensor *a = tensor_new(TSR_F32, 2, (int64_t[]){size, size});
    tsr_tensor *b = tensor_new(TSR_F32, 2, (int64_t[]){size, size});
    OK(tsr_fill(other, a, 1));
    for (int i = 0; i < 8; i++) { /* takes some time; the elements of a · a are `size` */
        OK(tsr_matmul(other, b, a, a, NULL));
        OK(tsr_scale(other, a, b, 1 / (float)size, 0));
    }
    OK(tsr_group_all_reduce(group, a, TSR_OP_SUM, NULL, NULL));
    double *got = values_of(a);
    CHECK(fabs(got[0] - ranks) < 1e-3 && fabs(got[size * size - 1] - ranks) < 1e-3, "%g and %g",
          got[0], got[size * size - 1]);
    free(got);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_stream_destroy(&other);
}

CASE(early_destroy, "a request keeps its tensors' memory")
{
    tsr_request *request = NULL;
    tsr_tensor *tensor = tensor_new(TSR_F32, 1, (int64_t[]){100000}), *view;
    OK(tsr_tensor_slice(tensor, 0, 0, TSR_END, 1, &view));
    OK(tsr_fill(queue, tensor, 1));
    OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, NULL, &request));
    tsr_tensor_destroy(&tensor);
    OK(tsr_request_wait(&request));
    double *got = values_of(view);
    CHECK(got[0] == ranks && got[99999] == ranks, "%g", got[0]);
    free(got);
    tsr_tensor_destroy(&view);
}

CASE(figures, "a group counts operations, bytes and time")
{
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    tsr_tensor *tensor = tensor_new(TSR_F16, 1, (int64_t[]){1000});
    OK(tsr_fill(queue, tensor, 1));
    tsr_group_reset_stats(group);
    OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, NULL, NULL));
    OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, NULL, NULL));
    OK(tsr_group_get_stats(group, &stats));
    CHECK(stats.operations == 2 && stats.size_bytes == 4000, "%llu operations of %llu bytes",
          (unsigned long long)stats.operations, (unsigned long long)stats.size_bytes);
    CHECK(ranks == 1 || stats.transport_ns + stats.device_ns > 0, "no time has passed");
    tsr_tensor_destroy(&tensor);
}

static bool is_staged(const tsr_group *of)
{
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    OK(tsr_group_get_stats(of, &stats));
    return stats.staged;
}

CASE(groups, "groups return their rank, size, stream and communicator")
{
    CHECK(tsr_group_rank(group) == my_rank && tsr_group_size(group) == ranks, "rank %d of %d",
          tsr_group_rank(group), tsr_group_size(group));
    CHECK(tsr_group_stream(group) == queue, "another stream");
    CHECK((tsr_group_comm(group) != NULL) == (world != NULL), "a communicator or none");
    CHECK(is_staged(staged) == (ranks > 1), "not staged");
    CHECK(tsr_group_default() == group, "another default group");
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    CHECK(tsr_group_rank(alone) == 0 && tsr_group_size(alone) == 1, "not alone");
    CHECK(!tsr_group_comm(alone) && !is_staged(alone), "not alone");
    tsr_group_set_default(alone);
    tsr_group_destroy(&alone);
    CHECK(!alone && !tsr_group_default(), "the default group is gone");
    tsr_group_destroy(&alone);
    tsr_group_set_default(group);
}

/* Returns whether the communicator can read the tensors of every rank in place. TEST_DISCRETE names
 * the ranks that use staging. With TEST_GPU, at least one rank's device is a GPU. */
static bool all_ranks_share_tensors(void)
{
    const char *discrete = getenv("TEST_DISCRETE");
    return !getenv("TEST_GPU") && (!discrete || strcmp(discrete, "none") == 0);
}

CASE(paths, "mapped tensors are used in place, unless the params or the environment say otherwise")
{
    bool maps = all_ranks_share_tensors();
    CHECK(is_staged(group) == (ranks > 1 && !maps), "the other path");
    tsr_group *forced = NULL;
    CHECK(setenv("TESSERA_FORCE_STAGING", my_rank == 0 ? "1" : "0", 1) == 0, "no environment");
    OK(tsr_group_create(world, queue, NULL, &forced));
    unsetenv("TESSERA_FORCE_STAGING");
    CHECK(is_staged(forced) == (ranks > 1), "rank 0 has not been heard");
    tsr_group_destroy(&forced);
    FAILS(tsr_group_create(world, queue, tsr_group_params(.piece_bytes = UINT64_MAX), &forced),
          TSR_ERR_INVALID,
          "group_create: piece_bytes is 18446744073709551615; at most 1073741824 are "
          "allowed");
}

CASE(single, "a communicator of one process makes a group of one")
{
    tsr_comm *one = NULL;
    tsr_group *alone = NULL;
    OK(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &one));
    OK(tsr_group_create(one, queue, tsr_group_params(.force_staging = true), &alone));
    tsr_comm_destroy(&one);
    CHECK(tsr_group_size(alone) == 1 && tsr_group_comm(alone), "not of one");
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){5}),
               *b = tensor_new(TSR_F32, 1, (int64_t[]){5});
    OK(tsr_fill(queue, a, 3));
    OK(tsr_fill(queue, b, 0));
    OK(tsr_group_all_reduce(alone, a, TSR_OP_SUM, NULL, NULL));
    OK(tsr_group_broadcast(alone, a, 0, NULL));
    OK(tsr_group_all_gather(alone, b, a, 0, NULL, NULL));
    check_same("all-gather", b, (double[]){3, 3, 3, 3, 3});
    OK(tsr_fill(queue, a, 4));
    OK(tsr_group_reduce_scatter(alone, b, a, 0, TSR_OP_AVG, NULL, NULL));
    check_same("reduce-scatter", b, (double[]){4, 4, 4, 4, 4});
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_group_destroy(&alone);
}

CASE(split_groups, "groups of some ranks work together with the group of all")
{
    if (ranks < 2)
        return;
    tsr_comm *half = NULL;
    tsr_group *part = NULL;
    OK(tsr_comm_split(world, my_rank % 2, 0, &half));
    OK(tsr_group_create(half, queue, NULL, &part));
    tsr_comm_destroy(&half);
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1}),
               *b = tensor_new(TSR_F32, 1, (int64_t[]){1});
    OK(tsr_fill(queue, a, 1));
    OK(tsr_fill(queue, b, 1));
    tsr_request *x = NULL, *y = NULL;
    OK(tsr_group_all_reduce(group, a, TSR_OP_SUM, NULL, &x));
    OK(tsr_group_all_reduce(part, b, TSR_OP_SUM, NULL, &y));
    OK(tsr_request_wait(my_rank % 2 ? &x : &y));
    OK(tsr_request_wait(&x));
    OK(tsr_request_wait(&y));
    double *got = values_of(a), *got_part = values_of(b);
    CHECK(got[0] == ranks && got_part[0] == tsr_group_size(part), "%g and %g", got[0], got_part[0]);
    free(got);
    free(got_part);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_group_destroy(&part);
}

CASE(mistakes, "mistakes in the arguments of operations are named")
{
    tsr_tensor *a = tensor_new(TSR_F32, 2, (int64_t[]){4, 6}), *low, *high;
    tsr_tensor *wrong = tensor_new(TSR_F32, 1, (int64_t[]){4});
    OK(tsr_tensor_slice(a, 0, 0, 3, 1, &low));
    OK(tsr_tensor_slice(a, 0, 1, 4, 1, &high));
    FAILS(tsr_group_all_reduce(NULL, a, TSR_OP_SUM, NULL, NULL), TSR_ERR_INVALID,
          "group_all_reduce: group is NULL");
    FAILS(tsr_group_all_reduce(group, NULL, TSR_OP_SUM, NULL, NULL), TSR_ERR_INVALID,
          "group_all_reduce: tensor is NULL");
    FAILS(tsr_group_all_reduce(group, a, (tsr_op)9, NULL, NULL), TSR_ERR_INVALID,
          "group_all_reduce: op 9 is not a tsr_op");
    FAILS(tsr_group_broadcast(group, a, -1, NULL), TSR_ERR_INVALID,
          ranks == 1   ? "group_broadcast: root is -1, outside 1 ranks"
          : ranks == 2 ? "group_broadcast: root is -1, outside 2 ranks"
          : ranks == 3 ? "group_broadcast: root is -1, outside 3 ranks"
                       : "group_broadcast: root is -1, outside 4 ranks");
    FAILS(tsr_group_all_gather(group, a, wrong, 0, NULL, NULL), TSR_ERR_INVALID,
          "group_all_gather: in is [4], out is [4,6]");
    FAILS(tsr_group_all_gather(group, a, low, 2, NULL, NULL), TSR_ERR_INVALID,
          "group_all_gather: dim 2 is outside a tensor of 2 dimensions");
    FAILS(tsr_group_reduce_scatter(group, wrong, a, 0, TSR_OP_SUM, NULL, NULL), TSR_ERR_INVALID,
          "group_reduce_scatter: in is [4,6], out is [4]");
    int64_t sizes[64] = {-1};
    FAILS(tsr_group_all_gather(group, a, low, 0, tsr_collective_params(.sizes = sizes), NULL),
          TSR_ERR_INVALID, "group_all_gather: rank 0 has size -1");
    if (ranks == 1) {
        FAILS(
            tsr_group_all_gather(group, a, low, 0, NULL, NULL), TSR_ERR_INVALID,
            "group_all_gather: a part is f32 [3,6] and the sizes along dim 0 add up to 3, but the "
            "full tensor is f32 [4,6]");
        FAILS(
            tsr_group_all_gather(group, high, low, 0, NULL, NULL), TSR_ERR_INVALID,
            "group_all_gather: [3,6] and [3,6] overlap, but the second is not the part of rank 0");
        sizes[0] = 2;
        FAILS(
            tsr_group_all_gather(group, high, low, 0, tsr_collective_params(.sizes = sizes), NULL),
            TSR_ERR_INVALID, "group_all_gather: rank 0 has size 2, its part is [3,6]");
    }
    FAILS(tsr_group_create(world, NULL, NULL, &(tsr_group *){NULL}), TSR_ERR_INVALID,
          "group_create: stream is NULL");
    bool done;
    tsr_request *none = NULL;
    FAILS(tsr_request_wait(NULL), TSR_ERR_INVALID, "request_wait: request is NULL");
    FAILS(tsr_request_test(&none, NULL), TSR_ERR_INVALID, "request_test: done is NULL");
    OK(tsr_request_test(&none, &done));
    CHECK(done, "no request is not done");
    tsr_request_cancel(&none);
    tsr_request_cancel(NULL);
    tsr_group_destroy(NULL);
    tsr_tensor_destroy(&low);
    tsr_tensor_destroy(&high);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&wrong);
}

CASE(sizes_of_structs, "groups take and write structs of other sizes than the library's")
{
    /* the params as they could become in a later release */
    struct {
        tsr_collective_params params;
        uint64_t unknown;
    } longer = {.params = {.struct_size = sizeof longer}};
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){8});
    OK(tsr_fill(queue, a, 1));
    OK(tsr_group_all_reduce(group, a, TSR_OP_MAX, &longer.params, NULL));
    longer.unknown = 1;
    const tsr_collective_params *const wrong[] = {&longer.params, &(tsr_collective_params){0}};
    const int64_t sizes[1] = {8};
    FAILS(tsr_group_all_reduce(group, a, TSR_OP_MAX, wrong[0], NULL), TSR_ERR_INVALID,
          "tsr_collective_params: struct_size is 32, this library knows the first 24 bytes, and "
          "byte 24 is not 0: the program uses a field of a newer library");
    for (int i = 0; i < 2; i++) {
        CHECK(tsr_group_all_gather(group, a, a, 0, wrong[i], NULL) == TSR_ERR_INVALID, "taken");
        CHECK(tsr_group_reduce_scatter(group, a, a, 0, TSR_OP_SUM, wrong[i], NULL) ==
                  TSR_ERR_INVALID,
              "taken");
    }
    FAILS(tsr_group_all_reduce(group, a, TSR_OP_MAX, wrong[1], NULL), TSR_ERR_INVALID,
          "tsr_collective_params: struct_size is 0; use the macro tsr_collective_params(...) or "
          "TSR_INIT(tsr_collective_params)");
    FAILS(tsr_group_all_reduce(group, a, TSR_OP_MAX, tsr_collective_params(.sizes = sizes), NULL),
          TSR_ERR_INVALID, "group_all_reduce: sizes are for all-gathers and reduce-scatters");

    tsr_group_stats stats = TSR_INIT(tsr_group_stats), unset = {.operations = 7};
    stats.transport_ns = 99;
    stats.struct_size = offsetof(tsr_group_stats, transport_ns); /* the struct without its end */
    OK(tsr_group_get_stats(group, &stats));
    CHECK(stats.operations > 0 && stats.transport_ns == 99, "%llu operations",
          (unsigned long long)stats.operations);
    FAILS(tsr_group_get_stats(group, &unset), TSR_ERR_INVALID,
          "tsr_group_stats: struct_size is 0; use TSR_INIT(tsr_group_stats)");
    CHECK(unset.operations == 7, "written");
    FAILS(tsr_group_get_stats(NULL, &stats), TSR_ERR_INVALID, "group_get_stats: group is NULL");
    FAILS(tsr_group_get_stats(group, NULL), TSR_ERR_INVALID, "group_get_stats: out is NULL");
    tsr_tensor_destroy(&a);
}

/* Each rank sends another number of elements, in several transfers through host memory; one rank
 * sends none. Several exchanges are in progress at the same time. */
CASE(exchange, "fsdp: copies need exchanges: each rank sends to one rank and receives from another")
{
    enum { TIMES = 3 };
    tsr_group *through[] = {group, staged};
    const int to = (my_rank + 1) % ranks, from = (my_rank + ranks - 1) % ranks;
    if (ranks == 1) {
        case_skip("one rank has no other");
        return;
    }
    for (int t = 0; t < 2; t++) {
        tsr_tensor *in[TIMES], *out[TIMES];
        tsr_request *requests[TIMES] = {NULL};
        for (int i = 0; i < TIMES; i++) {
            const int64_t sent = (my_rank + i) % 3 == 0 ? 0 : 20000 + 7001 * (int64_t)my_rank,
                          received = (from + i) % 3 == 0 ? 0 : 20000 + 7001 * (int64_t)from;
            double *values = numbers(40 + (uint64_t)(10 * i + my_rank), sent, TSR_F32);
            in[i] = tensor_of(TSR_F32, 1, &sent, values);
            out[i] = tensor_new(TSR_F32, 1, &received);
            free(values);
            OK(tsr__group_exchange_start(through[t], in[i], to, out[i], from, &requests[i]));
        }
        for (int i = TIMES - 1; i >= 0; i--) {
            OK(tsr_request_wait(&requests[i]));
            const int64_t count = tsr_layout_count(tsr_tensor_layout(out[i]));
            double *want = numbers(40 + (uint64_t)(10 * i + from), count, TSR_F32),
                   *got = values_of(out[i]);
            for (int64_t k = 0; k < count; k++)
                CHECK(got[k] == want[k], "exchange %d: element %lld is %g, not %g", i, (long long)k,
                      got[k], want[k]);
            free(want);
            free(got);
            tsr_tensor_destroy(&in[i]);
            tsr_tensor_destroy(&out[i]);
        }
    }
}
