/* Compares mixtures of experts with a reference in double precision, and gradients with central
 * differences of that reference, for any number of ranks and any division. */
#include <string.h>

#include "gpu/stream/profile.h"
#include "parallel/layers/layer.h"
#include "parallel/linear_case.h"

enum { MOST_PARAMETERS = 16 };

typedef struct moe_case {
    const char *name;
    tsr_moe_params params;
    tsr_route_params route;
    int64_t tokens;
    tsr_dtype x;
    bool uneven, balanced;
} moe_case;

/* The layer in double precision: full parameters by their names. */
typedef struct host_moe {
    const moe_case *c;
    int count;
    const char *name[MOST_PARAMETERS];
    double *value[MOST_PARAMETERS];
    double *x, *dy, *dprobabilities;
} host_moe;

static const double *named(const host_moe *h, const char *name)
{
    for (int i = 0; i < h->count; i++)
        if (strcmp(h->name[i], name) == 0)
            return h->value[i];
    return NULL;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static double gated(const tsr_moe_params *p, double gate, double up)
{
    if (p->activation == TSR_EXPERT_SWIGLU_OAI) {
        const double limit = p->limit > 0 ? (double)p->limit : 7;
        const double g = fmin(gate, limit), u = fmax(fmin(up, limit), -limit);
        return g / (1 + exp(-1.702 * g)) * (u + 1);
    }
    return reference_activation(
               p->activation == TSR_EXPERT_GEGLU ? TSR_ACT_GELU_TANH : TSR_ACT_SILU, gate) *
           up;
}

/* Chooses experts; selection values must differ. */
static void choose(const host_moe *h, const double *logits, int64_t *ids, double *weights)
{
    const tsr_moe_params *p = &h->c->params;
    const tsr_route_params *route = &h->c->route;
    const int64_t experts = p->experts;
    const double *bias = named(h, "moe.router.choice_bias");
    double scores[64], total = 0, sum = 0;
    bool out[64] = {false};
    for (int64_t e = 0; e < experts; e++)
        total += exp(logits[e]);
    for (int64_t e = 0; e < experts; e++)
        scores[e] = route->gating == TSR_GATING_SOFTMAX   ? exp(logits[e]) / total
                    : route->gating == TSR_GATING_SIGMOID ? 1 / (1 + exp(-logits[e]))
                                                          : logits[e];
    for (int64_t r = 0; r < p->experts_used; r++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++)
            if (!out[e] && (best < 0 || scores[e] + (bias ? bias[e] : 0) >
                                            scores[best] + (bias ? bias[best] : 0)))
                best = e;
        out[best] = true;
        ids[r] = best;
        weights[r] = route->gating == TSR_GATING_SOFTMAX_CHOSEN ? exp(scores[best]) : scores[best];
        sum += weights[r];
    }
    const bool divides = route->normalise || route->gating == TSR_GATING_SOFTMAX_CHOSEN;
    for (int64_t r = 0; r < p->experts_used; r++)
        weights[r] *= (route->scale != 0 ? (double)route->scale : 1) / (divides ? sum : 1);
}

/* y = the RMS norm of x, or x if there is no weight. */
static const double *normed(const host_moe *h, const char *name, const double *x, double *y)
{
    const tsr_moe_params *p = &h->c->params;
    const double *weight = named(h, name),
                 epsilon = p->norm_epsilon > 0 ? (double)p->norm_epsilon : (double)1e-5F;
    const int64_t in = p->input_size;
    for (int64_t i = 0; weight && i < in; i++)
        y[i] = x[i] / sqrt(dot(x, x, in) / (double)in + epsilon) * weight[i];
    return weight ? y : x;
}

