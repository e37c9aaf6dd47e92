/* Layers with more column blocks, parameters and children than any of the library's layer types. */
#include "base/fault.h"
#include "parallel/layers/linear.h"
#include "parallel/reference.h"

enum { BLOCKS = 7, DIVIDED = 3, M = 3, IN = 4, PER_RANK = 2 };

/* Column blocks ---------------------------------------------------------------------------------
 */

/* Creates a layer whose first blocks are divided among the ranks. The others are replicated: each
 * rank has the full weight, and computes its share of the features. */
static tsr_status new_blocks(tsr_group *on, tsr_layer **out)
{
    static const char *const names[BLOCKS] = {"a", "b", "c", "d", "e", "f", "g"};
    const int rank = tsr_group_rank(on), size = tsr_group_size(on);
    tsr__column_block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = (tsr__column_block){.name = names[i], .replicated = i >= DIVIDED};
        if (blocks[i].replicated) {
            blocks[i].output_size = (int64_t)PER_RANK * size;
            blocks[i].division = (tsr__division){NULL, (int64_t)PER_RANK * rank, PER_RANK};
        }
    }
    return tsr__column_create(tsr_linear_params(.group = on, .name = "many", .input_size = IN,
                                                .output_size = (int64_t)PER_RANK * size,
                                                .bias = true),
                              BLOCKS, blocks, out);
}

/* Returns parameter `index` or, if `grad` is true, its gradient, of all ranks. */
static double *full_values(tsr_layer *layer, int index, bool grad)
{
    const tsr_parameter *parameter = tsr_layer_parameter(layer, index);
    if (!grad) {
        tsr_tensor *whole = NULL;
        OK(tsr_layer_gather_parameter(layer, index, &whole));
        double *values = values_of(whole);
        tsr_tensor_destroy(&whole);
        return values;
    }
    if (parameter->shard_dim < 0)
        return values_of(parameter->grad);
    tsr_tensor *whole = tensor_new(TSR_F32, parameter->ndim, parameter->global_shape);
    OK(tsr_group_all_gather(group, whole, parameter->grad, 0, NULL, NULL));
    double *values = values_of(whole);
    tsr_tensor_destroy(&whole);
    return values;
}

static void check_block(tsr_layer *layer, int block, const double *x, const double *y,
                        const double *dy, measured *dx)
{
    const int64_t n = (int64_t)PER_RANK * ranks, features = (int64_t)BLOCKS * PER_RANK;
    double *weight = full_values(layer, 2 * block, false),
           *bias = full_values(layer, 2 * block + 1, false);
    measured want = reference_linear(x, weight, bias, M, IN, n);
    measured mine =
        measured_slice(&want, 2, (int64_t[]){M, n}, 1, (int64_t)PER_RANK * my_rank, PER_RANK);
    double *got = slice_of(y, 2, (int64_t[]){M, features}, 1, (int64_t)block * PER_RANK, PER_RANK);
    check_close("y", got, mine.value, mine.magnitude, mine.count, tolerance_of(TSR_F32));

    /* dy is the same on all ranks, so each block's full dy repeats this rank's columns. */
    double *dy_block = doubles(M * n);
    for (int64_t r = 0; r < M; r++)
        for (int64_t c = 0; c < n; c++)
            dy_block[r * n + c] = dy[r * features + (int64_t)block * PER_RANK + c % PER_RANK];
    measured dw = reference_dw(dy_block, x, M, IN, n), db = reference_db(dy_block, M, n);
    measured part = reference_dx(dy_block, weight, M, IN, n);
    double *got_dw = full_values(layer, 2 * block, true),
           *got_db = full_values(layer, 2 * block + 1, true);
    check_close("dw", got_dw, dw.value, dw.magnitude, dw.count, tolerance_of(TSR_F32));
    check_close("db", got_db, db.value, db.magnitude, db.count, tolerance_of(TSR_F32));
    for (int64_t i = 0; i < part.count; i++) {
        dx->value[i] += part.value[i];
        dx->magnitude[i] += part.magnitude[i];
    }
    measured_free(&want);
    measured_free(&mine);
    measured_free(&dw);
    measured_free(&db);
    measured_free(&part);
    free(weight);
    free(bias);
    free(got);
    free(dy_block);
    free(got_dw);
    free(got_db);
}

