/* The functions of src/gpu for a build without Vulkan (-Dvulkan=disabled). All functions exist, so
 * that programs link and start. Those that can fail return TSR_ERR_UNSUPPORTED. */
#include "base/stub.h"
#include "gpu/internal.h"
#include "gpu/matmul/tuning/tuning.h"
#include "gpu/memory/usage.h"
#include "gpu/self_test/findings.h"
#include "tessera/attention.h"
#include "tessera/kernel.h"
#include "tessera/kv_cache.h"
#include "tessera/moe.h"
#include "tessera/ops.h"
#include "tessera/recurrent.h"
#include "tessera/rope.h"

#define NOTHING(type, name, parameter)                                                             \
    type name(parameter)                                                                           \
    {                                                                                              \
        return NULL;                                                                               \
    }

/* clang-format off */

/* device.h */
TSR__ABSENT(tsr_device_list_create, tsr_device_list **out)
TSR__FORGET(tsr_device_list_destroy, tsr_device_list)
const tsr_heap_info *tsr_device_heap(const tsr_device_info *info, int index)
{
    return NULL;
}
const tsr_coopmat_shape *tsr_device_coopmat_shape(const tsr_device_info *info, int index)
{
    return NULL;
}
TSR__ABSENT(tsr_device_open, const tsr_device_params *params, tsr_device **out)
TSR__FORGET(tsr_device_close, tsr_device)
NOTHING(const tsr_device_info *, tsr_device_get_info, const tsr_device *device)
void tsr_device_memory_usage(const tsr_device *device, uint64_t *allocated_bytes,
                             uint64_t *used_bytes)
{
    if (allocated_bytes)
        *allocated_bytes = 0;
    if (used_bytes)
        *used_bytes = 0;
}
uint64_t tsr__device_most_used(const tsr_device *device)
{
    return 0;
}

/* tensor.h */
TSR__ABSENT(tsr_tensor_create, tsr_device *device, tsr_dtype dtype, int ndim, const int64_t *shape,
            tsr_tensor **out)
TSR__ABSENT(tsr_tensor_create_host, tsr_device *device, tsr_dtype dtype, int ndim,
            const int64_t *shape, tsr_tensor **out)
TSR__FORGET(tsr_tensor_destroy, tsr_tensor)
NOTHING(const tsr_layout *, tsr_tensor_layout, const tsr_tensor *tensor)
TSR__ABSENT(tsr_tensor_slice, const tsr_tensor *in, int dim, int64_t start, int64_t stop,
            int64_t step, tsr_tensor **out)
TSR__ABSENT(tsr_tensor_select, const tsr_tensor *in, int dim, int64_t index, tsr_tensor **out)
TSR__ABSENT(tsr_tensor_transpose, const tsr_tensor *in, int dim0, int dim1, tsr_tensor **out)
TSR__ABSENT(tsr_tensor_broadcast, const tsr_tensor *in, int ndim, const int64_t *shape,
            tsr_tensor **out)
TSR__ABSENT(tsr_tensor_reshape, const tsr_tensor *in, int ndim, const int64_t *shape,
            tsr_tensor **out)
TSR__ABSENT(tsr_tensor_view, const tsr_tensor *in, const tsr_layout *layout, tsr_tensor **out)
TSR__ABSENT(tsr_tensor_upload, tsr_stream *stream, tsr_tensor *tensor, const void *data,
            uint64_t size_bytes)
TSR__ABSENT(tsr_tensor_download, tsr_stream *stream, const tsr_tensor *tensor, void *data,
            uint64_t size_bytes)
TSR__ABSENT(tsr_tensor_map, tsr_tensor *tensor, void **out)

/* stream.h */
TSR__ABSENT(tsr_stream_create, tsr_device *device, tsr_stream **out)
TSR__FORGET(tsr_stream_destroy, tsr_stream)
NOTHING(tsr_device *, tsr_stream_device, const tsr_stream *stream)
TSR__ABSENT(tsr_stream_submit, tsr_stream *stream)
TSR__ABSENT(tsr_stream_wait, tsr_stream *stream)
TSR__ABSENT(tsr_stream_mark, tsr_stream *stream, uint64_t *out_point)
TSR__ABSENT(tsr_stream_wait_point, tsr_stream *stream, uint64_t point, uint64_t timeout_ns)
TSR__ABSENT(tsr_stream_reached, tsr_stream *stream, uint64_t point, bool *out)
TSR__ABSENT(tsr_stream_timer_begin, tsr_stream *stream)
TSR__ABSENT(tsr_stream_timer_end, tsr_stream *stream)
TSR__ABSENT(tsr_stream_timer_read, tsr_stream *stream, uint64_t *out_ns)

/* ops.h */
TSR__ABSENT(tsr_copy, tsr_stream *stream, tsr_tensor *dst, const tsr_tensor *src)
TSR__ABSENT(tsr_fill, tsr_stream *stream, tsr_tensor *dst, double value)
TSR__ABSENT(tsr_binary, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
            const tsr_tensor *b, tsr_binary_function function)
