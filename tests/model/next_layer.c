#include "model/next_layer.h"

#include <inttypes.h>

#include "model/file.h"
#include "model/open.h"
#include "model/weights/random.h"
#include "parallel/spmd.h"

enum {
    VOCABULARY = NEXT_VOCABULARY,
    CONTEXT = NEXT_CONTEXT,
    WIDTH = NEXT_WIDTH,
    HEADS = 4, /* these are of open_delta */
    KV_HEADS = 2,
    HEAD_DIM = 8,
    HIDDEN = 48,
    L_HEADS = 3, /* and these of the model with latent attention */
    NOPE = 8,
    ROTATED = 4,
    VALUE = 6,
    KEY = NOPE + ROTATED,
    Q_RANK = 12,
    KV_RANK = 16,
    EXPERTS = 4,
    USED = 2,
    EXPERT_HIDDEN = 16,
    SHARED = 24
};
#define NORM_EPSILON 1e-6
#define EMBEDDING_SCALE 100
#define EXPERT_SCALE 1.5

/* Files -------------------------------------------------------------------------------------- */

static tsr_status open_latent(bool with_layer, tsr_model_file **out)
{
    static const tsr_model_latent latent = {.struct_size = sizeof latent,
                                            .kv_lora_rank = KV_RANK,
                                            .nope_dim = NOPE,
                                            .rope_dim = ROTATED,
                                            .value_dim = VALUE,
                                            .q_lora_rank = Q_RANK};
    static const tsr_rope_params rope = {.struct_size = sizeof rope,
                                         .rotary_dim = ROTATED,
                                         .theta = 10000,
                                         .pairing = TSR_ROPE_ADJACENT};
    static const tsr_model_experts experts = {.struct_size = sizeof experts,
                                              .count = EXPERTS,
                                              .used = USED,
                                              .hidden = EXPERT_HIDDEN,
                                              .gating = TSR_GATING_SIGMOID,
                                              .normalise = true,
                                              .scale = EXPERT_SCALE,
                                              .choice_bias = true,
                                              .shared_hidden = SHARED};
    const tsr_model_layer dense = {.struct_size = sizeof dense,
                                   .heads = L_HEADS,
                                   .kv_heads = L_HEADS,
                                   .head_dim = KEY,
                                   .hidden = HIDDEN,
                                   .rope = &rope,
                                   .gated = true,
                                   .activation = TSR_ACT_SILU,
                                   .latent = &latent};
    tsr_model_layer mixed = dense;
    mixed.experts = &experts;
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "deepseek_v3",
                                     .layers = 3,
                                     .width = WIDTH,
                                     .vocabulary = VOCABULARY,
                                     .context = CONTEXT,
                                     .norm_epsilon = NORM_EPSILON,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 2,
                                     .kinds = (const tsr_model_layer *const[]){&dense, &mixed},
                                     .layer_kinds = (const uint16_t[]){0, 1, 1},
                                     .embedding_scale = EMBEDDING_SCALE,
                                     .next_token_layers = with_layer};
    return tsr_model_file_open_random(&config, TSR_F32, NEXT_SEED, out);
}

tsr_status next_open_file(next_kind kind, bool with_layer, tsr_model_file **out)
{
    return kind == NEXT_LATENT ? open_latent(with_layer, out)
                               : open_delta_file(VOCABULARY, CONTEXT, NEXT_SEED,
                                                 tsr_model_params(.next_token = with_layer), out);
}

/* Weights ------------------------------------------------------------------------------------ */

static next_kind read_kind;
static struct weights {
    float embedding[VOCABULARY * WIDTH], head[VOCABULARY * WIDTH], embedding_norm[WIDTH],
        hidden_norm[WIDTH], join[WIDTH * 2 * WIDTH], norm[WIDTH], norm1[WIDTH], norm2[WIDTH];
} weights;
static struct attention_weights {
    float q[2 * HEADS * HEAD_DIM * WIDTH], k[KV_HEADS * HEAD_DIM * WIDTH],
        v[KV_HEADS * HEAD_DIM * WIDTH], o[WIDTH * HEADS * HEAD_DIM], q_norm[HEAD_DIM],
        k_norm[HEAD_DIM], gate[HIDDEN * WIDTH], up[HIDDEN * WIDTH], down[WIDTH * HIDDEN];
} attention;
typedef struct expert {
    float gate[EXPERT_HIDDEN * WIDTH], up[EXPERT_HIDDEN * WIDTH], down[WIDTH * EXPERT_HIDDEN];
} expert;
static struct latent_weights {
    float q_a[Q_RANK * WIDTH], q_a_norm[Q_RANK], q_b[L_HEADS * KEY * Q_RANK],
        kv_a[(KV_RANK + ROTATED) * WIDTH], kv_a_norm[KV_RANK],
        kv_b[L_HEADS * (NOPE + VALUE) * KV_RANK], o[WIDTH * L_HEADS * VALUE],
        router[EXPERTS * WIDTH], bias[EXPERTS], gate[SHARED * WIDTH], up[SHARED * WIDTH],
        down[WIDTH * SHARED];
    expert experts[EXPERTS];
} latent;