/* y of one token; adds Σ dprobabilities · softmax to *loss. */
static void host_token(const host_moe *h, const double *x, double *y, double *loss)
{
    const tsr_moe_params *p = &h->c->params;
    const int64_t in = p->input_size, hidden = p->hidden_size, shared = p->shared_size;
    const double *router = named(h, "moe.router.weight"), *bias = named(h, "moe.router.bias"),
                 *gate = named(h, "moe.experts.gate.weight"),
                 *up = named(h, "moe.experts.up.weight"),
                 *down = named(h, "moe.experts.down.weight"),
                 *gate_bias = named(h, "moe.experts.gate.bias"),
                 *up_bias = named(h, "moe.experts.up.bias"),
                 *down_bias = named(h, "moe.experts.down.bias");
    const double *scales = named(h, "moe.router.expert_scale");
    double logits[64], weights[32], act[256], for_router[64], for_experts[64], total = 0;
    int64_t ids[32];
    const double *routed = normed(h, "moe.router.scale", x, for_router),
                 factor_of_router = p->router_norm ? 1 / sqrt((double)in) : 1;
    for (int64_t e = 0; e < p->experts; e++) {
        logits[e] = factor_of_router * dot(router + e * in, routed, in) + (bias ? bias[e] : 0);
        total += exp(logits[e]);
    }
    x = normed(h, "moe.norm.weight", x, for_experts);
    choose(h, logits, ids, weights);
    for (int64_t r = 0; r < p->experts_used && scales; r++)
        weights[r] *= scales[ids[r]];
    for (int64_t e = 0; e < p->experts && h->c->balanced; e++)
        *loss += h->dprobabilities[e] * exp(logits[e]) / total;
    memset(y, 0, (size_t)in * sizeof *y);
    for (int64_t r = 0; r < p->experts_used; r++) {
        const int64_t e = ids[r];
        for (int64_t f = 0; f < hidden; f++) {
            const int64_t row = e * hidden + f;
            act[f] = gated(p, dot(gate + row * in, x, in) + (gate_bias ? gate_bias[row] : 0),
                           dot(up + row * in, x, in) + (up_bias ? up_bias[row] : 0));
        }
        for (int64_t d = 0; d < in; d++)
            y[d] += weights[r] * (dot(down + (e * in + d) * hidden, act, hidden) +
                                  (down_bias ? down_bias[e * in + d] : 0));
    }
    if (shared == 0)
        return;
    const double *shared_gate = named(h, "moe.shared.gate.weight"),
                 *shared_up = named(h, "moe.shared.up.weight"),
                 *shared_down = named(h, "moe.shared.down.weight"),
                 *shared_router = named(h, "moe.shared.router.weight");
    const double factor = shared_router ? 1 / (1 + exp(-dot(shared_router, x, in))) : 1;
    for (int64_t f = 0; f < shared; f++)
        act[f] = gated(p, dot(shared_gate + f * in, x, in), dot(shared_up + f * in, x, in));
    for (int64_t d = 0; d < in; d++)
        y[d] += factor * dot(shared_down + d * shared, act, shared);
}

/* The loss Σ dy · y, plus that of the balance; y may be NULL. */
static double host_loss(const host_moe *h, double *y)
{
    const int64_t in = h->c->params.input_size;
    double loss = 0, row[64];
    for (int64_t t = 0; t < h->c->tokens; t++) {
        host_token(h, h->x + t * in, row, &loss);
        loss += dot(row, h->dy + t * in, in);
        if (y)
            memcpy(y + t * in, row, (size_t)in * sizeof *row);
    }
    return loss;
}

static double *differences(host_moe *h, double *values, int64_t count)
{
    double *gradient = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        const double kept = values[i], step = 1e-6;
        values[i] = kept + step;
        gradient[i] = host_loss(h, NULL);
        values[i] = kept - step;
        gradient[i] = (gradient[i] - host_loss(h, NULL)) / (2 * step);
        values[i] = kept;
    }
    return gradient;
}

static void near_all(const char *what, const double *got, const double *want, int64_t count,
                     double tolerance)
{
    double most = 1e-3;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= tolerance * most, "%s: element %lld is %.9g, not %.9g",
              what, (long long)i, got[i], want[i]);
}

static tsr_layer *layer_of(const moe_case *c, tsr_group *of)
{
    tsr_moe_params params = c->params;
    const tsr_partition_params *uneven = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN);
    params.group = of;
    params.name = "moe";
    params.route = &c->route;
    params.init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 77);
    params.partition = params.shared_partition = c->uneven ? uneven : NULL;
    tsr_layer *layer = NULL;
    OK(tsr_moe_create(&params, &layer));
    return layer;
}

/* Values that make choices clear, and biases that matter. */
static void set_routers(tsr_layer *layer)
{
    static const struct {
        const char *name;
        double scale;
    } scaled[] = {{"moe.router.weight", 3},        {"moe.router.bias", 1},
                  {"moe.router.choice_bias", 0.4}, {"moe.router.scale", 2},
                  {"moe.norm.weight", 1.5},        {"moe.router.expert_scale", 2}};
    for (size_t i = 0; i < sizeof scaled / sizeof scaled[0]; i++)
        for (int p = 0; p < tsr_layer_parameter_count(layer); p++) {
            const tsr_parameter *parameter = tsr_layer_parameter(layer, p);
            if (strcmp(parameter->name, scaled[i].name) != 0)
                continue;
            const int64_t count = tsr_layout_count(tsr_tensor_layout(parameter->tensor));
            double *values = numbers(500 + i, count, TSR_F32);
            for (int64_t k = 0; k < count; k++)
                values[k] = (double)(float)(values[k] * scaled[i].scale);
            tensor_put(parameter->tensor, values);
            free(values);
        }
}

