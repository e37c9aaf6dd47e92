/* The element-wise operations. */
#include "gpu/ops/elementwise/elementwise.h"
#include "shaders/params/elementwise.h"
#include "tessera/ops.h"

/* Two inputs --------------------------------------------------------------------------------- */

/* For each tsr_binary_function, its name in error texts and the TSR_EW_… that computes it. */
static const struct {
    const char *name, *gradient_name;
    uint32_t function;
    bool compares;
} binary[] = {
    [TSR_BINARY_ADD] = {"add", "add_grad", TSR_EW_ADD, false},
    [TSR_BINARY_SUB] = {"sub", "sub_grad", TSR_EW_SUB, false},
    [TSR_BINARY_MUL] = {"mul", "mul_grad", TSR_EW_MUL, false},
    [TSR_BINARY_DIV] = {"div", "div_grad", TSR_EW_DIV, false},
    [TSR_BINARY_MINIMUM] = {"minimum", "minimum_grad", TSR_EW_MINIMUM, false},
    [TSR_BINARY_MAXIMUM] = {"maximum", "maximum_grad", TSR_EW_MAXIMUM, false},
    [TSR_BINARY_EQUAL] = {"equal", NULL, TSR_EW_EQUAL, true},
    [TSR_BINARY_NOT_EQUAL] = {"not_equal", NULL, TSR_EW_NOT_EQUAL, true},
    [TSR_BINARY_LESS] = {"less", NULL, TSR_EW_LESS, true},
    [TSR_BINARY_LESS_EQUAL] = {"less_equal", NULL, TSR_EW_LESS_EQUAL, true},
    [TSR_BINARY_GREATER] = {"greater", NULL, TSR_EW_GREATER, true},
    [TSR_BINARY_GREATER_EQUAL] = {"greater_equal", NULL, TSR_EW_GREATER_EQUAL, true},
};

static tsr_status check_binary(const char *op, tsr_binary_function function)
{
    TSR__REQUIRE(function >= TSR_BINARY_ADD && function <= TSR_BINARY_GREATER_EQUAL,
                 "%s: unknown function %d", op, (int)function);
    return TSR_OK;
}

