#include "parallel/host_transformer.h"

#include "parallel/linear_case.h"

static const double *find(const host_model *m, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < m->count; i++) {
        const size_t whole = strlen(m->name[i]);
        if (whole >= length && strcmp(m->name[i] + whole - length, name) == 0 &&
            (whole == length || m->name[i][whole - length - 1] == '.'))
            return m->parameter[i];
    }
    return NULL;
}

static double *linear(const host_model *m, const char *name, const double *x, int64_t k, int64_t n)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const double *w = find(m, weight);
    CHECK(w, "there is no %s", weight);
    measured y = reference_linear(x, w, find(m, bias), m->batch * m->tokens, k, n);
    free(y.magnitude);
    return y.value;
}

/* Normalises rows of `size` elements in place. weight NULL: 1. */
static void normalise(double *x, int64_t rows, int64_t size, bool rms, double epsilon,
                      const double *weight, const double *bias)
{
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + r * size, mean = 0, squares = 0;
        for (int64_t i = 0; i < size; i++)
            mean += rms ? 0 : row[i] / (double)size;
        for (int64_t i = 0; i < size; i++)
            squares += (row[i] - mean) * (row[i] - mean) / (double)size;
        for (int64_t i = 0; i < size; i++)
            row[i] = (row[i] - mean) / sqrt(squares + epsilon) * (weight ? weight[i] : 1) +
                     (bias ? bias[i] : 0);
    }
}

static double epsilon_of(float given)
{
    return given == 0 ? (double)1e-5F : (double)given;
}

static void turn(double *head, const tsr_rope_params *rope, int64_t position)
{
    const int64_t pairs = rope->rotary_dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double theta = rope->theta != 0 ? rope->theta : 10000;
        double angle = (double)position * pow(theta, -(double)i / (double)pairs);
        if (rope->scaling == TSR_ROPE_SCALING_LINEAR)
            angle /= rope->factor;
        const bool adjacent = rope->pairing == TSR_ROPE_ADJACENT;
        double *u = head + (adjacent ? 2 * i : i), *w = head + (adjacent ? 2 * i + 1 : i + pairs);
        const double was = *u;
        *u = was * cos(angle) - *w * sin(angle);
        *w = was * sin(angle) + *w * cos(angle);
    }
}

/* Normalises and rotates x [batch · tokens, heads · d]. */
static void prepare(const host_model *m, const tsr_self_attention_params *p, double *x,
                    int64_t heads, const char *norm)
{
    const int64_t d = p->head_dim, rows = m->batch * m->tokens;
    const int64_t joint = p->qk_norm == TSR_QK_NORM_WHOLE ? heads : 1; /* normalised together */
    if (p->qk_norm)
        normalise(x, rows * heads / joint, d * joint, true, epsilon_of(p->norm_epsilon),
                  find(m, norm), NULL);
    for (int64_t r = 0; r < rows && p->rope; r++)
        for (int64_t h = 0; h < heads; h++)
            turn(x + (r * heads + h) * d, p->rope, r % m->tokens);
}

static bool sees(const tsr_self_attention_params *p, int64_t i, int64_t j)
{
    return !p->causal || (j <= i && (p->window == 0 || j > i - p->window));
}

static int64_t value_dim(const tsr_self_attention_params *p)
{
    return p->value_dim ? p->value_dim : p->head_dim;
}

static void attend_head(const host_model *m, const tsr_self_attention_params *p, int64_t b,
                        int64_t h, const double *q, const double *k, const double *v, double *y)
{
    const int64_t d = p->head_dim, n = value_dim(p), t = m->tokens, kv = h * p->kv_heads / p->heads;
    double *score = doubles(t);
    for (int64_t i = 0; i < t; i++) {
        const double *query = q + ((b * t + i) * p->heads + h) * d;
        const double sink = p->sinks ? find(m, "sinks")[h] : -INFINITY;
        double *out = y + ((b * t + i) * p->heads + h) * n, most = sink, sum = 0;
        for (int64_t j = 0; j < t; j++) {
            const double *key = k + ((b * t + j) * p->kv_heads + kv) * d;
            double s = 0;
            for (int64_t c = 0; c < d; c++)
                s += query[c] * key[c];
            if (p->temperature != 0)
                s *= 1 + (double)p->temperature *
                             log(1 + floor((double)i / (double)p->temperature_length));
            s *= p->scale != 0 ? (double)p->scale : 1 / sqrt((double)d);
            if (p->softcap != 0)
                s = (double)p->softcap * tanh(s / (double)p->softcap);
            score[j] = sees(p, i, j) && (!m->starts || j >= m->starts[b * t + i]) ? s : -INFINITY;
            most = fmax(most, score[j]);
        }
        if (p->sinks)
            sum = exp(sink - most);
        for (int64_t j = 0; j < t; j++)
            sum += exp(score[j] - most);
        for (int64_t c = 0; c < n; c++)
            out[c] = 0;
        for (int64_t j = 0; j < t; j++)
            for (int64_t c = 0; c < n; c++)
                out[c] += exp(score[j] - most) / sum * v[((b * t + j) * p->kv_heads + kv) * n + c];
    }
    free(score);
}