TSR__ABSENT(tsr_binary_grad, tsr_stream *stream, tsr_tensor *da, tsr_tensor *db, const tsr_tensor *a,
            const tsr_tensor *b, const tsr_tensor *dy, tsr_binary_function function)
TSR__ABSENT(tsr_unary, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
            tsr_unary_function function)
TSR__ABSENT(tsr_unary_grad, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
            const tsr_tensor *dy, tsr_unary_function function)
TSR__ABSENT(tsr_clamp, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float low,
            float high)
TSR__ABSENT(tsr_clamp_grad, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
            const tsr_tensor *dy, float low, float high)
TSR__ABSENT(tsr_where, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *condition,
            const tsr_tensor *a, const tsr_tensor *b)
TSR__ABSENT(tsr_scale, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float scale,
            float shift)
TSR__ABSENT(tsr_axpy, tsr_stream *stream, tsr_tensor *y, float alpha, const tsr_tensor *x)
TSR__ABSENT(tsr_activate, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
            const tsr_tensor *b, tsr_activation activation)
TSR__ABSENT(tsr_activate_grad, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
            const tsr_tensor *dy, tsr_activation activation)
TSR__ABSENT(tsr_reduce, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim,
            tsr_reduction reduction, bool accumulate)
TSR__ABSENT(tsr_argmax, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim)
TSR__ABSENT(tsr_sum_squares, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *const *x,
            int count, float scale)
TSR__ABSENT(tsr_topk, tsr_stream *stream, tsr_tensor *values, tsr_tensor *indices,
            const tsr_tensor *x, int dim)
TSR__ABSENT(tsr_index_select, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim,
            const tsr_tensor *indices)
TSR__ABSENT(tsr_index_select_grad, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *dy, int dim,
            const tsr_tensor *indices, bool accumulate)
TSR__ABSENT(tsr_norm, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
            const tsr_tensor *weight, const tsr_tensor *bias, tsr_norm_kind kind, float epsilon)
TSR__ABSENT(tsr_norm_grad, tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight,
            tsr_tensor *dbias, const tsr_tensor *x, const tsr_tensor *dy, const tsr_tensor *weight,
            tsr_norm_kind kind, float epsilon, bool accumulate)
TSR__ABSENT(tsr_softmax, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, bool logarithm)
TSR__ABSENT(tsr_softmax_grad, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *y,
            const tsr_tensor *dy, bool logarithm)
TSR__ABSENT(tsr_cross_entropy, tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
            const tsr_tensor *logits, const tsr_tensor *labels, float grad_scale)
TSR__ABSENT(tsr_sgd_step, tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
            tsr_tensor *velocity, tsr_tensor *master, const tsr_sgd_params *params)
TSR__ABSENT(tsr_adamw_step, tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
            tsr_tensor *moment1, tsr_tensor *moment2, tsr_tensor *master,
            const tsr_adamw_params *params)
TSR__ABSENT(tsr_random_uniform, tsr_stream *stream, tsr_tensor *y, float low, float high,
            const tsr_random_params *params)
TSR__ABSENT(tsr_random_normal, tsr_stream *stream, tsr_tensor *y, float mean, float deviation,
            const tsr_random_params *params)
TSR__ABSENT(tsr_dropout, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float p,
            const tsr_random_params *params)

/* recurrent.h */
TSR__ABSENT(tsr_causal_conv, tsr_stream *stream, tsr_tensor *y, tsr_tensor *new_state,
            const tsr_tensor *x, const tsr_tensor *weight, const tsr_causal_conv_params *params)
TSR__ABSENT(tsr_causal_conv_grad, tsr_stream *stream, const tsr_causal_conv_grads *grads,
            const tsr_tensor *dy, const tsr_tensor *dnew_state, const tsr_tensor *x,
            const tsr_tensor *weight, const tsr_causal_conv_params *params)
TSR__ABSENT(tsr_delta_rule, tsr_stream *stream, tsr_tensor *y, tsr_tensor *new_state,
            const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v, const tsr_tensor *beta,
            const tsr_tensor *g, const tsr_delta_rule_params *params)
TSR__ABSENT(tsr_delta_rule_grad, tsr_stream *stream, const tsr_delta_rule_grads *grads,
            const tsr_tensor *dy, const tsr_tensor *dnew_state, const tsr_tensor *q,
            const tsr_tensor *k, const tsr_tensor *v, const tsr_tensor *beta, const tsr_tensor *g,
            const tsr_delta_rule_params *params)

/* moe.h */
TSR__ABSENT(tsr_route, tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
            const tsr_tensor *logits, const tsr_route_params *params)
TSR__ABSENT(tsr_route_grad, tsr_stream *stream, tsr_tensor *dlogits, const tsr_tensor *logits,
            const tsr_tensor *ids, const tsr_tensor *dweights, const tsr_tensor *dprobabilities,
            const tsr_route_params *params)
TSR__ABSENT(tsr_route_sort, tsr_stream *stream, tsr_tensor *order, tsr_tensor *offsets,
            const tsr_tensor *ids)
