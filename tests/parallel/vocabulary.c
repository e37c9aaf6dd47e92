/* Compares vocabulary-parallel embedding and cross-entropy with a reference in double precision. */
#include "parallel/linear_case.h"
#include "support/gpu.h"

static int64_t index_of(uint64_t sequence, int64_t i, int64_t vocabulary)
{
    /* Some indices are out of range at either end, and many are equal. */
    int64_t index = (int64_t)floor((number(sequence, i) + 1) / 2 * (double)(vocabulary + 4)) - 2;
    return i % 5 == 0 ? vocabulary / 2 : index;
}

static void embedding_case(const tsr_embedding_params *params, tsr_dtype index_dtype, int ndim,
                           const int64_t *shape, uint64_t sequence)
{
    const int64_t width = params->width, rows = count_of(ndim, shape);
    tsr_dtype dtype = params->dtype ? params->dtype : TSR_F32;
    int dim = params->output == TSR_LAYOUT_SEQUENCE ? params->sequence_dim : -1;
    tsr_layer *layer = NULL;
    OK(tsr_embedding_create(params, &layer));
    double *table = whole_parameter(layer, 0), *indices = doubles(rows);
    int64_t y_shape[6], part_shape[6];
    memcpy(y_shape, shape, (size_t)ndim * sizeof *shape);
    y_shape[ndim] = width;
    memcpy(part_shape, y_shape, sizeof part_shape);
    for (int64_t i = 0; i < rows; i++)
        indices[i] = index_dtype == TSR_U8 || index_dtype == TSR_U32
                         ? fmax(0, (double)index_of(sequence, i, params->vocabulary_size))
                         : (double)index_of(sequence, i, params->vocabulary_size);
    double *want = doubles(rows * width), *dy = numbers(sequence, rows * width, dtype);
    measured gradient = measured_new(params->vocabulary_size * width);
    for (int64_t i = 0; i < rows; i++) {
        int64_t index = (int64_t)indices[i];
        if (index < 0 || index >= params->vocabulary_size)
            continue;
        for (int64_t j = 0; j < width; j++) {
            want[i * width + j] = table[index * width + j];
            gradient.value[index * width + j] += dy[i * width + j];
            gradient.magnitude[index * width + j] += fabs(dy[i * width + j]);
        }
    }
    tsr_tensor *x = sequence % 2 ? tensor_with_gaps(index_dtype, ndim, shape)
                                 : tensor_new(index_dtype, ndim, shape);
    tensor_put(x, indices);
    int64_t start = 0, count = y_shape[dim < 0 ? 0 : dim];
    if (dim >= 0) {
        start = part_start(count, my_rank);
        count = part_count(count, my_rank);
        part_shape[dim] = count;
    }
    double *mine = slice_of(want, ndim + 1, y_shape, dim < 0 ? 0 : dim, start, count);
    double *my_dy = slice_of(dy, ndim + 1, y_shape, dim < 0 ? 0 : dim, start, count);
    tsr_tensor *tdy = tensor_of(dtype, ndim + 1, part_shape, my_dy), *y = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    double *got = values_of(y);
    CHECK(tsr_tensor_layout(y)->ndim == ndim + 1, "y has %d dimensions",
          tsr_tensor_layout(y)->ndim);
    for (int64_t i = 0; i < count_of(ndim + 1, part_shape); i++)
        CHECK(got[i] == mine[i], "y: element %lld is %g, not %g", (long long)i, got[i], mine[i]);
    free(got);
    for (int pass = 1; pass <= 2; pass++) {
        OK(tsr_layer_backward(layer, saved, tdy, NULL));
        const tsr_parameter *p = tsr_layer_parameter(layer, 0);
        measured part = measured_slice(&gradient, 2, p->global_shape, 0, p->offset, p->length);
        for (int64_t i = 0; i < part.count; i++)
            part.value[i] *= pass;
        double *grad = values_of(p->grad);
        check_close("gradient", grad, part.value, part.magnitude, part.count, 2e-6);
        free(grad);
        measured_free(&part);
    }
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&tdy);
    tsr_layer_destroy(&layer);
    measured_free(&gradient);
    double *all[] = {table, indices, want, dy, mine, my_dy};
    for (int i = 0; i < 6; i++)
        free(all[i]);
}