/* Reads a tensor by its name in Hugging Face's files. */
static void read_weight(const tsr_model_file *file, const char *name, size_t size, float *out)
{
    const tsr_shard_param *p = tsr__model_files_find(&file->files, name);
    CHECK(p && p->count * sizeof *out == size, "%s: %" PRIu64 " numbers for %zu bytes", name,
          p ? p->count : 0, size);
    tsr__random_read(file->files.random, p, 0, size, out);
}

#define READ(name, member) read_weight(file, name, sizeof(member), member)

static void read_attention(const tsr_model_file *file)
{
    READ("mtp.pre_fc_norm_embedding.weight", weights.embedding_norm);
    READ("mtp.pre_fc_norm_hidden.weight", weights.hidden_norm);
    READ("mtp.fc.weight", weights.join);
    READ("mtp.norm.weight", weights.norm);
    READ("mtp.layers.0.input_layernorm.weight", weights.norm1);
    READ("mtp.layers.0.post_attention_layernorm.weight", weights.norm2);
    READ("mtp.layers.0.self_attn.q_proj.weight", attention.q);
    READ("mtp.layers.0.self_attn.k_proj.weight", attention.k);
    READ("mtp.layers.0.self_attn.v_proj.weight", attention.v);
    READ("mtp.layers.0.self_attn.o_proj.weight", attention.o);
    READ("mtp.layers.0.self_attn.q_norm.weight", attention.q_norm);
    READ("mtp.layers.0.self_attn.k_norm.weight", attention.k_norm);
    READ("mtp.layers.0.mlp.gate_proj.weight", attention.gate);
    READ("mtp.layers.0.mlp.up_proj.weight", attention.up);
    READ("mtp.layers.0.mlp.down_proj.weight", attention.down);
}

static void read_latent(const tsr_model_file *file)
{
    READ("model.layers.3.enorm.weight", weights.embedding_norm);
    READ("model.layers.3.hnorm.weight", weights.hidden_norm);
    READ("model.layers.3.eh_proj.weight", weights.join);
    READ("model.layers.3.shared_head.norm.weight", weights.norm);
    READ("model.layers.3.input_layernorm.weight", weights.norm1);
    READ("model.layers.3.post_attention_layernorm.weight", weights.norm2);
    READ("model.layers.3.self_attn.q_a_proj.weight", latent.q_a);
    READ("model.layers.3.self_attn.q_a_layernorm.weight", latent.q_a_norm);
    READ("model.layers.3.self_attn.q_b_proj.weight", latent.q_b);
    READ("model.layers.3.self_attn.kv_a_proj_with_mqa.weight", latent.kv_a);
    READ("model.layers.3.self_attn.kv_a_layernorm.weight", latent.kv_a_norm);
    READ("model.layers.3.self_attn.kv_b_proj.weight", latent.kv_b);
    READ("model.layers.3.self_attn.o_proj.weight", latent.o);
    READ("model.layers.3.mlp.gate.weight", latent.router);
    READ("model.layers.3.mlp.gate.e_score_correction_bias", latent.bias);
    READ("model.layers.3.mlp.shared_experts.gate_proj.weight", latent.gate);
    READ("model.layers.3.mlp.shared_experts.up_proj.weight", latent.up);
    READ("model.layers.3.mlp.shared_experts.down_proj.weight", latent.down);
    for (int e = 0; e < EXPERTS; e++) {
        const struct {
            const char *name;
            float *to;
        } all[] = {{"gate", latent.experts[e].gate},
                   {"up", latent.experts[e].up},
                   {"down", latent.experts[e].down}};
        for (int i = 0; i < 3; i++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.3.mlp.experts.%d.%s_proj.weight", e,
                     all[i].name);
            read_weight(file, name, sizeof latent.experts[e].gate, all[i].to);
        }
    }
}

void next_read(next_kind kind)
{
    tsr_model_file *file = NULL;
    OK(next_open_file(kind, true, &file));
    read_kind = kind;
    READ("model.embed_tokens.weight", weights.embedding);
    READ("lm_head.weight", weights.head);
    if (kind == NEXT_LATENT)
        read_latent(file);
    else
        read_attention(file);
    for (int i = 0; i < WIDTH; i++)
        weights.join[i * 2 * WIDTH + i] += NEXT_JOIN;
    tsr_model_file_close(&file);
}