static void check_parameter(const host_moe *h, const tsr_parameter *parameter, const double *want,
                            double tolerance)
{
    int64_t shape[3] = {1, 1, 1};
    const int dim = parameter->shard_dim < 0 ? 0 : parameter->shard_dim;
    for (int d = 0; d < parameter->ndim; d++)
        shape[d] = parameter->global_shape[d];
    double *mine =
               slice_of(want, parameter->ndim, shape, dim, parameter->offset, parameter->length),
           *got = values_of(parameter->grad);
    char what[128];
    snprintf(what, sizeof what, "%s: the gradient of %s", h->c->name, parameter->name);
    near_all(what, got, mine, tsr_layout_count(tsr_tensor_layout(parameter->grad)), tolerance);
    free(mine);
    free(got);
}

static void check_gradients(host_moe *h, tsr_layer *layer, const double *dx, double tolerance)
{
    double *want = differences(h, h->x, h->c->tokens * h->c->params.input_size);
    near_all(h->c->name, dx, want, h->c->tokens * h->c->params.input_size, tolerance);
    free(want);
    for (int i = 0; i < h->count; i++) {
        const tsr_parameter *parameter = tsr_layer_parameter(layer, i);
        const int64_t count = count_of(parameter->ndim, parameter->global_shape);
        const bool choice = strcmp(parameter->name, "moe.router.choice_bias") == 0;
        want = choice ? doubles(count) : differences(h, h->value[i], count);
        check_parameter(h, parameter, want, tolerance);
        free(want);
    }
}

static void run_case(const moe_case *c)
{
    const int64_t in = c->params.input_size, count = c->tokens * in;
    const tsr_dtype dtype = c->x ? c->x : TSR_F32;
    const int64_t shape[] = {1, c->tokens, in};
    tsr_layer *layer = layer_of(c, group);
    host_moe h = {.c = c, .count = tsr_layer_parameter_count(layer)};
    CHECK(h.count <= MOST_PARAMETERS, "%d parameters", h.count);
    set_routers(layer);
    for (int i = 0; i < h.count; i++) {
        h.name[i] = tsr_layer_parameter(layer, i)->name;
        h.value[i] = whole_parameter(layer, i);
    }
    h.x = numbers(1, count, dtype);
    h.dy = numbers(2, count, dtype);
    h.dprobabilities = numbers(3, c->params.experts, TSR_F32);
    tsr_tensor *x = tensor_of(dtype, 3, shape, h.x), *dy = tensor_of(dtype, 3, shape, h.dy),
               *y = NULL, *dx = NULL,
               *balance = tensor_of(TSR_F32, 1, &c->params.experts, h.dprobabilities);
    if (c->balanced)
        OK(tsr_moe_set_balance(layer, balance));
    double *want = doubles(count);
    host_loss(&h, want);
    const double tolerance = dtype == TSR_F32 ? 1e-5 : dtype == TSR_F16 ? 4e-3 : 3e-2;

    OK(tsr_layer_forward(layer, x, NULL, &y));
    double *got = values_of(y);
    near_all(c->name, got, want, count, tolerance);
    free(got);
    tsr_tensor_destroy(&y);
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    got = values_of(y);
    near_all(c->name, got, want, count, tolerance);
    free(got);
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    OK(tsr_moe_get_choice(saved, &choice));
    CHECK(tsr_tensor_layout(choice.ids)->shape[1] == c->params.experts_used, "ids");
    for (int twice = 0; twice < 2; twice++) { /* gradients are cleared, then the same */
        tsr_layer_zero_grad(layer);
        OK(tsr_layer_backward(layer, saved, dy, &dx));
        got = values_of(dx);
        if (dtype == TSR_F32 && !twice)
            check_gradients(&h, layer, got, 2e-5);
        free(got);
        tsr_tensor_destroy(&dx);
    }
    tsr_layer_saved_destroy(&saved);
    tsr_layer_destroy(&layer);
    tsr_tensor *all[] = {x, dy, y, balance};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    for (int i = 0; i < h.count; i++)
        free(h.value[i]);
    free(h.x);
    free(h.dy);
    free(h.dprobabilities);
    free(want);
}

#define MOE(...)                                                                                   \
    {                                                                                              \
        .struct_size = sizeof(tsr_moe_params), __VA_ARGS__                                         \
    }
#define ROUTE(...)                                                                                 \
    {                                                                                              \
        .struct_size = sizeof(tsr_route_params), __VA_ARGS__                                       \
    }