CASE(embeddings, "vocabulary-parallel embedding: output and gradient")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const tsr_dtype index_dtypes[] = {TSR_I32, TSR_I64, TSR_U32, TSR_U8};
    for (int i = 0; i < 12; i++) {
        tsr_embedding_params params = {
            .struct_size = sizeof params,
            .group = i % 3 == 2 ? staged : group,
            .vocabulary_size = i % 2 ? 24 : 101,
            .width = i % 4 == 3 ? 7 : 12,
            .dtype = dtypes[i % 3],
            .output = i % 5 == 4 ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL,
            .sequence_dim = i % 2,
            .partition =
                tsr_partition_params(.kind = i % 2 ? TSR_PARTITION_EVEN : TSR_PARTITION_UNEVEN)};
        const int64_t shape[] = {2 * ranks, i % 5 == 4 ? 3 * ranks : 7};
        embedding_case(&params, index_dtypes[i % 4], i % 5 == 0 ? 1 : 2, shape, 300 + (uint64_t)i);
    }
    embedding_case(
        tsr_embedding_params(.vocabulary_size = 1, .width = 5,
                             .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN)),
        TSR_I32, 1, (int64_t[]){4}, 350);
    embedding_case(tsr_embedding_params(.vocabulary_size = 24, .width = 3), TSR_I32, 1,
                   (int64_t[]){0}, 351);
}

CASE(embedding_begins, "initial: an embedding's table is the same for any number of ranks")
{
    tsr_group *alone = NULL;
    tsr_layer *layer = NULL, *whole = NULL;
    tsr_embedding_params params = {.struct_size = sizeof params,
                                   .name = "embed",
                                   .vocabulary_size = 77,
                                   .width = 10,
                                   .init = tsr_init_params(.seed = 4),
                                   .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN)};
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_embedding_create(&params, &layer));
    params.group = alone;
    OK(tsr_embedding_create(&params, &whole));
    double *got = whole_parameter(layer, 0), *want = whole_parameter(whole, 0), square = 0;
    CHECK(memcmp(got, want, 770 * sizeof *got) == 0, "they differ");
    for (int i = 0; i < 770; i++)
        square += got[i] * got[i] / 770;
    CHECK(fabs(square - 1) < 0.2, "the deviation is %g, not 1", sqrt(square));
    free(got);
    free(want);
    tsr_layer_destroy(&layer);
    tsr_layer_destroy(&whole);
    tsr_group_destroy(&alone);
}

typedef struct entropy_case {
    int64_t rows, classes;
    tsr_partition_params partition;
    tsr_dtype dtype, label_dtype;
    bool gaps, in_place, want_loss;
    double spread, shift;
    uint64_t sequence;
} entropy_case;

static double storage_error(double value, tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 0 : fabs(value) * (dtype == TSR_F16 ? 0x1p-11 : 0x1p-8) + 1e-7;
}

static void check_row(const entropy_case *c, const double *row, int64_t label, int64_t start,
                      int64_t count, const double *gradient, const double *loss)
{
    double most = -INFINITY, sum = 0;
    bool ignored = label < 0 || label >= c->classes;
    for (int64_t j = 0; j < c->classes; j++)
        most = fmax(most, row[j]);
    for (int64_t j = 0; j < c->classes; j++)
        sum += exp(row[j] - most);
    if (loss) {
        double want = ignored ? 0 : log(sum) + most - row[label];
        CHECK(fabs(*loss - want) <= 4e-6 * (1 + fabs(most)), "loss is %g, not %g", *loss, want);
    }
    for (int64_t j = 0; j < count; j++) {
        double want =
            ignored ? 0 : 0.75 * (exp(row[start + j] - most) / sum - (start + j == label));
        CHECK(fabs(gradient[j] - want) <= 1e-6 + storage_error(want, c->dtype),
              "gradient of class %lld is %g, not %g", (long long)(start + j), gradient[j], want);
    }
}

