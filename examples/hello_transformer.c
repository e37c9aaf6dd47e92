/* Trains a small transformer on a sentence, and lets it go on from the sentence's first letters.
 * `tessera launch -n 2 -- hello_transformer` divides its heads and hidden features. */
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>

enum { LETTERS = 27, SIZE = 32, BATCH = 8, TOKENS = 32, LAYERS = 4, PROMPT = 5, WRITTEN = 44 };

static const char sentence[] = "the quick brown fox jumps over the lazy dog ";

static int32_t letter(int i)
{
    const char c = sentence[i % (int)(sizeof sentence - 1)];
    return c == ' ' ? 26 : c - 'a';
}

/* Creates the embedding, the block, the norm and the head, which gives a number for each letter. */
static tsr_status create_model(tsr_group *group, tsr_layer **model)
{
    const tsr_partition_params *uneven = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN);
    const tsr_self_attention_params *attention =
        tsr_self_attention_params(.heads = 4, .kv_heads = 2, .causal = true, .partition = uneven,
                                  .rope = tsr_rope_params(.rotary_dim = SIZE / 4));
    const tsr_mlp_params *mlp = tsr_mlp_params(.hidden_size = 64, .gated = true,
                                               .activation = TSR_ACT_SILU, .partition = uneven);
    return tsr_embedding_create(tsr_embedding_params(.group = group, .name = "embedding",
                                                     .vocabulary_size = LETTERS, .width = SIZE,
                                                     .partition = uneven),
                                &model[0]) ||
           tsr_block_create(tsr_block_params(.group = group, .name = "block", .size = SIZE,
                                             .norm = tsr_norm_params(.kind = TSR_NORM_RMS),
                                             .attention = attention, .mlp = mlp),
                            &model[1]) ||
           tsr_norm_create(
               tsr_norm_params(.group = group, .name = "norm", .size = SIZE, .kind = TSR_NORM_RMS),
               &model[2]) ||
           tsr_column_linear_create(tsr_linear_params(.group = group, .name = "head",
                                                      .input_size = SIZE, .output_size = LETTERS,
                                                      .bias = true, .output = TSR_LAYOUT_FULL,
                                                      .partition = uneven),
                                    &model[3]);
}

/* One pass forward and backward. `losses` gets each letter's loss, given the letters before it. */
static tsr_status learn(tsr_stream *stream, tsr_layer **model, const tsr_tensor *letters,
                        const tsr_tensor *next, tsr_tensor *losses)
{
    tsr_layer_saved *saved[LAYERS] = {NULL};
    tsr_tensor *x[LAYERS + 1] = {NULL}, *logits = NULL;
    const int64_t rows = (int64_t)BATCH * TOKENS, shape[] = {rows, LETTERS};
    tsr_status failed = TSR_OK;
    for (int i = 0; i < LAYERS && !failed; i++)
        failed = tsr_layer_forward(model[i], i == 0 ? letters : x[i], &saved[i], &x[i + 1]);
    failed = failed || tsr_tensor_reshape(x[LAYERS], 2, shape, &logits) ||
             tsr_cross_entropy(stream, losses, logits, logits, next, 1.0f / (BATCH * TOKENS));
    for (int i = LAYERS - 1; i >= 0 && !failed; i--) { /* x[i + 1] is a gradient by now */
        tsr_tensor_destroy(&x[i]);
        failed = tsr_layer_backward(model[i], saved[i], x[i + 1], i > 0 ? &x[i] : NULL);
    }
    tsr_tensor_destroy(&logits);
    for (int i = 0; i <= LAYERS; i++)
        tsr_tensor_destroy(&x[i]);
    for (int i = 0; i < LAYERS; i++)
        tsr_layer_saved_destroy(&saved[i]);
    return failed;
}

/* Feeds `count` letters to a sequence of the cache; *out is the likeliest next one. */
static tsr_status read_on(tsr_stream *stream, tsr_layer **model, tsr_kv_cache *cache, int sequence,
                          const int32_t *letters, int64_t count, int32_t *out)
{
    tsr_tensor *x[LAYERS + 1] = {NULL}, *last = NULL, *best = NULL;
    tsr_device *gpu = tsr_stream_device(stream);
    tsr_status failed =
        tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){1, count}, &x[0]) ||
        tsr_tensor_upload(stream, x[0], letters, (uint64_t)count * sizeof *letters) ||
        tsr_kv_cache_begin(cache, 1, &sequence, &count, NULL) ||
        tsr_layer_forward(model[0], x[0], NULL, &x[1]) ||
        tsr_layer_forward_cached(model[1], x[1], cache, 0, &x[2]) ||
        tsr_layer_forward(model[2], x[2], NULL, &x[3]) ||
        tsr_layer_forward(model[3], x[3], NULL, &x[4]) || tsr_tensor_select(x[4], 1, -1, &last) ||
        tsr_tensor_create(gpu, TSR_I32, 1, (int64_t[]){1}, &best) ||
        tsr_argmax(stream, best, last, 1) || tsr_tensor_download(stream, best, out, sizeof *out);
    tsr_tensor_destroy(&best);
    tsr_tensor_destroy(&last);
    for (int i = 0; i <= LAYERS; i++)
        tsr_tensor_destroy(&x[i]);
    return failed;
}