CASE(moe_inside, "experts: divided inside experts")
{
    run_case(&(moe_case){.name = "gpt-oss",
                         .params = MOE(.input_size = 12, .hidden_size = 12, .experts = 5,
                                       .experts_used = 3, .router_bias = true, .bias = true,
                                       .activation = TSR_EXPERT_SWIGLU_OAI, .limit = 0.5F),
                         .route = ROUTE(.gating = TSR_GATING_SOFTMAX_CHOSEN),
                         .tokens = 10});
    run_case(&(moe_case){
        .name = "shared with a gate",
        .params = MOE(.input_size = 12, .hidden_size = 7, .experts = 5, .experts_used = 2,
                      .choice_bias = true, .shared_size = 10, .shared_gate = true,
                      .input_norm = true, .activation = TSR_EXPERT_GEGLU),
        .route = ROUTE(.gating = TSR_GATING_SIGMOID, .normalise = true, .scale = 1.5F),
        .tokens = 9,
        .uneven = true,
        .balanced = true});
    run_case(&(moe_case){.name = "f16",
                         .params = MOE(.input_size = 12, .hidden_size = 12, .experts = 5,
                                       .experts_used = 2, .dtype = TSR_F16, .reduce_f32 = true),
                         .route = ROUTE(.normalise = true),
                         .tokens = 3,
                         .x = TSR_F16});
}

CASE(moe_whole, "experts: whole experts on ranks")
{
    run_case(&(moe_case){.name = "whole",
                         .params = MOE(.input_size = 12, .hidden_size = 9, .experts = 7,
                                       .experts_used = 2, .whole_experts = true, .bias = true,
                                       .shared_size = 8),
                         .route = ROUTE(.gating = TSR_GATING_SOFTMAX),
                         .tokens = 11,
                         .uneven = true,
                         .balanced = true});
    run_case(&(moe_case){.name = "a rank without experts",
                         .params = MOE(.input_size = 12, .hidden_size = 9, .experts = 2,
                                       .experts_used = 1, .whole_experts = true),
                         .route = ROUTE(.normalise = false),
                         .tokens = 9,
                         .uneven = true});
    run_case(
        &(moe_case){.name = "few tokens",
                    .params = MOE(.input_size = 12, .hidden_size = 9, .experts = 5,
                                  .experts_used = 3, .whole_experts = true, .bias = true,
                                  .router_norm = true, .input_norm = true, .expert_scale = true),
                    .route = ROUTE(.gating = TSR_GATING_SOFTMAX_CHOSEN),
                    .tokens = 2,
                    .uneven = true});
}

/* The initial values do not depend on the division or on the number of ranks. */
CASE(moe_initial, "experts: one set of initial values")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int whole = 0; whole < 2; whole++) {
        const moe_case c = {.params = MOE(.input_size = 12, .hidden_size = 9, .experts = 6,
                                          .experts_used = 2, .bias = true, .router_bias = true,
                                          .shared_size = 10, .whole_experts = whole != 0),
                            .route = ROUTE(.normalise = true),
                            .uneven = true};
        tsr_layer *divided = layer_of(&c, group), *single = layer_of(&c, alone);
        for (int i = 0; i < tsr_layer_parameter_count(divided); i++) {
            const tsr_parameter *parameter = tsr_layer_parameter(single, i);
            double *a = whole_parameter(divided, i), *b = values_of(parameter->tensor);
            const int64_t count = count_of(parameter->ndim, parameter->global_shape);
            for (int64_t k = 0; k < count; k++)
                CHECK(a[k] == b[k], "%s: element %lld is %.9g, not %.9g", parameter->name,
                      (long long)k, a[k], b[k]);
            free(a);
            free(b);
        }
        tsr_layer_destroy(&divided);
        tsr_layer_destroy(&single);
    }
    tsr_group_destroy(&alone);
}

/* A frozen layer whose experts are in a block format: y and dx are those of the values of the
 * blocks. */
CASE(moe_blocks, "experts: frozen, in a block format")
{
    const moe_case c = {.params = MOE(.input_size = 32, .hidden_size = 64, .experts = 5,
                                      .experts_used = 2, .whole_experts = true),
                        .route = ROUTE(.normalise = true),
                        .uneven = true};
    for (int64_t tokens = 3; tokens < 12; tokens += 8) {
        tsr_layer *blocks = layer_of(&c, group), *floats = layer_of(&c, group);
        set_routers(blocks);
        set_routers(floats);
        for (int i = 1; i < 4; i++) {
            const tsr_parameter *parameter = tsr_layer_parameter(floats, i);
            const tsr_layout *layout = tsr_tensor_layout(parameter->tensor);
            tsr_tensor *quantised = tensor_new(TSR_Q8_0, 3, layout->shape);
            OK(tsr_copy(queue, quantised, parameter->tensor));
            OK(tsr_copy(queue, parameter->tensor, quantised));
            OK(tsr_layer_set_parameter(blocks, i, quantised, NULL, false));
            tsr_tensor_destroy(&quantised);
        }
        const int64_t shape[] = {tokens, 32};
        double *values = numbers(9, tokens * 32, TSR_F32);
        tsr_tensor *x = tensor_of(TSR_F32, 2, shape, values), *y[2], *dx[2];
        tsr_layer *both[] = {blocks, floats};
        for (int i = 0; i < 2; i++) {
            tsr_layer_saved *saved = NULL;
            if (i == 0)
                tsr_layer_set_frozen(both[i], true);
            OK(tsr_layer_forward(both[i], x, NULL, &y[i]));
            tsr_tensor *again = NULL;
            OK(tsr_layer_forward(both[i], x, &saved, &again));
            OK(tsr_layer_backward(both[i], saved, x, &dx[i]));
            tsr_layer_saved_destroy(&saved);
            tsr_tensor_destroy(&again);
        }
        for (int pass = 0; pass < 2; pass++) {
            double *got = values_of(pass ? dx[0] : y[0]), *want = values_of(pass ? dx[1] : y[1]);
            near_all(pass ? "dx" : "y", got, want, tokens * 32, 1e-5);
            free(got);
            free(want);
        }
        for (int i = 0; i < 2; i++) {
            tsr_tensor_destroy(&y[i]);
            tsr_tensor_destroy(&dx[i]);
            tsr_layer_destroy(&both[i]);
        }
        tsr_tensor_destroy(&x);
        free(values);
    }
}