CASE(seven_blocks, "a column-parallel layer of seven blocks")
{
    const int64_t features = (int64_t)BLOCKS * PER_RANK;
    tsr_layer *layer = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y_tensor = NULL, *dx_tensor = NULL;
    OK(new_blocks(group, &layer));
    CHECK(tsr_layer_parameter_count(layer) == 2 * BLOCKS, "%d parameters",
          tsr_layer_parameter_count(layer));
    double *x = numbers(1, (int64_t)M * IN, TSR_F32), *dy = numbers(2, M * features, TSR_F32);
    for (int i = 0; i < BLOCKS; i++) {
        const tsr_parameter *bias = tsr_layer_parameter(layer, 2 * i + 1);
        const int64_t count = bias->shard_dim < 0 ? bias->global_shape[0] : bias->length;
        double *values = numbers(10 + (uint64_t)i, count, TSR_F32);
        tensor_put(bias->tensor, values);
        free(values);
    }
    tsr_tensor *x_tensor = tensor_of(TSR_F32, 2, (int64_t[]){M, IN}, x),
               *dy_tensor = tensor_of(TSR_F32, 2, (int64_t[]){M, features}, dy);
    OK(tsr_layer_forward(layer, x_tensor, &saved, &y_tensor));
    OK(tsr_layer_backward(layer, saved, dy_tensor, &dx_tensor));
    double *y = values_of(y_tensor), *dx = values_of(dx_tensor);
    measured want = measured_new((int64_t)M * IN);
    for (int i = 0; i < BLOCKS; i++)
        check_block(layer, i, x, y, dy, &want);
    check_close("dx", dx, want.value, want.magnitude, want.count, tolerance_of(TSR_F32));
    measured_free(&want);
    free(x);
    free(dy);
    free(y);
    free(dx);
    tsr_tensor_destroy(&x_tensor);
    tsr_tensor_destroy(&dy_tensor);
    tsr_tensor_destroy(&y_tensor);
    tsr_tensor_destroy(&dx_tensor);
    tsr_layer_saved_destroy(&saved);
    tsr_layer_destroy(&layer);
}

/* Children --------------------------------------------------------------------------------------
 */

enum { CHILDREN = 9 };

/* A layer that applies its children one after the other. */
static tsr_status chain_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                tsr_tensor **y)
{
    tsr_tensor *last = NULL;
    TSR__TRY(tsr__keep(x, &last));
    for (int i = 0; i < layer->child_count; i++) {
        tsr_tensor *next = NULL;
        tsr_status status =
            tsr_layer_forward(layer->child[i], last, saved ? &saved->child[i] : NULL, &next);
        tsr_tensor_destroy(&last);
        TSR__TRY(status);
        last = next;
    }
    *y = last;
    return TSR_OK;
}

static tsr_status chain_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                 const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr_tensor *last = NULL;
    TSR__TRY(tsr__keep(dy, &last));
    for (int i = layer->child_count; i-- > 0;) {
        tsr_tensor *next = NULL;
        tsr_status status = tsr_layer_backward(layer->child[i], saved->child[i], last, &next);
        tsr_tensor_destroy(&last);
        TSR__TRY(status);
        last = next;
    }
    if (dx)
        *dx = last;
    else
        tsr_tensor_destroy(&last);
    return TSR_OK;
}

static const tsr__layer_type chain_type = {
    .name = "chain", .forward = chain_forward, .backward = chain_backward};