/* Writes a text that begins with the first letters of the sentence, and that the model
 * continues. */
static tsr_status write_text(tsr_stream *stream, tsr_layer **model, char text[WRITTEN + 1])
{
    tsr_heads heads = TSR_INIT(tsr_heads);
    tsr_kv_cache *cache = NULL;
    int32_t prompt[PROMPT], next = 0;
    int sequence = 0;
    tsr_status failed =
        tsr_self_attention_get_heads(model[1], &heads) ||
        tsr_kv_cache_create(
            tsr_kv_cache_params(.stream = stream, .layers = 1, .kv_heads = heads.kv_count,
                                .head_dim = heads.head_dim, .pages = 2, .sequences = 1),
            &cache) ||
        tsr_kv_cache_add(cache, -1, &sequence);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = letter(i);
    for (int i = 0; i < WRITTEN && !failed; i++) {
        failed = read_on(stream, model, cache, sequence, i ? &next : prompt, i ? 1 : PROMPT, &next);
        text[i] = (char)(next == 26 ? ' ' : 'a' + next);
    }
    tsr_kv_cache_destroy(&cache);
    return failed;
}

int main(void)
{
    int32_t letters[BATCH][TOKENS], labels[BATCH][TOKENS];
    char text[WRITTEN + 1] = "";
    float loss = 0;
    tsr_comm *comm = NULL;
    tsr_device *gpu = NULL;
    tsr_stream *stream = NULL;
    tsr_group *group = NULL;
    tsr_layer *model[LAYERS] = {NULL};
    tsr_optimizer *adamw = NULL;
    tsr_tensor *x = NULL, *next = NULL, *losses = NULL, *mean = NULL;
    const int64_t shape[] = {BATCH, TOKENS}, count = (int64_t)BATCH * TOKENS;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TOKENS; t++) {
            letters[b][t] = letter(5 * b + t);
            labels[b][t] = letter(5 * b + t + 1);
        }
    int failed = tsr_comm_create(NULL, &comm) || tsr_device_open(NULL, &gpu) ||
                 tsr_stream_create(gpu, &stream) || tsr_group_create(comm, stream, NULL, &group) ||
                 create_model(group, model) ||
                 tsr_optimizer_create(tsr_optimizer_params(.stream = stream), &adamw) ||
                 tsr_tensor_create(gpu, TSR_I32, 2, shape, &x) ||
                 tsr_tensor_create(gpu, TSR_I32, 1, &count, &next) ||
                 tsr_tensor_create(gpu, TSR_F32, 1, &count, &losses) ||
                 tsr_tensor_create(gpu, TSR_F32, 0, NULL, &mean) ||
                 tsr_tensor_upload(stream, x, letters, sizeof letters) ||
                 tsr_tensor_upload(stream, next, labels, sizeof labels);
    for (int i = 0; i < LAYERS && !failed; i++)
        failed = tsr_optimizer_add_layer(adamw, model[i]);
    for (int step = 0; step <= 100 && !failed; step++) {
        failed = tsr_optimizer_zero_grad(adamw) || learn(stream, model, x, next, losses) ||
                 tsr_optimizer_step(adamw, 0.01f) ||
                 tsr_reduce(stream, mean, losses, 0, TSR_REDUCE_MEAN, false) ||
                 tsr_tensor_download(stream, mean, &loss, sizeof loss);
        if (step % 20 == 0 && !failed && tsr_comm_rank(comm) == 0)
            printf("step %3d  loss %.4f\n", step, (double)loss);
    }
    failed = failed || write_text(stream, model, text);
    if (!failed && tsr_comm_rank(comm) == 0)
        printf("%.*s|%s\n", PROMPT, sentence, text);
    fprintf(stderr, "%s\n", failed ? tsr_last_error() : "done");
    tsr_tensor *tensors[] = {mean, losses, next, x};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_optimizer_destroy(&adamw);
    for (int i = 0; i < LAYERS; i++)
        tsr_layer_destroy(&model[i]);
    tsr_group_destroy(&group);
    tsr_stream_destroy(&stream);
    tsr_device_close(&gpu);
    tsr_comm_destroy(&comm);
    return failed || fflush(stdout) != 0;
}