/* Experts over data-parallel ranks: results and gradients are those of a model of which each rank
 * has all experts. */

/* A layer of which each data-parallel rank has all (0) or some experts (1), after two equal
 * backward passes with this rank's tokens. */
typedef struct data_run {
    tsr_layer *layer;
    tsr_fsdp *model;
    double *y, *dx;
} data_run;

typedef struct data_case {
    moe_case moe; /* `tokens`: those of rank 0; each rank has one less than the rank before it */
    double towards[2];   /* added to the router's biases of the first two experts */
    const double *rates; /* of the ranks */
    tsr_op reduction;
    tsr_group *data, *tensor;
} data_case;

static void lean_router(const tsr_layer *layer, const double towards[2])
{
    const tsr_parameter *bias = NULL;
    OK(tsr_layer_find_parameter(layer, "router.bias", &bias));
    double *values = values_of(bias->tensor);
    for (int i = 0; i < 2; i++)
        values[i] += towards[i];
    tensor_put(bias->tensor, values);
    free(values);
}

static data_run train_over_data(const data_case *c, bool divided)
{
    const int rank = tsr_group_rank(c->data);
    moe_case own = c->moe;
    data_run run = {0};
    own.params.experts_over_data = divided;
    run.layer = layer_of(&own, c->tensor);
    set_routers(run.layer);
    lean_router(run.layer, c->towards);
    OK(tsr_fsdp_create(tsr_fsdp_params(.group = c->data, .unit_count = 1,
                                       .units = tsr_fsdp_unit(.layer = run.layer),
                                       .rates = c->rates,
                                       .gather = divided ? NULL : (const char *const[]){"*", NULL},
                                       .reduction = c->reduction),
                       &run.model));
    const int64_t in = own.params.input_size, tokens = own.tokens > rank ? own.tokens - rank : 0,
                  shape[] = {tokens, in};
    double *x_values = numbers(40 + (uint64_t)rank, tokens * in + 1, TSR_F32),
           *dy_values = numbers(60 + (uint64_t)rank, tokens * in + 1, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 2, shape, x_values),
               *dy = tensor_of(TSR_F32, 2, shape, dy_values), *y = NULL, *dx = NULL;
    for (int pass = 0; pass < 2; pass++) {
        tsr_layer_saved *saved = NULL;
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&dx);
        OK(tsr_fsdp_forward(run.model, 0, x, &saved, &y));
        OK(tsr_fsdp_backward(run.model, 0, saved, dy, &dx));
        tsr_layer_saved_destroy(&saved);
    }
    run.y = values_of(y);
    run.dx = values_of(dx);
    tsr_tensor_destroy(&dx);
    OK(tsr_fsdp_forward(run.model, 0, x, NULL, &dx)); /* without a backward pass */
    double *again = values_of(dx);
    near_all("y for inference", again, run.y, tokens * in, 1e-6);
    free(again);
    tsr_tensor *all[] = {x, dy, y, dx};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    free(x_values);
    free(dy_values);
    return run;
}

static void finish_run(data_run *run)
{
    tsr_fsdp_destroy(&run->model);
    tsr_layer_destroy(&run->layer);
    free(run->y);
    free(run->dx);
}

