/* Operations with a narrow wire type (tessera/group.h): their error, and what layers and sharded
 * parameters do in a group that has one. */
#include "parallel/fsdp_case.h"
#include "parallel/group/group.h"
#include "parallel/spmd.h"
#include "support/gpu.h"

static const tsr_dtype wires[] = {TSR_F16, TSR_BF16, TSR_Q8_0};

/* Returns the contribution of rank `rank`: numbers of very different sizes, whose blocks differ,
 * too. */
static double *contribution(int rank, int64_t count, double scale)
{
    double *values = numbers(900 + (uint64_t)rank, count, TSR_F32);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(values[i] * scale * (1 + (double)(i / 32 % 7)), TSR_F32);
    return values;
}

/* Returns the largest error that group.h allows for element i of one rank's contribution. The error
 * of a sum may be the sum of these. */
static double allowed(const double *values, int64_t count, int64_t i, tsr_dtype wire)
{
    double largest = 0;
    for (int64_t k = i / 32 * 32; k < (i / 32 + 1) * 32 && k < count; k++)
        largest = fmax(largest, fabs(values[k]));
    return wire == TSR_F16    ? fabs(values[i]) * 0x1p-11
           : wire == TSR_BF16 ? fabs(values[i]) * 0x1p-8
                              : largest * (1.0 / 254 + 1.0 / 2048);
}

static void check_sum(tsr_group *through, tsr_dtype dtype, tsr_dtype wire, bool gaps, int ndim,
                      const int64_t *shape, double scale)
{
    const int64_t count = count_of(ndim, shape);
    double *want = doubles(count), *most = doubles(count), worst = 0;
    tsr_tensor *tensor =
        gaps ? tensor_with_gaps(dtype, ndim, shape) : tensor_new(dtype, ndim, shape);
    for (int r = 0; r < ranks; r++) {
        double *values = contribution(r, count, scale);
        for (int64_t i = 0; i < count; i++)
            values[i] = gpu_rounded(values[i], dtype);
        for (int64_t i = 0; i < count; i++) {
            want[i] += values[i];
            most[i] += ranks == 1 ? 0 : allowed(values, count, i, wire);
        }
        if (r == my_rank)
            tensor_put(tensor, values);
        free(values);
    }
    OK(tsr_group_all_reduce(through, tensor, TSR_OP_SUM, tsr_collective_params(.wire = wire),
                            NULL));
    double *got = values_of(tensor);
    const double rounded = dtype == TSR_F32 ? 0x1p-22 : tolerance_of(dtype);
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(got[i] - want[i]), bound = most[i] + rounded * fabs(want[i]);
        CHECK(error <= bound, "%s by %s: element %lld is %.9g, not %.9g ± %.3g",
              tsr_dtype_name(dtype), tsr_dtype_name(wire), (long long)i, got[i], want[i], bound);
        worst = fmax(worst, bound > 0 ? error / bound : 0);
    }
    /* The largest error must be close to its bound, which shows that values were rounded to the
     * type of the wire. */
    CHECK(ranks == 1 || ranks > 4 || count < 1000 || dtype != TSR_F32 || worst > 0.3,
          "%s: the largest error is %g of the bound", tsr_dtype_name(wire), worst);
    free(got);
    free(want);
    free(most);
    tsr_tensor_destroy(&tensor);
}

CASE(wire_errors, "wire: sums have the error that is stated, also of small numbers and any shape")
{
    const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 64, 96}, {1, 1, 31}, {4, 1, 33}};
    tsr_group *through[] = {group, staged};
    for (int t = 0; t < 2; t++) {
        for (size_t w = 0; w < 3; w++) {
            for (size_t s = 0; s < 5; s++)
                check_sum(through[t], TSR_F32, wires[w], s % 2 == 1, 3, shapes[s], 1);
            check_sum(through[t], TSR_F32, wires[w], false, 3, shapes[2],
                      wires[w] == TSR_F16 ? 0.1 : 1e-9);
        }
        check_sum(through[t], TSR_F16, TSR_Q8_0, false, 3, shapes[2], 1);
        check_sum(through[t], TSR_BF16, TSR_Q8_0, true, 3, shapes[1], 1);
    }
}

