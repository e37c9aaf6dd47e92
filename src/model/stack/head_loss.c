/* The head and the cross-entropy of its logits by chunks of tokens, so that the logits of a large
 * vocabulary never exist for all tokens at once. Nobody else sees them, so their rows have the
 * distance with which the kernels load vectors of any vocabulary. */
#include <math.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "model/stack/stack.h"
#include "tensor/check.h"

enum {
    CHUNK_BYTES = 1 << 27, /* of logits, if the caller does not choose chunk_tokens */
    CHUNK_LEAST = 64,      /* the fewest tokens of a chunk, with which products are still fast */
};

typedef struct head_loss {
    tsr_stack *stack;
    const tsr_head_loss_params *params;
    float scale;
    int64_t count, width, chunk; /* tokens in all rows; features; tokens of a chunk */
    int64_t first_class;
    bool learns;         /* there is a backward pass */
    tsr_tensor *hidden;  /* [count, width] */
    tsr_tensor *labels;  /* [count] */
    tsr_tensor *weights; /* [count], or NULL */
    tsr_tensor *losses;  /* [count], or NULL */
    tsr_tensor *dhidden; /* [count, width] for the chunks' gradients; NULL if there is one chunk */
    tsr_tensor *only;    /* the gradient of the only chunk */
} head_loss;

/* Views of the tokens of a chunk, and the tensors made for it. */
typedef struct chunk_tensors {
    tsr_tensor *hidden, *labels, *weights, *losses, *logits, *column, *dhidden, *to, *dlogits;
    tsr_layer_saved *saved;
} chunk_tensors;

static void chunk_destroy(chunk_tensors *c)
{
    tsr_tensor **tensors[] = {&c->hidden, &c->labels,  &c->weights, &c->losses, &c->logits,
                              &c->column, &c->dhidden, &c->to,      &c->dlogits};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(tensors[i]);
    tsr_layer_saved_destroy(&c->saved);
}

/* Checks ------------------------------------------------------------------------------------- */

/* Checks a tensor with one number for each token of hidden. */
static tsr_status check_tokens(const char *name, const tsr_tensor *tensor, const tsr_layout *hidden,
                               bool is_float)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    TSR__REQUIRE(layout->ndim == 2 && layout->shape[0] == hidden->shape[0] &&
                     layout->shape[1] == hidden->shape[1],
                 "stack: %s is %s; [%lld,%lld], one number for each token, is needed", name,
                 TSR__SHAPE(layout->ndim, layout->shape), (long long)hidden->shape[0],
                 (long long)hidden->shape[1]);
    TSR__REQUIRE(!is_float || layout->dtype == TSR_F32, "stack: %s is %s; f32 is needed", name,
                 tsr_dtype_name(layout->dtype));
    TSR__REQUIRE(tsr_layout_is_contiguous(layout), "stack: %s has gaps between its elements", name);
    return TSR_OK;
}

static tsr_status check_params(const tsr_stack *s, const tsr_tensor *hidden,
                               const tsr_head_loss_params *p, bool learns)
{
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    TSR__REQUIRE(s->is_last, "stack: only the last stage has the head");
    TSR__REQUIRE(layout->ndim == 3 && layout->shape[2] == s->config->width &&
                     tsr_layout_is_contiguous(layout),
                 "stack: hidden is %s; contiguous [rows, tokens, %lld] is needed",
                 TSR__SHAPE(layout->ndim, layout->shape), (long long)s->config->width);
    TSR__REQUIRE(p->labels, "stack: labels is NULL");
    TSR__TRY(check_tokens("labels", p->labels, layout, false));
    if (p->weights)
        TSR__TRY(check_tokens("weights", p->weights, layout, true));
    if (p->losses)
        TSR__TRY(check_tokens("losses", p->losses, layout, true));
    TSR__REQUIRE(p->loss || p->losses || learns, "stack: loss, losses and dhidden are all NULL");
    TSR__REQUIRE(isfinite(p->scale), "stack: scale is %g", (double)p->scale);
    TSR__REQUIRE(p->chunk_tokens >= 0, "stack: chunk_tokens is %lld; it must not be negative",
                 (long long)p->chunk_tokens);
    if (!p->loss)
        return TSR_OK;
    const tsr_layout *loss = tsr_tensor_layout(p->loss);
    TSR__REQUIRE(loss->dtype == TSR_F32 && loss->ndim == 1 && loss->shape[0] == 1,
                 "stack: loss is %s %s; f32 [1] is needed", tsr_dtype_name(loss->dtype),
                 TSR__SHAPE(loss->ndim, loss->shape));
    return TSR_OK;
}

