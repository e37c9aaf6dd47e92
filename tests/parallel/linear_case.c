#include "parallel/linear_case.h"

#include "support/gpu.h"
#include "tensor/check.h"

int64_t part_start(int64_t size, int rank)
{
    int64_t each = size / ranks, more = size % ranks;
    return each * rank + (rank < more ? rank : more);
}

int64_t part_count(int64_t size, int rank)
{
    return part_start(size, rank + 1) - part_start(size, rank);
}

tsr_linear_shard shard_of(const tsr_layer *layer)
{
    tsr_linear_shard shard = TSR_INIT(tsr_linear_shard);
    OK(tsr_linear_get_shard(layer, &shard));
    return shard;
}

double *whole_parameter(const tsr_layer *layer, int index)
{
    tsr_tensor *whole = NULL;
    OK(tsr_layer_gather_parameter(layer, index, &whole));
    double *values = values_of(whole);
    tsr_tensor_destroy(&whole);
    return values;
}

/* The input or output of the layer: its full shape, and this rank's part. */
typedef struct side {
    int ndim;
    int64_t whole[6], part[6];
    int dim; /* the divided dimension; -1: none */
    int64_t start, count;
} side;

static void range_of(const tsr_partition_params *params, int64_t size, int64_t *start,
                     int64_t *count)
{
    *start = part_start(size, my_rank);
    *count = part_count(size, my_rank);
    if (!params || (params->kind != TSR_PARTITION_WEIGHTED && params->align == 0))
        return;
    tsr_shard_range ranges[64];
    OK(tsr_partition((uint64_t)size, ranks, params, ranges));
    *start = (int64_t)ranges[my_rank].start;
    *count = (int64_t)ranges[my_rank].count;
}

static side make_side(const linear_case *c, int64_t features, int dim,
                      const tsr_partition_params *partition)
{
    side s = {.ndim = c->lead_ndim + 1, .dim = dim};
    for (int d = 0; d < s.ndim; d++)
        s.whole[d] = s.part[d] = d < c->lead_ndim ? c->lead[d] : features;
    if (dim >= 0) {
        range_of(partition, s.whole[dim], &s.start, &s.count);
        s.part[dim] = s.count;
    }
    return s;
}

static side input_side(const linear_case *c)
{
    const tsr_linear_params *p = &c->params;
    int last = c->lead_ndim;
    bool sharded = p->input == TSR_LAYOUT_SHARDED || (c->row && p->input == TSR_LAYOUT_DEFAULT);
    if (p->input == TSR_LAYOUT_GATHER)
        return make_side(c, p->input_size, last, p->other_partition);
    if (p->input == TSR_LAYOUT_SEQUENCE)
        return make_side(c, p->input_size, p->sequence_dim, NULL);
    return make_side(c, p->input_size, sharded ? last : -1, p->partition);
}

static side output_side(const linear_case *c)
{
    const tsr_linear_params *p = &c->params;
    int last = c->lead_ndim;
    if (p->output == TSR_LAYOUT_SEQUENCE)
        return make_side(c, p->output_size, p->sequence_dim, NULL);
    if (c->row && p->output == TSR_LAYOUT_SHARDED)
        return make_side(c, p->output_size, last, p->other_partition);
    if (!c->row && p->output != TSR_LAYOUT_FULL)
        return make_side(c, p->output_size, last, p->partition);
    return make_side(c, p->output_size, -1, NULL);
}

/* Creates this rank's part of an input's or output's values as a tensor. */
static tsr_tensor *part_tensor(const linear_case *c, const side *s, const double *whole,
                               tsr_dtype dtype)
{
    double *mine = s->dim < 0 ? slice_of(whole, s->ndim, s->whole, 0, 0, s->whole[0])
                              : slice_of(whole, s->ndim, s->whole, s->dim, s->start, s->count);
    tsr_tensor *tensor =
        c->gaps ? tensor_with_gaps(dtype, s->ndim, s->part) : tensor_new(dtype, s->ndim, s->part);
    tensor_put(tensor, mine);
    free(mine);
    return tensor;
}

static void check_shape(const char *what, const tsr_tensor *tensor, int ndim, const int64_t *shape)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    char got[TSR__SHAPE_TEXT], want[TSR__SHAPE_TEXT];
    tsr__shape_format(layout->ndim, layout->shape, got, sizeof got);
    tsr__shape_format(ndim, shape, want, sizeof want);
    CHECK(strcmp(got, want) == 0, "%s is %s, not %s", what, got, want);
}

