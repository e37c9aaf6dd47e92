/* All-reduces with a narrow wire: their error, and what layers do in a group that has one. */
#include "parallel/spmd.h"
#include "support/gpu.h"

static const tsr_dtype wires[] = {TSR_F16, TSR_BF16, TSR_Q8_0};

/* Rank `rank`'s contribution: numbers of very different sizes, whose blocks differ too. */
static double *contribution(int rank, int64_t count, double scale)
{
    double *values = numbers(900 + (uint64_t)rank, count, TSR_F32);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(values[i] * scale * (1 + (double)(i / 32 % 7)), TSR_F32);
    return values;
}

/* The largest error that group.h allows a sum of these contributions, for element i. */
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
    OK(tsr_group_all_reduce_wire(through, tensor, wire));
    double *got = values_of(tensor);
    const double rounded = dtype == TSR_F32 ? 0x1p-22 : tolerance_of(dtype);
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(got[i] - want[i]), bound = most[i] + rounded * fabs(want[i]);
        CHECK(error <= bound, "%s by %s: element %lld is %.9g, not %.9g ± %.3g",
              tsr_dtype_name(dtype), tsr_dtype_name(wire), (long long)i, got[i], want[i], bound);
        worst = fmax(worst, bound > 0 ? error / bound : 0);
    }
    /* The bound is not far from what happens, so values do go through the wire. */
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

/* A wire that is not narrower, and an empty tensor. */
CASE(wire_none, "wire: one that is not narrower changes nothing")
{
    const tsr_dtype pairs[][2] = {{TSR_F32, TSR_F32}, {TSR_F16, TSR_BF16}, {TSR_BF16, TSR_F32}};
    const int64_t shape[] = {7, 9}, none[] = {0, 4};
    for (size_t i = 0; i < 3; i++) {
        double *values = contribution(my_rank, 63, 1);
        tsr_tensor *a = tensor_of(pairs[i][0], 2, shape, values),
                   *b = tensor_of(pairs[i][0], 2, shape, values);
        OK(tsr_group_all_reduce_wire(group, a, pairs[i][1]));
        OK(tsr_group_all_reduce(group, b, TSR_OP_SUM));
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
    OK(tsr_group_all_reduce_wire(group, empty, TSR_Q8_0));
    tsr_tensor_destroy(&empty);
}

CASE(wire_same_bits, "wire: all ranks get the same bits")
{
    for (size_t w = 0; w < 3; w++) {
        double *values = contribution(my_rank, 1000, 1);
        const int64_t shape = 1000;
        uint64_t size;
        tsr_tensor *tensor = tensor_of(TSR_F32, 1, &shape, values);
        OK(tsr_group_all_reduce_wire(group, tensor, wires[w]));
        uint8_t *bytes = bytes_of(tensor, &size), *first = bytes_of(tensor, &size);
        if (world)
            OK(tsr_comm_broadcast(world, first, size, TSR_U8, 0));
        CHECK(memcmp(bytes, first, size) == 0, "%s: rank 0 has other bits",
              tsr_dtype_name(wires[w]));
        free(bytes);
        free(first);
        free(values);
        tsr_tensor_destroy(&tensor);
    }
}

/* The outputs and the gradient of the input of an MLP in this group. */
static void run_mlp(tsr_group *on, double **y_out, double **dx_out)
{
    const int64_t shape[] = {8, 32};
    const tsr_partition_params uneven = {.kind = TSR_PARTITION_UNEVEN};
    tsr_layer *mlp = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL, *dx = NULL;
    double *values = numbers(77, 8 * 32, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 2, shape, values),
               *dy = tensor_of(TSR_F32, 2, shape, values);
    OK(tsr_mlp_create(tsr_mlp_params(.group = on, .name = "mlp", .input_size = 32,
                                     .hidden_size = 48, .output_size = 32, .partition = uneven),
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

CASE(wire_layers, "wire: layers of a group with a wire differ by its error, and only those")
{
    double *y, *dx, *narrow_y, *narrow_dx;
    run_mlp(group, &y, &dx);
    CHECK(tsr_group_wire(group) == 0, "the group has a wire");
    for (size_t w = 0; w < 3; w++) {
        tsr_group *narrow = NULL;
        OK(tsr_group_create(world, queue, tsr_group_params(.wire = wires[w]), &narrow));
        CHECK(tsr_group_wire(narrow) == wires[w], "the wire is %d", (int)tsr_group_wire(narrow));
        run_mlp(narrow, &narrow_y, &narrow_dx);
        const double errors[] = {distance(narrow_y, y, 8 * 32), distance(narrow_dx, dx, 8 * 32)};
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

CASE(wire_mistakes, "wire: mistakes are errors that name the values")
{
    const int64_t shape = 40;
    tsr_group *none = NULL;
    tsr_group_request *request = NULL;
    double *values = numbers(1, 40, TSR_F32);
    tsr_tensor *tensor = tensor_of(TSR_F32, 1, &shape, values),
               *whole = tensor_new(TSR_I32, 1, &shape);
    FAILS(tsr_group_create(world, queue, tsr_group_params(.wire = TSR_Q4_0), &none),
          TSR_ERR_INVALID, "group_create: wire is q4_0; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_all_reduce_wire(group, tensor, TSR_I32), TSR_ERR_INVALID,
          "group_all_reduce_wire: wire is i32; f32, f16, bf16 or q8_0 is needed");
    FAILS(tsr_group_all_reduce_wire(group, whole, TSR_F16), TSR_ERR_INVALID,
          "group_all_reduce_wire: tensor is i32; f32, f16 or bf16 is needed");
    FAILS(tsr_group_all_reduce_wire(group, NULL, TSR_F16), TSR_ERR_INVALID,
          "group_all_reduce_wire: tensor is NULL");
    FAILS(tsr_group_all_reduce_wire(NULL, tensor, TSR_F16), TSR_ERR_INVALID,
          "group_all_reduce_wire: group is NULL");
    FAILS(tsr_group_all_reduce_wire_start(group, tensor, TSR_F16, NULL), TSR_ERR_INVALID,
          "group_all_reduce_wire: out is NULL");
    if (ranks > 1) {
        FAILS(tsr_group_create(world, queue,
                               tsr_group_params(.wire = my_rank == 1 ? TSR_F16 : TSR_BF16), &none),
              TSR_ERR_INVALID, "group_create: wire is f16 on one rank and bf16 on another");
        values[37] = (double)NAN; /* on all ranks: nothing is sent */
        tensor_put(tensor, values);
        FAILS(tsr_group_all_reduce_wire_start(group, tensor, TSR_Q8_0, &request), TSR_ERR_INVALID,
              "group_all_reduce_wire: quantize: element 37 is NaN");
        OK(tsr_group_all_reduce_wire(group, tensor, TSR_BF16));
        double *got = values_of(tensor);
        CHECK(isnan(got[37]) && !isnan(got[36]), "%g and %g", got[37], got[36]);
        free(got);
    }
    free(values);
    tsr_tensor_destroy(&tensor);
    tsr_tensor_destroy(&whole);
}