int64_t tsr__stack_chunk_tokens(const tsr_model_config *config, int ranks, tsr_dtype dtype,
                                int64_t tokens)
{
    const int64_t classes = (config->vocabulary + ranks - 1) / ranks;
    const int64_t most = CHUNK_BYTES / (classes * (int64_t)tsr_dtype_size(dtype));
    const int64_t chunk = most < CHUNK_LEAST ? CHUNK_LEAST : most;
    if (tokens <= chunk)
        return tokens;
    /* chunks of nearly the same size */
    const int64_t chunks = (tokens + chunk - 1) / chunk;
    return (tokens + chunks - 1) / chunks;
}

/* Chunks ------------------------------------------------------------------------------------- */

static tsr_status slice(const tsr_tensor *of, int64_t first, int64_t count, tsr_tensor **out)
{
    return of ? tsr_tensor_slice(of, 0, first, first + count, 1, out) : TSR_OK;
}

static tsr_status chunk_slices(const head_loss *h, int64_t first, int64_t count, chunk_tensors *c)
{
    TSR__TRY(slice(h->hidden, first, count, &c->hidden));
    TSR__TRY(slice(h->labels, first, count, &c->labels));
    TSR__TRY(slice(h->weights, first, count, &c->weights));
    TSR__TRY(slice(h->losses, first, count, &c->losses));
    TSR__TRY(slice(h->dhidden, first, count, &c->to));
    if (c->weights)
        TSR__TRY(tsr_tensor_reshape(c->weights, 2, (int64_t[]){count, 1}, &c->column));
    return c->losses || !h->params->loss
               ? TSR_OK
               : tsr_tensor_create(h->stack->device, TSR_F32, 1, &count, &c->losses);
}

/* Adds the scaled sum of the chunk's losses to `loss`. */
static tsr_status add_loss(const head_loss *h, const chunk_tensors *c)
{
    tsr_stream *stream = h->stack->stream;
    const tsr_layout *layout = tsr_tensor_layout(c->losses);
    tsr_tensor *scaled = NULL;
    TSR__TRY(tsr_tensor_create(h->stack->device, TSR_F32, 1, layout->shape, &scaled));
    tsr_status status = tsr_scale(stream, scaled, c->losses, h->scale, 0);
    if (status == TSR_OK)
        status = tsr_reduce(stream, h->params->loss, scaled, 0, TSR_REDUCE_SUM, true);
    tsr_tensor_destroy(&scaled);
    return status;
}

/* Computes the losses of a chunk from its logits, and replaces these by their gradient if there is
 * a backward pass. */
static tsr_status chunk_losses(const head_loss *h, chunk_tensors *c)
{
    tsr_stack *s = h->stack;
    tsr_tensor *dlogits = h->learns ? c->logits : NULL;
    if (c->losses || dlogits)
        TSR__TRY(tsr__vocabulary_cross_entropy(s->group, c->losses, dlogits, c->logits, c->labels,
                                               s->config->vocabulary, h->first_class, h->scale));
    if (c->weights && c->losses)
        TSR__TRY(tsr_binary(s->stream, c->losses, c->losses, c->weights, TSR_BINARY_MUL));
    if (c->weights && dlogits)
        TSR__TRY(tsr_binary(s->stream, dlogits, dlogits, c->column, TSR_BINARY_MUL));
    return h->params->loss ? add_loss(h, c) : TSR_OK;
}

static tsr_status chunk_backward(head_loss *h, chunk_tensors *c)
{
    tsr_stack *s = h->stack;
    const bool finishes = tsr__stack_finishes_logits(s);
    if (finishes)
        TSR__TRY(tsr__stack_finish_logits_grad(s, c->saved, c->logits, &c->dlogits));
    TSR__TRY(tsr_layer_backward(s->head, c->saved, finishes ? c->dlogits : c->logits, &c->dhidden));
    if (h->dhidden)
        return tsr_copy(s->stream, c->to, c->dhidden);
    h->only = c->dhidden;
    c->dhidden = NULL;
    return TSR_OK;
}

static tsr_status run_chunk(head_loss *h, chunk_tensors *c)
{
    tsr_stack *s = h->stack;
    TSR__TRY(
        tsr__column_forward_pitched(s->head, c->hidden, h->learns ? &c->saved : NULL, &c->logits));
    TSR__TRY(tsr__stack_finish_logits(s, c->saved, c->logits));
    TSR__TRY(chunk_losses(h, c));
    return h->learns ? chunk_backward(h, c) : TSR_OK;
}