static double *attention(const host_model *m, const tsr_self_attention_params *p, const double *x)
{
    const int64_t d = p->head_dim, n = value_dim(p), results = p->heads * n;
    double *q = linear(m, "q", x, m->size, p->heads * d);
    double *k = linear(m, "k", x, m->size, p->kv_heads * d);
    double *v = linear(m, p->keys_as_values ? "k" : "v", x, m->size, p->kv_heads * n);
    double *heads = doubles(m->batch * m->tokens * results);
    if (p->value_norm)
        normalise(v, m->batch * m->tokens * p->kv_heads, n, true, epsilon_of(p->norm_epsilon), NULL,
                  NULL);
    prepare(m, p, q, p->heads, "q_norm.weight");
    prepare(m, p, k, p->kv_heads, "k_norm.weight");
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            attend_head(m, p, b, h, q, k, v, heads);
    double *gate = p->output_gate ? linear(m, "attention.gate", x, m->size, results) : NULL;
    for (int64_t i = 0; gate && i < m->batch * m->tokens * results; i++)
        heads[i] /= 1 + exp(-gate[i]);
    double *y = linear(m, "o", heads, results, m->size);
    double *all[] = {q, k, v, gate, heads};
    for (int i = 0; i < 5; i++)
        free(all[i]);
    return y;
}

/* Convolves x [batch,tokens,channels] over the tokens of each document, and may apply SiLU. */
static void convolve(const host_model *m, int64_t taps, bool silu, double *x, int64_t channels,
                     const char *name)
{
    const double *weight = find(m, name);
    const int64_t t = m->tokens;
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = t - 1; i >= 0; i--)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t first = m->starts ? m->starts[b * t + i] : 0;
                double sum = 0;
                for (int64_t j = 0; j < taps; j++)
                    if (i - taps + 1 + j >= first)
                        sum += weight[c * taps + j] * x[(b * t + i - taps + 1 + j) * channels + c];
                x[(b * t + i) * channels + c] = silu ? sum / (1 + exp(-sum)) : sum;
            }
}

static void make_unit(double *x, int64_t heads, int64_t dim)
{
    for (int64_t h = 0; h < heads; h++) {
        double squares = 1e-6;
        for (int64_t i = 0; i < dim; i++)
            squares += x[h * dim + i] * x[h * dim + i];
        for (int64_t i = 0; i < dim; i++)
            x[h * dim + i] /= sqrt(squares);
    }
}

/* A token of the delta rule: S [k,v] is the state. */
static void delta_step(int64_t k, int64_t v, double *state, const double *query, const double *key,
                       const double *value, double beta, double decay, double *out)
{
    for (int64_t i = 0; i < k * v; i++)
        state[i] *= exp(decay);
    for (int64_t c = 0; c < v; c++) {
        double read = 0;
        for (int64_t i = 0; i < k; i++)
            read += state[i * v + c] * key[i];
        for (int64_t i = 0; i < k; i++)
            state[i * v + c] += key[i] * beta * (value[c] - read);
        out[c] = 0;
        for (int64_t i = 0; i < k; i++)
            out[c] += state[i * v + c] * query[i] / sqrt((double)k);
    }
}

/* The key head that value head h reads. */
static int64_t key_head_of(const tsr_delta_net_params *p, int64_t h)
{
    const int64_t each = p->heads / p->key_heads;
    tsr_shard_range range[8];
    if (!p->tiled_heads)
        return h / each;
    OK(tsr_partition((uint64_t)p->key_heads, ranks, p->partition, range));
    for (int r = 0; r < ranks; r++) {
        const int64_t first = (int64_t)range[r].start, count = (int64_t)range[r].count;
        if (h / each >= first && h / each < first + count)
            return first + (h - first * each) % count;
    }
    return -1; /* not reached */
}

