/* The documents of packed rows: checks of their starts, and what the layers need of them. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/stack/stack.h"

/* Checks the starts of rows · tokens tokens, and writes the tokens' positions in their documents.
 */
static tsr_status find_positions(const tsr_stack *s, int64_t rows, int64_t tokens,
                                 const int32_t *starts, int32_t *positions)
{
    for (int64_t n = 0; n < rows * tokens; n++) {
        const int64_t token = n % tokens;
        const int32_t before = token == 0 ? 0 : starts[n - 1];
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

tsr_status tsr__stack_documents(const tsr_stack *s, const tsr_tensor *x, const int32_t *starts,
                                tsr__documents *out)
{
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->ndim >= 2 && layout->shape[1] <= INT32_MAX,
                 "stack: starts are given for x of %d dimensions; [rows, tokens] and no more than "
                 "%d tokens are needed",
                 layout->ndim, INT32_MAX);
    const int64_t rows = layout->shape[0], tokens = layout->shape[1];
    int32_t *positions = tsr__calloc((size_t)(rows * tokens) + 1, sizeof *positions);
    if (!positions)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = find_positions(s, rows, tokens, starts, positions);
    if (status == TSR_OK)
        status = upload(s, 2, layout->shape, starts, &out->starts);
    if (status == TSR_OK)
        status = upload(s, 3, (int64_t[]){rows, 1, tokens}, positions, &out->positions);
    tsr__free(positions);
    return status;
}