/* Gets the sizes of the ranks' parts of a dimension, which are all different, and one is 0. Returns
 * their sum. */
static int64_t uneven_sizes(int64_t *sizes)
{
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += sizes[r] = r == 1 ? 0 : 3 + 5 * (int64_t)r;
    return sum;
}

static tsr_tensor *tensor_like(tsr_dtype dtype, bool gaps, const int64_t *shape)
{
    return gaps ? tensor_with_gaps(dtype, 3, shape) : tensor_new(dtype, 3, shape);
}

/* Returns the part of rank `rank` along `dim`, and its shape. */
static double *part_of(const double *whole, const int64_t *shape, int dim, const int64_t *sizes,
                       int rank, int64_t *part_shape)
{
    int64_t start = 0;
    for (int r = 0; r < rank; r++)
        start += sizes[r];
    memcpy(part_shape, shape, 3 * sizeof *shape);
    part_shape[dim] = sizes[rank];
    return slice_of(whole, 3, shape, dim, start, sizes[rank]);
}

/* Checks that a tensor is the same on all ranks. */
static void check_same_bits(const tsr_tensor *tensor, const char *what)
{
    uint64_t size;
    uint8_t *bytes = bytes_of(tensor, &size), *first = bytes_of(tensor, &size);
    if (world)
        OK(tsr_comm_broadcast(world, first, size, TSR_U8, 0, NULL));
    CHECK(memcmp(bytes, first, size) == 0, "%s: rank 0 has other bits", what);
    free(bytes);
    free(first);
}

/* Returns the largest error in relation to its bound. */
static double check_bound(const char *what, const double *got, const double *want,
                          const double *most, int64_t count, tsr_dtype dtype)
{
    const double rounded = dtype == TSR_F32 ? 0x1p-22 : tolerance_of(dtype);
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(got[i] - want[i]), bound = most[i] + rounded * fabs(want[i]);
        CHECK(error <= bound, "%s: element %lld is %.9g, not %.9g ± %.3g", what, (long long)i,
              got[i], want[i], bound);
        worst = fmax(worst, bound > 0 ? error / bound : 0);
    }
    return worst;
}

typedef struct parts_case {
    tsr_group *through;
    tsr_dtype dtype, wire;
    int dim;
    bool gaps, in_place, uneven;
} parts_case;

/* Writes the shape of the full tensor, and the size of each rank's part of dimension c->dim.
 * Returns the sizes to pass to a collective, which is NULL if all are equal. */
static const int64_t *parts_shape(const parts_case *c, int64_t *shape, int64_t *sizes)
{
    memcpy(shape, (int64_t[]){5, 6, 33}, 3 * sizeof *shape);
    shape[c->dim] = c->uneven ? uneven_sizes(sizes) : 7 * (int64_t)ranks;
    for (int r = 0; r < ranks && !c->uneven; r++)
        sizes[r] = 7;
    return c->uneven ? sizes : NULL;
}

static double *rounded_contribution(int rank, int64_t count, tsr_dtype dtype)
{
    double *values = contribution(rank, count, 1);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(values[i], dtype);
    return values;
}

/* Checks a gather. The parts that ranks contribute come from one full tensor that every rank can
 * compute, so each rank knows the expected result. */
