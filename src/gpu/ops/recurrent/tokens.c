/* Checks of tensors of tokens. */
#include "gpu/ops/recurrent/tokens.h"

#include "gpu/memory/tensor.h"
#include "gpu/stream/require.h"
#include "shaders/params/slots.h"
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
                                       const tsr_tensor *starts, const tsr_tensor *read_slots)
{
    const int64_t shape[2] = {t->batch, t->tokens};
    if (lengths)
        TSR__TRY(check_integers(t, "lengths", lengths, 1, shape));
    if (starts)
        TSR__TRY(check_integers(t, "starts", starts, 2, shape));
    TSR__REQUIRE(!starts || !read_slots, "%s: packed rows (starts) cannot read slots", t->op);
    return TSR_OK;
}

static int64_t first_dim(const tsr_tensor *tensor)
{
    return tensor->layout.ndim > 0 ? tensor->layout.shape[0] : 0;
}

tsr_status tsr__tokens_take_slots(tsr__tokens *t, const tsr_tensor *read_slots,
                                  const tsr_tensor *write_slots, const tsr_tensor *state,
                                  const tsr_tensor *new_state, int64_t rows)
{
    if (read_slots) {
        TSR__REQUIRE(state, "%s: read_slots is given, but no state", t->op);
        TSR__TRY(check_integers(t, "read_slots", read_slots, 1, &t->batch));
        t->slots = first_dim(state);
    }
    if (write_slots) {
        TSR__REQUIRE(new_state, "%s: write_slots is given, but no new_state", t->op);
        const int64_t shape[2] = {t->batch, t->tokens};
        t->each_token = write_slots->layout.ndim == 2;
        TSR__TRY(check_integers(t, "write_slots", write_slots, t->each_token ? 2 : 1, shape));
        TSR__REQUIRE(!read_slots || first_dim(new_state) == t->slots,
                     "%s: state has %lld slots and new_state %lld; equally many are needed", t->op,
                     (long long)t->slots, (long long)first_dim(new_state));
        t->slots = first_dim(new_state);
    }
    TSR__REQUIRE(rows == 0 || t->slots <= INT32_MAX / rows,
                 "%s: %lld slots of %lld rows; at most 2^31 - 1 rows are possible", t->op,
                 (long long)t->slots, (long long)rows);
    t->read_slots = read_slots;
    t->write_slots = write_slots;
    return TSR_OK;
}

int64_t tsr__tokens_states(const tsr__tokens *t, bool new_state)
{
    return (new_state ? t->write_slots : t->read_slots) ? t->slots : t->batch;
}

uint32_t tsr__tokens_slots(const tsr__tokens *t)
{
    return (t->read_slots ? TSR_SLOTS_READ : 0) | (t->write_slots ? TSR_SLOTS_WRITE : 0) |
           (t->each_token ? TSR_SLOTS_EACH_TOKEN : 0);
}

tsr_status tsr__tokens_refuse_slots(const char *op, const tsr_tensor *read_slots,
                                    const tsr_tensor *write_slots)
{
    TSR__REQUIRE(!read_slots && !write_slots, "%s: gradients cannot be computed with %s", op,
                 read_slots ? "read_slots" : "write_slots");
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