static void entropy_case_run(const entropy_case *c)
{
    const int64_t total = c->rows * c->classes;
    tsr_shard_range ranges[64];
    tsr_partition_params partition = c->partition;
    OK(tsr_partition((uint64_t)c->classes, ranks, &partition, ranges));
    const int64_t start = (int64_t)ranges[my_rank].start, count = (int64_t)ranges[my_rank].count;
    const int64_t shape[] = {c->rows, c->classes}, part[] = {c->rows, count};
    double *logits = numbers(c->sequence, total, c->dtype), *labels = doubles(c->rows);
    for (int64_t i = 0; i < total; i++)
        logits[i] = gpu_rounded(logits[i] * c->spread + c->shift, c->dtype);
    for (int64_t r = 0; r < c->rows; r++) {
        labels[r] = (double)index_of(c->sequence, r, c->classes);
        if (c->label_dtype == TSR_U8 || c->label_dtype == TSR_U32)
            labels[r] = fmax(labels[r], 0);
    }
    double *mine = slice_of(logits, 2, shape, 1, start, count);
    tsr_tensor *x = c->gaps ? tensor_with_gaps(c->dtype, 2, part) : tensor_new(c->dtype, 2, part);
    tsr_tensor *d = c->in_place ? x : tensor_new(c->dtype, 2, part);
    tsr_tensor *l = tensor_of(c->label_dtype, 1, shape, labels);
    tsr_tensor *loss = c->want_loss ? tensor_new(TSR_F32, 1, shape) : NULL;
    tensor_put(x, mine);
    OK(tsr_vocabulary_cross_entropy(c->sequence % 2 ? group : NULL, loss, d, x, l, c->classes,
                                    &c->partition, 0.75F));
    double *gradient = values_of(d), *losses = loss ? values_of(loss) : NULL;
    for (int64_t r = 0; r < c->rows; r++)
        check_row(c, logits + r * c->classes, (int64_t)labels[r], start, count,
                  gradient + r * count, losses ? losses + r : NULL);
    double *all[] = {logits, labels, mine, gradient, losses};
    for (int i = 0; i < 5; i++)
        free(all[i]);
    if (!c->in_place)
        tsr_tensor_destroy(&d);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&l);
    tsr_tensor_destroy(&loss);
}

CASE(entropies, "vocabulary-parallel cross-entropy: loss and gradient")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const tsr_dtype label_dtypes[] = {TSR_I32, TSR_I64, TSR_U32, TSR_U8};
    static const int64_t classes[] = {24, 10, 1, 240, 1000, 33};
    for (int i = 0; i < 18; i++) {
        entropy_case c = {.rows = i == 7 ? 0 : 3 + 5 * i,
                          .classes = classes[i % 6],
                          .partition =
                              *tsr_partition_params(.kind = i % 6 == 0 ? TSR_PARTITION_EVEN
                                                                       : TSR_PARTITION_UNEVEN),
                          .dtype = dtypes[i % 3],
                          .label_dtype = label_dtypes[i % 4],
                          .gaps = i % 2,
                          .in_place = i % 3 == 0,
                          .want_loss = i % 4 != 3,
                          .spread = i % 5 == 0 ? 32 : 4,
                          .shift = i % 6 == 2 ? -500 : 0, /* all logits are far below 0 */
                          .sequence = 400 + (uint64_t)i};
        entropy_case_run(&c);
    }
}