static void check_gather(const parts_case *c)
{
    int64_t shape[3], part_shape[3], sizes[64];
    const int64_t *given = parts_shape(c, shape, sizes), count = count_of(3, shape);
    double *whole = rounded_contribution(0, count, c->dtype), *most = doubles(count);
    double *mine = part_of(whole, shape, c->dim, sizes, my_rank, part_shape);
    tsr_tensor *out = tensor_like(c->dtype, c->gaps, shape), *in = NULL;
    int64_t start = 0;
    for (int r = 0; r < my_rank; r++)
        start += sizes[r];
    if (c->in_place)
        OK(tsr_tensor_slice(out, c->dim, start, start + sizes[my_rank], 1, &in));
    else
        in = tensor_like(c->dtype, c->gaps, part_shape);
    tensor_put(in, mine);
    OK(tsr_group_all_gather(c->through, out, in, c->dim - 3,
                            tsr_collective_params(.wire = c->wire, .sizes = given), NULL));

    /* Each element must be within its own bound. */
    double *got = values_of(out), worst = 0;
    for (int r = 0; r < ranks; r++) {
        double *want = part_of(whole, shape, c->dim, sizes, r, part_shape),
               *found = part_of(got, shape, c->dim, sizes, r, part_shape);
        const int64_t part = count_of(3, part_shape);
        for (int64_t i = 0; i < part; i++)
            most[i] = ranks == 1 ? 0 : allowed(want, part, i, c->wire);
        worst = fmax(worst, check_bound("all-gather", found, want, most, part, c->dtype));
        free(want);
        free(found);
    }
    CHECK(ranks == 1 || c->dtype != TSR_F32 || worst > 0.3, "%s: the largest error is %g",
          tsr_dtype_name(c->wire), worst);
    check_same_bits(out, "all-gather");
    free(got);
    free(mine);
    free(most);
    free(whole);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
}

static void check_scatter(const parts_case *c)
{
    int64_t shape[3], part_shape[3], sizes[64], start = 0;
    const int64_t *given = parts_shape(c, shape, sizes), count = count_of(3, shape);
    double *whole = rounded_contribution(my_rank, count, c->dtype);
    tsr_tensor *in = tensor_like(c->dtype, c->gaps, shape), *out = NULL;
    free(part_of(whole, shape, c->dim, sizes, my_rank, part_shape));
    const int64_t part = count_of(3, part_shape);
    double *want = doubles(part), *most = doubles(part);
    for (int r = 0; r < ranks; r++) {
        double *values = rounded_contribution(r, count, c->dtype),
               *own = part_of(values, shape, c->dim, sizes, my_rank, part_shape);
        for (int64_t i = 0; i < part; i++) {
            want[i] += own[i];
            most[i] += ranks == 1 ? 0 : allowed(own, part, i, c->wire);
        }
        free(own);
        free(values);
        start += r < my_rank ? sizes[r] : 0;
    }
    if (c->in_place)
        OK(tsr_tensor_slice(in, c->dim, start, start + sizes[my_rank], 1, &out));
    else
        out = tensor_like(c->dtype, c->gaps, part_shape);
    tensor_put(in, whole);
    OK(tsr_group_reduce_scatter(c->through, out, in, c->dim, TSR_OP_SUM,
                                tsr_collective_params(.wire = c->wire, .sizes = given), NULL));
    double *got = values_of(out);
    const double worst = check_bound("reduce-scatter", got, want, most, part, c->dtype);
    CHECK(ranks == 1 || ranks > 4 || part < 1000 || c->dtype != TSR_F32 || worst > 0.3,
          "%s: the largest error is %g", tsr_dtype_name(c->wire), worst);

    /* If the wire's type has no blocks, the result has the same bits as that of an all-reduce. */
    tensor_put(in, whole);
    OK(tsr_group_all_reduce(c->through, in, TSR_OP_SUM, tsr_collective_params(.wire = c->wire),
                            NULL));
    double *sums = values_of(in),
           *part_sums = part_of(sums, shape, c->dim, sizes, my_rank, part_shape);
    for (int64_t i = 0; i < part && c->wire != TSR_Q8_0; i++)
        CHECK(got[i] == part_sums[i], "%s: element %lld is %.9g; an all-reduce gives %.9g",
              tsr_dtype_name(c->wire), (long long)i, got[i], part_sums[i]);
    free(sums);
    free(part_sums);
    free(got);
    free(want);
    free(most);
    free(whole);
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&out);
}