static tsr_status run_chunks(head_loss *h)
{
    for (int64_t first = 0; first < h->count; first += h->chunk) {
        const int64_t count = h->count - first < h->chunk ? h->count - first : h->chunk;
        chunk_tensors c = {0};
        tsr_status status = chunk_slices(h, first, count, &c);
        if (status == TSR_OK)
            status = run_chunk(h, &c);
        chunk_destroy(&c);
        TSR__TRY(status);
    }
    return TSR_OK;
}

/* The whole ---------------------------------------------------------------------------------- */

static tsr_status flatten(head_loss *h, const tsr_tensor *hidden, const tsr_tensor *dhidden)
{
    const tsr_head_loss_params *p = h->params;
    const int64_t features[] = {h->count, h->width};
    TSR__TRY(tsr_tensor_reshape(hidden, 2, features, &h->hidden));
    TSR__TRY(tsr_tensor_reshape(p->labels, 1, &h->count, &h->labels));
    if (p->weights)
        TSR__TRY(tsr_tensor_reshape(p->weights, 1, &h->count, &h->weights));
    if (p->losses)
        TSR__TRY(tsr_tensor_reshape(p->losses, 1, &h->count, &h->losses));
    return dhidden ? tsr_tensor_reshape(dhidden, 2, features, &h->dhidden) : TSR_OK;
}

/* The parameters of the head are brought into memory once for all chunks. */
static tsr_status run_all(head_loss *h, const tsr_tensor *hidden, const tsr_tensor *dhidden)
{
    tsr_stack *s = h->stack;
    const tsr_pass pass = h->learns ? TSR_PASS_BACKWARD : TSR_PASS_FORWARD;
    const tsr__adapter_pass adapters = {
        .pass = pass, .is_head = true, .trained = h->learns ? s->trained_passes : 0};
    TSR__TRY(flatten(h, hidden, dhidden));
    TSR__TRY(tsr__stack_adapters_begin(s, &adapters));
    tsr_status status = tsr__stack_begin(s, s->head, s->units.head, pass);
    if (status == TSR_OK)
        status = tsr__stack_end(s, s->head, s->units.head, run_chunks(h));
    return tsr__stack_adapters_end(s, &adapters, status);
}

static int64_t first_class_of(const tsr_stack *s)
{
    int64_t first = 0;
    for (int r = 0; r < tsr_group_rank(s->group); r++)
        first += s->vocabulary[r];
    return first;
}

tsr_status tsr_stack_head_loss(tsr_stack *s, const tsr_tensor *hidden,
                               const tsr_head_loss_params *params, tsr_tensor **dhidden)
{
    tsr_tensor *made = NULL;
    TSR__REQUIRE(s && hidden && params, "stack: %s is NULL",
                 !s        ? "stack"
                 : !hidden ? "hidden"
                           : "params");
    TSR__TAKE(tsr_head_loss_params, params);
    TSR__TRY(check_params(s, hidden, params, dhidden != NULL));
    if (dhidden)
        TSR__TRY(tsr__stack_check_backward(s));
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    head_loss h = {.stack = s,
                   .params = params,
                   .scale = params->scale == 0 ? 1 : params->scale,
                   .count = layout->shape[0] * layout->shape[1],
                   .width = layout->shape[2],
                   .learns = dhidden != NULL,
                   .first_class = first_class_of(s)};
    h.chunk =
        params->chunk_tokens > 0
            ? params->chunk_tokens
            : tsr__stack_chunk_tokens(s->config, tsr_group_size(s->group), layout->dtype, h.count);
    if (dhidden && (h.count == 0 || h.count > h.chunk))
        TSR__TRY(tsr_tensor_create(s->device, layout->dtype, 3, layout->shape, &made));
    tsr_status status = run_all(&h, hidden, made);
    if (status == TSR_OK && h.only)
        status = tsr_tensor_reshape(h.only, 3, layout->shape, &made);
    tsr_tensor *views[] = {h.hidden, h.labels, h.weights, h.losses, h.dhidden, h.only};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        tsr_tensor_destroy(&views[i]);
    if (status != TSR_OK)
        tsr_tensor_destroy(&made);
    else if (dhidden)
        *dhidden = made;
    return status;
}