TSR__ABSENT(tsr_matmul_grouped, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
            const tsr_tensor *w, const tsr_tensor *ids, const tsr_matmul_grouped_params *params)
TSR__ABSENT(tsr_matmul_grouped_grad, tsr_stream *stream, tsr_tensor *dw, const tsr_tensor *dy,
            const tsr_tensor *x, const tsr_tensor *order, const tsr_tensor *offsets, int64_t chosen,
            bool accumulate)

/* rope.h */
TSR__ABSENT(tsr_rope_create, tsr_stream *stream, const tsr_rope_params *params, tsr_rope **out)
TSR__FORGET(tsr_rope_destroy, tsr_rope)
TSR__ABSENT(tsr_rope_apply, tsr_stream *stream, const tsr_rope *rope, tsr_tensor *y,
            const tsr_tensor *x, const tsr_tensor *positions)
TSR__ABSENT(tsr_rope_grad, tsr_stream *stream, const tsr_rope *rope, tsr_tensor *dx,
            const tsr_tensor *dy, const tsr_tensor *positions)

/* kv_cache.h */
TSR__ABSENT(tsr_kv_cache_create, const tsr_kv_cache_params *params, tsr_kv_cache **out)
TSR__FORGET(tsr_kv_cache_destroy, tsr_kv_cache)
TSR__ABSENT(tsr_kv_cache_add, tsr_kv_cache *cache, int source, int *out)
TSR__ABSENT(tsr_kv_cache_truncate, tsr_kv_cache *cache, int sequence, int64_t length)
TSR__ABSENT(tsr_kv_cache_remove, tsr_kv_cache *cache, int sequence)
int64_t tsr_kv_cache_length(const tsr_kv_cache *cache, int sequence)
{
    return -1;
}
int64_t tsr_kv_cache_restorable(const tsr_kv_cache *cache, int sequence, int64_t length)
{
    return -1;
}
int64_t tsr_kv_cache_free_pages(const tsr_kv_cache *cache)
{
    return 0;
}
TSR__ABSENT(tsr_kv_cache_begin, tsr_kv_cache *cache, int count, const int *sequences,
            const int64_t *tokens, tsr_tensor **positions)
TSR__ABSENT(tsr_kv_cache_append, tsr_kv_cache *cache, int layer, const tsr_tensor *k,
            const tsr_tensor *v)
TSR__ABSENT(tsr_kv_cache_attention, tsr_kv_cache *cache, int layer, tsr_tensor *y, tsr_tensor *lse,
            const tsr_tensor *q, const tsr_attention_params *params)

/* matmul.h */
TSR__ABSENT(tsr_matmul, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b,
            const tsr_matmul_params *params)

/* attention.h */
TSR__ABSENT(tsr_attention, tsr_stream *stream, tsr_tensor *y, tsr_tensor *lse, const tsr_tensor *q,
            const tsr_tensor *k, const tsr_tensor *v, const tsr_attention_params *params)
TSR__ABSENT(tsr_attention_grad, tsr_stream *stream, tsr_tensor *dq, tsr_tensor *dk, tsr_tensor *dv,
            const tsr_tensor *dy, const tsr_tensor *y, const tsr_tensor *lse, const tsr_tensor *q,
            const tsr_tensor *k, const tsr_tensor *v, const tsr_attention_params *params)

/* internal.h */
NOTHING(tsr_device *, tsr__tensor_device, const tsr_tensor *tensor)
int64_t tsr__row_pitch(const tsr_device *device, tsr_dtype dtype, int64_t size)
{
    return size;
}

/* findings.h */
TSR__ABSENT(tsr__self_tests_find, const tsr_device_info *device, tsr__self_tests *out)

/* tuning.h */
TSR__ABSENT(tsr__tuning_inspect, tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
            const tsr_tensor *b, const tsr_matmul_params *params, tsr__tuning_info *out)
TSR__ABSENT(tsr__tuning_candidate, tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
            const tsr_tensor *b, const tsr_matmul_params *params, int index, tsr__tuning_choice *out)
TSR__ABSENT(tsr__tuning_matmul, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
            const tsr_tensor *b, const tsr_matmul_params *params, const tsr__tuning_choice *choice)
TSR__ABSENT(tsr__tuning_set, tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
            const tsr_tensor *b, const tsr_matmul_params *params, const tsr__tuning_choice *choice)
TSR__ABSENT(tsr__tuning_save, tsr_device *device)
TSR__ABSENT(tsr__tuning_path, const tsr_device *device, char *out, size_t size)
TSR__ABSENT(tsr__tuning_find, const tsr_device_info *device, tsr__tuning_stored *out)
int tsr__tuning_count(const tsr_device *device)
{
    return 0;
}

/* kernel.h */
TSR__ABSENT(tsr_kernel_create, tsr_device *device, const tsr_kernel_params *params,
            tsr_kernel **out)
TSR__FORGET(tsr_kernel_destroy, tsr_kernel)
TSR__ABSENT(tsr_kernel_run, tsr_stream *stream, tsr_kernel *kernel,
            const tsr_kernel_argument *arguments, const void *scalars, const uint32_t groups[3])
/* clang-format on */