CASE(wire_parts, "wire: parts are gathered and scattered with the error that is stated")
{
    const parts_case cases[] = {
        {group, TSR_F32, TSR_Q8_0, 0, .gaps = false},
        {staged, TSR_F32, TSR_Q8_0, 1, .gaps = true, .uneven = true},
        {group, TSR_F32, TSR_BF16, 1, .gaps = true},
        {staged, TSR_F32, TSR_F16, 0, .in_place = true, .uneven = true},
        {group, TSR_BF16, TSR_Q8_0, 2, .in_place = true},
        {staged, TSR_F16, TSR_Q8_0, 0, .in_place = true},
        {group, TSR_F32, TSR_Q8_0, 1, .in_place = true, .uneven = true},
        {staged, TSR_F32, TSR_BF16, 2, .uneven = true},
        {group, TSR_F16, TSR_BF16, 0, .gaps = false}, /* the wire type is not narrower */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_gather(&cases[i]);
        check_scatter(&cases[i]);
    }
}

/* `staged` copies tensors through pieces of host memory, which are smaller than these parts. */
CASE(wire_pieces, "wire: parts larger than a piece of host memory")
{
    const int64_t each = 70000, shape = each * ranks;
    double *whole = contribution(0, shape, 1), *most = doubles(shape), *want = doubles(each);
    tsr_tensor *all = tensor_new(TSR_F32, 1, &shape),
               *mine = tensor_of(TSR_F32, 1, &each, whole + my_rank * each);
    OK(tsr_group_all_gather(staged, all, mine, 0, tsr_collective_params(.wire = TSR_Q8_0), NULL));
    double *got = values_of(all);
    for (int64_t i = 0; i < shape; i++)
        most[i] = ranks == 1 ? 0 : allowed(whole + i / each * each, each, i % each, TSR_Q8_0);
    (void)check_bound("all-gather", got, whole, most, shape, TSR_F32);
    free(got);
    /* All ranks contribute the same values. */
    tensor_put(all, whole);
    OK(tsr_group_reduce_scatter(staged, mine, all, 0, TSR_OP_SUM,
                                tsr_collective_params(.wire = TSR_Q8_0), NULL));
    got = values_of(mine);
    for (int64_t i = 0; i < each; i++) {
        want[i] = ranks * whole[my_rank * each + i];
        most[i] = ranks == 1 ? 0 : ranks * allowed(whole + my_rank * each, each, i, TSR_Q8_0);
    }
    (void)check_bound("reduce-scatter", got, want, most, each, TSR_F32);
    free(got);
    free(want);
    free(most);
    free(whole);
    tsr_tensor_destroy(&all);
    tsr_tensor_destroy(&mine);
}