static double *delta_net(const host_model *m, const tsr_delta_net_params *p, const double *x)
{
    const int64_t rows = m->batch * m->tokens, keys = p->key_heads * p->key_dim,
                  values = p->heads * p->value_dim;
    double *q = linear(m, "q", x, m->size, keys), *k = linear(m, "k", x, m->size, keys),
           *v = linear(m, "v", x, m->size, values), *z = linear(m, "z", x, m->size, values),
           *beta = linear(m, "beta", x, m->size, p->heads),
           *alpha = linear(m, "alpha", x, m->size, p->heads), *heads = doubles(rows * values),
           *state = doubles(p->key_dim * p->value_dim);
    const double *a_log = find(m, "a_log"), *dt_bias = find(m, "dt_bias");
    convolve(m, p->taps, true, q, keys, "q_conv.weight");
    convolve(m, p->taps, true, k, keys, "k_conv.weight");
    convolve(m, p->taps, true, v, values, "v_conv.weight");
    make_unit(q, rows * p->key_heads, p->key_dim);
    make_unit(k, rows * p->key_heads, p->key_dim);
    for (int64_t n = 0; n < m->batch * p->heads; n++) {
        const int64_t h = n % p->heads, key_head = key_head_of(p, h);
        for (int64_t i = 0; i < m->tokens; i++) {
            const int64_t r = n / p->heads * m->tokens + i;
            if (i == (m->starts ? m->starts[r] : 0))
                memset(state, 0, (size_t)(p->key_dim * p->value_dim) * sizeof *state);
            const int64_t at = (r * p->key_heads + key_head) * p->key_dim, g = r * p->heads + h;
            delta_step(p->key_dim, p->value_dim, state, q + at, k + at, v + g * p->value_dim,
                       1 / (1 + exp(-beta[g])),
                       -exp(a_log[h]) * log(1 + exp(alpha[g] + dt_bias[h])),
                       heads + g * p->value_dim);
        }
    }
    normalise(heads, rows * p->heads, p->value_dim, true, epsilon_of(p->norm_epsilon),
              find(m, "norm.weight"), NULL);
    for (int64_t i = 0; i < rows * values; i++)
        heads[i] *= z[i] / (1 + exp(-z[i]));
    double *y = linear(m, "o", heads, values, m->size);
    double *all[] = {q, k, v, z, beta, alpha, heads, state};
    for (int i = 0; i < 8; i++)
        free(all[i]);
    return y;
}

static double *short_conv(const host_model *m, const tsr_short_conv_params *p, const double *x)
{
    const int64_t count = m->batch * m->tokens * m->size;
    double *b = linear(m, "b", x, m->size, m->size), *c = linear(m, "c", x, m->size, m->size),
           *u = linear(m, "x", x, m->size, m->size);
    for (int64_t i = 0; i < count; i++)
        u[i] *= b[i];
    convolve(m, p->taps, false, u, m->size, "conv.weight");
    for (int64_t i = 0; i < count; i++)
        u[i] *= c[i];
    double *y = linear(m, "o", u, m->size, m->size);
    free(b);
    free(c);
    free(u);
    return y;
}

/* The keys and values of a row of latents c, for one head. */
static void expand(const host_model *m, const tsr_latent_attention_params *p, int64_t h,
                   const double *c, double *k, double *v)
{
    const int64_t rank = p->kv_lora_rank;
    const double *k_b = find(m, "k_b.weight") + h * rank * p->nope_dim,
                 *v_b = find(m, "v_b.weight") + h * p->value_dim * rank;
    for (int64_t i = 0; i < rank; i++) {
        for (int64_t n = 0; n < p->nope_dim; n++)
            k[n] += c[i] * k_b[i * p->nope_dim + n];
        for (int64_t n = 0; n < p->value_dim; n++)
            v[n] += c[i] * v_b[n * rank + i];
    }
    for (int64_t n = 0; n < p->rope_dim; n++)
        k[p->nope_dim + n] = c[rank + n];
}

