/* Functions for the fuzz targets of models: they write the input to a file, and check what the
 * library has read from it. */
#ifndef TESTS_MODEL_FUZZ_H
#define TESTS_MODEL_FUZZ_H

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fuzz/fuzz.h"
#include "model/config/config.h"
#include "model/file.h"
#include "tessera/recurrent.h"

/* The largest number of layers whose weights are looked up. More layers would only take time. */
#define FUZZ_LAYERS 8

/* Writes the input to a file without a name, and extends the file to `size` bytes. Returns its
 * path, which is valid until the next call. */
static inline const char *fuzz_file(const uint8_t *data, size_t count, uint64_t size)
{
    static FILE *file;
    static char path[64];
    if (file == NULL) {
        file = tmpfile();
        FUZZ_CHECK(file != NULL);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    }
    const int descriptor = fileno(file);
    FUZZ_CHECK(ftruncate(descriptor, 0) == 0);
    FUZZ_CHECK(count == 0 || pwrite(descriptor, data, count, 0) == (ssize_t)count);
    FUZZ_CHECK(ftruncate(descriptor, (off_t)size) == 0);
    return path;
}

static inline void fuzz_check_model_refusal(tsr_status status)
{
    static const char *const starts[] = {"model: ", "gguf: ", "config.json: ", "/proc/self/fd/"};
    bool known = false;
    FUZZ_CHECK(status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED ||
               status == TSR_ERR_NOT_FOUND);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        known = known || strncmp(tsr_last_error(), starts[i], strlen(starts[i])) == 0;
    FUZZ_CHECK(known);
}

static inline void fuzz_check_delta_net(const tsr_model_layer *l)
{
    const tsr_model_delta_net *net = l->delta_net;
    FUZZ_CHECK(l->heads == 0 && l->kv_heads == 0 && l->head_dim == 0 && !l->rope && !l->latent);
    FUZZ_CHECK(net->key_heads >= 1 && net->heads >= 1 && net->heads % net->key_heads == 0);
    FUZZ_CHECK(net->key_dim >= 4 && net->key_dim <= TSR_MAX_DELTA_DIM && net->key_dim % 4 == 0);
    FUZZ_CHECK(net->value_dim >= 4 && net->value_dim <= TSR_MAX_DELTA_DIM);
    FUZZ_CHECK(net->value_dim % 4 == 0 && net->heads <= TSR_MODEL_MAX_WIDTH / net->value_dim);
    FUZZ_CHECK(net->taps >= 2 && net->taps <= TSR_MAX_CAUSAL_CONV_TAPS);
}

static inline void fuzz_check_short_conv(const tsr_model_layer *l)
{
    FUZZ_CHECK(l->heads == 0 && l->kv_heads == 0 && l->head_dim == 0 && !l->rope && !l->latent);
    FUZZ_CHECK(l->conv_taps >= 2 && l->conv_taps <= TSR_MAX_CAUSAL_CONV_TAPS);
}

static inline void fuzz_check_layer(const tsr_model_layer *l)
{
    FUZZ_CHECK(l->hidden >= (l->experts ? 0 : 1) && l->hidden <= TSR_MODEL_MAX_HIDDEN);
    if (l->experts) {
        FUZZ_CHECK(l->experts->used >= 1 && l->experts->used <= l->experts->count);
        FUZZ_CHECK(l->experts->hidden >= 1 && l->experts->shared_hidden >= 0);
    }
    if (l->delta_net) {
        fuzz_check_delta_net(l);
        return;
    }
    if (l->conv_taps != 0) {
        fuzz_check_short_conv(l);
        return;
    }
    FUZZ_CHECK(l->kv_heads >= 1 && l->heads >= l->kv_heads && l->heads % l->kv_heads == 0);
    FUZZ_CHECK(l->head_dim >= 1 && l->head_dim <= TSR_MODEL_MAX_WIDTH / l->heads);
    FUZZ_CHECK(l->value_dim >= 1 && l->value_dim <= TSR_MODEL_MAX_WIDTH / l->heads);
    if (l->latent) {
        FUZZ_CHECK(l->latent->q_lora_rank >= 0 && l->latent->kv_lora_rank >= 1);
        FUZZ_CHECK(l->latent->nope_dim >= 1 && l->latent->rope_dim >= 2);
        FUZZ_CHECK(l->latent->value_dim >= 1 && l->kv_heads == l->heads);
    }
    FUZZ_CHECK(l->window >= 0 && l->window <= TSR_MODEL_MAX_CONTEXT);
    if (!l->rope)
        return;
    FUZZ_CHECK(l->rope->rotary_dim >= 2 && l->rope->rotary_dim % 2 == 0);
    FUZZ_CHECK(l->rope->rotary_dim <= l->head_dim);
    FUZZ_CHECK(isfinite(l->rope->theta) && l->rope->theta >= 0);
    FUZZ_CHECK(isfinite(l->rope->factor) && isfinite(l->rope->attention_factor));
    FUZZ_CHECK(isfinite(l->attention_scale) && l->attention_scale >= 0);
}