/* Tests wire types that are not narrower than the tensor's, and an empty tensor. */
CASE(wire_none, "wire: one that is not narrower changes nothing")
{
    const tsr_dtype pairs[][2] = {{TSR_F32, TSR_F32}, {TSR_F16, TSR_BF16}, {TSR_BF16, TSR_F32}};
    const int64_t shape[] = {7, 9}, none[] = {0, 4};
    for (size_t i = 0; i < 3; i++) {
        double *values = contribution(my_rank, 63, 1);
        tsr_tensor *a = tensor_of(pairs[i][0], 2, shape, values),
                   *b = tensor_of(pairs[i][0], 2, shape, values);
        OK(tsr_group_all_reduce(group, a, TSR_OP_SUM, tsr_collective_params(.wire = pairs[i][1]),
                                NULL));
        OK(tsr_group_all_reduce(group, b, TSR_OP_SUM, NULL, NULL));
        uint64_t size;
        uint8_t *got = bytes_of(a, &size), *want = bytes_of(b, &size);
        CHECK(memcmp(got, want, size) == 0, "%s by %s differs", tsr_dtype_name(pairs[i][0]),
              tsr_dtype_name(pairs[i][1]));
        free(got);
        free(want);
        free(values);
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
    }
    tsr_tensor *empty = tensor_new(TSR_F32, 2, none);
    OK(tsr_group_all_reduce(group, empty, TSR_OP_SUM, tsr_collective_params(.wire = TSR_Q8_0),
                            NULL));
    OK(tsr_group_all_gather(group, empty, empty, 0, tsr_collective_params(.wire = TSR_Q8_0), NULL));
    OK(tsr_group_reduce_scatter(group, empty, empty, 0, TSR_OP_SUM,
                                tsr_collective_params(.wire = TSR_BF16), NULL));
    tsr_tensor_destroy(&empty);
}

CASE(wire_same_bits, "wire: all ranks get the same bits")
{
    for (size_t w = 0; w < 3; w++) {
        double *values = contribution(my_rank, 1000, 1);
        const int64_t shape = 1000;
        tsr_tensor *tensor = tensor_of(TSR_F32, 1, &shape, values);
        OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, tsr_collective_params(.wire = wires[w]),
                                NULL));
        check_same_bits(tensor, tsr_dtype_name(wires[w]));
        free(values);
        tsr_tensor_destroy(&tensor);
    }
}

/* Computes this rank's outputs, and its gradient of the input, of an MLP in this group. */
static void run_mlp(tsr_group *on, bool sequence, double **y_out, double **dx_out)
{
    const int64_t shape[] = {sequence ? 8 : 8 * (int64_t)ranks, 32};
    const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                         .kind = TSR_PARTITION_UNEVEN};
    tsr_layer *mlp = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL, *dx = NULL;
    double *values = numbers(77, shape[0] * 32, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 2, shape, values),
               *dy = tensor_of(TSR_F32, 2, shape, values);
    OK(tsr_mlp_create(tsr_mlp_params(.group = on, .name = "mlp", .input_size = 32,
                                     .hidden_size = 48, .output_size = 32, .partition = &uneven,
                                     .sequence = sequence, .bias = true),
                      &mlp));
    OK(tsr_layer_forward(mlp, x, &saved, &y));
    OK(tsr_layer_backward(mlp, saved, dy, &dx));
    *y_out = values_of(y);
    *dx_out = values_of(dx);
    free(values);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dx);
    tsr_layer_saved_destroy(&saved);
    tsr_layer_destroy(&mlp);
}

static double distance(const double *a, const double *b, int64_t count)
{
    double largest = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(a[i] - b[i]));
        size = fmax(size, fabs(b[i]));
    }
    return largest / size;
}

static void check_layers(bool sequence)
{
    const int64_t count = 32 * (sequence ? 8 : 8 * (int64_t)ranks);
    double *y, *dx, *narrow_y, *narrow_dx;
    run_mlp(group, sequence, &y, &dx);
    CHECK(tsr__group_wire(group) == 0, "the group has a wire");
    for (size_t w = 0; w < 3; w++) {
        tsr_group *narrow = NULL;
        OK(tsr_group_create(world, queue, tsr_group_params(.wire = wires[w]), &narrow));
        CHECK(tsr__group_wire(narrow) == wires[w], "the wire is %d", (int)tsr__group_wire(narrow));
        run_mlp(narrow, sequence, &narrow_y, &narrow_dx);
        const double errors[] = {distance(narrow_y, y, count), distance(narrow_dx, dx, count)};
        for (int i = 0; i < 2; i++)
            CHECK(ranks == 1 ? errors[i] == 0 : errors[i] > 0 && errors[i] < 0.01 * ranks,
                  "%s: %s differs by %g", tsr_dtype_name(wires[w]), i ? "dx" : "y", errors[i]);
        free(narrow_y);
        free(narrow_dx);
        tsr_group_destroy(&narrow);
    }
    free(y);
    free(dx);
}