static double *latent_attention(const host_model *m, const tsr_latent_attention_params *p,
                                const double *x)
{
    const int64_t d = p->nope_dim + p->rope_dim, rows = m->batch * m->tokens,
                  count = rows * p->heads, wide = p->kv_lora_rank + p->rope_dim;
    const double epsilon = epsilon_of(p->norm_epsilon);
    const tsr_self_attention_params expanded = {.heads = p->heads,
                                                .kv_heads = p->heads,
                                                .head_dim = d,
                                                .value_dim = p->value_dim,
                                                .scale = p->scale,
                                                .causal = p->causal};
    double *raw = p->q_lora_rank > 0 ? linear(m, "q_a", x, m->size, p->q_lora_rank) : NULL;
    if (raw)
        normalise(raw, rows, p->q_lora_rank, true, epsilon, find(m, "q_a_norm.weight"), NULL);
    double *q = raw ? linear(m, "q_b", raw, p->q_lora_rank, p->heads * d)
                    : linear(m, "q", x, m->size, p->heads * d);
    double *latents = linear(m, "kv_a", x, m->size, wide), *k = doubles(count * d),
           *v = doubles(count * p->value_dim), *heads = doubles(count * p->value_dim);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t position = r % m->tokens - (m->starts ? m->starts[r] : 0);
        double *c = latents + r * wide;
        normalise(c, 1, p->kv_lora_rank, true, epsilon, find(m, "kv_a_norm.weight"), NULL);
        if (p->rope)
            turn(c + p->kv_lora_rank, p->rope, position);
        for (int64_t h = 0; h < p->heads; h++) {
            if (p->rope)
                turn(q + (r * p->heads + h) * d + p->nope_dim, p->rope, position);
            expand(m, p, h, c, k + (r * p->heads + h) * d, v + (r * p->heads + h) * p->value_dim);
        }
    }
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            attend_head(m, &expanded, b, h, q, k, v, heads);
    double *y = linear(m, "o", heads, p->heads * p->value_dim, m->size);
    double *all[] = {raw, q, latents, k, v, heads};
    for (int i = 0; i < 6; i++)
        free(all[i]);
    return y;
}

static double *mlp(const host_model *m, const tsr_mlp_params *p, const double *x)
{
    const int64_t count = m->batch * m->tokens * p->hidden_size;
    double *gate = p->gated ? linear(m, "mlp.gate", x, m->size, p->hidden_size) : NULL;
    double *up = linear(m, "up", x, m->size, p->hidden_size);
    for (int64_t i = 0; i < count; i++)
        up[i] = gate ? reference_activation(p->activation, gate[i]) * up[i]
                     : reference_activation(p->activation, up[i]);
    double *y = linear(m, "down", up, p->hidden_size, m->size);
    free(gate);
    free(up);
    return y;
}

/* A row of a mixture of experts that has norms of its own and scales: GELU-gated experts, the
 * softmax over all of which gives normalised weights. Adds it to y. */
static void add_experts(const host_model *m, const tsr_moe_params *p, const double *x, double *y)
{
    const int64_t n = m->size, hidden = p->hidden_size;
    const double *router = find(m, "router.weight"), *scales = find(m, "expert_scale"),
                 *gate_weight = find(m, "experts.gate.weight"),
                 *up_weight = find(m, "experts.up.weight"),
                 *down_weight = find(m, "experts.down.weight");
    double scores[16], *routed = doubles(n), *z = doubles(n), *act = doubles(hidden), sum = 0;
    memcpy(routed, x, (size_t)n * sizeof *routed);
    memcpy(z, x, (size_t)n * sizeof *z);
    normalise(routed, 1, n, true, epsilon_of(p->norm_epsilon), find(m, "router.scale"), NULL);
    normalise(z, 1, n, true, epsilon_of(p->norm_epsilon), find(m, "mlp.norm.weight"), NULL);
    for (int64_t e = 0; e < p->experts; e++) {
        scores[e] = 0;
        for (int64_t i = 0; i < n; i++)
            scores[e] += router[e * n + i] * routed[i] / sqrt((double)n);
        scores[e] = exp(scores[e]);
    }
    for (int64_t out = p->experts_used; out < p->experts; out++) { /* leave out the smallest */
        int64_t least = -1;
        for (int64_t e = 0; e < p->experts; e++)
            if (scores[e] > 0 && (least < 0 || scores[e] < scores[least]))
                least = e;
        scores[least] = 0;
    }
    for (int64_t e = 0; e < p->experts; e++)
        sum += scores[e];
    for (int64_t e = 0; e < p->experts; e++) {
        const double weight = scores[e] / sum * scales[e];
        for (int64_t f = 0; f < hidden; f++) {
            const int64_t row = (e * hidden + f) * n;
            double gate = 0, up = 0;
            for (int64_t i = 0; i < n; i++) {
                gate += gate_weight[row + i] * z[i];
                up += up_weight[row + i] * z[i];
            }
            act[f] = reference_activation(TSR_ACT_GELU_TANH, gate) * up;
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t f = 0; f < hidden; f++)
                y[i] += weight * down_weight[(e * n + i) * hidden + f] * act[f];
    }
    free(routed);
    free(z);
    free(act);
}

