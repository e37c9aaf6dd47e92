/* Mistakes of the caller must be detected before anything is sent, and the group must stay
 * usable. */
#include "parallel/spmd.h"

static void check_goes_on(tsr_group *through)
{
    tsr_tensor *ones = tensor_new(TSR_F32, 1, (int64_t[]){3});
    OK(tsr_fill(queue, ones, 1));
    OK(tsr_group_all_reduce(through, ones, TSR_OP_SUM, NULL, NULL));
    double *got = values_of(ones);
    for (int i = 0; i < 3; i++)
        CHECK(got[i] == ranks, "the sum of ones is %g", got[i]);
    free(got);
    tsr_tensor_destroy(&ones);
}

/* Makes a view [rows,5] whose elements overlap: row i, column j is element i · step + j · stride of
 * memory. */
static tsr_tensor *repeating(int64_t rows, int64_t step, int64_t stride)
{
    tsr_tensor *memory = tensor_new(TSR_F32, 1, (int64_t[]){rows * step + 5 * stride}), *view;
    const tsr_layout layout = {
        .dtype = TSR_F32, .ndim = 2, .shape = {rows, 5}, .strides = {step, stride}};
    OK(tsr_fill(queue, memory, 1));
    OK(tsr_tensor_view(memory, &layout, &view));
    tsr_tensor_destroy(&memory);
    return view;
}

CASE(repeated_outputs, "an output that repeats elements is an error, and the group stays usable")
{
#define REPEATS(op, name, shape)                                                                   \
    op ": " name " is a view " shape " that names an element more than once and cannot be written"
    tsr_group *through[] = {group, staged};
    for (int t = 0; t < 4; t++) {
        tsr_group *on = through[t / 2];
        const int64_t step = t % 2, stride = 1 - step;
        char text[200];
        tsr_tensor *part = repeating(4, step, stride), *whole = repeating(4 * ranks, step, stride);
        FAILS(tsr_group_all_reduce(on, part, TSR_OP_SUM, NULL, NULL), TSR_ERR_INVALID,
              REPEATS("group_all_reduce", "tensor", "[4,5]"));
        FAILS(tsr_group_broadcast(on, part, 0, NULL), TSR_ERR_INVALID,
              REPEATS("group_broadcast", "tensor", "[4,5]"));
        FAILS(tsr_group_reduce_scatter(on, part, whole, 0, TSR_OP_SUM, NULL, NULL), TSR_ERR_INVALID,
              REPEATS("group_reduce_scatter", "out", "[4,5]"));
        snprintf(text, sizeof text, REPEATS("group_all_gather", "out", "[%d,5]"), 4 * ranks);
        FAILS(tsr_group_all_gather(on, whole, part, 0, NULL, NULL), TSR_ERR_INVALID, text);
        check_goes_on(on);
        tsr_tensor_destroy(&part);
        tsr_tensor_destroy(&whole);
    }
#undef REPEATS
}

CASE(repeated_on_one, "if one rank's output repeats elements, the others wait no longer than "
                      "their deadline")
{
    if (ranks == 1)
        return;
    tsr_comm *impatient = NULL;
    tsr_group *of_all = NULL;
    tsr_tensor *tensor = my_rank == 0 ? repeating(4, 0, 1) : repeating(4, 5, 1);
    OK(tsr_comm_duplicate(world, &impatient));
    OK(tsr_comm_barrier(world,
                        NULL)); /* all ranks have the duplicate before its timeout is short */
    tsr_comm_set_timeout(impatient, UINT64_C(2000000000));
    OK(tsr_group_create(impatient, queue, NULL, &of_all));
    OK(tsr_comm_barrier(world, NULL));
    tsr_status status = tsr_group_all_reduce(of_all, tensor, TSR_OP_SUM, NULL, NULL);
    if (my_rank == 0)
        CHECK(status == TSR_ERR_INVALID, "%s", tsr_status_name(status));
    else
        CHECK(status == TSR_ERR_TIMEOUT || status == TSR_ERR_PEER_LOST, "%s: %s",
              tsr_status_name(status), tsr_last_error());
    OK(tsr_comm_barrier(world, NULL));
    tsr_group_destroy(&of_all);
    tsr_comm_destroy(&impatient);
    tsr_tensor_destroy(&tensor);
}