static tsr_status new_chain(tsr_group *on, tsr_layer **out)
{
    tsr_layer *chain = NULL;
    TSR__TRY(tsr__layer_new(&chain_type, sizeof *chain, on, "chain", &chain));
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK && i < CHILDREN; i++) {
        char name[16];
        snprintf(name, sizeof name, "chain.%d", i);
        tsr_layer *child = NULL;
        status = tsr_norm_create(
            tsr_norm_params(.group = on, .name = name, .size = IN, .bias = true), &child);
        if (status == TSR_OK)
            status = tsr__layer_add_child(chain, child);
    }
    if (status != TSR_OK) {
        tsr_layer_destroy(&chain);
        return status;
    }
    *out = chain;
    return TSR_OK;
}

CASE(nine_children, "a layer of nine children")
{
    tsr_layer *chain = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL, *dx = NULL;
    const tsr_parameter *last = NULL;
    OK(new_chain(group, &chain));
    CHECK(tsr_layer_parameter_count(chain) == 2 * CHILDREN, "%d parameters",
          tsr_layer_parameter_count(chain));
    OK(tsr_layer_find_parameter(chain, "chain.8.bias", &last));
    CHECK(last == tsr_layer_parameter(chain, 2 * CHILDREN - 1), "another parameter");
    double *values = numbers(3, (int64_t)M * IN, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){M, IN}, values);
    OK(tsr_layer_forward(chain, x, &saved, &y));
    OK(tsr_layer_backward(chain, saved, x, &dx));
    CHECK(last->grad, "the last child has no gradient");
    tsr_layer_set_frozen(chain, true);
    CHECK(chain->child[CHILDREN - 1]->frozen, "the last child is not frozen");
    /* The saved values remain valid after the layer is gone. */
    tsr_layer_destroy(&chain);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dx);
    free(values);
}

/* Failures --------------------------------------------------------------------------------------
 */

/* Creates a layer and runs both passes. */
static tsr_status use_layer(tsr_status (*create)(tsr_group *, tsr_layer **), tsr_group *on,
                            const tsr_tensor *x, const tsr_tensor *dy)
{
    tsr_layer *layer = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL, *dx = NULL;
    tsr_status status = create(on, &layer);
    if (status == TSR_OK)
        status = tsr_layer_forward(layer, x, &saved, &y);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer, saved, dy, &dx);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dx);
    tsr_layer_saved_destroy(&saved);
    tsr_layer_destroy(&layer);
    return status;
}

CASE(many_allocations, "every allocation of layers with many blocks or children fails in turn")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    const int64_t features = (int64_t)BLOCKS * PER_RANK;
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){M, IN}),
               *dy = tensor_new(TSR_F32, 2, (int64_t[]){M, features});
    OK(tsr_fill(queue, x, 0.5));
    OK(tsr_fill(queue, dy, 1));
    watch_full_batches(true);
    for (int kind = 0; kind < 2; kind++) {
        tsr_status (*create)(tsr_group *, tsr_layer **) = kind == 0 ? new_blocks : new_chain;
        OK(use_layer(create, alone, x, kind == 0 ? dy : x));
        int grown = 0;
        uint64_t nth = 0;
        for (bool reached = true; reached; nth++) {
            OK(tsr_stream_wait(queue));
            went_on = false;
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = use_layer(create, alone, x, kind == 0 ? dy : x);
            const char *site = tsr__fault_site();
            reached = site != NULL;
            grown += reached && strcmp(site, "tsr__grow") == 0;
            tsr__fault_disarm();
            CHECK((status == TSR_ERR_NO_MEMORY) == (reached && !went_on),
                  "allocation %llu in %s: %s", (unsigned long long)nth, reached ? site : "none",
                  tsr_status_name(status));
        }
        CHECK(grown >= 3, "only %d arrays grew", grown);
    }
    watch_full_batches(false);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&dy);
    tsr_group_destroy(&alone);
}