static void compare_shards(const data_case *c, const data_run *some, const data_run *all)
{
    for (int i = 0; i < tsr_layer_parameter_count(some->layer); i++) {
        const char *name = tsr_fsdp_parameter(some->model, 0, i)->name;
        tsr_fsdp_shard part = TSR_INIT(tsr_fsdp_shard), whole = TSR_INIT(tsr_fsdp_shard);
        OK(tsr_fsdp_get_shard(some->model, (uint64_t)i, &part));
        OK(tsr_fsdp_get_shard(all->model, (uint64_t)i, &whole));
        const int64_t count = (int64_t)part.range.count;
        if (ranks > 1 && strstr(name, ".experts.")) {
            const int64_t here = tsr_layer_parameter(all->layer, i)->shard_dim == 0
                                     ? tsr_layer_parameter(all->layer, i)->length
                                     : c->moe.params.experts,
                          each = (int64_t)whole.range.count / here;
            CHECK(count % each == 0 && (int64_t)part.range.start % each == 0,
                  "%s: %lld elements of experts of %lld", name, (long long)count, (long long)each);
        }
        if (count == 0)
            continue;
        double *got = values_of(part.grad), *want = values_of(whole.grad);
        near_all(name, got, want + part.range.start, count, 2e-5);
        free(got);
        free(want);
    }
}

static void run_over_data(const data_case *c)
{
    const int rank = tsr_group_rank(c->data);
    data_run all = train_over_data(c, false), some = train_over_data(c, true);
    const int64_t count =
        (c->moe.tokens > rank ? c->moe.tokens - rank : 0) * c->moe.params.input_size;
    near_all("y", some.y, all.y, count, 1e-5);
    near_all("dx", some.dx, all.dx, count, 1e-5);
    compare_shards(c, &some, &all);
    finish_run(&some);
    finish_run(&all);
}

CASE(moe_over_data, "experts: over data-parallel ranks")
{
    static const double rates[] = {0, 3, 1, 2, 1, 1, 1, 1};
    data_case c = {.moe = {.params = MOE(.input_size = 12, .hidden_size = 9, .experts = 5,
                                         .experts_used = 2, .router_bias = true, .bias = true,
                                         .shared_size = 8, .shared_gate = true),
                           .route = ROUTE(.normalise = true),
                           .tokens = 11},
                   .reduction = TSR_OP_SUM,
                   .data = group};
    OK(tsr_group_create(NULL, queue, NULL, &c.tensor));
    run_over_data(&c);
    c.data = staged;
    run_over_data(&c);
    c.data = group;
    c.reduction = TSR_OP_AVG;
    c.towards[0] = c.towards[1] = 50; /* no token chooses the others */
    run_over_data(&c);
    c.data = staged;
    c.moe.tokens = 1; /* the other ranks have no token at all */
    if (ranks > 1)
        c.rates = rates; /* and rank 0 has no experts */
    run_over_data(&c);
    tsr_group_destroy(&c.tensor);
}

/* Two tensor-parallel ranks have whole experts, or a part of each; two data-parallel ranks divide
 * what they have. */
CASE(moe_over_grid, "experts: over a grid of ranks")
{
    tsr_comm *rows = NULL, *columns = NULL;
    data_case c = {.moe = {.params = MOE(.input_size = 12, .hidden_size = 9, .experts = 5,
                                         .experts_used = 3, .router_bias = true, .bias = true),
                           .route = ROUTE(.normalise = true),
                           .tokens = 9,
                           .uneven = true},
                   .reduction = TSR_OP_SUM};
    if (ranks != 4) {
        case_skip("four ranks are needed");
        return;
    }
    OK(tsr_comm_split(world, my_rank / 2, my_rank, &rows));
    OK(tsr_comm_split(world, my_rank % 2, my_rank, &columns));
    OK(tsr_group_create(rows, queue, NULL, &c.tensor));
    OK(tsr_group_create(columns, queue, NULL, &c.data));
    for (int whole = 0; whole < 2; whole++) {
        c.moe.params.whole_experts = whole != 0;
        run_over_data(&c);
    }
    tsr_group_destroy(&c.data);
    tsr_group_destroy(&c.tensor);
    tsr_comm_destroy(&rows);
    tsr_comm_destroy(&columns);
}