CASE(kept_text, "the text of an error stays readable after the requests are cancelled")
{
    tsr_tensor *a = tensor_new(TSR_F32, 1, (int64_t[]){1000});
    for (int destroy = 0; destroy < 2 && ranks > 1; destroy++) {
        tsr_group *of_all = NULL;
        tsr_request *request = NULL;
        OK(tsr_fill(queue, a, 1));
        OK(tsr_group_create(world, queue, NULL, &of_all));
        OK(tsr_comm_barrier(world, NULL));
        if (my_rank == 0) {
            OK(tsr_group_all_reduce(of_all, a, TSR_OP_SUM, NULL, &request));
            FAILS(tsr_request_wait(NULL), TSR_ERR_INVALID, "request_wait: request is NULL");
            if (destroy)
                tsr_group_destroy(&of_all);
            else
                tsr_request_cancel(&request);
            CHECK(strcmp(tsr_last_error(), "request_wait: request is NULL") == 0, "it says %s",
                  tsr_last_error());
        }
        OK(tsr_comm_barrier(world, NULL));
        tsr_request_cancel(&request);
        tsr_group_destroy(&of_all);
    }
    tsr_tensor_destroy(&a);
}

/* Layers ------------------------------------------------------------------------------------- */

enum { PLACE = 4096 }; /* enough for any tensor below */

/* Makes a view of the first elements of a tensor's memory, with another shape. */
static tsr_tensor *start_of(const tsr_tensor *memory, tsr_dtype dtype, const tsr_layout *shape)
{
    tsr_layout layout;
    tsr_tensor *view;
    OK(tsr_layout_init(dtype, shape->ndim, shape->shape, &layout));
    OK(tsr_tensor_view(memory, &layout, &view));
    return view;
}

static tsr_tensor *placed(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *memory = tensor_new(dtype, 1, (int64_t[]){PLACE});
    tsr_layout layout;
    OK(tsr_layout_init(dtype, ndim, shape, &layout));
    OK(tsr_fill(queue, memory, 1));
    tsr_tensor *view = start_of(memory, dtype, &layout);
    tsr_tensor_destroy(&memory);
    return view;
}

enum { COLUMN_KINDS = 4, LINEAR_KINDS = 9, EMBEDDING = 12, KINDS };

static tsr_layer *new_linear(int kind)
{
    static const tsr_layer_layout layouts[LINEAR_KINDS][2] = {
        {TSR_LAYOUT_FULL, TSR_LAYOUT_SHARDED},
        {TSR_LAYOUT_GATHER, TSR_LAYOUT_SHARDED},
        {TSR_LAYOUT_SEQUENCE},
        {TSR_LAYOUT_SEQUENCE, TSR_LAYOUT_FULL},
        {TSR_LAYOUT_SHARDED},
        {TSR_LAYOUT_FULL, TSR_LAYOUT_FULL},
        {TSR_LAYOUT_SHARDED, TSR_LAYOUT_SEQUENCE},
        {TSR_LAYOUT_FULL, TSR_LAYOUT_SHARDED},
        {TSR_LAYOUT_GATHER, TSR_LAYOUT_SEQUENCE}};
    static const double rates[64] = {3, 1, 2, 1, 1, 5, 1, 1};
    static const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    tsr_linear_params params = {.struct_size = sizeof params,
                                .input_size = 4 * ranks,
                                .output_size = 2 * ranks,
                                .input = layouts[kind][0],
                                .output = layouts[kind][1],
                                .bias = true};
    if (kind == LINEAR_KINDS - 1) /* the weight is divided in another way than x */
        params.partition = &weighted;
    tsr_layer *layer = NULL;
    OK(kind < COLUMN_KINDS ? tsr_column_linear_create(&params, &layer)
                           : tsr_row_linear_create(&params, &layer));
    return layer;
}

/* Creates a layer of each kind, and an input for it. */
static tsr_layer *new_layer(int kind, tsr_tensor **x)
{
    tsr_layer *layer = NULL;
    /* If a linear layer's input is divided by features, this rank has 4 of them. */
    const bool whole = kind == 0 || kind == 2 || kind == 3 || kind == 5 || kind == 7;
    const int64_t shape[2] = {2 * ranks, whole || kind >= LINEAR_KINDS ? 4 * ranks : 4};
    *x = placed(kind == EMBEDDING ? TSR_I32 : TSR_F32, 2, shape);
    if (kind < LINEAR_KINDS)
        return new_linear(kind);
    if (kind == EMBEDDING) {
        OK(tsr_embedding_create(tsr_embedding_params(.vocabulary_size = 3 * ranks, .width = 2,
                                                     .output = TSR_LAYOUT_SEQUENCE),
                                &layer));
        return layer;
    }
    OK(tsr_mlp_create(tsr_mlp_params(.input_size = 4 * ranks, .hidden_size = 2 * ranks,
                                     .output_size = 3, .gated = kind == 10, .sequence = kind == 11,
                                     .bias = true),
                      &layer));
    return layer;
}