CASE(entropy_agrees, "cross-entropy of a divided vocabulary equals that of the full one")
{
    enum { ROWS = 40, CLASSES = 120 };
    double *values = numbers(9, ROWS * CLASSES, TSR_F32), *labels = doubles(ROWS);
    for (int r = 0; r < ROWS; r++)
        labels[r] = (double)(r * 3);
    const int64_t shape[] = {ROWS, CLASSES}, own = CLASSES / ranks;
    tsr_tensor *x = tensor_of(TSR_F32, 2, shape, values), *part = NULL, *dpart = NULL;
    tsr_tensor *l = tensor_of(TSR_I32, 1, shape, labels), *a = tensor_new(TSR_F32, 1, shape);
    tsr_tensor *b = tensor_new(TSR_F32, 1, shape), *d = tensor_new(TSR_F32, 2, shape);
    OK(tsr_tensor_slice(x, 1, my_rank * own, (my_rank + 1) * own, 1, &part));
    dpart = tensor_new(TSR_F32, 2, (int64_t[]){ROWS, own});
    OK(tsr_cross_entropy(queue, a, d, x, l, 1));
    OK(tsr_vocabulary_cross_entropy(group, b, dpart, part, l, CLASSES, NULL, 1));
    double *want = values_of(a), *got = values_of(b), *dwant = values_of(d),
           *dgot = values_of(dpart);
    for (int r = 0; r < ROWS; r++) {
        CHECK(fabs(got[r] - want[r]) < 1e-5, "loss %d is %g, not %g", r, got[r], want[r]);
        for (int64_t j = 0; j < own; j++)
            CHECK(fabs(dgot[r * own + j] - dwant[r * CLASSES + my_rank * own + j]) < 1e-6,
                  "gradient %d,%lld", r, (long long)j);
    }
    /* All ranks have the same bits. */
    OK(tsr_copy(queue, a, b));
    OK(tsr_group_broadcast(group, a, 0, NULL));
    double *first = values_of(a);
    CHECK(memcmp(first, got, ROWS * sizeof *got) == 0, "the losses of ranks differ");
    double *all[] = {values, labels, want, got, dwant, dgot, first};
    for (int i = 0; i < 7; i++)
        free(all[i]);
    tsr_tensor *tensors[] = {part, dpart, x, l, a, b, d};
    for (int i = 0; i < 7; i++)
        tsr_tensor_destroy(&tensors[i]);
}

/* Computes one row with two classes for each rank: its loss, and this rank's part of the
 * gradient. */
static void two_each(const double *row, double label, double *loss, double gradient[2])
{
    tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){1, 2}, row + 2 * my_rank);
    tsr_tensor *l = tensor_of(TSR_I32, 1, (int64_t[]){1}, &label);
    tsr_tensor *out = tensor_new(TSR_F32, 1, (int64_t[]){1});
    OK(tsr_vocabulary_cross_entropy(group, out, x, x, l, 2 * ranks, NULL, 1));
    double *a = values_of(out), *b = values_of(x);
    *loss = a[0];
    gradient[0] = b[0];
    gradient[1] = b[1];
    free(a);
    free(b);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&l);
    tsr_tensor_destroy(&out);
}

CASE(extremes, "infinite and ignored logits give the same result as in one process")
{
    double row[128], loss, gradient[2];
    for (int i = 0; i < 2 * ranks; i++)
        row[i] = -INFINITY;
    two_each(row, 0, &loss, gradient);
    CHECK(isnan(loss) && isnan(gradient[0]), "nothing but -inf gives %g, %g", loss, gradient[0]);
    two_each(row, -100, &loss, gradient);
    CHECK(loss == 0 && gradient[0] == 0, "an ignored row gives %g, %g", loss, gradient[0]);
    row[1] = 3; /* one rank has a finite logit, and the others have none */
    two_each(row, 1, &loss, gradient);
    CHECK(loss == 0 && gradient[0] == 0 && gradient[1] == 0, "a sure row gives %g, %g %g", loss,
          gradient[0], gradient[1]);
    two_each(row, 0, &loss, gradient);
    CHECK(loss == INFINITY, "an impossible label gives %g", loss);
    row[2 * ranks - 1] = NAN;
    two_each(row, 1, &loss, gradient);
    CHECK(isnan(loss), "NaN gives %g", loss);
}

