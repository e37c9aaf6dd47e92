/* The element-wise operations. */
#include "gpu/ops/elementwise/elementwise.h"
#include "shaders/params/elementwise.h"
#include "tessera/ops.h"

/* Two inputs --------------------------------------------------------------------------------- */

static tsr_status binary(tsr_stream *stream, const char *op, uint32_t function, tsr_tensor *y,
                         const tsr_tensor *a, const tsr_tensor *b)
{
    tsr__elementwise work = {
        .op = op, .function = function, .y = y, .y_name = "y", .in = {{a, "a"}, {b, "b"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_add(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "add", TSR_EW_ADD, y, a, b);
}

tsr_status tsr_sub(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "sub", TSR_EW_SUB, y, a, b);
}

tsr_status tsr_mul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "mul", TSR_EW_MUL, y, a, b);
}

tsr_status tsr_div(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "div", TSR_EW_DIV, y, a, b);
}

tsr_status tsr_minimum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "minimum", TSR_EW_MINIMUM, y, a, b);
}

tsr_status tsr_maximum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "maximum", TSR_EW_MAXIMUM, y, a, b);
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
    for (int i = 0; i < 3; i++) {
        TSR__TRY(tsr__require_tensor(op, work[1].in[i].name, stream, work[1].in[i].tensor));
        TSR__TRY(
            tsr__require_disjoint(op, "da", da, work[1].in[i].name, work[1].in[i].tensor, false));
    }
    return tsr__elementwise_run(stream, work, 2);
}

tsr_status tsr_div_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
                        const tsr_tensor *b, const tsr_tensor *dy)
{
    const char *op = "div_grad";
    return run_gradients(stream, op,
                         (tsr__elementwise[]){{.op = op,
                                               .function = TSR_EW_DIV,
                                               .y = da,
                                               .y_name = "da",
                                               .in = {{dy, "dy"}, {b, "b"}}},
                                              {.op = op,
                                               .function = TSR_EW_DIV_GRAD,
                                               .y = db,
                                               .y_name = "db",
                                               .in = {{a, "a"}, {b, "b"}, {dy, "dy"}}}});
}

static tsr_status extremum_grad(tsr_stream *stream, const char *op, uint32_t function,
                                tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
                                const tsr_tensor *b, const tsr_tensor *dy)
{
    return run_gradients(stream, op,
                         (tsr__elementwise[]){{.op = op,
                                               .function = function,
                                               .y = da,
                                               .y_name = "da",
                                               .in = {{a, "a"}, {b, "b"}, {dy, "dy"}}},
                                              {.op = op,
                                               .function = function,
                                               .y = db,
                                               .y_name = "db",
                                               .in = {{b, "b"}, {a, "a"}, {dy, "dy"}}}});
}

tsr_status tsr_minimum_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
                            const tsr_tensor *b, const tsr_tensor *dy)
{
    return extremum_grad(stream, "minimum_grad", TSR_EW_MINIMUM_GRAD, da, db, a, b, dy);
}

tsr_status tsr_maximum_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
                            const tsr_tensor *b, const tsr_tensor *dy)
{
    return extremum_grad(stream, "maximum_grad", TSR_EW_MAXIMUM_GRAD, da, db, a, b, dy);
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

tsr_status tsr_compare(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
                       tsr_comparison comparison)
{
    static const uint32_t functions[] = {
        [TSR_EQUAL] = TSR_EW_EQUAL,     [TSR_NOT_EQUAL] = TSR_EW_NOT_EQUAL,
        [TSR_LESS] = TSR_EW_LESS,       [TSR_LESS_EQUAL] = TSR_EW_LESS_EQUAL,
        [TSR_GREATER] = TSR_EW_GREATER, [TSR_GREATER_EQUAL] = TSR_EW_GREATER_EQUAL,
    };
    TSR__REQUIRE(comparison >= TSR_EQUAL && comparison <= TSR_GREATER_EQUAL,
                 "compare: unknown comparison %d", (int)comparison);
    tsr__elementwise work = {.op = "compare",
                             .function = functions[comparison],
                             .y = y,
                             .y_name = "y",
                             .y_flags = true,
                             .in = {{a, "a"}, {b, "b"}}};
    return tsr__elementwise_run(stream, &work, 1);
}

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