static uint64_t operations(void)
{
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    OK(tsr_group_get_stats(group, &stats));
    return stats.operations;
}

/* Checks that a pass has failed because of parameter `name`, and has sent nothing. */
static void check_refused(tsr_status status, uint64_t before, const char *format, const char *name)
{
    char text[200];
    snprintf(text, sizeof text, format, name);
    CHECK(status == TSR_ERR_INVALID && strstr(tsr_last_error(), text), "%s: %s, not %s",
          tsr_status_name(status), tsr_last_error(), text);
    CHECK(operations() == before, "%s, but something was sent", text);
}

typedef struct pass {
    tsr_layer *layer;
    tsr_layer_saved *saved;
    tsr_tensor *x, *y, *dy, **dx;
} pass;

/* Runs passes while parameter `index` has no memory, which must fail, and gives the memory back
 * afterwards. `needed` says whether the backward pass needs the parameter; it never needs a
 * bias. */
static void check_no_memory(const pass *p, int index, bool needed)
{
    const tsr_parameter *parameter = tsr_layer_parameter(p->layer, index);
    needed = needed && parameter->ndim > 1;
    const tsr_layout *layout = tsr_tensor_layout(parameter->tensor);
    tsr_tensor *memory = tensor_new(layout->dtype, layout->ndim, layout->shape), *y = NULL;
    OK(tsr_copy(queue, memory, parameter->tensor));
    OK(tsr_layer_set_parameter(p->layer, index, NULL, NULL, false));
    const uint64_t before = operations();
    check_refused(tsr_layer_forward(p->layer, p->x, NULL, &y), before, "%s has no memory",
                  parameter->name);
    if (needed) {
        check_refused(tsr_layer_backward(p->layer, p->saved, p->dy, p->dx), before,
                      "%s has no memory", parameter->name);
    } else {
        OK(tsr_layer_backward(p->layer, p->saved, p->dy, p->dx));
        if (p->dx)
            tsr_tensor_destroy(p->dx);
    }
    OK(tsr_layer_set_parameter(p->layer, index, memory, NULL, false));
    tsr_tensor_destroy(&memory);
}

/* Runs passes while the gradient of parameter `index` is in the memory of x or dy, which must be
 * refused. */
static void check_gradient_on(const pass *p, int index, const tsr_tensor *place, const char *format)
{
    const tsr_parameter *parameter = tsr_layer_parameter(p->layer, index);
    tsr_tensor *grad = start_of(place, TSR_F32, tsr_tensor_layout(parameter->tensor));
    tsr_tensor *memory = NULL;
    OK(tsr_tensor_view(parameter->tensor, tsr_tensor_layout(parameter->tensor), &memory));
    OK(tsr_layer_set_parameter(p->layer, index, memory, grad, false));
    check_refused(tsr_layer_backward(p->layer, p->saved, p->dy, p->dx), operations(), format,
                  parameter->name);
    OK(tsr_layer_set_parameter(p->layer, index, memory, NULL, false));
    tsr_tensor_destroy(&memory);
    tsr_tensor_destroy(&grad);
}

CASE(layer_mistakes, "passes detect wrong parameters before they send anything")
{
    for (int kind = 0; kind < KINDS; kind++) {
        tsr_tensor *y = NULL, *dx = NULL;
        pass p = {.dx = kind == EMBEDDING ? NULL : &dx};
        p.layer = new_layer(kind, &p.x);
        OK(tsr_layer_forward(p.layer, p.x, &p.saved, &y));
        p.dy = placed(TSR_F32, tsr_tensor_layout(y)->ndim, tsr_tensor_layout(y)->shape);
        for (int i = 0; i < tsr_layer_parameter_count(p.layer); i++) {
            check_no_memory(&p, i, kind != EMBEDDING);
            check_gradient_on(&p, i, p.dy, "the gradient of %s overlaps dy");
            check_gradient_on(&p, i, p.x, "the gradient of %s overlaps x");
        }
        CHECK(!dx, "something was written");
        OK(tsr_layer_backward(p.layer, p.saved, p.dy, p.dx));
        check_goes_on(group);
        tsr_tensor *all[] = {p.x, p.dy, y, dx};
        for (int i = 0; i < 4; i++)
            tsr_tensor_destroy(&all[i]);
        tsr_layer_saved_destroy(&p.saved);
        tsr_layer_destroy(&p.layer);
    }
}