/* Plans of the caller that divide experts, or that always gather them, are refused. */
CASE(moe_over_data_plans, "experts: over data-parallel ranks, plans that do not fit")
{
    static const char *const all[] = {"*", NULL};
    const moe_case c = {.params = MOE(.input_size = 4, .hidden_size = 3, .experts = 5,
                                      .experts_used = 2, .experts_over_data = true),
                        .route = ROUTE(.normalise = true)};
    tsr_group *alone = NULL;
    tsr_fsdp *model = NULL;
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_param params[4];
    if (ranks != 2) {
        case_skip("two ranks are needed");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_shard_strategy_create(NULL, &strategy));
    tsr_layer *layer = layer_of(&c, alone);
    for (int i = 0; i < 4; i++) {
        const tsr_parameter *p = tsr_layer_parameter(layer, i);
        params[i] =
            (tsr_shard_param){.struct_size = sizeof params[i], .name = p->name, .ndim = p->ndim};
        for (int d = 0; d < p->ndim; d++)
            params[i].shape[d] = p->global_shape[d];
    }
    for (int gathers = 0; gathers < 2; gathers++) {
        tsr_shard_plan *plan = NULL;
        OK(tsr_shard_plan_create(strategy, 4, params,
                                 tsr_shard_plan_params(.ranks = 2, .gather = gathers ? all : NULL),
                                 &plan));
        const tsr_status status =
            tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = 1,
                                            .units = tsr_fsdp_unit(.layer = layer), .plan = plan),
                            &model);
        const char *want =
            gathers ? "'moe.experts.gate.weight' has experts that the ranks divide, "
                      "but the plan always gathers it"
                    : "'moe.experts.gate.weight' has 5 experts that the ranks divide; "
                      "the plan gives rank 0 30 elements from 0 on, but its experts are 36 from 0 "
                      "on";
        CHECK(status == TSR_ERR_INVALID && strstr(tsr_last_error(), want), "it said \"%s\"",
              tsr_last_error());
        tsr_shard_plan_destroy(&plan);
    }
    tsr_layer_destroy(&layer);
    tsr_shard_strategy_destroy(&strategy);
    tsr_group_destroy(&alone);
}

/* Counts the dispatches of an expert layer for a token, and the bytes that they read of experts: of
 * 64 experts of which a token uses 8, as in a block, whose input is added to the result. */
CASE(moe_dispatches, "experts: a token takes few dispatches, which read the chosen experts only")
{
    enum { EXPERTS = 64, USED = 8, WIDTH = 64, HIDDEN = 32 };
    static tsr__profile profile;
    tsr_layer *layer = NULL;
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_moe_create(tsr_moe_params(.group = alone, .name = "m", .input_size = WIDTH,
                                     .hidden_size = HIDDEN, .experts = EXPERTS,
                                     .experts_used = USED,
                                     .route = tsr_route_params(.normalise = true)),
                      &layer));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){1, WIDTH}), *y = NULL;
    OK(tsr_fill(queue, x, 0.5F));
    OK(tsr__stream_profile_begin(queue));
    OK(tsr__layer_forward_added(layer, x, NULL, x, NULL, &y));
    OK(tsr__stream_profile_end(queue, &profile));
    const double chosen = 3.0 * USED * WIDTH * HIDDEN * sizeof(float);
    double bytes = 0;
    uint64_t commands = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        commands += profile.kernels[i].commands;
        if (strstr(profile.kernels[i].name, "matmul_grouped"))
            bytes += profile.kernels[i].read_bytes;
    }
    CHECK(commands <= 5, "%d dispatches", (int)commands);
    CHECK(bytes >= chosen && bytes <= 1.1 * chosen, "%g bytes, %g of chosen experts", bytes,
          chosen);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_layer_destroy(&layer);
    tsr_group_destroy(&alone);
}

/* Layers refuse passes that they cannot make alone. x is [2,4]. */
static void refused_passes(const tsr_tensor *x)
{
    const tsr_self_attention_params *plain = tsr_self_attention_params(.heads = 12, .causal = true),
                                    *keys = tsr_self_attention_params(.group = group, .name = "a",
                                                                      .size = 4, .heads = 12,
                                                                      .head_dim = 2,
                                                                      .keys_as_values = true),
                                    *shared =
                                        tsr_self_attention_params(.group = group, .name = "a",
                                                                  .size = 4, .heads = 12,
                                                                  .head_dim = 2, .causal = true,
                                                                  .shared_keys = true);
    const tsr_mlp_params *mlp = tsr_mlp_params(.hidden_size = 12);
    const struct {
        const tsr_self_attention_params *attention;
        const tsr_block_params *block;
        tsr_status status;
        const char *text;
    } refused[] = {
        {.attention = keys,
         .status = TSR_ERR_UNSUPPORTED,
         .text = "self_attention a: with keys_as_values and no qk_norm, there is no backward pass"},
        {.attention = shared,
         .status = TSR_ERR_UNSUPPORTED,
         .text = "self_attention a: with shared_keys, there is no pass without the keys of another "
                 "layer"},
        {.block = tsr_block_params(.group = group, .name = "b", .size = 12, .attention = plain,
                                   .mlp = mlp, .layer_input = 4),
         .status = TSR_ERR_INVALID,
         .text = "block b: the layer's own input is missing"},
    };
    tsr_tensor *wide = tensor_new(TSR_F32, 2, (int64_t[]){2, 12}), *y = NULL;
    tsr_layer_saved *saved = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tsr_layer *layer = NULL;
        OK(refused[i].attention ? tsr_self_attention_create(refused[i].attention, &layer)
                                : tsr_block_create(refused[i].block, &layer));
        FAILS(tsr_layer_forward(layer, refused[i].block ? wide : x, &saved, &y), refused[i].status,
              refused[i].text);
        tsr_layer_destroy(&layer);
    }
    tsr_layer *layer = NULL;
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.group = group, .name = "a",
                                                              .size = 4, .heads = 12, .head_dim = 2,
                                                              .causal = true, .shared_keys = true,
                                                              .qk_norm = TSR_QK_NORM_WHOLE),
                                    &layer),
          TSR_ERR_INVALID,
          "self_attention a: shared_keys goes with causal attention, and not with "
          "TSR_QK_NORM_WHOLE, sequence or keys_as_values");
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.group = group, .name = "a",
                                                              .size = 4, .heads = 12, .head_dim = 2,
                                                              .bias = true, .keys_as_values = true),
                                    &layer),
          TSR_ERR_INVALID, "self_attention a: keys_as_values does not go with bias");
    tsr_tensor_destroy(&wide);
}

