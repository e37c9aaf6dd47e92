/* The documents of packed rows: checks of their starts, and what the layers need of them. If a
 * context group divides the rows, also which tokens of them this rank has. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/stack/stack.h"

/* Returns the place in its row of a token of this rank. */
static int64_t place_of(const tsr__context *context, int64_t token)
{
    return context ? tsr__context_place(context, token) : token;
}

/* Writes the positions of tokens of rows that are documents. All ranks find the same error. */
static tsr_status find_places(const tsr_stack *s, const tsr__context *context, int64_t rows,
                              int64_t tokens, int32_t *positions)
{
    const int64_t whole = tsr__context_tokens(context);
    TSR__REQUIRE(!s->config->learned_positions || whole <= s->config->context,
                 "stack: rows of %lld tokens; the model has %lld positions", (long long)whole,
                 (long long)s->config->context);
    for (int64_t n = 0; n < rows * tokens; n++)
        positions[n] = (int32_t)tsr__context_place(context, n % tokens);
    return TSR_OK;
}

/* Checks the starts of rows · tokens tokens, and writes the tokens' positions in their documents.
 * Each rank checks its own. */
static tsr_status find_positions(const tsr_stack *s, const tsr__context *context, int64_t rows,
                                 int64_t tokens, const int32_t *starts, int32_t *positions)
{
    for (int64_t n = 0; n < rows * tokens; n++) {
        const int64_t token = place_of(context, n % tokens);
        const int32_t before = n % tokens == 0 ? 0 : starts[n - 1];
        TSR__REQUIRE(starts[n] >= before && starts[n] <= token,
                     "stack: starts[%lld][%lld] is %d; a start from %d, that of the token before, "
                     "to the token's own index is needed",
                     (long long)(n / tokens), (long long)token, (int)starts[n], (int)before);
        positions[n] = (int32_t)token - starts[n];
        TSR__REQUIRE(!s->config->learned_positions || positions[n] < s->config->context,
                     "stack: the document of row %lld that starts at token %d has more than %lld "
                     "tokens, which is the number of the model's positions",
                     (long long)(n / tokens), (int)starts[n], (long long)s->config->context);
    }
    return TSR_OK;
}

static tsr_status upload(const tsr_stack *s, int ndim, const int64_t *shape, const int32_t *values,
                         tsr_tensor **out)
{
    TSR__TRY(tsr_tensor_create(s->device, TSR_I32, ndim, shape, out));
    return tsr_tensor_upload(s->stream, *out, values,
                             (uint64_t)tsr_layout_count(tsr_tensor_layout(*out)) * sizeof *values);
}

/* Uploads starts that are counted from the chunks of this rank. */
static tsr_status upload_chunk_starts(const tsr_stack *s, const int64_t shape[2],
                                      const int32_t *starts, tsr__documents *out)
{
    const int64_t count = shape[0] * shape[1], front = tsr__context_front(out->context),
                  firsts[2] = {tsr__context_place(out->context, 0),
                               tsr__context_place(out->context, front)};
    int32_t *values = tsr__calloc((size_t)count + 1, sizeof *values);
    if (!values)
        return TSR_ERR_NO_MEMORY;
    for (int64_t n = 0; n < count; n++)
        values[n] = (int32_t)(starts[n] - firsts[n % shape[1] >= front]);
    const tsr_status status = upload(s, 2, shape, values, &out->chunk_starts);
    tsr__free(values);
    return status;
}

void tsr__stack_documents_finish(tsr__documents *documents)
{
    tsr_tensor_destroy(&documents->starts);
    tsr_tensor_destroy(&documents->chunk_starts);
    tsr_tensor_destroy(&documents->positions);
    tsr__context_forget(&documents->context);
}

tsr_status tsr__stack_documents(tsr_stack *s, const tsr_tensor *x, const int32_t *starts,
                                tsr__documents *out)
{
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->ndim >= 2 && layout->shape[1] <= INT32_MAX,
                 "stack: %s for x of %d dimensions; [rows, tokens] and no more than "
                 "%d tokens are needed",
                 starts ? "starts are given" : "there is a context_group", layout->ndim, INT32_MAX);
    const int64_t rows = layout->shape[0], tokens = layout->shape[1];
    if (s->context_group)
        TSR__TRY(tsr__context_agree(s->context_group, rows, tokens, &s->context));
    out->context = tsr__context_keep(s->context);
    int32_t *positions = tsr__calloc((size_t)(rows * tokens) + 1, sizeof *positions);
    if (!positions)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = starts ? find_positions(s, out->context, rows, tokens, starts, positions)
                               : find_places(s, out->context, rows, tokens, positions);
    if (starts && s->context_group)
        status = tsr__context_all_pass(s->context_group, "stack: starts are wrong", status);
    if (status == TSR_OK && starts)
        status = upload(s, 2, layout->shape, starts, &out->starts);
    if (status == TSR_OK && starts && out->context)
        status = upload_chunk_starts(s, layout->shape, starts, out);
    if (status == TSR_OK)
        status = upload(s, 3, (int64_t[]){rows, 1, tokens}, positions, &out->positions);
    tsr__free(positions);
    return status;
}