CASE(undividable_rows, "rows that cannot be divided are detected before x is gathered")
{
    tsr_layer *layer = new_linear(LINEAR_KINDS - 1);
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2 * ranks + 1, 4}), *y = NULL;
    const uint64_t before = operations();
    char shape[64];
    snprintf(shape, sizeof shape, "dimension 0 of [%d,4]", 2 * ranks + 1);
    if (ranks > 1)
        check_refused(tsr_layer_forward(layer, x, NULL, &y), before, "%s is not divisible", shape);
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&layer);
}

CASE(entropy_outputs, "cross-entropy detects wrong outputs before it sends anything")
{
    tsr_tensor *logits = tensor_new(TSR_F32, 2, (int64_t[]){4, 2});
    tsr_tensor *labels = tensor_new(TSR_I32, 1, (int64_t[]){4});
    tsr_tensor *loss = tensor_new(TSR_F32, 1, (int64_t[]){5});
    const uint64_t before = operations();
    FAILS(tsr_vocabulary_cross_entropy(group, loss, NULL, logits, labels, 2 * ranks, NULL, 1),
          TSR_ERR_INVALID, "vocabulary_cross_entropy: loss is [5]; logits [4,2] need one per row");
    FAILS(tsr_vocabulary_cross_entropy(group, NULL, loss, logits, labels, 2 * ranks, NULL, 1),
          TSR_ERR_INVALID, "vocabulary_cross_entropy: dlogits is [5], logits is [4,2]");
    CHECK(operations() == before, "something was sent");
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    tsr_tensor_destroy(&loss);
}

CASE(undividable_sizes,
     "errors about sizes that do not divide use the caller's names and say what to do")
{
    const int odd = 4 * ranks + 1;
    tsr_layer *layer = NULL;
    char text[200];
    if (ranks == 1)
        return;
#define UNDIVIDABLE(beginning, end, call)                                                          \
    do {                                                                                           \
        snprintf(text, sizeof text, beginning " %d is not divisible by %d ranks" end, odd, ranks); \
        FAILS(call, TSR_ERR_INVALID, text);                                                        \
    } while (0)
    UNDIVIDABLE("row_linear down: input_size", "; partition UNEVEN or WEIGHTED allows it",
                tsr_row_linear_create(tsr_linear_params(.name = "down", .input_size = odd,
                                                        .output_size = 3, .bias = true),
                                      &layer));
    UNDIVIDABLE("mlp block: hidden_size", "; partition UNEVEN or WEIGHTED allows it",
                tsr_mlp_create(tsr_mlp_params(.name = "block", .input_size = 4, .hidden_size = odd,
                                              .output_size = 3, .bias = true),
                               &layer));
    UNDIVIDABLE(
        "column_linear: input_size", "; other_partition UNEVEN or WEIGHTED allows it",
        tsr_column_linear_create(tsr_linear_params(.input_size = odd, .output_size = ranks,
                                                   .input = TSR_LAYOUT_GATHER, .bias = true),
                                 &layer));
#undef UNDIVIDABLE
    CHECK(!layer, "a layer was made");
}

/* Makes an input whose leading dimensions cannot be merged into one without a copy. */
static tsr_tensor *turned(tsr_dtype dtype, int64_t last)
{
    tsr_tensor *tensor = placed(dtype, 3, (int64_t[]){2, 3, last}), *view = NULL;
    OK(tsr_tensor_transpose(tensor, 0, 1, &view));
    tsr_tensor_destroy(&tensor);
    return view;
}

CASE(last_error, "passes that succeed keep the last error, even if an input must be copied")
{
    tsr_tensor *x[] = {turned(TSR_F32, 4), turned(TSR_I32, 4)}, *y = NULL;
    tsr_layer *layer[2] = {NULL, NULL};
    OK(tsr_row_linear_create(
        tsr_linear_params(.input_size = 4 * ranks, .output_size = 3, .bias = true), &layer[0]));
    OK(tsr_embedding_create(tsr_embedding_params(.vocabulary_size = 3 * ranks, .width = 2),
                            &layer[1]));
    for (int i = 0; i < 2; i++) {
        FAILS(tsr_layer_forward(layer[i], NULL, NULL, &y), TSR_ERR_INVALID,
              "layer_forward: x is NULL");
        OK(tsr_layer_forward(layer[i], x[i], NULL, &y));
        CHECK(strcmp(tsr_last_error(), "layer_forward: x is NULL") == 0, "it says %s",
              tsr_last_error());
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&x[i]);
        tsr_layer_destroy(&layer[i]);
    }
}