/* Checks an accepted configuration: all values are within the limits of model.h. */
static inline void fuzz_check_config(const tsr_model_config *c)
{
    FUZZ_CHECK(tsr__family_by_name(c->architecture) != NULL);
    FUZZ_CHECK(c->layers >= 1 && c->layers <= TSR_MODEL_MAX_LAYERS);
    FUZZ_CHECK(c->width >= 1 && c->width <= TSR_MODEL_MAX_WIDTH);
    FUZZ_CHECK(c->vocabulary >= 1 && c->vocabulary <= TSR_MODEL_MAX_VOCABULARY);
    FUZZ_CHECK(c->context >= 1 && c->context <= TSR_MODEL_MAX_CONTEXT);
    FUZZ_CHECK(c->norm_epsilon > 0 && c->norm_epsilon <= 1);
    FUZZ_CHECK(c->bos >= -1 && c->bos < c->vocabulary);
    FUZZ_CHECK(c->end_count >= 0 && c->end_count <= TSR_MODEL_MAX_END_TOKENS);
    for (int i = 0; i < c->end_count; i++)
        FUZZ_CHECK(c->end[i] >= 0 && c->end[i] < c->vocabulary);
    FUZZ_CHECK(c->next_token_layers >= 0 &&
               c->next_token_layers <= TSR_MODEL_MAX_NEXT_TOKEN_LAYERS);
    for (int i = 0; i < c->layers + c->next_token_layers; i++)
        fuzz_check_layer(tsr__config_layer(c, i));
}

/* Checks that rows, or columns, are inside their tensor, and whole runs of it. */
static inline void fuzz_check_order(const tsr__order *order, int64_t count, int64_t all)
{
    FUZZ_CHECK(order->run >= 0 && (order->run == 0 || count % (order->run * order->runs) == 0));
    for (int64_t i = 0; i<count; i += order->run> 0 ? order->run : count) {
        const int64_t last = order->run > 0 ? i + order->run - 1 : count - 1;
        FUZZ_CHECK(tsr__order_in_file(order, i) >= 0 && tsr__order_in_file(order, last) < all);
    }
}

static inline void fuzz_check_weight(const tsr__weights *weights, int layer, const char *ours,
                                     int64_t expert)
{
    tsr__weight w;
    FUZZ_CHECK(tsr__weight_find_expert(weights, layer, ours, expert, &w) == TSR_OK);
    FUZZ_CHECK(w.first_row >= 0 && w.rows >= 1 && w.columns >= 1 && w.row_step >= 1);
    FUZZ_CHECK(w.first_row + (w.rows - 1) * w.row_step < w.all_rows);
    fuzz_check_order(&w.row_order, w.rows, w.all_rows - w.first_row);
    fuzz_check_order(&w.column_order, w.columns, w.columns);
    FUZZ_CHECK(w.matrices == 0 || w.matrix < w.matrices);
    const int64_t columns = w.all_columns > 0 ? w.all_columns : w.columns;
    FUZZ_CHECK((uint64_t)w.all_rows * (uint64_t)columns *
                   (uint64_t)(w.matrices > 0 ? w.matrices : 1) ==
               w.file->count);
    FUZZ_CHECK(w.interleaved_head == 0 || w.rows % w.interleaved_head == 0);
}

/* Checks that weights of a layer are inside their tensors; if `layer` is −1, the weights that
 * belong to no layer. */
static inline void fuzz_check_weights(const tsr__weights *weights, int layer)
{
    tsr__parameter p;
    for (int i = 0; tsr__weights_parameter(weights->config, layer, i, &p); i++)
        fuzz_check_weight(weights, layer, p.ours, p.experts > 0 ? p.experts - 1 : 0);
}

#endif