CASE(wire_layers, "wire: layers of a group with a wire differ by its error, and only those")
{
    check_layers(false);
    check_layers(true);
}

/* Parameters and their gradients are never rounded to the type of a wire. */
CASE(wire_sharded, "wire: sharded parameters and their gradients are sent as they are")
{
    uint8_t *bytes[2];
    uint64_t size[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        tsr_group *data = NULL;
        model m;
        OK(tsr_group_create(world, queue,
                            tsr_group_params(.wire = narrow ? TSR_Q8_0 : (tsr_dtype)0), &data));
        model_make(&(model_case){.sharded = {.group = data}}, &m);
        for (int step = 0; step < 2; step++)
            model_step(&m, step, my_rank, ranks);
        bytes[narrow] = model_bytes(&m, &size[narrow]);
        model_finish(&m);
        tsr_group_destroy(&data);
    }
    CHECK(size[0] == size[1] && memcmp(bytes[0], bytes[1], size[0]) == 0, "the wire was used");
    free(bytes[0]);
    free(bytes[1]);
}

/* Returns the message of the error that a call gives for parts as large as the full tensor. */
static const char *wrong_sizes(const char *who)
{
    static char text[200];
    snprintf(
        text, sizeof text,
        "%s: a part is f32 [40] and the sizes along dim 0 add up to %d, but the full tensor is "
        "f32 [40]",
        who, 40 * ranks);
    return text;
}