CASE(other_floats, "a layer whose weights have another float dtype than the layer must be frozen")
{
    tsr_layer *layer = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *x = turned(TSR_F32, 4), *y = NULL, *dx = NULL;
    tsr_tensor *weight = tensor_new(TSR_F16, 2, (int64_t[]){3, 4}),
               *bias = tensor_new(TSR_F16, 1, (int64_t[]){3});
    const uint16_t ones[3 * 4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00,
                                  0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00};
    OK(tsr_column_linear_create(
        tsr_linear_params(.bias = true, .input_size = 4, .output_size = 3 * ranks, .name = "up"),
        &layer));
    OK(tsr_tensor_upload(tsr_group_stream(group), weight, ones, sizeof ones));
    FAILS(tsr_layer_set_parameter(layer, 1, bias, NULL, false), TSR_ERR_INVALID,
          "column_linear up: the tensor of up.bias must be f32 [3], but is f16 [3]");
    OK(tsr_layer_set_parameter(layer, 0, weight, NULL, false));
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, saved, y, &dx), TSR_ERR_INVALID,
          "column_linear up: up.weight is f16, but its parameter is f32; such weights cannot be "
          "trained, so the layer must be frozen (tsr_layer_set_frozen)");
    tsr_layer_set_frozen(layer, true);
    OK(tsr_layer_backward(layer, saved, y, &dx));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dx);
    tsr_tensor_destroy(&weight);
    tsr_tensor_destroy(&bias);
    tsr_layer_destroy(&layer);
}

CASE(block_parameters, "weights in a block format have no gradient")
{
    tsr_layer *layer = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2, 32}), *y = NULL, *dx = NULL;
    tsr_tensor *blocks = tensor_new(TSR_Q8_0, 2, (int64_t[]){3, 32}),
               *bias = tensor_new(TSR_Q8_0, 1, (int64_t[]){32});
    uint8_t zeros[3 * 34] = {0};
    OK(tsr_column_linear_create(
        tsr_linear_params(.input_size = 32, .output_size = 3 * ranks, .name = "up", .bias = true),
        &layer));
    OK(tsr_tensor_upload(tsr_group_stream(group), blocks, zeros, sizeof zeros));
    FAILS(tsr_layer_set_parameter(layer, 0, NULL, blocks, false), TSR_ERR_INVALID,
          "column_linear up: the gradient of up.weight must be a float [3,32], but is q8_0 [3,32]");
    FAILS(tsr_layer_set_parameter(layer, 1, bias, NULL, false), TSR_ERR_INVALID,
          "column_linear up: the tensor of up.bias must be f32 [3], but is q8_0 [32]");
    OK(tsr_layer_set_parameter(layer, 0, blocks, NULL, false));
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, saved, y, &dx), TSR_ERR_INVALID,
          "column_linear up: up.weight is q8_0; weights in a block format have no gradient, so the "
          "layer must be frozen (tsr_layer_set_frozen)");
    CHECK(!tsr_layer_parameter(layer, 0)->grad && !tsr_layer_parameter(layer, 1)->grad,
          "there are gradients");
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&blocks);
    tsr_tensor_destroy(&bias);
    tsr_layer_destroy(&layer);
}

CASE(repeated_parameters, "parameter memory that repeats elements is an error")
{
    tsr_layer *layer = NULL;
    tsr_tensor *good = tensor_new(TSR_F32, 2, (int64_t[]){3, 5}), *bad = repeating(3, 0, 1);
    OK(tsr_column_linear_create(
        tsr_linear_params(.input_size = 5, .output_size = 3 * ranks, .name = "up", .bias = true),
        &layer));
    FAILS(tsr_layer_set_parameter(layer, 0, good, bad, false), TSR_ERR_INVALID,
          "column_linear up: the gradient of up.weight is a view [3,5] that names an element more "
          "than once");
    FAILS(tsr_layer_set_parameter(layer, 0, bad, good, false), TSR_ERR_INVALID,
          "column_linear up: the tensor of up.weight is a view [3,5] that names an element more "
          "than once");
    CHECK(tsr_layer_parameter(layer, 0)->tensor && !tsr_layer_parameter(layer, 0)->grad,
          "something has changed");
    OK(tsr_layer_set_parameter(layer, 0, good, NULL, false));
    tsr_tensor_destroy(&good);
    tsr_tensor_destroy(&bad);
    tsr_layer_destroy(&layer);
}