static void check_side(const char *what, const side *s, const tsr_tensor *tensor,
                       const measured *whole, tsr_dtype dtype)
{
    check_shape(what, tensor, s->ndim, s->part);
    CHECK(tsr_tensor_layout(tensor)->dtype == dtype, "%s is %s", what,
          tsr_dtype_name(tsr_tensor_layout(tensor)->dtype));
    measured want = s->dim < 0
                        ? measured_slice(whole, s->ndim, s->whole, 0, 0, s->whole[0])
                        : measured_slice(whole, s->ndim, s->whole, s->dim, s->start, s->count);
    double *got = values_of(tensor);
    check_close(what, got, want.value, want.magnitude, want.count, tolerance_of(dtype));
    free(got);
    measured_free(&want);
}

/* Checks that this rank's part of a gradient is `times` the reference. */
static void check_grad(const tsr_layer *layer, int index, const measured *whole, int times,
                       tsr_dtype x_dtype)
{
    const tsr_parameter *p = tsr_layer_parameter(layer, index);
    int dim = p->shard_dim < 0 ? 0 : p->shard_dim;
    measured want = measured_slice(whole, p->ndim, p->global_shape, dim, p->offset, p->length);
    for (int64_t i = 0; i < want.count; i++) {
        want.value[i] *= times;
        want.magnitude[i] *= times;
    }
    double *got = values_of(p->grad);
    tsr_dtype grad_dtype = tsr_tensor_layout(p->grad)->dtype;
    check_close(p->name, got, want.value, want.magnitude, want.count,
                2 * fmax(tolerance_of(grad_dtype), tolerance_of(x_dtype) * (x_dtype != TSR_F32)));
    free(got);
    measured_free(&want);
}

void linear_case_run(const linear_case *c)
{
    const tsr_linear_params *p = &c->params;
    tsr_dtype w_dtype = p->dtype ? p->dtype : TSR_F32, x_dtype = c->x_dtype ? c->x_dtype : w_dtype;
    side in = input_side(c), out = output_side(c);
    int64_t m = count_of(c->lead_ndim, c->lead), k = p->input_size, n = p->output_size;
    tsr_layer *layer = NULL;
    OK(c->row ? tsr_row_linear_create(p, &layer) : tsr_column_linear_create(p, &layer));
    double *w = whole_parameter(layer, 0), *bias = NULL;
    if (p->bias) {
        /* Writes other values to this rank's range of the bias, which is 0 until then. */
        double *values = numbers(c->sequence + 2, n, w_dtype);
        const tsr_parameter *b = tsr_layer_parameter(layer, 1);
        tensor_put(b->tensor, values + b->offset);
        bias = whole_parameter(layer, 1);
        free(values);
    }
    double *x = numbers(c->sequence, m * k, x_dtype),
           *dy = numbers(c->sequence + 1, m * n, x_dtype);
    tsr_tensor *tx = part_tensor(c, &in, x, x_dtype), *tdy = part_tensor(c, &out, dy, x_dtype);
    measured y = reference_linear(x, w, bias, m, k, n), dx = reference_dx(dy, w, m, k, n);
    measured dw = reference_dw(dy, x, m, k, n), db = reference_db(dy, m, n);

    tsr_tensor *ty = NULL, *tdx = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, tx, NULL, &ty));
    check_side("y", &out, ty, &y, x_dtype);
    tsr_tensor_destroy(&ty);
    OK(tsr_layer_forward(layer, tx, &saved, &ty));
    check_side("y", &out, ty, &y, x_dtype);
    for (int pass = 1; pass <= 3; pass++) {
        OK(tsr_layer_backward(layer, saved, tdy, pass == 2 ? NULL : &tdx));
        if (pass != 2)
            check_side("dx", &in, tdx, &dx, x_dtype);
        tsr_tensor_destroy(&tdx);
        check_grad(layer, 0, &dw, pass == 3 ? 1 : pass, x_dtype);
        if (p->bias)
            check_grad(layer, 1, &db, pass == 3 ? 1 : pass, x_dtype);
        if (pass == 2)
            tsr_layer_zero_grad(layer);
    }

    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&ty);
    tsr_tensor_destroy(&tx);
    tsr_tensor_destroy(&tdy);
    measured_free(&y);
    measured_free(&dx);
    measured_free(&dw);
    measured_free(&db);
    free(w);
    free(bias);
    free(x);
    free(dy);
    tsr_layer_destroy(&layer);
}