CASE(vocabulary_mistakes, "mistakes with a vocabulary are named")
{
    tsr_layer *layer = NULL;
    FAILS(tsr_embedding_create(NULL, &layer), TSR_ERR_INVALID, "embedding: params is NULL");
    FAILS(tsr_embedding_create(tsr_embedding_params(.width = 3), &layer), TSR_ERR_INVALID,
          "embedding: vocabulary_size is 0, width 3; both must be at least 1, and vocabulary_size "
          "at most 2^31 - 1");
    FAILS(tsr_embedding_create(
              tsr_embedding_params(.vocabulary_size = 4, .width = 3, .output = TSR_LAYOUT_SHARDED),
              &layer),
          TSR_ERR_INVALID, "embedding: output 2 is neither FULL nor SEQUENCE");
    tsr_embedding_params sequence = {.struct_size = sizeof sequence,
                                     .vocabulary_size = ranks,
                                     .width = 3,
                                     .output = TSR_LAYOUT_SEQUENCE,
                                     .sequence_dim = -1};
    FAILS(tsr_embedding_create(&sequence, &layer), TSR_ERR_INVALID,
          "embedding: sequence_dim is -1; dimensions count from 0");
    OK(tsr_embedding_create(
        tsr_embedding_params(.vocabulary_size = 2 * ranks, .width = 3, .name = "embed"), &layer));
    tsr_tensor *x = tensor_new(TSR_I32, 1, (int64_t[]){4}), *y = NULL, *dx = NULL;
    tsr_tensor *loss = tensor_new(TSR_F32, 1, (int64_t[]){4});
    tsr_tensor *logits = tensor_new(TSR_F32, 2, (int64_t[]){4, 2});
    tsr_layer_saved *saved = NULL;
    OK(tsr_fill(queue, x, 0));
    sequence.sequence_dim = 1; /* the last dimension of [4,3] */
    tsr_layer *divided = NULL;
    OK(tsr_embedding_create(&sequence, &divided));
    FAILS(tsr_layer_forward(divided, x, NULL, &y), TSR_ERR_INVALID,
          "embedding: sequence_dim 1 of [4,3] is not before its last dimension");
    tsr_layer_destroy(&divided);
    FAILS(tsr_layer_forward(layer, loss, NULL, &y), TSR_ERR_INVALID,
          "embedding embed: x is f32; i32, i64, u32 or u8 is needed");
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, saved, y, &dx), TSR_ERR_INVALID,
          "embedding embed: indices have no gradient; dx must be NULL");
    FAILS(tsr_layer_backward(layer, saved, loss, NULL), TSR_ERR_INVALID,
          "embedding embed: dy is [4]; y was [4,3]");
    const int64_t all = 2 * ranks;
    FAILS(tsr_vocabulary_cross_entropy(group, NULL, NULL, logits, x, all, NULL, 1), TSR_ERR_INVALID,
          "vocabulary_cross_entropy: loss and dlogits are both NULL");
    FAILS(tsr_vocabulary_cross_entropy(group, loss, NULL, NULL, x, all, NULL, 1), TSR_ERR_INVALID,
          "vocabulary_cross_entropy: logits is NULL");
    FAILS(tsr_vocabulary_cross_entropy(group, loss, NULL, logits, x, 0, NULL, 1), TSR_ERR_INVALID,
          "vocabulary_cross_entropy: 0 classes; 1 to 2147483647 are possible");
    FAILS(tsr_vocabulary_cross_entropy(group, loss, NULL, logits, loss, all, NULL, 1),
          TSR_ERR_INVALID, "vocabulary_cross_entropy: labels are f32, not i32, i64, u32 or u8");
    char text[200];
    snprintf(text, sizeof text,
             "vocabulary_cross_entropy: logits are [4,2]; rank %d has 3 of %d classes", my_rank,
             3 * ranks);
    FAILS(tsr_vocabulary_cross_entropy(group, loss, NULL, logits, x, 3 * ranks, NULL, 1),
          TSR_ERR_INVALID, text);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor *tensors[] = {x, y, loss, logits};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_layer_destroy(&layer);
}