tsr_status tsr_binary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
                      tsr_binary_function function)
{
    TSR__TRY(check_binary("binary", function));
    tsr__elementwise work = {.op = binary[function].name,
                             .function = binary[function].function,
                             .y = y,
                             .y_name = "y",
                             .y_flags = binary[function].compares,
                             .in = {{a, "a"}, {b, "b"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

/* Runs the operations that compute da and db. One of the two gradients may be NULL. Fails if da,
 * which the first operation writes, overlaps an input of the second. */
static tsr_status run_gradients(tsr_stream *stream, const char *op, const tsr__elementwise work[2])
{
    const tsr_tensor *da = work[0].y, *db = work[1].y;
    TSR__REQUIRE(da || db, "%s: da and db are both NULL", op);
    if (!da || !db)
        return tsr__elementwise_run(stream, da ? work : work + 1, 1);
    TSR__TRY(tsr__require_tensor(op, "da", stream, da));
    TSR__TRY(tsr__require_tensor(op, "db", stream, db));
    TSR__TRY(tsr__require_disjoint(op, "da", da, "db", db, false));
    for (int i = 0; i < 3 && work[1].in[i].name; i++) {
        TSR__TRY(tsr__require_tensor(op, work[1].in[i].name, stream, work[1].in[i].tensor));
        TSR__TRY(
            tsr__require_disjoint(op, "da", da, work[1].in[i].name, work[1].in[i].tensor, false));
    }
    return tsr__elementwise_run(stream, work, 2);
}

tsr_status tsr_binary_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_tensor *dy, tsr_binary_function function)
{
    TSR__TRY(check_binary("binary_grad", function));
    const char *op = binary[function].gradient_name;
    TSR__REQUIRE(op, "binary_grad: %s has no gradients", binary[function].name);
    const tsr__elementwise_input in_a = {a, "a"}, in_b = {b, "b"}, in_dy = {dy, "dy"};
    tsr__elementwise work[] = {{.op = op, .y = da, .y_name = "da"},
                               {.op = op, .y = db, .y_name = "db"}};
    switch (function) {
    case TSR_BINARY_DIV: /* da = dy / b */
        work[0].function = TSR_EW_DIV;
        work[0].in[0] = in_dy, work[0].in[1] = in_b;
        work[1].function = TSR_EW_DIV_GRAD;
        work[1].in[0] = in_a, work[1].in[1] = in_b, work[1].in[2] = in_dy;
        break;
    case TSR_BINARY_MUL:
        work[0].function = work[1].function = TSR_EW_MUL;
        work[0].in[0] = in_dy, work[0].in[1] = in_b;
        work[1].in[0] = in_dy, work[1].in[1] = in_a;
        break;
    case TSR_BINARY_ADD:
    case TSR_BINARY_SUB: /* da = dy, which is the function "no activation" of dy; db = dy or −dy */
        work[0].activation = true;
        work[0].function = TSR_ACT_NONE;
        work[1].activation = function == TSR_BINARY_ADD;
        work[1].function = function == TSR_BINARY_ADD ? (uint32_t)TSR_ACT_NONE : TSR_EW_NEG;
        work[0].in[0] = work[1].in[0] = in_dy;
        break;
    default: /* minimum and maximum */
        work[0].function = work[1].function =
            function == TSR_BINARY_MINIMUM ? TSR_EW_MINIMUM_GRAD : TSR_EW_MAXIMUM_GRAD;
        work[0].in[0] = in_a, work[0].in[1] = in_b, work[0].in[2] = in_dy;
        work[1].in[0] = in_b, work[1].in[1] = in_a, work[1].in[2] = in_dy;
        break;
    }
    return run_gradients(stream, op, work);
}

/* One input ---------------------------------------------------------------------------------- */

/* For each tsr_unary_function, the TSR_EW_… of the function and of its gradient. */
static const struct {
    uint32_t function, gradient;
} unary[] = {
    [TSR_UNARY_EXP] = {TSR_EW_EXP, TSR_EW_EXP_GRAD},
    [TSR_UNARY_LOG] = {TSR_EW_LOG, TSR_EW_LOG_GRAD},
    [TSR_UNARY_SQRT] = {TSR_EW_SQRT, TSR_EW_SQRT_GRAD},
    [TSR_UNARY_RSQRT] = {TSR_EW_RSQRT, TSR_EW_RSQRT_GRAD},
    [TSR_UNARY_SIGMOID] = {TSR_EW_SIGMOID, TSR_EW_SIGMOID_GRAD},
    [TSR_UNARY_TANH] = {TSR_EW_TANH, TSR_EW_TANH_GRAD},
    [TSR_UNARY_ABS] = {TSR_EW_ABS, TSR_EW_ABS_GRAD},
    [TSR_UNARY_NEG] = {TSR_EW_NEG, TSR_EW_NEG_GRAD},
};

static tsr_status check_unary(const char *op, tsr_unary_function function)
{
    TSR__REQUIRE(function >= TSR_UNARY_EXP && function <= TSR_UNARY_NEG, "%s: unknown function %d",
                 op, (int)function);
    return TSR_OK;
}

tsr_status tsr_unary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                     tsr_unary_function function)
{
    TSR__TRY(check_unary("unary", function));
    tsr__elementwise work = {.op = "unary",
                             .function = unary[function].function,
                             .y = y,
                             .y_name = "y",
                             .in = {{x, "x"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_unary_grad(tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
                          const tsr_tensor *dy, tsr_unary_function function)
{
    TSR__TRY(check_unary("unary_grad", function));
    tsr__elementwise work = {.op = "unary_grad",
                             .function = unary[function].gradient,
                             .y = dx,
                             .y_name = "dx",
                             .in = {{x, "x"}, {dy, "dy"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_scale(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float scale,
                     float shift)
{
    tsr__elementwise work = {.op = "scale",
                             .function = TSR_EW_SCALE,
                             .alpha = scale,
                             .beta = shift,
                             .y = y,
                             .y_name = "y",
                             .in = {{x, "x"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_axpy(tsr_stream *stream, tsr_tensor *y, float alpha, const tsr_tensor *x)
{
    tsr__elementwise work = {.op = "axpy",
                             .function = TSR_EW_AXPY,
                             .alpha = alpha,
                             .y = y,
                             .y_name = "y",
                             .in = {{x, "x"}, {y, "y"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

static tsr_status check_bounds(const char *op, float low, float high)
{
    TSR__REQUIRE(low <= high, "%s: low is %g and high %g; low must not be above high", op,
                 (double)low, (double)high);
    return TSR_OK;
}

tsr_status tsr_clamp(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float low, float high)
{
    TSR__TRY(check_bounds("clamp", low, high));
    tsr__elementwise work = {.op = "clamp",
                             .function = TSR_EW_CLAMP,
                             .alpha = low,
                             .beta = high,
                             .y = y,
                             .y_name = "y",
                             .in = {{x, "x"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_clamp_grad(tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
                          const tsr_tensor *dy, float low, float high)
{
    TSR__TRY(check_bounds("clamp_grad", low, high));
    tsr__elementwise work = {.op = "clamp_grad",
                             .function = TSR_EW_CLAMP_GRAD,
                             .alpha = low,
                             .beta = high,
                             .y = dx,
                             .y_name = "dx",
                             .in = {{x, "x"}, {dy, "dy"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

/* Conditions --------------------------------------------------------------------------------- */

tsr_status tsr_where(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *condition,
                     const tsr_tensor *a, const tsr_tensor *b)
{
    TSR__REQUIRE(a || b, "where: a and b are both NULL");
    tsr__elementwise work = {.op = "where",
                             .function = !b   ? TSR_EW_KEEP
                                         : !a ? TSR_EW_DROP
                                              : TSR_EW_SELECT,
                             .y = y,
                             .y_name = "y",
                             .a_flags = true,
                             .in = {{condition, "condition"}, {a, "a"}, {b, "b"}}};
    if (!a)
        work.in[1] = work.in[2];
    if (!a || !b)
        work.in[2] = (tsr__elementwise_input){0};
    return tsr__elementwise_run(stream, &work, 1);
}