/* The layer ---------------------------------------------------------------------------------- */

/* y = x / rms(x) · weight, to which files of Qwen 3.5 lack 1 */
static void norm(int count, const double *x, const float *weight, double *y)
{
    const double less = read_kind == NEXT_ATTENTION ? 1 : 0;
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < count; i++)
        y[i] = x[i] / sqrt(sum / count + NORM_EPSILON) * (less + (double)weight[i]);
}

static void multiply(int rows, int columns, const float *w, const double *x, double *y)
{
    for (int r = 0; r < rows; r++) {
        y[r] = 0;
        for (int c = 0; c < columns; c++)
            y[r] += (double)w[r * columns + c] * x[c];
    }
}

/* Rotates x [count] by pairs of features whose distance is count / 2, or 1 if `adjacent`. */
static void rotate(int place, int count, bool adjacent, double *x)
{
    for (int i = 0; i < count / 2; i++) {
        const int first = adjacent ? 2 * i : i, second = adjacent ? first + 1 : i + count / 2;
        const double angle = place * pow(10000, -2.0 * i / count), a = x[first], b = x[second];
        x[first] = a * cos(angle) - b * sin(angle);
        x[second] = b * cos(angle) + a * sin(angle);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Replaces scores[count] by their softmax. */
static void softmax(int count, double *scores)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += scores[i] = exp(scores[i]);
    for (int i = 0; i < count; i++)
        scores[i] /= sum;
}

static double dot(int count, const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(const double *more, double scale, double *x)
{
    for (int i = 0; i < WIDTH; i++)
        x[i] += scale * more[i];
}

/* What is known of the places before: keys and values by kv heads, or by heads of latent
 * attention. */
static struct places {
    double k[CONTEXT][L_HEADS][KEY], v[CONTEXT][L_HEADS][HEAD_DIM];
} places;

/* Computes attention at a place, and adds it to x. */
static void attend(int place, double *x)
{
    double normed[WIDTH], q[2 * HEADS * HEAD_DIM], k[KV_HEADS * HEAD_DIM], v[KV_HEADS * HEAD_DIM],
        out[HEADS * HEAD_DIM] = {0}, added[WIDTH], scores[CONTEXT];
    norm(WIDTH, x, weights.norm1, normed);
    multiply(2 * HEADS * HEAD_DIM, WIDTH, attention.q, normed, q);
    multiply(KV_HEADS * HEAD_DIM, WIDTH, attention.k, normed, k);
    multiply(KV_HEADS * HEAD_DIM, WIDTH, attention.v, normed, v);
    for (int h = 0; h < KV_HEADS; h++) {
        norm(HEAD_DIM, k + (size_t)h * HEAD_DIM, attention.k_norm, places.k[place][h]);
        rotate(place, HEAD_DIM, false, places.k[place][h]);
        memcpy(places.v[place][h], v + (size_t)h * HEAD_DIM, HEAD_DIM * sizeof *v);
    }
    for (int h = 0; h < HEADS; h++) {
        double query[HEAD_DIM];
        const double *gate = q + (size_t)(2 * h + 1) * HEAD_DIM;
        const int kv = h / (HEADS / KV_HEADS);
        norm(HEAD_DIM, q + (size_t)(2 * h) * HEAD_DIM, attention.q_norm, query);
        rotate(place, HEAD_DIM, false, query);
        for (int p = 0; p <= place; p++)
            scores[p] = dot(HEAD_DIM, query, places.k[p][kv]) / sqrt(HEAD_DIM);
        softmax(place + 1, scores);
        for (int p = 0; p <= place; p++)
            for (int i = 0; i < HEAD_DIM; i++)
                out[h * HEAD_DIM + i] += scores[p] * places.v[p][kv][i] * sigmoid(gate[i]);
    }
    multiply(WIDTH, HEADS * HEAD_DIM, attention.o, out, added);
    add(added, 1, x);
}

/* The same for latent attention, with keys and values of each head. */
static void attend_latent(int place, double *x)
{
    double normed[WIDTH], compressed[Q_RANK], q[L_HEADS * KEY], kv[KV_RANK + ROTATED], c[KV_RANK],
        each[L_HEADS * (NOPE + VALUE)], out[L_HEADS * VALUE] = {0}, added[WIDTH], scores[CONTEXT];
    norm(WIDTH, x, weights.norm1, normed);
    multiply(Q_RANK, WIDTH, latent.q_a, normed, compressed);
    norm(Q_RANK, compressed, latent.q_a_norm, compressed);
    multiply(L_HEADS * KEY, Q_RANK, latent.q_b, compressed, q);
    multiply(KV_RANK + ROTATED, WIDTH, latent.kv_a, normed, kv);
    norm(KV_RANK, kv, latent.kv_a_norm, c);
    rotate(place, ROTATED, true, kv + KV_RANK);
    multiply(L_HEADS * (NOPE + VALUE), KV_RANK, latent.kv_b, c, each);
    for (int h = 0; h < L_HEADS; h++) {
        const double *own = each + (size_t)h * (NOPE + VALUE);
        double *query = q + (size_t)h * KEY;
        memcpy(places.k[place][h], own, NOPE * sizeof *own);
        memcpy(places.k[place][h] + NOPE, kv + KV_RANK, ROTATED * sizeof *kv);
        memcpy(places.v[place][h], own + NOPE, VALUE * sizeof *own);
        rotate(place, ROTATED, true, query + NOPE);
        for (int p = 0; p <= place; p++)
            scores[p] = dot(KEY, query, places.k[p][h]) / sqrt(KEY);
        softmax(place + 1, scores);
        for (int p = 0; p <= place; p++)
            for (int i = 0; i < VALUE; i++)
                out[h * VALUE + i] += scores[p] * places.v[p][h][i];
    }
    multiply(WIDTH, L_HEADS * VALUE, latent.o, out, added);
    add(added, 1, x);
}

/* Computes an MLP, times `scale`, and adds it to x. */
static void add_mlp(int hidden, const float *gate, const float *up, const float *down,
                    const double *normed, double scale, double *x)
{
    double gates[HIDDEN], ups[HIDDEN], added[WIDTH];
    multiply(hidden, WIDTH, gate, normed, gates);
    multiply(hidden, WIDTH, up, normed, ups);
    for (int i = 0; i < hidden; i++)
        ups[i] *= gates[i] * sigmoid(gates[i]);
    multiply(WIDTH, hidden, down, ups, added);
    add(added, scale, x);
}

/* Computes the experts with the largest scores, and the shared one, and adds them to x. */
static void add_experts(const double *normed, double *x)
{
    double scores[EXPERTS], sum = 0;
    bool chosen[EXPERTS] = {false};
    multiply(EXPERTS, WIDTH, latent.router, normed, scores);
    for (int e = 0; e < EXPERTS; e++)
        scores[e] = sigmoid(scores[e]);
    for (int n = 0; n < USED; n++) {
        int best = -1;
        for (int e = 0; e < EXPERTS; e++)
            if (!chosen[e] && (best < 0 || scores[e] + (double)latent.bias[e] >
                                               scores[best] + (double)latent.bias[best]))
                best = e;
        chosen[best] = true;
        sum += scores[best];
    }
    for (int e = 0; e < EXPERTS; e++)
        if (chosen[e])
            add_mlp(EXPERT_HIDDEN, latent.experts[e].gate, latent.experts[e].up,
                    latent.experts[e].down, normed, EXPERT_SCALE * scores[e] / sum, x);
    add_mlp(SHARED, latent.gate, latent.up, latent.down, normed, 1, x);
}

int32_t next_predict(int place, int32_t token, double *hidden, double *gap)
{
    double both[2 * WIDTH], x[WIDTH], normed[WIDTH], logits[VOCABULARY];
    int32_t best = 0;
    for (int i = 0; i < WIDTH; i++)
        x[i] = EMBEDDING_SCALE * (double)weights.embedding[token * WIDTH + i];
    norm(WIDTH, x, weights.embedding_norm, both);
    norm(WIDTH, hidden, weights.hidden_norm, both + WIDTH);
    multiply(WIDTH, 2 * WIDTH, weights.join, both, x);
    if (read_kind == NEXT_LATENT)
        attend_latent(place, x);
    else
        attend(place, x);
    norm(WIDTH, x, weights.norm2, normed);
    if (read_kind == NEXT_LATENT)
        add_experts(normed, x);
    else
        add_mlp(HIDDEN, attention.gate, attention.up, attention.down, normed, 1, x);
    norm(WIDTH, x, weights.norm, hidden);
    multiply(VOCABULARY, WIDTH, weights.head, hidden, logits);
    for (int i = 1; i < VOCABULARY; i++)
        best = logits[i] > logits[best] ? i : best;
    *gap = INFINITY;
    for (int i = 0; i < VOCABULARY; i++)
        *gap = i == best || logits[best] - logits[i] > *gap ? *gap : logits[best] - logits[i];
    return best;
}