CASE(wire_mistakes, "wire: mistakes are errors that name the values")
{
    const int64_t shape = 40;
    tsr_group *none = NULL;
    tsr_tensor *half = NULL, *other = tensor_new(TSR_F16, 1, &shape);
    double *values = numbers(1, 40, TSR_F32);
    tsr_tensor *tensor = tensor_of(TSR_F32, 1, &shape, values),
               *whole = tensor_new(TSR_I32, 1, &shape);
    FAILS(tsr_group_create(world, queue, tsr_group_params(.wire = TSR_Q4_0), &none),
          TSR_ERR_INVALID, "group_create: wire is q4_0; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, tsr_collective_params(.wire = TSR_I32),
                               NULL),
          TSR_ERR_INVALID, "group_all_reduce: wire is i32; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_all_reduce(group, whole, TSR_OP_SUM, tsr_collective_params(.wire = TSR_F16),
                               NULL),
          TSR_ERR_INVALID,
          "group_all_reduce: tensor is i32; with a wire, f32, f16 or bf16 is needed");
    FAILS(
        tsr_group_all_reduce(group, NULL, TSR_OP_SUM, tsr_collective_params(.wire = TSR_F16), NULL),
        TSR_ERR_INVALID, "group_all_reduce: tensor is NULL");
    FAILS(tsr_group_all_reduce(NULL, tensor, TSR_OP_SUM, tsr_collective_params(.wire = TSR_F16),
                               NULL),
          TSR_ERR_INVALID, "group_all_reduce: group is NULL");
    FAILS(tsr_group_all_reduce(group, tensor, TSR_OP_AVG, tsr_collective_params(.wire = TSR_F16),
                               NULL),
          TSR_ERR_INVALID, "group_all_reduce: with a wire, op must be TSR_OP_SUM, not 2");
    if (ranks > 1) {
        FAILS(tsr_group_create(world, queue,
                               tsr_group_params(.wire = my_rank == 1 ? TSR_F16 : TSR_BF16), &none),
              TSR_ERR_INVALID, "group_create: wire is f16 on one rank and bf16 on another");
        values[37] = (double)NAN; /* on all ranks, so nothing is sent */
        tensor_put(tensor, values);
        OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, tsr_collective_params(.wire = TSR_BF16),
                                NULL));
        double *got = values_of(tensor);
        CHECK(isnan(got[37]) && !isnan(got[36]), "%g and %g", got[37], got[36]);
        free(got);
        values[37] = my_rank == 0 ? (double)INFINITY : 0;
        tensor_put(tensor, values);
        OK(tsr_group_all_reduce(group, tensor, TSR_OP_SUM, tsr_collective_params(.wire = TSR_Q8_0),
                                NULL));
        got = values_of(tensor);
        for (int i = 0; i < 40; i++)
            CHECK(isnan(got[i]), "element %d is %g", i, got[i]);
        free(got);
        FAILS(tsr_group_all_gather(group, tensor, tensor, 0, tsr_collective_params(.wire = TSR_F16),
                                   NULL),
              TSR_ERR_INVALID, wrong_sizes("group_all_gather"));
        FAILS(tsr_group_reduce_scatter(group, tensor, tensor, 0, TSR_OP_SUM,
                                       tsr_collective_params(.wire = TSR_F16), NULL),
              TSR_ERR_INVALID, wrong_sizes("group_reduce_scatter"));
    }
    OK(tsr_tensor_slice(tensor, 0, 0, 20, 1, &half));
    FAILS(
        tsr_group_all_gather(group, tensor, half, 0, tsr_collective_params(.wire = TSR_Q4_0), NULL),
        TSR_ERR_INVALID, "group_all_gather: wire is q4_0; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_reduce_scatter(group, half, tensor, 0, TSR_OP_MAX,
                                   tsr_collective_params(.wire = TSR_F16), NULL),
          TSR_ERR_INVALID, "group_reduce_scatter: with a wire, op must be TSR_OP_SUM, not 4");
    FAILS(
        tsr_group_all_gather(group, whole, whole, 0, tsr_collective_params(.wire = TSR_F16), NULL),
        TSR_ERR_INVALID, "group_all_gather: in is i32; with a wire, f32, f16 or bf16 is needed");
    FAILS(
        tsr_group_all_gather(group, tensor, half, 1, tsr_collective_params(.wire = TSR_F16), NULL),
        TSR_ERR_INVALID, "group_all_gather: dim 1 is outside a tensor of 1 dimensions");
    FAILS(
        tsr_group_all_gather(group, tensor, NULL, 0, tsr_collective_params(.wire = TSR_F16), NULL),
        TSR_ERR_INVALID, "group_all_gather: in is NULL");
    FAILS(tsr_group_reduce_scatter(group, half, tensor, 0, TSR_OP_SUM,
                                   tsr_collective_params(.wire = TSR_Q4_0), NULL),
          TSR_ERR_INVALID, "group_reduce_scatter: wire is q4_0; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_reduce_scatter(group, whole, whole, 0, TSR_OP_SUM,
                                   tsr_collective_params(.wire = TSR_F16), NULL),
          TSR_ERR_INVALID,
          "group_reduce_scatter: in is i32; with a wire, f32, f16 or bf16 is needed");
    FAILS(tsr_group_reduce_scatter(NULL, half, tensor, 0, TSR_OP_SUM,
                                   tsr_collective_params(.wire = TSR_F16), NULL),
          TSR_ERR_INVALID, "group_reduce_scatter: group is NULL");
    if (ranks == 1)
        FAILS(tsr_group_reduce_scatter(group, other, tensor, 0, TSR_OP_SUM,
                                       tsr_collective_params(.wire = TSR_Q8_0), NULL),
              TSR_ERR_INVALID,
              "group_reduce_scatter: a part is f16 [40] and the sizes along dim 0 add up to "
              "40, but the full tensor is f32 [40]");
    tsr_tensor_destroy(&half);
    tsr_tensor_destroy(&other);
    free(values);
    tsr_tensor_destroy(&tensor);
    tsr_tensor_destroy(&whole);
}