CASE(moe_mistakes, "experts: mistakes are refused by name")
{
    tsr_layer *layer = NULL;
#define REFUSED(text, ...)                                                                         \
    FAILS(tsr_moe_create(tsr_moe_params(.group = group, .name = "m", __VA_ARGS__), &layer),        \
          TSR_ERR_INVALID, text)
    REFUSED("moe m: input_size is 0 and hidden_size 4; both must be 1 to 2^31 - 1",
            .hidden_size = 4);
    REFUSED("moe m: there are 1025 experts; 1 to 1024 are possible", .input_size = 4,
            .hidden_size = 12, .experts = 1025);
    REFUSED("moe m: 3 experts are to be chosen from 2; 1 to 32, and at most all, are possible",
            .input_size = 4, .hidden_size = 12, .experts = 2, .experts_used = 3);
    REFUSED("moe m: 0 experts are to be chosen from 2; 1 to 32, and at most all, are possible",
            .input_size = 4, .hidden_size = 12, .experts = 2);
    REFUSED("moe m: shared_gate is set, but shared_size is 0", .input_size = 4, .hidden_size = 12,
            .experts = 2, .experts_used = 1, .shared_gate = true);
    REFUSED("moe m: 3 groups do not divide 4 experts", .input_size = 4, .hidden_size = 12,
            .experts = 4, .experts_used = 1, .route = tsr_route_params(.groups = 3));
    REFUSED("moe m: activation 5 is not a tsr_expert_activation", .input_size = 4,
            .hidden_size = 12, .experts = 4, .experts_used = 1,
            .activation = (tsr_expert_activation)5);
    REFUSED("moe m: gating 9 is not a tsr_gating", .input_size = 4, .hidden_size = 12, .experts = 4,
            .experts_used = 1, .route = tsr_route_params(.gating = (tsr_gating)9));
    OK(tsr_moe_create(tsr_moe_params(.group = group, .name = "m", .input_size = 4,
                                     .hidden_size = 12, .experts = 4, .experts_used = 1),
                      &layer));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2, 5}), *y = NULL;
    FAILS(tsr_layer_forward(layer, x, NULL, &y), TSR_ERR_INVALID,
          "moe m: x is [2,5]; its last dimension must be 4");
    FAILS(tsr_moe_set_balance(layer, x), TSR_ERR_INVALID,
          "moe m: dprobabilities is f32 [2,5]; f32 [4] is needed");
    tsr_tensor *seen = tensor_new(TSR_F32, 2, (int64_t[]){2, 4});
    tsr_layer_saved *saved = NULL;
    refused_passes(seen);
    tsr_layer *norm = NULL, *block = NULL;
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    OK(tsr_fill(queue, seen, 1));
    OK(tsr_norm_create(tsr_norm_params(.group = group, .name = "n", .size = 4), &norm));
    OK(tsr_layer_forward(norm, seen, &saved, &y));
    FAILS(tsr_moe_get_choice(saved, &choice), TSR_ERR_INVALID,
          "moe_get_choice: `saved` is from norm n and has no choice of experts");
    FAILS(tsr_moe_set_balance(norm, NULL), TSR_ERR_INVALID,
          "moe_set_balance: norm n has no mixture of experts");
    const tsr_moe_params *experts =
        tsr_moe_params(.hidden_size = 12, .experts = 4, .experts_used = 1);
    FAILS(tsr_block_create(tsr_block_params(.group = group, .name = "b", .size = 12,
                                            .attention = tsr_self_attention_params(.heads = 12),
                                            .layer_input = -1, .experts = experts),
                           &block),
          TSR_ERR_INVALID, "block b: layer_input is -1; it must not be negative");
    FAILS(tsr_block_create(tsr_block_params(.group = group, .name = "b", .size = 12,
                                            .attention = tsr_self_attention_params(.heads = 12),
                                            .sequence = true, .experts = experts),
                           &block),
          TSR_ERR_INVALID, "block b: experts is given with sequence, which is not possible");
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&seen);
    tsr_layer_destroy(&norm);
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&layer);
}
