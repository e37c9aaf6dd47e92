/* Checks of tensors of tokens. */
#include "gpu/ops/recurrent/tokens.h"

#include "gpu/memory/tensor.h"
#include "gpu/stream/require.h"
#include "tensor/check.h"

enum { MOST_STRIDE = INT32_MAX / 4 };

static bool is_f32(const tsr_layout *l)
{
    return l->dtype == TSR_F32;
}

tsr_status tsr__tokens_check(const tsr__tokens *t, const char *name, const tsr_tensor *tensor,
                             int64_t heads, int64_t width, int ndim, bool any_float,
                             uint32_t *stride)
{
    TSR__TRY(tsr__require_float(t->op, name, t->stream, tensor));
    const tsr_layout *l = &tensor->layout;
    const int64_t shape[4] = {t->batch, t->tokens, ndim == 4 ? heads : width, width};
    TSR__REQUIRE(l->ndim == ndim && (any_float || is_f32(l)) && l->shape[0] == shape[0] &&
                     l->shape[1] == shape[1] && l->shape[2] == shape[2] &&
                     (ndim == 3 || l->shape[3] == shape[3]),
                 "%s: %s is %s %s; %s %s is needed", t->op, name, tsr_dtype_name(l->dtype),
                 TSR__SHAPE(l->ndim, l->shape), any_float ? "f32, f16 or bf16" : "f32",
                 TSR__SHAPE(ndim, shape));
    const bool dense = (l->shape[ndim - 1] <= 1 || l->strides[ndim - 1] == 1) &&
                       (ndim == 3 || l->shape[2] <= 1 || l->strides[2] == width);
    const int64_t step = t->tokens > 1 ? l->strides[1] : t->batch > 1 ? l->strides[0] : 0;
    TSR__REQUIRE(tsr_layout_count(l) == 0 ||
                     (dense && step >= 0 && step <= MOST_STRIDE &&
                      (t->batch <= 1 || t->tokens <= 1 || l->strides[0] == t->tokens * step)),
                 "%s: what %s has of a token must be contiguous, and its tokens must be at equal "
                 "distances of at most %d elements",
                 t->op, name, (int)MOST_STRIDE);
    *stride = tsr_layout_count(l) == 0 ? 0 : (uint32_t)step;
    return TSR_OK;
}

tsr_status tsr__tokens_check_dense(const tsr__tokens *t, const char *name, const tsr_tensor *tensor,
                                   int ndim, const int64_t *shape)
{
    TSR__TRY(tsr__require_float(t->op, name, t->stream, tensor));
    const tsr_layout *l = &tensor->layout;
    bool same = l->ndim == ndim && is_f32(l);
    for (int i = 0; same && i < ndim; i++)
        same = l->shape[i] == shape[i];
    TSR__REQUIRE(same && tsr_layout_is_contiguous(l),
                 "%s: %s is %s %s%s; f32 %s, contiguous, is needed", t->op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape),
                 same ? ", not contiguous" : "", TSR__SHAPE(ndim, shape));
    return TSR_OK;
}

static tsr_status check_integers(const tsr__tokens *t, const char *name, const tsr_tensor *tensor,
                                 int ndim, const int64_t *shape)
{
    TSR__TRY(tsr__require_tensor(t->op, name, t->stream, tensor));
    const tsr_layout *l = &tensor->layout;
    TSR__REQUIRE(l->dtype == TSR_I32 && l->ndim == ndim && l->shape[0] == shape[0] &&
                     (ndim == 1 || l->shape[1] == shape[1]) && tsr_layout_is_contiguous(l),
                 "%s: %s is %s %s; i32 %s, contiguous, is needed", t->op, name,
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape), TSR__SHAPE(ndim, shape));
    return TSR_OK;
}

tsr_status tsr__tokens_check_documents(const tsr__tokens *t, const tsr_tensor *lengths,
                                       const tsr_tensor *starts, const tsr_tensor *state)
{
    const int64_t shape[2] = {t->batch, t->tokens};
    if (lengths)
        TSR__TRY(check_integers(t, "lengths", lengths, 1, shape));
    if (starts)
        TSR__TRY(check_integers(t, "starts", starts, 2, shape));
    TSR__REQUIRE(!starts || !state, "%s: packed rows (starts) cannot continue a state", t->op);
    return TSR_OK;
}

void tsr__tokens_read(tsr__dispatch *dispatch, const tsr_tensor *tensor)
{
    if (tensor)
        dispatch->access[dispatch->access_count++] = tsr__read_of(tensor);
}

void tsr__tokens_write(tsr__dispatch *dispatch, const tsr_tensor *tensor)
{
    if (tensor)
        dispatch->access[dispatch->access_count++] = tsr__write_of(tensor);
}

uint64_t tsr__tokens_address(const tsr_tensor *tensor)
{
    return tensor ? tsr__tensor_address(tensor) : 0;
}