/* y = mlp_norm(y) + experts_norm(experts(x)) */
static void add_beside(const host_model *m, const double *x, double *y)
{
    const tsr_block_params *p = m->block;
    const int64_t rows = m->batch * m->tokens, count = rows * m->size;
    double *experts = doubles(count);
    for (int64_t r = 0; r < rows; r++)
        add_experts(m, p->experts, x + r * m->size, experts + r * m->size);
    normalise(y, rows, m->size, true, epsilon_of(p->norm->epsilon), find(m, "mlp_norm.weight"),
              NULL);
    normalise(experts, rows, m->size, true, epsilon_of(p->norm->epsilon),
              find(m, "experts_norm.weight"), NULL);
    for (int64_t i = 0; i < count; i++)
        y[i] += experts[i];
    free(experts);
}

/* Computes x + post_norm(layer(norm(x))) · mask · residual_scale, with the norms that there are. */
static double *branch(const host_model *m, int which, const double *x)
{
    const tsr_block_params *p = m->block;
    const int64_t count = m->batch * m->tokens * m->size;
    double *z = doubles(count);
    memcpy(z, x, (size_t)count * sizeof *z);
    if (p->norms != TSR_BLOCK_NORMS_AFTER)
        normalise(z, m->batch * m->tokens, m->size, p->norm->kind == TSR_NORM_RMS,
                  epsilon_of(p->norm->epsilon), find(m, which ? "norm2.weight" : "norm1.weight"),
                  find(m, which ? "norm2.bias" : "norm1.bias"));
    double *y = which                 ? mlp(m, p->mlp, z)
                : p->delta_net        ? delta_net(m, p->delta_net, z)
                : p->latent_attention ? latent_attention(m, p->latent_attention, z)
                : p->short_conv       ? short_conv(m, p->short_conv, z)
                                      : attention(m, p->attention, z);
    if (which && p->experts)
        add_beside(m, x, y);
    if (p->norms != TSR_BLOCK_NORMS_BEFORE)
        normalise(y, m->batch * m->tokens, m->size, p->norm->kind == TSR_NORM_RMS,
                  epsilon_of(p->norm->epsilon),
                  find(m, which ? "post_norm2.weight" : "post_norm1.weight"),
                  find(m, which ? "post_norm2.bias" : "post_norm1.bias"));
    const double scale = p->residual_scale == 0 ? 1 : (double)p->residual_scale;
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] + y[i] * scale * (m->mask[which] ? m->mask[which][i] : 1);
    free(z);
    return y;
}

double *host_model_forward(const host_model *m)
{
    if (m->attention)
        return attention(m, m->attention, m->x);
    if (m->delta_net)
        return delta_net(m, m->delta_net, m->x);
    if (m->latent)
        return latent_attention(m, m->latent, m->x);
    if (m->short_conv)
        return short_conv(m, m->short_conv, m->x);
    double *between = branch(m, 0, m->x), *y = branch(m, 1, between);
    free(between);
    for (int64_t i = 0; m->block->output_scale && i < m->batch * m->tokens * m->size; i++)
        y[i] *= find(m, "end.scale")[0];
    return y;
}

/* Gradients ---------------------------------------------------------------------------------- */

static double product(const host_model *m, const double *dy)
{
    double sum = 0, *y = host_model_forward(m);
    for (int64_t i = 0; i < m->batch * m->tokens * m->size; i++)
        sum += y[i] * dy[i];
    free(y);
    return sum;
}

static double *differences(const host_model *m, double *values, int64_t count, const double *dy)
{
    const double step = 1e-5;
    double *gradient = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        const double was = values[i];
        values[i] = was + step;
        const double above = product(m, dy);
        values[i] = was - step;
        gradient[i] = (above - product(m, dy)) / (2 * step);
        values[i] = was;
    }
    return gradient;
}

double *host_model_dx(host_model *m, const double *dy)
{
    return differences(m, m->x, m->batch * m->tokens * m->size, dy);
}

double *host_model_gradient(host_model *m, int index, const double *dy)
{
    return differences(m, m->parameter[index], m->elements[index], dy);
}

void host_model_load(host_model *m, const tsr_layer *layer)
{
    m->count = tsr_layer_parameter_count(layer);
    CHECK(m->count <= HOST_MOST_PARAMETERS, "%d parameters", m->count);
    for (int i = 0; i < m->count; i++) {
        const tsr_parameter *parameter = tsr_layer_parameter(layer, i);
        m->name[i] = parameter->name;
        m->elements[i] = count_of(parameter->ndim, parameter->global_shape);
        m->parameter[i] = whole_parameter(layer, i);
    }
}

void host_model_free(host_model *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->parameter[i]);
    free(m->x);
}
