typedef enum tsr_status {
    TSR_OK = 0,
    TSR_ERR_INVALID = -1,
    TSR_ERR_NO_MEMORY = -2,
    TSR_ERR_DEVICE_MEMORY = -3,
    TSR_ERR_UNSUPPORTED = -4,
    TSR_ERR_NOT_FOUND = -5,
    TSR_ERR_DEVICE_LOST = -6,
    TSR_ERR_DRIVER = -7,
    TSR_ERR_IO = -8,
    TSR_ERR_OVERFLOW = -9,
    TSR_ERR_TIMEOUT = -10,
    TSR_ERR_PEER_LOST = -11
} tsr_status;
TSR_API const char *tsr_status_name(tsr_status status);
TSR_API const char *tsr_last_error(void);
typedef enum tsr_log_level {
    TSR_LOG_ERROR = 1,
    TSR_LOG_WARNING = 2,
    TSR_LOG_INFO = 3,
    TSR_LOG_DEBUG = 4
} tsr_log_level;
typedef void (*tsr_log_fn)(void *user, tsr_log_level level, const char *message);
TSR_API void tsr_log_set(tsr_log_fn fn, void *user, tsr_log_level level);
TSR_API const char *tsr_version(void);
TSR_API 
       _Bool 
            tsr_has(const char *feature);
typedef enum tsr_dtype {
    TSR_F32 = 1,
    TSR_F16 = 2,
    TSR_BF16 = 3,
    TSR_I32 = 4,
    TSR_U32 = 5,
    TSR_I64 = 6,
    TSR_U8 = 7,
    TSR_F64 = 8,
    TSR_Q4_0 = 16,
    TSR_Q4_1 = 17,
    TSR_Q5_0 = 18,
    TSR_Q5_1 = 19,
    TSR_Q8_0 = 20,
    TSR_Q2_K = 21,
    TSR_Q3_K = 22,
    TSR_Q4_K = 23,
    TSR_Q5_K = 24,
    TSR_Q6_K = 25,
    TSR_IQ4_NL = 26,
    TSR_IQ4_XS = 27,
    TSR_MXFP4 = 28,
    TSR_NVFP4 = 29,
    TSR_IQ2_XXS = 30,
    TSR_IQ2_XS = 31,
    TSR_IQ2_S = 32,
    TSR_IQ3_XXS = 33,
    TSR_IQ3_S = 34,
    TSR_TQ1_0 = 35,
    TSR_TQ2_0 = 36
} tsr_dtype;
TSR_API uint64_t tsr_dtype_size(tsr_dtype dtype);
TSR_API const char *tsr_dtype_name(tsr_dtype dtype);
TSR_API tsr_status tsr_dtype_parse(const char *name, tsr_dtype *out);
typedef struct tsr_layout {
    tsr_dtype dtype;
    int ndim;
    int64_t shape[8];
    int64_t strides[8];
    int64_t offset;
} tsr_layout;
TSR_API tsr_status tsr_layout_init(tsr_dtype dtype, int ndim, const int64_t *shape,
                                                 tsr_layout *out);
TSR_API int64_t tsr_layout_count(const tsr_layout *layout);
TSR_API 
       _Bool 
            tsr_layout_is_contiguous(const tsr_layout *layout);
TSR_API tsr_status tsr_layout_slice(const tsr_layout *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_layout *out);
TSR_API tsr_status tsr_layout_select(const tsr_layout *in, int dim, int64_t index,
                                                   tsr_layout *out);
TSR_API tsr_status tsr_layout_transpose(const tsr_layout *in, int dim0, int dim1,
                                                      tsr_layout *out);
TSR_API tsr_status tsr_layout_permute(const tsr_layout *in, const int *order,
                                                    tsr_layout *out);
TSR_API tsr_status tsr_layout_broadcast(const tsr_layout *in, int ndim,
                                                      const int64_t *shape, tsr_layout *out);
TSR_API tsr_status tsr_layout_reshape(const tsr_layout *in, int ndim,
                                                    const int64_t *shape, tsr_layout *out);
typedef enum tsr_device_type {
    TSR_DEVICE_OTHER = 0,
    TSR_DEVICE_INTEGRATED = 1,
    TSR_DEVICE_DISCRETE = 2,
    TSR_DEVICE_VIRTUAL = 3,
    TSR_DEVICE_CPU = 4
} tsr_device_type;
typedef struct tsr_device_info {
    int index;
    const char *name;
    const char *driver_name;
    const char *driver_info;
    const char *vendor;
    uint32_t vendor_id, device_id;
    uint32_t api_version, driver_version;
    uint8_t uuid[16];
    const char *uuid_text;
    tsr_device_type type;
   _Bool 
        usable;
    const char *unusable_reason;
    int heap_count;
    int coopmat_count;
    uint32_t subgroup_size;
    uint32_t subgroup_size_min, subgroup_size_max;
   _Bool 
        fp16;
   _Bool 
        storage16;
   _Bool 
        storage8;
   _Bool 
        int64;
   _Bool 
        int8;
   _Bool 
        memory_budget;
   _Bool 
        external_memory_host;
   _Bool 
        pipeline_statistics;
   _Bool 
        unified_memory;
   _Bool 
        direct_uploads;
   _Bool 
        coopmat;
   _Bool 
        coopmat_bf16;
    int coopmat_used;
    int coopmat_bf16_used;
    uint32_t coopmat_subgroup_size;
   _Bool 
        coopmat2, coopmat2_bf16;
   _Bool 
        int8_dot;
    uint32_t processor_count;
    uint32_t max_workgroup_count[3];
    uint32_t max_workgroup_size[3];
    uint32_t max_workgroup_invocations;
    uint32_t max_shared_memory_bytes;
    uint32_t max_push_constant_bytes;
    uint64_t max_allocation_bytes;
    float timestamp_period_ns;
} tsr_device_info;
typedef struct tsr_heap_info {
    uint64_t size_bytes;
    uint64_t budget_bytes;
    uint64_t usage_bytes;
   _Bool 
        device_local;
   _Bool 
        host_visible;
} tsr_heap_info;
TSR_API const tsr_heap_info *tsr_device_heap(const tsr_device_info *info, int index);
typedef struct tsr_coopmat_shape {
    uint32_t m, n, k;
    const char *a, *b, *c, *result;
   _Bool 
        saturating;
   _Bool 
        subgroup_scope;
} tsr_coopmat_shape;
TSR_API const tsr_coopmat_shape *tsr_device_coopmat_shape(const tsr_device_info *info, int index);
typedef struct tsr_device_list {
    int count;
    const tsr_device_info *const *devices;
} tsr_device_list;
TSR_API tsr_status tsr_device_list_create(tsr_device_list **out);
TSR_API void tsr_device_list_destroy(tsr_device_list **list);
typedef struct tsr_device tsr_device;
typedef struct tsr_device_params {
    size_t struct_size;
    const char *device;
   _Bool 
        force_staging;
   _Bool 
        force_packed_storage;
   _Bool 
        cache_in_memory;
    uint64_t memory_limit_bytes;
    uint64_t staging_bytes;
} tsr_device_params;
TSR_API tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out);
TSR_API void tsr_device_close(tsr_device **device);
TSR_API const tsr_device_info *tsr_device_get_info(const tsr_device *device);
TSR_API void tsr_device_memory_usage(const tsr_device *device, uint64_t *allocated_bytes,
                                     uint64_t *used_bytes);
typedef struct tsr_tensor tsr_tensor;
typedef struct tsr_stream tsr_stream;
TSR_API tsr_status tsr_tensor_create(tsr_device *device, tsr_dtype dtype, int ndim,
                                                   const int64_t *shape, tsr_tensor **out);
TSR_API tsr_status tsr_tensor_create_host(tsr_device *device, tsr_dtype dtype,
                                                        int ndim, const int64_t *shape,
                                                        tsr_tensor **out);
TSR_API void tsr_tensor_destroy(tsr_tensor **tensor);
TSR_API const tsr_layout *tsr_tensor_layout(const tsr_tensor *tensor);
TSR_API tsr_status tsr_tensor_slice(const tsr_tensor *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_tensor **out);
TSR_API tsr_status tsr_tensor_select(const tsr_tensor *in, int dim, int64_t index,
                                                   tsr_tensor **out);
TSR_API tsr_status tsr_tensor_transpose(const tsr_tensor *in, int dim0, int dim1,
                                                      tsr_tensor **out);
TSR_API tsr_status tsr_tensor_broadcast(const tsr_tensor *in, int ndim,
                                                      const int64_t *shape, tsr_tensor **out);
TSR_API tsr_status tsr_tensor_reshape(const tsr_tensor *in, int ndim,
                                                    const int64_t *shape, tsr_tensor **out);
TSR_API tsr_status tsr_tensor_view(const tsr_tensor *in, const tsr_layout *layout,
                                                 tsr_tensor **out);
TSR_API tsr_status tsr_tensor_upload(tsr_stream *stream, tsr_tensor *tensor,
                                                   const void *data, uint64_t size_bytes);
TSR_API tsr_status tsr_tensor_download(tsr_stream *stream, const tsr_tensor *tensor,
                                                     void *data, uint64_t size_bytes);
TSR_API tsr_status tsr_tensor_map(tsr_tensor *tensor, void **out);
TSR_API tsr_status tsr_stream_create(tsr_device *device, tsr_stream **out);
TSR_API void tsr_stream_destroy(tsr_stream **stream);
TSR_API tsr_device *tsr_stream_device(const tsr_stream *stream);
TSR_API tsr_status tsr_stream_submit(tsr_stream *stream);
TSR_API tsr_status tsr_stream_wait(tsr_stream *stream);
TSR_API tsr_status tsr_stream_mark(tsr_stream *stream, uint64_t *out_point);
TSR_API tsr_status tsr_stream_wait_point(tsr_stream *stream, uint64_t point,
                                                       uint64_t timeout_ns);
TSR_API tsr_status tsr_stream_reached(tsr_stream *stream, uint64_t point, 
                                                                                       _Bool 
                                                                                            *out);
TSR_API tsr_status tsr_stream_timer_begin(tsr_stream *stream);
TSR_API tsr_status tsr_stream_timer_end(tsr_stream *stream);
TSR_API tsr_status tsr_stream_timer_read(tsr_stream *stream, uint64_t *out_ns);
typedef struct tsr_attention_params {
    size_t struct_size;
    float scale;
    float softcap;
   _Bool 
        causal;
    int64_t window;
    const tsr_tensor *mask;
    const tsr_tensor *q_lengths, *kv_lengths;
    const tsr_tensor *pages;
    const int32_t *kv_head;
    const tsr_tensor *sinks;
    tsr_tensor *dsinks;
    float temperature;
    int64_t temperature_length;
    const tsr_tensor *starts;
} tsr_attention_params;
TSR_API tsr_status tsr_attention(tsr_stream *stream, tsr_tensor *y, tsr_tensor *lse,
                                               const tsr_tensor *q, const tsr_tensor *k,
                                               const tsr_tensor *v,
                                               const tsr_attention_params *params);
TSR_API tsr_status tsr_attention_grad(tsr_stream *stream, tsr_tensor *dq,
                                                    tsr_tensor *dk, tsr_tensor *dv,
                                                    const tsr_tensor *dy, const tsr_tensor *y,
                                                    const tsr_tensor *lse, const tsr_tensor *q,
                                                    const tsr_tensor *k, const tsr_tensor *v,
                                                    const tsr_attention_params *params);
typedef struct tsr_comm tsr_comm;
typedef struct tsr_request tsr_request;
typedef enum tsr_bootstrap {
    TSR_BOOTSTRAP_AUTO = 0,
    TSR_BOOTSTRAP_PMIX = 1,
    TSR_BOOTSTRAP_ENV = 2,
    TSR_BOOTSTRAP_CALLBACK = 3,
    TSR_BOOTSTRAP_SINGLE = 4,
    TSR_BOOTSTRAP_JOIN = 5
} tsr_bootstrap;
typedef int (*tsr_all_gather_fn)(void *user, const void *mine, uint64_t size_bytes, void *all);
typedef struct tsr_comm_params {
    size_t struct_size;
    tsr_bootstrap bootstrap;
    uint64_t timeout_ns;
   _Bool 
        reproducible;
    int rank, size;
    tsr_all_gather_fn all_gather;
    void *user;
} tsr_comm_params;
TSR_API tsr_status tsr_comm_create(const tsr_comm_params *params, tsr_comm **out);
TSR_API void tsr_comm_destroy(tsr_comm **comm);
TSR_API tsr_status tsr_comm_split(tsr_comm *comm, int colour, int key,
                                                tsr_comm **out);
TSR_API tsr_status tsr_comm_duplicate(tsr_comm *comm, tsr_comm **out);
typedef struct tsr_comm_shrink_params {
    size_t struct_size;
    uint64_t timeout_ns;
   _Bool 
        force;
} tsr_comm_shrink_params;
TSR_API tsr_status tsr_comm_shrink(tsr_comm *comm,
                                                 const tsr_comm_shrink_params *params,
                                                 tsr_comm **out);
typedef struct tsr_comm_grow_params {
    size_t struct_size;
    int count;
    uint64_t timeout_ns;
} tsr_comm_grow_params;
TSR_API tsr_status tsr_comm_grow(tsr_comm *comm, const tsr_comm_grow_params *params,
                                               tsr_comm **out);
TSR_API int tsr_comm_rank(const tsr_comm *comm);
TSR_API int tsr_comm_size(const tsr_comm *comm);
TSR_API int tsr_comm_local_rank(const tsr_comm *comm);
TSR_API int tsr_comm_local_size(const tsr_comm *comm);
TSR_API int tsr_comm_host_count(const tsr_comm *comm);
TSR_API int tsr_comm_host(const tsr_comm *comm, int rank);
TSR_API uint64_t tsr_comm_set_timeout(tsr_comm *comm, uint64_t timeout_ns);
TSR_API tsr_status tsr_comm_status(const tsr_comm *comm);
TSR_API tsr_status tsr_request_test(tsr_request **request, 
                                                                        _Bool 
                                                                             *done);
TSR_API tsr_status tsr_request_wait(tsr_request **request);
TSR_API void tsr_request_cancel(tsr_request **request);
typedef enum tsr_op {
    TSR_OP_SUM = 1,
    TSR_OP_AVG = 2,
    TSR_OP_MIN = 3,
    TSR_OP_MAX = 4,
    TSR_OP_PROD = 5
} tsr_op;
TSR_API tsr_status tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype, tsr_op op,
                                                     tsr_request **request);
TSR_API tsr_status tsr_comm_reduce(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, tsr_op op,
                                                 int root, tsr_request **request);
TSR_API tsr_status tsr_comm_reduce_scatter(tsr_comm *comm, const void *send,
                                                         void *recv, uint64_t count,
                                                         tsr_dtype dtype, tsr_op op,
                                                         tsr_request **request);
TSR_API tsr_status tsr_comm_reduce_scatter_v(tsr_comm *comm, const void *send,
                                                           void *recv, const uint64_t *counts,
                                                           tsr_dtype dtype, tsr_op op,
                                                           tsr_request **request);
TSR_API tsr_status tsr_comm_all_gather(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype,
                                                     tsr_request **request);
TSR_API tsr_status tsr_comm_all_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                       const uint64_t *counts, tsr_dtype dtype,
                                                       tsr_request **request);
TSR_API tsr_status tsr_comm_broadcast(tsr_comm *comm, void *data, uint64_t count,
                                                    tsr_dtype dtype, int root,
                                                    tsr_request **request);
TSR_API tsr_status tsr_comm_gather(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, int root,
                                                 tsr_request **request);
TSR_API tsr_status tsr_comm_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                   const uint64_t *counts, tsr_dtype dtype,
                                                   int root, tsr_request **request);
TSR_API tsr_status tsr_comm_scatter(tsr_comm *comm, const void *send, void *recv,
                                                  uint64_t count, tsr_dtype dtype, int root,
                                                  tsr_request **request);
TSR_API tsr_status tsr_comm_scatter_v(tsr_comm *comm, const void *send, void *recv,
                                                    const uint64_t *counts, tsr_dtype dtype,
                                                    int root, tsr_request **request);
TSR_API tsr_status tsr_comm_all_to_all(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype,
                                                     tsr_request **request);
TSR_API tsr_status tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                                       const uint64_t *send_counts, void *recv,
                                                       const uint64_t *recv_counts, tsr_dtype dtype,
                                                       tsr_request **request);
TSR_API tsr_status tsr_comm_barrier(tsr_comm *comm, tsr_request **request);
TSR_API tsr_status tsr_comm_send(tsr_comm *comm, const void *data, uint64_t count,
                                               tsr_dtype dtype, int to, int tag,
                                               tsr_request **request);
TSR_API tsr_status tsr_comm_recv(tsr_comm *comm, void *data, uint64_t count,
                                               tsr_dtype dtype, int from, int tag,
                                               tsr_request **request);
typedef enum tsr_activation {
    TSR_ACT_NONE = 0,
    TSR_ACT_RELU = 1,
    TSR_ACT_GELU_TANH = 2,
    TSR_ACT_GELU_ERF = 3,
    TSR_ACT_SILU = 4
} tsr_activation;
typedef enum tsr_precision {
    TSR_PRECISION_DEFAULT = 0,
    TSR_PRECISION_HIGHEST = 1,
    TSR_PRECISION_HIGH = 2,
    TSR_PRECISION_MEDIUM = 3
} tsr_precision;
typedef enum tsr_expert_activation {
    TSR_EXPERT_SWIGLU = 0,
    TSR_EXPERT_GEGLU = 1,
    TSR_EXPERT_SWIGLU_OAI = 2
} tsr_expert_activation;
typedef enum tsr_norm_kind {
    TSR_NORM_LAYER = 0,
    TSR_NORM_RMS = 1
} tsr_norm_kind;
typedef enum tsr_pass { TSR_PASS_FORWARD = 0, TSR_PASS_BACKWARD = 1 } tsr_pass;
typedef enum tsr_optimizer_kind {
    TSR_OPTIMIZER_ADAMW = 0,
    TSR_OPTIMIZER_SGD = 1,
    TSR_OPTIMIZER_NONE = 2
} tsr_optimizer_kind;
typedef struct tsr_group tsr_group;
typedef struct tsr_group_params {
    size_t struct_size;
   _Bool 
        force_staging;
    uint64_t piece_bytes;
    tsr_dtype wire;
   _Bool 
        allow_int8;
    tsr_precision precision;
} tsr_group_params;
TSR_API tsr_status tsr_group_create(tsr_comm *comm, tsr_stream *stream,
                                                  const tsr_group_params *params, tsr_group **out);
TSR_API void tsr_group_destroy(tsr_group **group);
TSR_API void tsr_group_set_default(tsr_group *group);
TSR_API tsr_group *tsr_group_default(void);
TSR_API int tsr_group_rank(const tsr_group *group);
TSR_API int tsr_group_size(const tsr_group *group);
TSR_API tsr_stream *tsr_group_stream(const tsr_group *group);
TSR_API tsr_comm *tsr_group_comm(const tsr_group *group);
typedef struct tsr_collective_params {
    size_t struct_size;
    tsr_dtype wire;
    const int64_t *sizes;
} tsr_collective_params;
TSR_API tsr_status tsr_group_all_reduce(tsr_group *group, tsr_tensor *tensor,
                                                      tsr_op op,
                                                      const tsr_collective_params *params,
                                                      tsr_request **request);
TSR_API tsr_status tsr_group_broadcast(tsr_group *group, tsr_tensor *tensor, int root,
                                                     tsr_request **request);
TSR_API tsr_status tsr_group_all_gather(tsr_group *group, tsr_tensor *out,
                                                      const tsr_tensor *in, int dim,
                                                      const tsr_collective_params *params,
                                                      tsr_request **request);
TSR_API tsr_status tsr_group_reduce_scatter(tsr_group *group, tsr_tensor *out,
                                                          const tsr_tensor *in, int dim, tsr_op op,
                                                          const tsr_collective_params *params,
                                                          tsr_request **request);
typedef struct tsr_group_stats {
    size_t struct_size;
    uint64_t operations;
    uint64_t size_bytes;
    uint64_t device_ns;
    uint64_t transport_ns;
   _Bool 
        staged;
} tsr_group_stats;
TSR_API tsr_status tsr_group_get_stats(const tsr_group *group, tsr_group_stats *out);
TSR_API void tsr_group_reset_stats(tsr_group *group);
typedef struct tsr_shard_range {
    uint64_t start;
    uint64_t count;
} tsr_shard_range;
typedef enum tsr_partition_kind {
    TSR_PARTITION_EVEN = 0,
    TSR_PARTITION_STRICT = 1,
    TSR_PARTITION_UNEVEN = 2,
    TSR_PARTITION_WEIGHTED = 3
} tsr_partition_kind;
typedef struct tsr_partition_params {
    size_t struct_size;
    tsr_partition_kind kind;
    const double *rates;
    const uint64_t *limits;
    uint64_t align;
} tsr_partition_params;
TSR_API tsr_status tsr_partition(uint64_t length, int ranks,
                                               const tsr_partition_params *params,
                                               tsr_shard_range *ranges);
typedef struct tsr_shard_param {
    size_t struct_size;
    const char *name;
    int ndim;
    int64_t shape[8];
    const char *dtype;
    const char *layer;
   _Bool 
        always_gather;
    uint64_t count;
    uint64_t size_bytes;
    uint64_t block_count;
    uint64_t block_bytes;
    uint64_t offset_bytes;
    const char *file;
} tsr_shard_param;
TSR_API int tsr_shard_compare_names(const char *a, const char *b);
typedef struct tsr_shard_request {
    uint64_t param_count;
    const tsr_shard_param *params;
    int ranks;
    const double *rates;
    const uint64_t *memory_bytes;
} tsr_shard_request;
TSR_API const tsr_shard_param *tsr_shard_request_param(const tsr_shard_request *request,
                                                       uint64_t index);
typedef struct tsr_shard_strategy {
    size_t struct_size;
    const char *name;
    tsr_status (*assign)(void *user, const tsr_shard_request *request, tsr_shard_range *ranges);
    void *user;
    void (*destroy)(void *user);
} tsr_shard_strategy;
typedef enum tsr_shard_kind {
    TSR_SHARD_FULL = 0,
    TSR_SHARD_LAYERWISE = 1,
    TSR_SHARD_HYBRID = 2,
    TSR_SHARD_WEIGHTED = 3
} tsr_shard_kind;
TSR_API const char *tsr_shard_kind_name(tsr_shard_kind kind);
TSR_API tsr_status tsr_shard_kind_parse(const char *name, tsr_shard_kind *out);
typedef struct tsr_shard_strategy_params {
    size_t struct_size;
    tsr_shard_kind kind;
    tsr_partition_kind partition;
    uint64_t align;
    const char *const *full_layers;
    const char *const *layerwise_layers;
} tsr_shard_strategy_params;
TSR_API tsr_status tsr_shard_strategy_create(const tsr_shard_strategy_params *params,
                                                           tsr_shard_strategy **out);
TSR_API void tsr_shard_strategy_destroy(tsr_shard_strategy **strategy);
typedef struct tsr_shard_plan tsr_shard_plan;
typedef struct tsr_shard_plan_params {
    size_t struct_size;
    int ranks;
    const char *const *gather;
    const double *rates;
    const uint64_t *memory_bytes;
} tsr_shard_plan_params;
TSR_API tsr_status tsr_shard_plan_create(const tsr_shard_strategy *strategy,
                                                       uint64_t param_count,
                                                       const tsr_shard_param *params,
                                                       const tsr_shard_plan_params *options,
                                                       tsr_shard_plan **out);
TSR_API void tsr_shard_plan_destroy(tsr_shard_plan **plan);
TSR_API int tsr_shard_plan_ranks(const tsr_shard_plan *plan);
TSR_API uint64_t tsr_shard_plan_param_count(const tsr_shard_plan *plan);
TSR_API const tsr_shard_param *tsr_shard_plan_param(const tsr_shard_plan *plan, uint64_t index);
TSR_API tsr_status tsr_shard_plan_find(const tsr_shard_plan *plan, const char *name,
                                                     uint64_t *param);
TSR_API tsr_status tsr_shard_plan_range(const tsr_shard_plan *plan, uint64_t param,
                                                      int rank, tsr_shard_range *range);
TSR_API tsr_status tsr_shard_plan_owner(const tsr_shard_plan *plan, uint64_t param,
                                                      uint64_t element, int *rank);
typedef struct tsr_shard_rank_total {
    size_t struct_size;
    uint64_t sharded_bytes;
    uint64_t gathered_bytes;
    uint64_t total_bytes;
    uint64_t shard_count;
} tsr_shard_rank_total;
TSR_API tsr_status tsr_shard_plan_get_rank_total(const tsr_shard_plan *plan, int rank,
                                                               tsr_shard_rank_total *total);
typedef struct tsr_shard_summary {
    size_t struct_size;
    const char *strategy;
    const double *rates;
    const uint64_t *memory_bytes;
    uint64_t model_bytes;
    uint64_t sharded_bytes;
    uint64_t gathered_bytes;
    uint64_t gathered_count;
    uint64_t max_bytes;
    uint64_t least_bytes;
    double imbalance;
} tsr_shard_summary;
TSR_API tsr_status tsr_shard_plan_get_summary(const tsr_shard_plan *plan,
                                                            tsr_shard_summary *summary);
TSR_API tsr_status tsr_shard_plan_check(const tsr_shard_plan *plan,
                                                      uint64_t param_count,
                                                      const tsr_shard_param *params);
TSR_API tsr_status tsr_shard_plan_save_json(const tsr_shard_plan *plan,
                                                          size_t capacity_bytes, char *text,
                                                          size_t *size_bytes);
TSR_API tsr_status tsr_shard_plan_load_json(const char *text, size_t size_bytes,
                                                          tsr_shard_plan **out);
typedef struct tsr_shard_list tsr_shard_list;
typedef enum tsr_shard_format {
    TSR_SHARD_SAFETENSORS = 0,
    TSR_SHARD_GGUF = 1,
    TSR_SHARD_JSON = 2,
    TSR_SHARD_INDEX = 3
} tsr_shard_format;
TSR_API const char *tsr_shard_format_name(tsr_shard_format format);
TSR_API tsr_status tsr_shard_list_open(const char *path, tsr_shard_list **out);
TSR_API void tsr_shard_list_destroy(tsr_shard_list **list);
TSR_API tsr_shard_format tsr_shard_list_format(const tsr_shard_list *list);
TSR_API uint64_t tsr_shard_list_param_count(const tsr_shard_list *list);
TSR_API const tsr_shard_param *tsr_shard_list_param(const tsr_shard_list *list, uint64_t index);
typedef struct tsr_calibrate_params {
    size_t struct_size;
    int64_t rows, inner, columns;
    tsr_dtype dtype;
    uint64_t duration_ns;
} tsr_calibrate_params;
TSR_API tsr_status tsr_calibrate(tsr_group *group, const tsr_calibrate_params *params,
                                               double *rates);
TSR_API double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges,
                                        const double *rates);
typedef struct tsr_tokenizer tsr_tokenizer;
typedef enum tsr_tokenizer_kind {
    TSR_TOKENIZER_SPM = 0,
    TSR_TOKENIZER_BPE = 1,
    TSR_TOKENIZER_BYTE_BPE = 2
} tsr_tokenizer_kind;
TSR_API tsr_status tsr_tokenizer_open(const char *path, tsr_tokenizer **out);
TSR_API void tsr_tokenizer_close(tsr_tokenizer **tokenizer);
TSR_API const char *tsr_tokenizer_kind_name(tsr_tokenizer_kind kind);
typedef struct tsr_tokenizer_info {
    size_t struct_size;
    tsr_tokenizer_kind kind;
    const char *words;
    int32_t bos, eos, pad, unknown;
} tsr_tokenizer_info;
TSR_API tsr_status tsr_tokenizer_get_info(const tsr_tokenizer *tokenizer,
                                                        tsr_tokenizer_info *out);
TSR_API int32_t tsr_tokenizer_size(const tsr_tokenizer *tokenizer);
TSR_API 
       _Bool 
            tsr_tokenizer_is_end(const tsr_tokenizer *tokenizer, int32_t id);
TSR_API int32_t tsr_tokenizer_find(const tsr_tokenizer *tokenizer, const char *text, size_t size);
typedef struct tsr_token_info {
    size_t struct_size;
    const char *text;
    size_t size_bytes;
   _Bool 
        control;
} tsr_token_info;
TSR_API tsr_status tsr_tokenizer_get_token(const tsr_tokenizer *tokenizer, int32_t id,
                                                         tsr_token_info *out);
typedef enum tsr_encode_add {
    TSR_ENCODE_ADD_DEFAULT = 0,
    TSR_ENCODE_ADD_NONE = 1
} tsr_encode_add;
typedef enum tsr_encode_control {
    TSR_ENCODE_CONTROL_TEXT = 0,
    TSR_ENCODE_CONTROL_TOKEN = 1
} tsr_encode_control;
typedef struct tsr_encode_params {
    size_t struct_size;
    tsr_encode_add add;
    tsr_encode_control control;
} tsr_encode_params;
TSR_API tsr_status tsr_tokenizer_encode(const tsr_tokenizer *tokenizer,
                                                      const void *text, size_t size_bytes,
                                                      const tsr_encode_params *params,
                                                      int32_t **ids, uint64_t *count);
TSR_API void tsr_tokenizer_free_ids(int32_t **ids);
typedef enum tsr_decode_control {
    TSR_DECODE_CONTROL_SKIP = 0,
    TSR_DECODE_CONTROL_SPELL = 1
} tsr_decode_control;
typedef struct tsr_decode_state {
    size_t struct_size;
    tsr_decode_control control;
    int32_t place;
} tsr_decode_state;
TSR_API tsr_status tsr_tokenizer_decode_next(const tsr_tokenizer *tokenizer,
                                                           tsr_decode_state *state, int32_t id,
                                                           const char **bytes, size_t *size_bytes);
TSR_API tsr_status tsr_tokenizer_decode(const tsr_tokenizer *tokenizer,
                                                      const int32_t *ids, uint64_t count,
                                                      tsr_decode_control control,
                                                      size_t capacity_bytes, char *text,
                                                      size_t *size_bytes);
typedef struct tsr_text_stream tsr_text_stream;
typedef enum tsr_text_invalid {
    TSR_TEXT_INVALID_KEEP = 0,
    TSR_TEXT_INVALID_REPLACE = 1
} tsr_text_invalid;
typedef struct tsr_text_stream_params {
    size_t struct_size;
    const tsr_tokenizer *tokenizer;
    const char *const *stops;
    int stop_count;
    tsr_decode_control control;
    tsr_text_invalid invalid;
   _Bool 
        channels;
} tsr_text_stream_params;
TSR_API tsr_status tsr_text_stream_create(const tsr_text_stream_params *params,
                                                        tsr_text_stream **out);
TSR_API void tsr_text_stream_destroy(tsr_text_stream **stream);
TSR_API tsr_status tsr_text_stream_add_prompt(tsr_text_stream *stream, int32_t id,
                                                            const char **text, size_t *size_bytes);
TSR_API tsr_status tsr_text_stream_add(tsr_text_stream *stream, int32_t id,
                                                     const char **text, size_t *size_bytes,
                                                    _Bool 
                                                         *stopped);
TSR_API tsr_status tsr_text_stream_end(tsr_text_stream *stream, const char **text,
                                                     size_t *size_bytes);
typedef enum tsr_text_channel {
    TSR_TEXT_ANSWER = 0,
    TSR_TEXT_REASONING = 1,
    TSR_TEXT_COMMENTARY = 2
} tsr_text_channel;
TSR_API tsr_text_channel tsr_text_stream_channel(const tsr_text_stream *stream);
TSR_API const char *tsr_text_stream_recipient(const tsr_text_stream *stream);
typedef enum tsr_chat_format {
    TSR_CHAT_MODEL = 0,
    TSR_CHAT_CHATML = 1,
    TSR_CHAT_LLAMA2 = 2,
    TSR_CHAT_LLAMA3 = 3,
    TSR_CHAT_MISTRAL = 4,
    TSR_CHAT_MISTRAL_V1 = 5,
    TSR_CHAT_MISTRAL_V3 = 6,
    TSR_CHAT_MISTRAL_TEKKEN = 7,
    TSR_CHAT_MISTRAL_V7 = 8,
    TSR_CHAT_MISTRAL_V7_TEKKEN = 9,
    TSR_CHAT_ZEPHYR = 10,
    TSR_CHAT_VICUNA = 11,
    TSR_CHAT_DEEPSEEK = 12,
    TSR_CHAT_GEMMA = 13,
    TSR_CHAT_GEMMA4 = 14,
    TSR_CHAT_PHI3 = 15,
    TSR_CHAT_PHI4 = 16,
    TSR_CHAT_PHI4_MINI = 17,
    TSR_CHAT_GRANITE = 18,
    TSR_CHAT_OLMO2 = 19,
    TSR_CHAT_GLM4 = 20,
    TSR_CHAT_GLM45 = 21,
    TSR_CHAT_MINIMAX_M2 = 22,
    TSR_CHAT_HARMONY = 23,
    TSR_CHAT_MISTRAL_V11_TEKKEN = 24,
    TSR_CHAT_MISTRAL_V13_TEKKEN = 25
} tsr_chat_format;
TSR_API const char *tsr_chat_format_name(tsr_chat_format format);
TSR_API tsr_status tsr_chat_format_parse(const char *name, tsr_chat_format *out);
TSR_API tsr_status tsr_chat_format_of(const tsr_tokenizer *tokenizer,
                                                    tsr_chat_format *out);
typedef enum tsr_chat_role {
    TSR_CHAT_SYSTEM = 0,
    TSR_CHAT_USER = 1,
    TSR_CHAT_ASSISTANT = 2,
    TSR_CHAT_TOOLS = 3,
    TSR_CHAT_CALLS = 4,
    TSR_CHAT_RESULT = 5,
    TSR_CHAT_REASONING = 6,
    TSR_CHAT_PREAMBLE = 7
} tsr_chat_role;
typedef struct tsr_chat_message {
    size_t struct_size;
    tsr_chat_role role;
    const void *text;
    size_t size_bytes;
    const char *tool;
    const char *call_id;
} tsr_chat_message;
typedef enum tsr_chat_after {
    TSR_CHAT_AFTER_NOTHING = 0,
    TSR_CHAT_AFTER_END = 1,
    TSR_CHAT_AFTER_CUT = 2
} tsr_chat_after;
typedef enum tsr_chat_reasoning {
    TSR_CHAT_REASONING_DEFAULT = 0,
    TSR_CHAT_REASONING_NONE = 1,
    TSR_CHAT_REASONING_LOW = 2,
    TSR_CHAT_REASONING_MEDIUM = 3,
    TSR_CHAT_REASONING_HIGH = 4
} tsr_chat_reasoning;
typedef struct tsr_chat_params {
    size_t struct_size;
    tsr_chat_format format;
    const tsr_chat_message *messages;
    int count;
    tsr_chat_after after;
   _Bool 
        begin_reply;
    tsr_chat_reasoning reasoning;
} tsr_chat_params;
TSR_API tsr_status tsr_chat_encode(const tsr_tokenizer *tokenizer,
                                                 const tsr_chat_params *params, int32_t **ids,
                                                 uint64_t *count);
typedef struct tsr_matmul_params {
    size_t struct_size;
   _Bool 
        transpose_a, transpose_b;
    float alpha;
    const tsr_tensor *bias;
    tsr_activation activation;
   _Bool 
        accumulate;
   _Bool 
        allow_int8;
    tsr_precision precision;
} tsr_matmul_params;
TSR_API tsr_status tsr_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                            const tsr_tensor *b, const tsr_matmul_params *params);
TSR_API tsr_status tsr_copy(tsr_stream *stream, tsr_tensor *dst,
                                          const tsr_tensor *src);
TSR_API tsr_status tsr_fill(tsr_stream *stream, tsr_tensor *dst, double value);
typedef enum tsr_binary_function {
    TSR_BINARY_ADD = 1,
    TSR_BINARY_SUB = 2,
    TSR_BINARY_MUL = 3,
    TSR_BINARY_DIV = 4,
    TSR_BINARY_MINIMUM = 5,
    TSR_BINARY_MAXIMUM = 6,
    TSR_BINARY_EQUAL = 7,
    TSR_BINARY_NOT_EQUAL = 8,
    TSR_BINARY_LESS = 9,
    TSR_BINARY_LESS_EQUAL = 10,
    TSR_BINARY_GREATER = 11,
    TSR_BINARY_GREATER_EQUAL = 12
} tsr_binary_function;
TSR_API tsr_status tsr_binary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                            const tsr_tensor *b, tsr_binary_function function);
TSR_API tsr_status tsr_binary_grad(tsr_stream *stream, tsr_tensor *da, tsr_tensor *db,
                                                 const tsr_tensor *a, const tsr_tensor *b,
                                                 const tsr_tensor *dy,
                                                 tsr_binary_function function);
typedef enum tsr_unary_function {
    TSR_UNARY_EXP = 1,
    TSR_UNARY_LOG = 2,
    TSR_UNARY_SQRT = 3,
    TSR_UNARY_RSQRT = 4,
    TSR_UNARY_SIGMOID = 5,
    TSR_UNARY_TANH = 6,
    TSR_UNARY_ABS = 7,
    TSR_UNARY_NEG = 8
} tsr_unary_function;
TSR_API tsr_status tsr_unary(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           tsr_unary_function function);
TSR_API tsr_status tsr_unary_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                tsr_unary_function function);
TSR_API tsr_status tsr_clamp(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float low, float high);
TSR_API tsr_status tsr_clamp_grad(tsr_stream *stream, tsr_tensor *dx,
                                                const tsr_tensor *x, const tsr_tensor *dy,
                                                float low, float high);
TSR_API tsr_status tsr_where(tsr_stream *stream, tsr_tensor *y,
                                           const tsr_tensor *condition, const tsr_tensor *a,
                                           const tsr_tensor *b);
TSR_API tsr_status tsr_scale(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                           float scale, float shift);
TSR_API tsr_status tsr_axpy(tsr_stream *stream, tsr_tensor *y, float alpha,
                                          const tsr_tensor *x);
TSR_API tsr_status tsr_activate(tsr_stream *stream, tsr_tensor *y,
                                              const tsr_tensor *x, const tsr_tensor *b,
                                              tsr_activation activation);
TSR_API tsr_status tsr_activate_grad(tsr_stream *stream, tsr_tensor *dx,
                                                   const tsr_tensor *x, const tsr_tensor *dy,
                                                   tsr_activation activation);
typedef enum tsr_reduction {
    TSR_REDUCE_SUM = 1,
    TSR_REDUCE_MEAN = 2,
    TSR_REDUCE_MAX = 3,
    TSR_REDUCE_MIN = 4
} tsr_reduction;
TSR_API tsr_status tsr_reduce(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim, tsr_reduction reduction, 
                                                                             _Bool 
                                                                                  accumulate);
TSR_API tsr_status tsr_argmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            int dim);
TSR_API tsr_status tsr_sum_squares(tsr_stream *stream, tsr_tensor *y,
                                                 const tsr_tensor *const *x, int count,
                                                 float scale);
TSR_API tsr_status tsr_topk(tsr_stream *stream, tsr_tensor *values,
                                          tsr_tensor *indices, const tsr_tensor *x, int dim);
TSR_API tsr_status tsr_index_select(tsr_stream *stream, tsr_tensor *y,
                                                  const tsr_tensor *x, int dim,
                                                  const tsr_tensor *indices);
TSR_API tsr_status tsr_index_select_grad(tsr_stream *stream, tsr_tensor *dx,
                                                       const tsr_tensor *dy, int dim,
                                                       const tsr_tensor *indices, 
                                                                                 _Bool 
                                                                                      accumulate);
TSR_API tsr_status tsr_norm(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                          const tsr_tensor *weight, const tsr_tensor *bias,
                                          tsr_norm_kind kind, float epsilon);
TSR_API tsr_status tsr_norm_grad(tsr_stream *stream, tsr_tensor *dx,
                                               tsr_tensor *dweight, tsr_tensor *dbias,
                                               const tsr_tensor *x, const tsr_tensor *dy,
                                               const tsr_tensor *weight, tsr_norm_kind kind,
                                               float epsilon, 
                                                             _Bool 
                                                                  accumulate);
TSR_API tsr_status tsr_softmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                            _Bool 
                                                 logarithm);
TSR_API tsr_status tsr_softmax_grad(tsr_stream *stream, tsr_tensor *dx,
                                                  const tsr_tensor *y, const tsr_tensor *dy,
                                                 _Bool 
                                                      logarithm);
TSR_API tsr_status tsr_cross_entropy(tsr_stream *stream, tsr_tensor *loss,
                                                   tsr_tensor *dlogits, const tsr_tensor *logits,
                                                   const tsr_tensor *labels, float grad_scale);
typedef struct tsr_sgd_params {
    size_t struct_size;
    float learning_rate;
    float momentum;
    float dampening;
    float weight_decay;
   _Bool 
        nesterov;
   _Bool 
        first_step;
} tsr_sgd_params;
TSR_API tsr_status tsr_sgd_step(tsr_stream *stream, tsr_tensor *parameter,
                                              const tsr_tensor *gradient, tsr_tensor *velocity,
                                              tsr_tensor *master, const tsr_sgd_params *params);
typedef struct tsr_adamw_params {
    size_t struct_size;
    float learning_rate;
    float beta1, beta2;
    float epsilon;
    float weight_decay;
    int64_t step;
} tsr_adamw_params;
TSR_API tsr_status tsr_adamw_step(tsr_stream *stream, tsr_tensor *parameter,
                                                const tsr_tensor *gradient, tsr_tensor *moment1,
                                                tsr_tensor *moment2, tsr_tensor *master,
                                                const tsr_adamw_params *params);
typedef struct tsr_random_params {
    size_t struct_size;
    uint64_t seed;
    uint64_t subsequence;
    uint64_t offset;
    const int64_t *index_strides;
} tsr_random_params;
TSR_API tsr_status tsr_random_uniform(tsr_stream *stream, tsr_tensor *y, float low,
                                                    float high, const tsr_random_params *params);
TSR_API tsr_status tsr_random_normal(tsr_stream *stream, tsr_tensor *y, float mean,
                                                   float deviation,
                                                   const tsr_random_params *params);
TSR_API tsr_status tsr_dropout(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                             float p, const tsr_random_params *params);
typedef struct tsr_layer tsr_layer;
typedef struct tsr_layer_saved tsr_layer_saved;
TSR_API tsr_status tsr_layer_forward(tsr_layer *layer, const tsr_tensor *x,
                                                   tsr_layer_saved **saved, tsr_tensor **y);
TSR_API tsr_status tsr_layer_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                                    const tsr_tensor *dy, tsr_tensor **dx);
TSR_API void tsr_layer_saved_destroy(tsr_layer_saved **saved);
TSR_API void tsr_layer_destroy(tsr_layer **layer);
TSR_API tsr_group *tsr_layer_group(const tsr_layer *layer);
typedef struct tsr_parameter {
    size_t struct_size;
    const char *name;
    tsr_tensor *tensor;
    tsr_tensor *grad;
    tsr_dtype dtype;
    int ndim;
    int64_t global_shape[8];
    int shard_dim;
    int64_t offset, length;
} tsr_parameter;
TSR_API int tsr_layer_parameter_count(const tsr_layer *layer);
TSR_API const tsr_parameter *tsr_layer_parameter(const tsr_layer *layer, int index);
TSR_API tsr_status tsr_layer_find_parameter(const tsr_layer *layer, const char *name,
                                                          const tsr_parameter **out);
TSR_API void tsr_layer_zero_grad(tsr_layer *layer);
TSR_API void tsr_layer_set_frozen(tsr_layer *layer, 
                                                   _Bool 
                                                        frozen);
TSR_API tsr_status tsr_layer_set_parameter(tsr_layer *layer, int index,
                                                         tsr_tensor *tensor, tsr_tensor *grad,
                                                        _Bool 
                                                             grad_holds);
TSR_API tsr_status tsr_layer_gather_parameter(const tsr_layer *layer, int index,
                                                            tsr_tensor **out);
typedef enum tsr_layer_layout {
    TSR_LAYOUT_DEFAULT = 0,
    TSR_LAYOUT_FULL = 1,
    TSR_LAYOUT_SHARDED = 2,
    TSR_LAYOUT_GATHER = 3,
    TSR_LAYOUT_SEQUENCE = 4
} tsr_layer_layout;
typedef enum tsr_init {
    TSR_INIT_DEFAULT = 0,
    TSR_INIT_XAVIER_NORMAL = 1,
    TSR_INIT_XAVIER_UNIFORM = 2,
    TSR_INIT_KAIMING_NORMAL = 3,
    TSR_INIT_TORCH = 4,
    TSR_INIT_NORMAL = 5,
    TSR_INIT_ZEROS = 6,
    TSR_INIT_NONE = 7
} tsr_init;
typedef struct tsr_init_params {
    size_t struct_size;
    tsr_init kind;
    uint64_t seed;
    float deviation;
} tsr_init_params;
typedef struct tsr_linear_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t input_size, output_size;
   _Bool 
        bias;
    tsr_dtype dtype;
    tsr_layer_layout input;
    tsr_layer_layout output;
    int sequence_dim;
    const tsr_partition_params *partition;
    const tsr_partition_params *other_partition;
    const tsr_init_params *init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
} tsr_linear_params;
TSR_API tsr_status tsr_column_linear_create(const tsr_linear_params *params,
                                                          tsr_layer **out);
TSR_API tsr_status tsr_row_linear_create(const tsr_linear_params *params,
                                                       tsr_layer **out);
typedef struct tsr_linear_shard {
    size_t struct_size;
    tsr_tensor *weight;
    tsr_tensor *bias;
    int64_t rows, columns;
} tsr_linear_shard;
TSR_API tsr_status tsr_linear_get_shard(const tsr_layer *layer,
                                                      tsr_linear_shard *out);
typedef tsr_status (*tsr_activation_fn)(void *user, tsr_stream *stream, tsr_tensor *y,
                                        const tsr_tensor *x);
typedef tsr_status (*tsr_activation_grad_fn)(void *user, tsr_stream *stream, tsr_tensor *dx,
                                             const tsr_tensor *x, const tsr_tensor *dy);
typedef struct tsr_mlp_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t input_size, hidden_size, output_size;
   _Bool 
        bias;
   _Bool 
        gated;
    tsr_activation activation;
    tsr_activation_fn activate;
    tsr_activation_grad_fn activate_grad;
    void *user;
   _Bool 
        sequence;
    int sequence_dim;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
} tsr_mlp_params;
TSR_API tsr_status tsr_mlp_create(const tsr_mlp_params *params, tsr_layer **out);
typedef struct tsr_embedding_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t vocabulary_size, width;
    tsr_dtype dtype;
    tsr_layer_layout output;
    int sequence_dim;
    const tsr_partition_params *partition;
    const tsr_init_params *init;
    tsr_dtype grad_dtype;
   _Bool 
        deferred;
} tsr_embedding_params;
TSR_API tsr_status tsr_embedding_create(const tsr_embedding_params *params,
                                                      tsr_layer **out);
TSR_API tsr_status
tsr_vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                             const tsr_tensor *logits, const tsr_tensor *labels, int64_t classes,
                             const tsr_partition_params *partition, float grad_scale);
typedef struct tsr_checkpoint_entry {
    size_t struct_size;
    const char *name;
    tsr_dtype dtype;
    int ndim;
    int64_t shape[8];
    int shard_dim;
    int64_t offset, length;
    uint64_t first, count;
    tsr_tensor *tensor;
    void *data;
} tsr_checkpoint_entry;
TSR_API tsr_status tsr_checkpoint_get_entry(const tsr_parameter *parameter,
                                                          tsr_checkpoint_entry *out);
typedef struct tsr_checkpoint_params {
    size_t struct_size;
    const char *const *metadata;
   _Bool 
        strict;
   _Bool 
        skip_checksums;
    tsr_comm *stages;
   _Bool 
        parts;
} tsr_checkpoint_params;
TSR_API tsr_status tsr_checkpoint_save(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);
TSR_API tsr_status tsr_checkpoint_load(const char *path, tsr_comm *comm,
                                                     tsr_stream *stream, int count,
                                                     const tsr_checkpoint_entry *entries,
                                                     const tsr_checkpoint_params *params);
TSR_API tsr_status tsr_checkpoint_metadata(const char *path, tsr_comm *comm,
                                                         const tsr_checkpoint_params *params,
                                                         const char *key, size_t size, char *text);
typedef struct tsr_checkpoint_files tsr_checkpoint_files;
typedef struct tsr_checkpoint_summary {
    const char *id;
    uint64_t generation;
    const char *missing;
    int part_count;
    uint64_t tensor_count;
    const char *const *metadata;
} tsr_checkpoint_summary;
typedef struct tsr_checkpoint_part {
    const char *path;
    uint64_t size_bytes;
    uint64_t slice_count;
   _Bool 
        has_checksums;
} tsr_checkpoint_part;
typedef struct tsr_checkpoint_tensor {
    const char *name;
    tsr_dtype dtype;
    int ndim;
    int64_t shape[8];
    uint64_t slice_count;
} tsr_checkpoint_tensor;
typedef struct tsr_checkpoint_slice {
    size_t struct_size;
    int part;
    int dim;
    int64_t offset, length;
    uint64_t first, count;
    char text[192];
} tsr_checkpoint_slice;
TSR_API tsr_status tsr_checkpoint_files_open(int count, const char *const *paths,
                                                           tsr_checkpoint_files **out);
TSR_API void tsr_checkpoint_files_close(tsr_checkpoint_files **files);
TSR_API const tsr_checkpoint_summary *
tsr_checkpoint_files_summary(const tsr_checkpoint_files *files);
TSR_API const tsr_checkpoint_part *tsr_checkpoint_files_part(const tsr_checkpoint_files *files,
                                                             int index);
TSR_API const tsr_checkpoint_tensor *tsr_checkpoint_files_tensor(const tsr_checkpoint_files *files,
                                                                 uint64_t index);
TSR_API tsr_status tsr_checkpoint_files_get_slice(const tsr_checkpoint_files *files,
                                                                uint64_t tensor, uint64_t index,
                                                                tsr_checkpoint_slice *out);
TSR_API tsr_status tsr_checkpoint_files_verify(const tsr_checkpoint_files *files);
TSR_API tsr_status tsr_checkpoint_files_merge(const tsr_checkpoint_files *files,
                                                            const char *path);
typedef enum tsr_gating {
    TSR_GATING_SOFTMAX = 0,
    TSR_GATING_SIGMOID = 1,
    TSR_GATING_SOFTMAX_CHOSEN = 2
} tsr_gating;
typedef struct tsr_route_params {
    size_t struct_size;
    tsr_gating gating;
    const tsr_tensor *bias;
    int groups, groups_used;
   _Bool 
        normalise;
    float least_sum, epsilon;
    float scale;
} tsr_route_params;
TSR_API tsr_status tsr_route(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
                                           const tsr_tensor *logits,
                                           const tsr_route_params *params);
TSR_API tsr_status tsr_route_grad(tsr_stream *stream, tsr_tensor *dlogits,
                                                const tsr_tensor *logits, const tsr_tensor *ids,
                                                const tsr_tensor *dweights,
                                                const tsr_tensor *dprobabilities,
                                                const tsr_route_params *params);
TSR_API tsr_status tsr_route_sort(tsr_stream *stream, tsr_tensor *order,
                                                tsr_tensor *offsets, const tsr_tensor *ids);
typedef struct tsr_matmul_grouped_params {
    size_t struct_size;
    const tsr_tensor *order, *offsets;
   _Bool 
        transpose_w;
    const tsr_tensor *bias;
    const tsr_tensor *weights;
    const tsr_tensor *up, *up_bias;
    tsr_expert_activation activation;
    float limit;
   _Bool 
        accumulate;
    int64_t all_experts;
} tsr_matmul_grouped_params;
TSR_API tsr_status tsr_matmul_grouped(tsr_stream *stream, tsr_tensor *y,
                                                    const tsr_tensor *x, const tsr_tensor *w,
                                                    const tsr_tensor *ids,
                                                    const tsr_matmul_grouped_params *params);
TSR_API tsr_status tsr_matmul_grouped_grad(tsr_stream *stream, tsr_tensor *dw,
                                                         const tsr_tensor *dy, const tsr_tensor *x,
                                                         const tsr_tensor *order,
                                                         const tsr_tensor *offsets, int64_t chosen,
                                                        _Bool 
                                                             accumulate);
typedef struct tsr_moe_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t input_size, hidden_size;
    int64_t experts, experts_used;
    const tsr_route_params *route;
   _Bool 
        router_bias;
   _Bool 
        choice_bias;
   _Bool 
        bias;
    tsr_expert_activation activation;
    float limit;
    int64_t shared_size;
   _Bool 
        shared_gate;
   _Bool 
        whole_experts;
    const tsr_partition_params *partition, *shared_partition;
    tsr_dtype dtype;
    const tsr_init_params *init, *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
   _Bool 
        deferred;
   _Bool 
        experts_over_data;
    const int *teams;
   _Bool 
        input_norm;
   _Bool 
        router_norm;
   _Bool 
        expert_scale;
    float norm_epsilon;
} tsr_moe_params;
TSR_API tsr_status tsr_moe_create(const tsr_moe_params *params, tsr_layer **out);
typedef struct tsr_moe_choice {
    size_t struct_size;
    const tsr_tensor *logits, *ids, *weights;
} tsr_moe_choice;
TSR_API tsr_status tsr_moe_get_choice(const tsr_layer_saved *saved,
                                                    tsr_moe_choice *out);
TSR_API tsr_status tsr_moe_set_balance(tsr_layer *layer,
                                                     const tsr_tensor *dprobabilities);
TSR_API double tsr_pipeline_bubble(int stages, int micro_batches);
typedef struct tsr_pipeline_divide_params {
    size_t struct_size;
    int blocks, stages;
    const double *rates;
    double first_cost, last_cost;
    const uint64_t *memory_bytes;
    uint64_t block_bytes;
    uint64_t first_bytes, last_bytes;
    uint64_t activation_bytes;
    int micro_batches;
} tsr_pipeline_divide_params;
TSR_API tsr_status tsr_pipeline_divide(const tsr_pipeline_divide_params *params,
                                                     int *counts);
typedef struct tsr_pipeline tsr_pipeline;
typedef struct tsr_pipeline_params {
    size_t struct_size;
    tsr_comm *comm;
    tsr_stream *stream;
    const tsr_group_params *group;
} tsr_pipeline_params;
TSR_API tsr_status tsr_pipeline_create(const tsr_pipeline_params *params,
                                                     tsr_pipeline **out);
TSR_API void tsr_pipeline_destroy(tsr_pipeline **pipeline);
typedef tsr_status (*tsr_pipeline_forward_fn)(void *user, int micro_batch, const tsr_tensor *x,
                                              tsr_tensor **y);
typedef tsr_status (*tsr_pipeline_backward_fn)(void *user, int micro_batch, const tsr_tensor *dy,
                                               tsr_tensor **dx);
typedef struct tsr_pipeline_run_params {
    size_t struct_size;
    int micro_batches;
    tsr_dtype dtype;
    int ndim;
    int64_t shape[8];
    tsr_pipeline_forward_fn forward;
    tsr_pipeline_backward_fn backward;
    void *user;
} tsr_pipeline_run_params;
TSR_API tsr_status tsr_pipeline_run(tsr_pipeline *pipeline,
                                                  const tsr_pipeline_run_params *params);
TSR_API tsr_status tsr_pipeline_reduce_ends(tsr_pipeline *pipeline,
                                                          tsr_tensor *tensor);
typedef struct tsr_pipeline_stats {
    size_t struct_size;
    uint64_t runs;
    uint64_t run_ns;
    uint64_t wait_ns;
    uint64_t sent_bytes, received_bytes;
} tsr_pipeline_stats;
TSR_API tsr_status tsr_pipeline_get_stats(const tsr_pipeline *pipeline,
                                                        tsr_pipeline_stats *out);
typedef struct tsr_kv_cache tsr_kv_cache;
typedef struct tsr_kv_cache_params {
    size_t struct_size;
    tsr_stream *stream;
    int layers;
    int64_t kv_heads, head_dim;
    tsr_dtype dtype;
    int64_t page_tokens;
    int64_t pages;
    int sequences;
    const int64_t *layer_kv_heads, *layer_head_dims;
    const int64_t *layer_conv_floats, *layer_state_floats;
    int kept_tokens, kept_sequences;
    int64_t snapshot_tokens;
    int snapshots;
    const int64_t *layer_value_dims;
    const 
         _Bool 
              *layer_values_in_keys;
} tsr_kv_cache_params;
TSR_API tsr_status tsr_kv_cache_create(const tsr_kv_cache_params *params,
                                                     tsr_kv_cache **out);
TSR_API void tsr_kv_cache_destroy(tsr_kv_cache **cache);
TSR_API tsr_status tsr_kv_cache_add(tsr_kv_cache *cache, int source, int *out);
TSR_API tsr_status tsr_kv_cache_truncate(tsr_kv_cache *cache, int sequence,
                                                       int64_t length);
TSR_API int64_t tsr_kv_cache_restorable(const tsr_kv_cache *cache, int sequence, int64_t length);
TSR_API tsr_status tsr_kv_cache_remove(tsr_kv_cache *cache, int sequence);
TSR_API int64_t tsr_kv_cache_length(const tsr_kv_cache *cache, int sequence);
TSR_API int64_t tsr_kv_cache_free_pages(const tsr_kv_cache *cache);
TSR_API tsr_status tsr_kv_cache_begin(tsr_kv_cache *cache, int count,
                                                    const int *sequences, const int64_t *tokens,
                                                    tsr_tensor **positions);
TSR_API tsr_status tsr_kv_cache_append(tsr_kv_cache *cache, int layer,
                                                     const tsr_tensor *k, const tsr_tensor *v);
TSR_API tsr_status tsr_kv_cache_attention(tsr_kv_cache *cache, int layer,
                                                        tsr_tensor *y, tsr_tensor *lse,
                                                        const tsr_tensor *q,
                                                        const tsr_attention_params *params);
typedef struct tsr_rope tsr_rope;
typedef enum tsr_rope_pairing {
    TSR_ROPE_HALVES = 0,
    TSR_ROPE_ADJACENT = 1
} tsr_rope_pairing;
typedef enum tsr_rope_scaling {
    TSR_ROPE_SCALING_NONE = 0,
    TSR_ROPE_SCALING_LINEAR = 1,
    TSR_ROPE_SCALING_LLAMA3 = 2,
    TSR_ROPE_SCALING_YARN = 3,
    TSR_ROPE_SCALING_DIVISORS = 4
} tsr_rope_scaling;
typedef struct tsr_rope_params {
    size_t struct_size;
    int64_t rotary_dim;
    tsr_rope_pairing pairing;
    double theta;
    tsr_rope_scaling scaling;
    double factor;
    double original_length;
    double low_frequency_factor, high_frequency_factor;
    double beta_fast, beta_slow;
    double attention_factor;
    const float *divisors;
   _Bool 
        exact_range;
} tsr_rope_params;
TSR_API tsr_status tsr_rope_create(tsr_stream *stream, const tsr_rope_params *params,
                                                 tsr_rope **out);
TSR_API void tsr_rope_destroy(tsr_rope **rope);
TSR_API tsr_status tsr_rope_apply(tsr_stream *stream, const tsr_rope *rope,
                                                tsr_tensor *y, const tsr_tensor *x,
                                                const tsr_tensor *positions);
TSR_API tsr_status tsr_rope_grad(tsr_stream *stream, const tsr_rope *rope,
                                               tsr_tensor *dx, const tsr_tensor *dy,
                                               const tsr_tensor *positions);
typedef struct tsr_norm_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;
    tsr_norm_kind kind;
   _Bool 
        bias;
    float epsilon;
   _Bool 
        sequence;
    tsr_dtype dtype, grad_dtype;
   _Bool 
        deferred;
} tsr_norm_params;
TSR_API tsr_status tsr_norm_create(const tsr_norm_params *params, tsr_layer **out);
typedef enum tsr_qk_norm {
    TSR_QK_NORM_NONE = 0,
    TSR_QK_NORM_HEADS = 1,
    TSR_QK_NORM_WHOLE = 2
} tsr_qk_norm;
typedef struct tsr_self_attention_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;
    int64_t heads, kv_heads;
    int64_t head_dim;
   _Bool 
        bias;
   _Bool 
        output_bias;
    const tsr_rope_params *rope;
    tsr_qk_norm qk_norm;
    float norm_epsilon;
    tsr_dtype norm_dtype;
   _Bool 
        causal;
    int64_t window;
    float scale, softcap;
   _Bool 
        sinks;
   _Bool 
        sequence;
    int sequence_dim;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
    float temperature;
    int64_t temperature_length;
   _Bool 
        output_gate;
   _Bool 
        value_norm;
   _Bool 
        keys_as_values;
   _Bool 
        shared_keys;
    int64_t value_dim;
    tsr_group *context_group;
} tsr_self_attention_params;
TSR_API tsr_status tsr_self_attention_create(const tsr_self_attention_params *params,
                                                           tsr_layer **out);
TSR_API tsr_status tsr_context_divide(int64_t tokens, int ranks,
                                                    const tsr_partition_params *partition, int rank,
                                                    tsr_shard_range chunks[2]);
typedef struct tsr_heads {
    size_t struct_size;
    int64_t first, count, kv_first, kv_count, head_dim;
    int64_t value_dim;
   _Bool 
        values_in_keys;
    int64_t conv_floats, state_floats;
} tsr_heads;
TSR_API tsr_status tsr_self_attention_get_heads(const tsr_layer *layer,
                                                              tsr_heads *out);
typedef struct tsr_delta_net_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;
    int64_t key_heads, heads;
    int64_t key_dim, value_dim;
    int taps;
    float norm_epsilon;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
   _Bool 
        tiled_heads;
    tsr_group *context_group;
} tsr_delta_net_params;
TSR_API tsr_status tsr_delta_net_create(const tsr_delta_net_params *params,
                                                      tsr_layer **out);
typedef struct tsr_short_conv_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;
    int taps;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
    tsr_group *context_group;
} tsr_short_conv_params;
TSR_API tsr_status tsr_short_conv_create(const tsr_short_conv_params *params,
                                                       tsr_layer **out);
typedef struct tsr_latent_attention_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size, heads;
    int64_t q_lora_rank;
    int64_t kv_lora_rank, nope_dim, rope_dim, value_dim;
    const tsr_rope_params *rope;
    float norm_epsilon;
    tsr_dtype norm_dtype;
   _Bool 
        causal;
    float scale;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
   _Bool 
        reduce_f32;
    int overlap_parts;
   _Bool 
        deferred;
} tsr_latent_attention_params;
TSR_API tsr_status
tsr_latent_attention_create(const tsr_latent_attention_params *params, tsr_layer **out);
typedef enum tsr_block_norms {
    TSR_BLOCK_NORMS_BEFORE = 0,
    TSR_BLOCK_NORMS_AFTER = 1,
    TSR_BLOCK_NORMS_BOTH = 2
} tsr_block_norms;
typedef struct tsr_block_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;
    const tsr_norm_params *norm;
    const tsr_self_attention_params *attention;
    const tsr_mlp_params *mlp;
   _Bool 
        recompute;
   _Bool 
        sequence;
    int sequence_dim;
    tsr_dtype dtype, grad_dtype;
   _Bool 
        deferred;
    const tsr_moe_params *experts;
    tsr_block_norms norms;
    float residual_scale;
    const tsr_delta_net_params *delta_net;
    const tsr_latent_attention_params *latent_attention;
    int64_t layer_input;
   _Bool 
        output_scale;
    const tsr_short_conv_params *short_conv;
} tsr_block_params;
TSR_API tsr_status tsr_block_create(const tsr_block_params *params, tsr_layer **out);
TSR_API tsr_status tsr_block_set_dropout(tsr_layer *block, float p,
                                                       const tsr_random_params *params);
TSR_API tsr_status tsr_layer_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                                          tsr_kv_cache *cache, int cache_layer,
                                                          tsr_tensor **y);
typedef struct tsr_model_experts {
    size_t struct_size;
    int64_t count, used;
    int64_t hidden;
    tsr_gating gating;
   _Bool 
        normalise;
    double scale;
    int groups, groups_used;
   _Bool 
        router_bias, choice_bias, bias;
    tsr_expert_activation activation;
    double limit;
    int64_t shared_hidden;
   _Bool 
        shared_gate;
   _Bool 
        beside_mlp;
   _Bool 
        router_norm, expert_scale;
} tsr_model_experts;
typedef struct tsr_model_delta_net {
    size_t struct_size;
    int64_t key_heads, heads;
    int64_t key_dim, value_dim;
    int taps;
} tsr_model_delta_net;
typedef struct tsr_model_latent {
    size_t struct_size;
    int64_t kv_lora_rank, nope_dim, rope_dim, value_dim;
    int64_t q_lora_rank;
} tsr_model_latent;
typedef enum tsr_expert_division {
    TSR_EXPERT_DIVISION_AUTO = 0,
    TSR_EXPERT_DIVISION_INSIDE = 1,
    TSR_EXPERT_DIVISION_WHOLE = 2,
    TSR_EXPERT_DIVISION_MIXED = 3
} tsr_expert_division;
typedef struct tsr_model_layer {
    size_t struct_size;
    int64_t heads, kv_heads, head_dim;
    int64_t hidden;
    int64_t window;
    const tsr_rope_params *rope;
   _Bool 
        qkv_bias, output_bias, mlp_bias;
    tsr_qk_norm qk_norm;
   _Bool 
        gated;
    tsr_activation activation;
    tsr_block_norms norms;
    double attention_scale;
    double softcap;
    const tsr_rope_params *long_rope;
    double temperature;
    int64_t temperature_length;
    const tsr_model_experts *experts;
   _Bool 
        sinks;
    const tsr_model_latent *latent;
    const tsr_model_delta_net *delta_net;
   _Bool 
        output_gate;
   _Bool 
        value_norm, keys_as_values;
   _Bool 
        shared_keys;
   _Bool 
        output_scale;
    int conv_taps;
    int64_t value_dim;
} tsr_model_layer;
typedef struct tsr_model_config {
    size_t struct_size;
    const char *architecture;
    int layers;
    int64_t width;
    int64_t vocabulary;
    int64_t context;
    double norm_epsilon;
    tsr_norm_kind norm;
   _Bool 
        norm_bias;
   _Bool 
        learned_positions;
   _Bool 
        tied;
    int32_t bos;
    int end_count;
    int32_t end[16];
    int kind_count;
    const tsr_model_layer *const *kinds;
    const uint16_t *layer_kinds;
    double embedding_scale;
    double residual_scale;
    double logit_scale;
    double logit_softcap;
    int next_token_layers;
    int64_t layer_input;
} tsr_model_config;
TSR_API uint64_t tsr_model_config_parameters(const tsr_model_config *config, int layer);
typedef struct tsr_model_file tsr_model_file;
TSR_API tsr_status tsr_model_file_open(const char *path, tsr_model_file **out);
TSR_API tsr_status tsr_model_file_open_random(const tsr_model_config *config,
                                                            tsr_dtype dtype, uint64_t seed,
                                                            tsr_model_file **out);
TSR_API tsr_status tsr_model_file_open_weights(const char *path,
                                                             const tsr_model_config *config,
                                                             tsr_model_file **out);
TSR_API void tsr_model_file_close(tsr_model_file **file);
TSR_API const tsr_model_config *tsr_model_file_config(const tsr_model_file *file);
TSR_API tsr_status tsr_model_file_open_tokenizer(const tsr_model_file *file,
                                                               tsr_tokenizer **out);
typedef struct tsr_model tsr_model;
typedef struct tsr_model_params {
    size_t struct_size;
    tsr_group *group;
    tsr_dtype dtype;
    const tsr_partition_params *partition;
    tsr_comm *stages;
    const int *stage_layers;
    const double *stage_rates;
    uint64_t memory_bytes;
    int64_t context;
    int sequences;
    tsr_dtype cache_dtype;
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    tsr_expert_division expert_division;
   _Bool 
        recompute;
    int host_experts;
    int draft_tokens, snapshots;
    const int *hosts;
   _Bool 
        next_token;
    tsr_group *sharded_over;
    tsr_group *context_group;
} tsr_model_params;
TSR_API tsr_status tsr_model_open(const tsr_model_file *file,
                                                const tsr_model_params *params, tsr_model **out);
TSR_API void tsr_model_close(tsr_model **model);
TSR_API const tsr_model_config *tsr_model_get_config(const tsr_model *model);
TSR_API struct tsr_stack *tsr_model_stack(const tsr_model *model);
typedef struct tsr_model_stats {
    size_t struct_size;
    uint64_t parameters;
    uint64_t weight_bytes;
    uint64_t table_bytes;
    tsr_dtype dtype;
    tsr_dtype other_dtype;
    uint64_t read_bytes;
    uint64_t open_ns;
    int64_t heads, kv_heads;
    int first_layer, layers;
    uint64_t host_bytes;
} tsr_model_stats;
TSR_API tsr_status tsr_model_get_stats(const tsr_model *model, tsr_model_stats *out);
typedef struct tsr_model_plan_params {
    size_t struct_size;
    int ranks;
    tsr_dtype dtype;
    const tsr_partition_params *partition;
    int64_t context;
    int sequences;
    tsr_dtype cache_dtype;
    int stages;
    const int *stage_layers;
    const double *stage_rates;
    tsr_expert_division expert_division;
    int host_experts;
    int draft_tokens, snapshots;
    const int *hosts;
   _Bool 
        next_token;
    int context_ranks;
} tsr_model_plan_params;
typedef struct tsr_model_rank_plan {
    size_t struct_size;
    int64_t heads, kv_heads, hidden, vocabulary;
    uint64_t embedding_bytes;
    uint64_t attention_bytes;
    uint64_t mlp_bytes, norm_bytes;
    uint64_t head_bytes;
    uint64_t weight_bytes;
    uint64_t cache_bytes;
    uint64_t total_bytes;
    uint64_t token_bytes;
    uint64_t token_parameters;
    int stage;
    int first_layer, layers;
    int64_t experts, expert_hidden;
    uint64_t expert_bytes;
    uint64_t host_bytes, host_token_bytes;
    uint64_t state_bytes, used_state_bytes;
    uint64_t expert_parameters;
    tsr_expert_division expert_division;
    double expert_skew;
} tsr_model_rank_plan;
typedef struct tsr_model_fit {
    size_t struct_size;
    uint64_t missing_bytes;
    int rank;
    int ranks;
    tsr_dtype dtype;
    int host_experts;
} tsr_model_fit;
TSR_API tsr_status tsr_model_plan(const tsr_model_file *file,
                                                const tsr_model_plan_params *params,
                                                const uint64_t *memory_bytes,
                                                tsr_model_rank_plan *ranks, tsr_model_fit *fit);
typedef struct tsr_convert_params {
    size_t struct_size;
    tsr_dtype dtype;
   _Bool 
        replace;
   _Bool 
        weights_only;
   _Bool 
        (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void (*note)(void *user, const char *sentence);
    void *user;
    const char *mixture;
    const char *adapter;
    double adapter_scale;
} tsr_convert_params;
typedef struct tsr_convert_stats {
    size_t struct_size;
    uint64_t tensors;
    uint64_t kept;
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint64_t merged;
} tsr_convert_stats;
TSR_API const char *tsr_convert_mixture_at(int index);
TSR_API tsr_status tsr_model_convert(const tsr_model_file *source,
                                                   const char *destination,
                                                   const tsr_convert_params *params,
                                                   tsr_convert_stats *out);
typedef struct tsr_fsdp tsr_fsdp;
typedef struct tsr_fsdp_unit {
    size_t struct_size;
    tsr_layer *layer;
    int parameter_count;
    const tsr_parameter *parameters;
} tsr_fsdp_unit;
typedef struct tsr_fsdp_params {
    size_t struct_size;
    tsr_group *group;
    int unit_count;
    const tsr_fsdp_unit *units;
    const tsr_shard_plan *plan;
    const tsr_shard_strategy *strategy;
    const char *const *gather;
    const double *rates;
    const uint64_t *memory_bytes;
    tsr_optimizer_kind optimizer;
   _Bool 
        plain_sgd;
   _Bool 
        in_place;
    tsr_dtype grad_dtype;
    tsr_op reduction;
    int ahead;
    int replicas;
} tsr_fsdp_params;
TSR_API tsr_status tsr_fsdp_create(const tsr_fsdp_params *params, tsr_fsdp **out);
TSR_API void tsr_fsdp_destroy(tsr_fsdp **model);
TSR_API const tsr_shard_plan *tsr_fsdp_plan(const tsr_fsdp *model);
TSR_API tsr_status tsr_fsdp_forward(tsr_fsdp *model, int unit, const tsr_tensor *x,
                                                  tsr_layer_saved **saved, tsr_tensor **y);
TSR_API tsr_status tsr_fsdp_backward(tsr_fsdp *model, int unit,
                                                   const tsr_layer_saved *saved,
                                                   const tsr_tensor *dy, tsr_tensor **dx);
TSR_API tsr_status tsr_fsdp_begin(tsr_fsdp *model, int unit, tsr_pass pass);
TSR_API tsr_status tsr_fsdp_end(tsr_fsdp *model, int unit);
TSR_API const tsr_parameter *tsr_fsdp_parameter(const tsr_fsdp *model, int unit, int index);
typedef struct tsr_fsdp_shard {
    size_t struct_size;
    tsr_shard_range range;
    tsr_tensor *value, *grad;
    tsr_tensor *master;
    tsr_tensor *moment1, *moment2;
} tsr_fsdp_shard;
TSR_API tsr_status tsr_fsdp_get_shard(tsr_fsdp *model, uint64_t param,
                                                    tsr_fsdp_shard *out);
TSR_API tsr_status tsr_fsdp_changed(tsr_fsdp *model);
TSR_API tsr_status tsr_fsdp_rebuild(const tsr_fsdp_params *params, tsr_fsdp **model);
typedef struct tsr_fsdp_memory {
    size_t struct_size;
    uint64_t parameter_bytes;
    uint64_t gradient_bytes;
    uint64_t optimizer_bytes;
    uint64_t gathered_bytes;
    uint64_t unreduced_bytes;
    uint64_t total_bytes;
    uint64_t replica_bytes;
} tsr_fsdp_memory;
TSR_API tsr_status tsr_fsdp_get_memory(const tsr_fsdp *model, tsr_fsdp_memory *out);
typedef enum tsr_grammar_kind {
    TSR_GRAMMAR_GBNF = 0,
    TSR_GRAMMAR_JSON_SCHEMA = 1
} tsr_grammar_kind;
typedef struct tsr_grammar tsr_grammar;
typedef struct tsr_grammar_params {
    size_t struct_size;
    const tsr_tokenizer *tokenizer;
    const char *text;
    size_t size_bytes;
    tsr_grammar_kind kind;
    const char *root;
    uint64_t ahead_ns;
} tsr_grammar_params;
TSR_API tsr_status tsr_grammar_create(const tsr_grammar_params *params,
                                                    tsr_grammar **out);
TSR_API void tsr_grammar_destroy(tsr_grammar **grammar);
TSR_API uint64_t tsr_grammar_bytes(const tsr_grammar *grammar);
typedef struct tsr_grammar_state tsr_grammar_state;
TSR_API tsr_status tsr_grammar_state_create(tsr_grammar *grammar,
                                                          const tsr_grammar_state *from,
                                                          tsr_grammar_state **out);
TSR_API void tsr_grammar_state_destroy(tsr_grammar_state **state);
TSR_API tsr_status tsr_grammar_state_add(tsr_grammar_state *state, int32_t token);
TSR_API tsr_status tsr_grammar_state_add_text(tsr_grammar_state *state,
                                                            const void *text, size_t size_bytes);
typedef enum tsr_grammar_end {
    TSR_GRAMMAR_INCOMPLETE = 0,
    TSR_GRAMMAR_MAY_END = 1,
    TSR_GRAMMAR_MUST_END = 2
} tsr_grammar_end;
TSR_API tsr_grammar_end tsr_grammar_state_end(const tsr_grammar_state *state);
TSR_API tsr_status tsr_grammar_state_mask(tsr_grammar_state *state, int64_t count,
                                                        uint32_t *mask);
typedef struct tsr_logit_bias {
    int32_t token;
    float bias;
} tsr_logit_bias;
typedef struct tsr_log_probability {
    int32_t token;
    double log_probability;
} tsr_log_probability;
typedef struct tsr_sampling_params {
    size_t struct_size;
    const tsr_logit_bias *biases;
    int bias_count;
    double repetition_penalty;
    double presence_penalty, frequency_penalty;
    int64_t prompt_count;
    double temperature;
    int64_t top_k;
    double top_p;
    double min_p;
    uint64_t seed;
} tsr_sampling_params;
TSR_API tsr_status tsr_sampling_draw(const tsr_sampling_params *params,
                                                   uint64_t number, int64_t position, int64_t count,
                                                   const float *logits, int64_t history_count,
                                                   const int32_t *history, int32_t *token);
typedef struct tsr_generator tsr_generator;
typedef void (*tsr_logits_fn)(void *user, int sequence, int64_t position, const float *logits);
typedef enum tsr_draft {
    TSR_DRAFT_NONE = 0,
    TSR_DRAFT_NGRAM = 1,
    TSR_DRAFT_MODEL = 2,
    TSR_DRAFT_MTP = 3
} tsr_draft;
typedef struct tsr_generator_params {
    size_t struct_size;
    tsr_model *model;
    int sequences;
    int64_t context;
    int64_t cache_tokens;
    tsr_dtype cache_dtype;
    int64_t prefill;
    tsr_logits_fn logits;
    void *user;
    int64_t logits_positions;
   _Bool 
        log_probabilities;
    int ahead;
    int64_t piece;
   _Bool 
        prefix_cache;
    tsr_draft draft;
    int draft_tokens;
    tsr_model *draft_model;
   _Bool 
        rejection_sampling;
    int snapshots;
} tsr_generator_params;
TSR_API tsr_status tsr_generator_create(const tsr_generator_params *params,
                                                      tsr_generator **out);
TSR_API void tsr_generator_destroy(tsr_generator **generator);
typedef void (*tsr_logits_process_fn)(void *user, int sequence, int64_t count,
                                      const int32_t *tokens, float *logits);
typedef struct tsr_sequence_params {
    size_t struct_size;
    const int32_t *prompt;
    int64_t prompt_count;
    const tsr_sampling_params *sampling;
    uint64_t number;
    int64_t max_tokens;
   _Bool 
        ignore_end;
    const int32_t *stop;
    int stop_count;
    int64_t generated_count;
   _Bool 
        log_probabilities;
    int top_log_probabilities;
    const tsr_grammar_state *grammar;
    struct tsr_lora *lora;
    tsr_logits_process_fn process;
    void *process_user;
} tsr_sequence_params;
TSR_API tsr_status tsr_generator_add(tsr_generator *generator,
                                                   const tsr_sequence_params *params, int *out);
TSR_API tsr_status tsr_generator_continue(tsr_generator *generator, int sequence,
                                                        int64_t count, const int32_t *tokens,
                                                        int64_t max_tokens);
TSR_API tsr_status tsr_generator_remove(tsr_generator *generator, int sequence);
typedef enum tsr_finish {
    TSR_FINISH_NONE = 0,
    TSR_FINISH_TOKEN = 1,
    TSR_FINISH_MAX_TOKENS = 2,
    TSR_FINISH_CONTEXT = 3,
    TSR_FINISH_INTERRUPT = 4,
    TSR_FINISH_GRAMMAR = 5,
    TSR_FINISH_STUCK = 6
} tsr_finish;
TSR_API const char *tsr_finish_name(tsr_finish finish);
typedef struct tsr_generated {
    int sequence;
    int32_t token;
    int64_t position;
    double log_probability;
    tsr_finish finish;
    int64_t cached;
    const tsr_log_probability *top;
    int top_count;
} tsr_generated;
TSR_API tsr_status tsr_generator_step(tsr_generator *generator, int *count);
TSR_API const tsr_generated *tsr_generator_token(const tsr_generator *generator, int index);
TSR_API void tsr_generator_interrupt(tsr_generator *generator);
typedef struct tsr_generator_stats {
    size_t struct_size;
    uint64_t prompt_tokens, generated_tokens;
    uint64_t prompt_ns, generated_ns;
    uint64_t generated_submissions, generated_waits, generated_idle_waits;
    uint64_t cached_tokens, preemptions, most_step_tokens;
    int64_t running, waiting, pages, free_pages, prefix_pages;
    uint64_t drafted_tokens, accepted_tokens;
    uint64_t drafted_passes, plain_passes, draft_ns;
} tsr_generator_stats;
TSR_API tsr_status tsr_generator_get_stats(const tsr_generator *generator,
                                                         tsr_generator_stats *out);
typedef struct tsr_kernel tsr_kernel;
typedef struct tsr_kernel_params {
    size_t struct_size;
    const char *glsl;
    const uint32_t *spirv;
    uint64_t spirv_words;
    const char *name;
    int tensor_count;
    uint32_t scalar_bytes;
    const uint32_t *constants;
    int constant_count;
    uint32_t subgroup_size;
} tsr_kernel_params;
TSR_API tsr_status tsr_kernel_create(tsr_device *device,
                                                   const tsr_kernel_params *params,
                                                   tsr_kernel **out);
TSR_API void tsr_kernel_destroy(tsr_kernel **kernel);
typedef struct tsr_kernel_argument {
    size_t struct_size;
    tsr_tensor *tensor;
   _Bool 
        written;
} tsr_kernel_argument;
TSR_API tsr_status tsr_kernel_run(tsr_stream *stream, tsr_kernel *kernel,
                                                const tsr_kernel_argument *arguments,
                                                const void *scalars, const uint32_t groups[3]);
typedef enum tsr_rng_kind {
    TSR_RNG_PHILOX = 0,
    TSR_RNG_MT19937 = 1,
    TSR_RNG_DOTNET = 2,
    TSR_RNG_THREEFRY = 3
} tsr_rng_kind;
TSR_API const char *tsr_rng_kind_name(tsr_rng_kind kind);
TSR_API tsr_status tsr_rng_kind_parse(const char *name, tsr_rng_kind *out);
typedef struct tsr_philox {
    uint64_t seed;
    uint64_t stream;
    uint64_t position;
    uint64_t block;
    uint32_t words[4];
} tsr_philox;
typedef struct tsr_mt19937 {
    uint32_t words[624];
    uint32_t next;
} tsr_mt19937;
typedef struct tsr_dotnet {
    int32_t table[56];
    int32_t next;
    int32_t other;
} tsr_dotnet;
typedef struct tsr_threefry_key {
    uint32_t words[2];
} tsr_threefry_key;
typedef struct tsr_threefry {
    tsr_threefry_key key;
    uint64_t position;
    uint64_t pair;
    uint32_t words[2];
} tsr_threefry;
typedef struct tsr_rng {
    tsr_rng_kind kind;
    union {
        tsr_philox philox;
        tsr_mt19937 mt19937;
        tsr_dotnet dotnet;
        tsr_threefry threefry;
    } as;
} tsr_rng;
TSR_API tsr_status tsr_rng_init(tsr_rng_kind kind, uint64_t seed, uint64_t stream,
                                              tsr_rng *out);
TSR_API uint32_t tsr_rng_next_u32(tsr_rng *rng);
TSR_API uint64_t tsr_rng_next_u64(tsr_rng *rng);
TSR_API double tsr_rng_next_double(tsr_rng *rng);
TSR_API uint64_t tsr_rng_below(tsr_rng *rng, uint64_t n);
TSR_API void tsr_rng_skip(tsr_rng *rng, uint64_t draws);
TSR_API tsr_status tsr_rng_save(const tsr_rng *rng, size_t capacity_bytes, void *data,
                                              size_t *size_bytes);
TSR_API tsr_status tsr_rng_load(const void *data, size_t size_bytes, tsr_rng *out);
typedef enum tsr_torch_version {
    TSR_TORCH_DEFAULT = 0,
    TSR_TORCH_1_13 = 113,
    TSR_TORCH_2_0 = 200,
    TSR_TORCH_2_6 = 206,
    TSR_TORCH_2_7 = 207
} tsr_torch_version;
TSR_API tsr_status tsr_torch_randint(tsr_mt19937 *rng, tsr_torch_version version,
                                                   int64_t low, int64_t high, uint64_t count,
                                                   int64_t *out);
TSR_API tsr_status tsr_torch_randperm(tsr_mt19937 *rng, tsr_torch_version version,
                                                    uint64_t n, int64_t *out);
TSR_API int32_t tsr_dotnet_next(tsr_dotnet *rng);
TSR_API tsr_status tsr_dotnet_next_range(tsr_dotnet *rng, int32_t min, int32_t max,
                                                       int32_t *out);
TSR_API tsr_status tsr_dotnet_shuffle(tsr_dotnet *rng, uint64_t count,
                                                    int64_t *items);
TSR_API tsr_threefry_key tsr_threefry_key_from_seed(uint64_t seed);
TSR_API tsr_status tsr_threefry_split(tsr_threefry_key key, uint64_t count,
                                                    tsr_threefry_key *out);
TSR_API tsr_threefry_key tsr_threefry_next_key(tsr_threefry_key *state);
TSR_API tsr_status tsr_threefry_bits(tsr_threefry_key key, int width_bytes,
                                                   uint64_t count, void *out);
TSR_API tsr_status tsr_threefry_uniform(tsr_threefry_key key, uint64_t count,
                                                      float *out);
TSR_API tsr_status tsr_threefry_randint(tsr_threefry_key key, int32_t low,
                                                      int32_t high, uint64_t count, int32_t *out);
TSR_API tsr_status tsr_threefry_permutation(tsr_threefry_key key, uint64_t n,
                                                          int64_t *out);
TSR_API tsr_status tsr_threefry_argsort_uniform(tsr_threefry_key key, uint64_t n,
                                                              int64_t *out);
typedef struct tsr_sampler tsr_sampler;
TSR_API void tsr_sampler_destroy(tsr_sampler **sampler);
TSR_API uint64_t tsr_sampler_length(const tsr_sampler *sampler);
TSR_API uint64_t tsr_sampler_position(const tsr_sampler *sampler);
TSR_API int64_t tsr_sampler_epoch(const tsr_sampler *sampler);
typedef struct tsr_sampler_info {
    size_t struct_size;
    const char *name;
    uint64_t batch_max;
    int64_t ranks, rank;
    uint64_t n;
    uint64_t total;
} tsr_sampler_info;
TSR_API tsr_status tsr_sampler_get_info(const tsr_sampler *sampler,
                                                      tsr_sampler_info *info);
TSR_API tsr_status tsr_sampler_next(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);
TSR_API tsr_status tsr_sampler_fill(tsr_sampler *sampler, uint64_t capacity,
                                                  int64_t *indices, uint8_t *mask, uint64_t *count);
TSR_API tsr_status tsr_sampler_seek(tsr_sampler *sampler, uint64_t position);
TSR_API tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch);
TSR_API tsr_status tsr_sampler_get_batch(tsr_sampler *sampler, uint64_t index,
                                                       int64_t batch_size, uint64_t capacity,
                                                       int64_t *indices, uint8_t *mask,
                                                       uint64_t *count);
TSR_API tsr_status tsr_sampler_batch_count(const tsr_sampler *sampler,
                                                         int64_t batch_size, 
                                                                            _Bool 
                                                                                 drop_last,
                                                         uint64_t *count);
TSR_API tsr_status tsr_sampler_save(const tsr_sampler *sampler, uint64_t position,
                                                  size_t capacity_bytes, void *data,
                                                  size_t *size_bytes);
TSR_API tsr_status tsr_sampler_resume(tsr_sampler *sampler, const void *data,
                                                    size_t size_bytes);
typedef enum tsr_order {
    TSR_ORDER_FEISTEL = 0,
    TSR_ORDER_TORCH = 1,
    TSR_ORDER_DOTNET = 2,
    TSR_ORDER_NONE = 3,
    TSR_ORDER_MLX = 4
} tsr_order;
typedef struct tsr_torch_options {
    size_t struct_size;
    tsr_torch_version version;
   _Bool 
        global_generator;
   _Bool 
        data_loader;
    int seed_high;
} tsr_torch_options;
typedef struct tsr_feistel {
    uint64_t n;
    uint32_t rows, columns;
    uint64_t keys[6];
} tsr_feistel;
TSR_API tsr_status tsr_feistel_init(uint64_t n, uint64_t seed, uint64_t epoch,
                                                  uint64_t pass, tsr_feistel *out);
TSR_API uint64_t tsr_feistel_find(const tsr_feistel *order, uint64_t element);
TSR_API void tsr_feistel_fill(const tsr_feistel *order, uint64_t first, uint64_t step,
                              uint64_t count, int64_t *out);
TSR_API tsr_status tsr_sampler_create_sequential(uint64_t n, tsr_sampler **out);
typedef struct tsr_sampler_random_params {
    size_t struct_size;
    uint64_t n;
    tsr_order order;
   _Bool 
        replacement;
    int64_t num_samples;
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_random_params;
TSR_API tsr_status tsr_sampler_create_random(const tsr_sampler_random_params *params,
                                                           tsr_sampler **out);
typedef struct tsr_sampler_subset_params {
    size_t struct_size;
    const int64_t *indices;
    uint64_t count;
    tsr_order order;
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_subset_params;
TSR_API tsr_status tsr_sampler_create_subset(const tsr_sampler_subset_params *params,
                                                           tsr_sampler **out);
typedef struct tsr_sampler_weighted_params {
    size_t struct_size;
    const double *weights;
    const float *weights_f32;
    uint64_t count;
    int64_t num_samples;
   _Bool 
        replacement;
    tsr_order order;
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_weighted_params;
TSR_API tsr_status
tsr_sampler_create_weighted(const tsr_sampler_weighted_params *params, tsr_sampler **out);
typedef struct tsr_sampler_batch_params {
    size_t struct_size;
    tsr_sampler *base;
    int64_t batch_size;
   _Bool 
        drop_last;
} tsr_sampler_batch_params;
TSR_API tsr_status tsr_sampler_create_batch(const tsr_sampler_batch_params *params,
                                                          tsr_sampler **out);
typedef enum tsr_tail {
    TSR_TAIL_PAD = 0,
    TSR_TAIL_PAD_MASK = 1,
    TSR_TAIL_UNEVEN = 2,
    TSR_TAIL_DROP = 3
} tsr_tail;
typedef enum tsr_split {
    TSR_SPLIT_INTERLEAVED = 0,
    TSR_SPLIT_CONTIGUOUS = 1
} tsr_split;
typedef struct tsr_sampler_distributed_params {
    size_t struct_size;
    uint64_t n;
    tsr_sampler *base;
    int64_t ranks, rank;
    tsr_order order;
    tsr_tail tail;
    tsr_split split;
    int64_t seed;
    const tsr_torch_options *torch;
} tsr_sampler_distributed_params;
TSR_API tsr_status
tsr_sampler_create_distributed(const tsr_sampler_distributed_params *params, tsr_sampler **out);
TSR_API tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks);
typedef struct tsr_sampler_ops {
    size_t struct_size;
    const char *name;
    uint64_t batch_max;
    tsr_status (*fill)(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);
    tsr_status (*set_epoch)(void *self, int64_t epoch);
    uint64_t (*length)(void *self);
    tsr_status (*seek)(void *self, uint64_t position);
    uint64_t (*fingerprint)(void *self);
    tsr_status (*save)(void *self, size_t capacity_bytes, void *data, size_t *size_bytes);
    tsr_status (*load)(void *self, const void *data, size_t size_bytes);
    void (*destroy)(void *self);
} tsr_sampler_ops;
TSR_API tsr_status tsr_sampler_create(const tsr_sampler_ops *ops, void *self,
                                                    tsr_sampler **out);
typedef struct tsr_sampler_length_sorted_params {
    size_t struct_size;
    const int64_t *lengths;
    uint64_t count;
    int64_t batch_size;
    tsr_order order;
    int64_t seed;
} tsr_sampler_length_sorted_params;
TSR_API tsr_status
tsr_sampler_create_length_sorted(const tsr_sampler_length_sorted_params *params, tsr_sampler **out);
typedef struct tsr_sampler_stratified_params {
    size_t struct_size;
    const int64_t *labels;
    uint64_t count;
    int64_t batch_size;
    tsr_order order;
    int64_t seed;
} tsr_sampler_stratified_params;
TSR_API tsr_status
tsr_sampler_create_stratified(const tsr_sampler_stratified_params *params, tsr_sampler **out);
typedef struct tsr_sampler_curriculum_params {
    size_t struct_size;
    const double *difficulties;
    uint64_t count;
    int64_t num_samples;
    int64_t max_epochs;
    int64_t seed;
} tsr_sampler_curriculum_params;
TSR_API tsr_status
tsr_sampler_create_curriculum(const tsr_sampler_curriculum_params *params, tsr_sampler **out);
typedef enum tsr_seed_kind {
    TSR_SEED_PROCESS = 0,
    TSR_SEED_DEVICE = 1,
    TSR_SEED_WORKER = 2,
    TSR_SEED_OP = 3
} tsr_seed_kind;
TSR_API const char *tsr_seed_kind_name(tsr_seed_kind kind);
typedef enum tsr_seed_strategy {
    TSR_SEED_STRATEGY_DOCUMENTED = 0,
    TSR_SEED_STRATEGY_HASHED = 1
} tsr_seed_strategy;
typedef struct tsr_seed_point {
    int64_t base;
    tsr_seed_kind kind;
    int node;
    int device;
    int worker;
    int64_t epoch;
    int op;
} tsr_seed_point;
TSR_API tsr_status tsr_seed_derive(tsr_seed_strategy strategy,
                                                 const tsr_seed_point *point, int64_t *seed);
typedef struct tsr_seed_key {
    uint64_t seed;
    uint64_t stream;
} tsr_seed_key;
TSR_API tsr_status tsr_seed_derive_key(const tsr_seed_point *point,
                                                     tsr_seed_key *key);
typedef struct tsr_seed_manager_params {
    size_t struct_size;
    tsr_seed_strategy strategy;
    tsr_status (*derive)(void *user, const tsr_seed_point *point, int64_t *seed);
    void *user;
    tsr_rng_kind rng;
    int device_count;
    int worker_count;
    int node;
} tsr_seed_manager_params;
typedef struct tsr_seed_manager tsr_seed_manager;
TSR_API tsr_status tsr_seed_manager_create(const tsr_seed_manager_params *params,
                                                         tsr_seed_manager **out);
TSR_API void tsr_seed_manager_destroy(tsr_seed_manager **manager);
TSR_API tsr_status tsr_seed_set_epoch(tsr_seed_manager *manager, int64_t epoch);
TSR_API tsr_status tsr_seed_global(tsr_seed_manager *manager, int64_t base);
TSR_API tsr_status tsr_seed_all(tsr_seed_manager *manager, tsr_seed_kind kind,
                                              int64_t base, int count);
TSR_API tsr_status tsr_seed_set(tsr_seed_manager *manager, tsr_seed_kind kind, int id,
                                              int64_t seed);
TSR_API tsr_status tsr_seed_of(const tsr_seed_manager *manager, tsr_seed_kind kind,
                                             int id, int64_t *seed);
TSR_API tsr_status tsr_seed_of_op(const tsr_seed_manager *manager, int64_t base,
                                                int device, int op, int64_t *seed);
TSR_API tsr_status tsr_seed_stream(tsr_seed_manager *manager, tsr_seed_kind kind,
                                                 int id, tsr_rng **stream);
typedef struct tsr_seed_event {
    size_t struct_size;
    tsr_seed_kind kind;
    int id;
    int64_t seed;
} tsr_seed_event;
TSR_API uint64_t tsr_seed_event_count(const tsr_seed_manager *manager);
TSR_API tsr_status tsr_seed_get_event(const tsr_seed_manager *manager, uint64_t index,
                                                    tsr_seed_event *event);
TSR_API void tsr_seed_clear_events(tsr_seed_manager *manager);
typedef enum tsr_seed_format {
    TSR_SEED_FORMAT_BYTES = 0,
    TSR_SEED_FORMAT_JSON = 1
} tsr_seed_format;
TSR_API tsr_status tsr_seed_save(const tsr_seed_manager *manager,
                                               tsr_seed_format format, size_t capacity_bytes,
                                               void *data, size_t *size_bytes);
TSR_API tsr_status tsr_seed_load(tsr_seed_manager *manager, tsr_seed_format format,
                                               const void *data, size_t size_bytes);
typedef struct tsr_loader tsr_loader;
typedef struct tsr_loader_worker {
    int id;
    int64_t seed;
    void *context;
    const char *reason;
} tsr_loader_worker;
typedef struct tsr_loader_work {
    uint64_t batch;
    int64_t epoch;
    const int64_t *indices;
    const uint8_t *mask;
    uint64_t count;
    void *data;
    uint64_t capacity_bytes;
    int64_t seed;
    const tsr_loader_worker *worker;
    uint64_t size_bytes;
    uint64_t place;
    const char *reason;
    const void *internal;
} tsr_loader_work;
TSR_API 
       _Bool 
            tsr_loader_stopping(const tsr_loader_work *work);
typedef struct tsr_loader_params {
    size_t struct_size;
    tsr_sampler *batch_sampler;
    tsr_sampler *sampler;
    uint64_t n;
    int64_t batch_size;
   _Bool 
        drop_last;
   _Bool 
        shuffle;
    tsr_order order;
    const tsr_torch_options *torch;
    tsr_status (*load_item)(void *user, tsr_loader_work *work, int64_t index, void *item);
    tsr_status (*load_batch)(void *user, tsr_loader_work *work);
    void *user;
    uint64_t item_bytes;
    uint64_t batch_bytes;
    tsr_status (*worker_init)(void *user, tsr_loader_worker *worker);
    void (*worker_finish)(void *user, tsr_loader_worker *worker);
    int workers;
    int prefetch;
    uint64_t timeout_ns;
    int64_t seed;
    tsr_seed_strategy seed_strategy;
    int node;
} tsr_loader_params;
TSR_API tsr_status tsr_loader_create(const tsr_loader_params *params,
                                                   tsr_loader **out);
TSR_API void tsr_loader_destroy(tsr_loader **loader);
typedef struct tsr_loader_batch {
    size_t struct_size;
    uint64_t batch;
    int64_t epoch;
    const int64_t *indices;
    const uint8_t *mask;
    uint64_t count;
    const void *data;
    uint64_t size_bytes;
} tsr_loader_batch;
TSR_API tsr_status tsr_loader_next(tsr_loader *loader, tsr_loader_batch *batch,
                                                _Bool 
                                                     *got);
typedef struct tsr_loader_info {
    size_t struct_size;
    uint64_t length;
    uint64_t position;
    int64_t epoch;
    tsr_status failed;
    int failed_worker;
    int64_t failed_index;
    uint64_t failed_place;
} tsr_loader_info;
TSR_API tsr_status tsr_loader_get_info(const tsr_loader *loader,
                                                     tsr_loader_info *info);
TSR_API tsr_status tsr_loader_skip(tsr_loader *loader);
TSR_API tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch);
TSR_API tsr_status tsr_loader_seek(tsr_loader *loader, uint64_t position);
TSR_API tsr_status tsr_loader_save(const tsr_loader *loader, size_t capacity_bytes,
                                                 void *data, size_t *size_bytes);
TSR_API tsr_status tsr_loader_resume(tsr_loader *loader, const void *data,
                                                   size_t size_bytes);
typedef struct tsr_optimizer tsr_optimizer;
typedef struct tsr_optimizer_params {
    size_t struct_size;
    tsr_stream *stream;
    tsr_optimizer_kind kind;
    const tsr_adamw_params *adamw;
    const tsr_sgd_params *sgd;
   _Bool 
        in_place;
   _Bool 
        decay_matrices;
} tsr_optimizer_params;
TSR_API tsr_status tsr_optimizer_create(const tsr_optimizer_params *params,
                                                      tsr_optimizer **out);
TSR_API void tsr_optimizer_destroy(tsr_optimizer **optimizer);
TSR_API tsr_status tsr_optimizer_add_layer(tsr_optimizer *optimizer,
                                                         tsr_layer *layer);
TSR_API tsr_status tsr_optimizer_add_parameter(tsr_optimizer *optimizer,
                                                             const tsr_parameter *parameter);
TSR_API tsr_status tsr_optimizer_add_fsdp(tsr_optimizer *optimizer, tsr_fsdp *model);
TSR_API tsr_status tsr_optimizer_step(tsr_optimizer *optimizer, float learning_rate);
TSR_API tsr_status tsr_optimizer_zero_grad(tsr_optimizer *optimizer);
typedef struct tsr_optimizer_clip_params {
    size_t struct_size;
    float loss_scale;
    tsr_group *group;
    tsr_comm *stages;
    const char *const *counted_elsewhere;
   _Bool 
        deferred;
} tsr_optimizer_clip_params;
TSR_API tsr_status tsr_optimizer_clip(tsr_optimizer *optimizer, float max_norm,
                                                    const tsr_optimizer_clip_params *params,
                                                    double *norm);
TSR_API tsr_status tsr_optimizer_norm(tsr_optimizer *optimizer, double *out);
TSR_API int64_t tsr_optimizer_steps(const tsr_optimizer *optimizer);
TSR_API tsr_status tsr_optimizer_changed(tsr_optimizer *optimizer);
typedef struct tsr_optimizer_file_params {
    size_t struct_size;
    tsr_comm *world;
    tsr_comm *stages;
   _Bool 
        model_only;
    const char *const *metadata;
   _Bool 
        parts;
} tsr_optimizer_file_params;
TSR_API tsr_status tsr_optimizer_save(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);
TSR_API tsr_status tsr_optimizer_load(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);
typedef struct tsr_stack_params {
    size_t struct_size;
    const tsr_model_config *config;
    tsr_group *group;
    int first_layer, layers;
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    int64_t seed;
    double deviation;
   _Bool 
        recompute;
   _Bool 
        experts_over_data;
    tsr_group *context_group;
    const char *trained;
} tsr_stack_params;
typedef struct tsr_stack tsr_stack;
TSR_API tsr_status tsr_stack_create(const tsr_stack_params *params, tsr_stack **out);
TSR_API void tsr_stack_destroy(tsr_stack **stack);
typedef struct tsr_stack_info {
    size_t struct_size;
    int blocks;
    int64_t first_logit, logits;
    const char *const *counted_elsewhere;
} tsr_stack_info;
TSR_API tsr_status tsr_stack_get_info(const tsr_stack *stack, tsr_stack_info *out);
TSR_API tsr_layer *tsr_stack_block(const tsr_stack *stack, int index);
TSR_API tsr_status tsr_stack_shard(tsr_stack *stack, const tsr_fsdp_params *params);
TSR_API tsr_status tsr_stack_reshard(tsr_stack *stack, const tsr_fsdp_params *params);
TSR_API tsr_status tsr_stack_add_to(tsr_stack *stack, tsr_optimizer *optimizer);
TSR_API tsr_status tsr_stack_reduce_tied(tsr_stack *stack, tsr_pipeline *pipeline);
TSR_API tsr_status tsr_stack_load(tsr_stack *stack, const tsr_model_file *file);
TSR_API tsr_status tsr_stack_save(tsr_stack *stack, const char *path,
                                                tsr_comm *stages);
typedef struct tsr_stack_saved tsr_stack_saved;
TSR_API void tsr_stack_saved_destroy(tsr_stack_saved **saved);
TSR_API tsr_status tsr_stack_forward(tsr_stack *stack, const tsr_tensor *x,
                                                   const int32_t *starts, tsr_stack_saved **saved,
                                                   tsr_tensor **y);
TSR_API tsr_status tsr_stack_forward_cached(tsr_stack *stack, const tsr_tensor *x,
                                                          tsr_kv_cache *cache, tsr_tensor **y);
TSR_API tsr_status tsr_stack_backward(tsr_stack *stack, const tsr_stack_saved *saved,
                                                    const tsr_tensor *dy, tsr_tensor **dx);
TSR_API tsr_status tsr_stack_head_forward(tsr_stack *stack, const tsr_tensor *hidden,
                                                        tsr_layer_saved **saved,
                                                        tsr_tensor **logits);
TSR_API tsr_status tsr_stack_head_backward(tsr_stack *stack,
                                                         const tsr_layer_saved *saved,
                                                         const tsr_tensor *dlogits,
                                                         tsr_tensor **dhidden);
typedef struct tsr_head_loss_params {
    size_t struct_size;
    const tsr_tensor *labels;
    const tsr_tensor *weights;
    float scale;
    int64_t chunk_tokens;
    tsr_tensor *losses;
    tsr_tensor *loss;
} tsr_head_loss_params;
TSR_API tsr_status tsr_stack_head_loss(tsr_stack *stack, const tsr_tensor *hidden,
                                                     const tsr_head_loss_params *params,
                                                     tsr_tensor **dhidden);
TSR_API tsr_status tsr_stack_gather_logits(tsr_stack *stack, const tsr_tensor *logits,
                                                         float *out);
TSR_API tsr_status tsr_stack_get_choice(const tsr_stack_saved *saved, int block,
                                                      tsr_moe_choice *out);
TSR_API tsr_status tsr_stack_add_choice_biases(tsr_stack *stack,
                                                             const float *const *changes);
TSR_API tsr_status tsr_stack_set_dropout(tsr_stack *stack, float p,
                                                       const tsr_random_params *random);
typedef enum tsr_lora_target {
    TSR_LORA_Q = 1,
    TSR_LORA_K = 2,
    TSR_LORA_V = 4,
    TSR_LORA_O = 8,
    TSR_LORA_GATE = 16,
    TSR_LORA_UP = 32,
    TSR_LORA_DOWN = 64,
    TSR_LORA_EXPERTS = 128,
    TSR_LORA_HEAD = 256
} tsr_lora_target;
typedef struct tsr_lora tsr_lora;
typedef struct tsr_lora_params {
    size_t struct_size;
    tsr_stack *stack;
    const char *name;
    unsigned targets;
    int rank;
    double alpha;
   _Bool 
        rank_stabilised;
    double dropout;
    int64_t seed;
    uint64_t passes;
   _Bool 
        trainable;
    double scale;
   _Bool 
        dora;
    const char *layers;
} tsr_lora_params;
TSR_API tsr_status tsr_lora_create(const tsr_lora_params *params, tsr_lora **out);
TSR_API tsr_status tsr_lora_load(const char *path, const tsr_lora_params *params,
                                               tsr_lora **out);
TSR_API void tsr_lora_destroy(tsr_lora **lora);
typedef enum tsr_lora_format {
    TSR_LORA_PEFT = 0,
    TSR_LORA_GGUF = 1
} tsr_lora_format;
TSR_API tsr_status tsr_lora_save(tsr_lora *lora, const char *path,
                                               tsr_lora_format format, tsr_comm *stages);
TSR_API tsr_status tsr_lora_shard(tsr_lora *lora, const tsr_fsdp_params *params);
TSR_API tsr_status tsr_lora_reshard(tsr_lora *lora, const tsr_fsdp_params *params);
TSR_API tsr_status tsr_lora_add_to(tsr_lora *lora, tsr_optimizer *optimizer);
TSR_API void tsr_lora_set_enabled(tsr_lora *lora, 
                                                 _Bool 
                                                      enabled);
TSR_API tsr_status tsr_lora_merge(tsr_lora *lora);
typedef struct tsr_lora_info {
    size_t struct_size;
    const char *name;
    unsigned targets;
    int rank;
    double alpha, dropout;
   _Bool 
        rank_stabilised, trainable, enabled;
    uint64_t parameters;
   _Bool 
        dora;
    uint64_t passes;
} tsr_lora_info;
TSR_API tsr_status tsr_lora_get_info(const tsr_lora *lora, tsr_lora_info *out);
typedef struct tsr_cluster tsr_cluster;
typedef struct tsr_cluster_params {
    size_t struct_size;
    const char *description, *description_text;
    const char *links, *links_text;
    const char *rates, *rates_text;
} tsr_cluster_params;
TSR_API tsr_status tsr_cluster_create(const tsr_cluster_params *params,
                                                    tsr_cluster **out);
TSR_API void tsr_cluster_destroy(tsr_cluster **cluster);
TSR_API int tsr_cluster_host_count(const tsr_cluster *cluster);
TSR_API int tsr_cluster_rank_count(const tsr_cluster *cluster);
typedef struct tsr_cluster_host_info {
    size_t struct_size;
    const char *name;
    int first_rank, ranks;
    double processors;
} tsr_cluster_host_info;
TSR_API tsr_status tsr_cluster_get_host(const tsr_cluster *cluster, int host,
                                                      tsr_cluster_host_info *out);
typedef struct tsr_cluster_rank_info {
    size_t struct_size;
    int host;
    uint64_t memory_bytes;
} tsr_cluster_rank_info;
TSR_API tsr_status tsr_cluster_get_rank(const tsr_cluster *cluster, int rank,
                                                      tsr_cluster_rank_info *out);
typedef enum tsr_plan_goal {
    TSR_PLAN_GENERATION = 0,
    TSR_PLAN_PROMPT = 1,
    TSR_PLAN_TRAINING = 2
} tsr_plan_goal;
typedef struct tsr_cluster_plan_params {
    size_t struct_size;
    tsr_plan_goal goal;
    int64_t context;
    int sequences;
    int micro_batches;
    int pass_tokens;
    tsr_dtype dtype, cache_dtype;
    tsr_dtype
        wire;
    int context_ranks;
    tsr_expert_division expert_division;
    int host_experts;
} tsr_cluster_plan_params;
typedef struct tsr_cluster_plan tsr_cluster_plan;
TSR_API tsr_status tsr_cluster_plan_create(const tsr_cluster *cluster,
                                                         const tsr_model_file *model,
                                                         const tsr_cluster_plan_params *params,
                                                         tsr_cluster_plan **out);
TSR_API void tsr_cluster_plan_destroy(tsr_cluster_plan **plan);
typedef struct tsr_cluster_plan_info {
    size_t struct_size;
    const char *architecture;
    int layers;
    int grids;
    int best;
} tsr_cluster_plan_info;
TSR_API tsr_status tsr_cluster_plan_get_info(const tsr_cluster_plan *plan,
                                                           tsr_cluster_plan_info *out);
typedef struct tsr_cluster_grid {
    size_t struct_size;
    int data, tensor, stages;
   _Bool 
        sharded;
   _Bool 
        by_rates;
   _Bool 
        predicted;
    int rank_count;
    const int *ranks;
    const int *layers;
    const uint64_t *memory_bytes;
    const double *rates;
    const double *shares;
    double seconds;
    double compute_seconds;
    double tensor_seconds, data_seconds, stage_seconds;
    double idle_seconds;
    double tokens_per_second;
    int shared_host;
    int shared_ranks;
    uint64_t missing_bytes;
    int missing_place;
    int context_ranks;
    tsr_expert_division expert_division;
} tsr_cluster_grid;
TSR_API tsr_status tsr_cluster_plan_get_grid(const tsr_cluster_plan *plan, int number,
                                                           tsr_cluster_grid *out);
typedef struct tsr_quant_format {
    tsr_dtype dtype;
    const char *name;
    int block_count;
    int block_bytes;
    int gguf_type;
   _Bool 
        quantizes;
} tsr_quant_format;
TSR_API const tsr_quant_format *tsr_quant_format_of(tsr_dtype dtype);
TSR_API const tsr_quant_format *tsr_quant_format_at(int index);
TSR_API tsr_status tsr_quant_bytes(tsr_dtype dtype, int64_t count, uint64_t *out);
TSR_API tsr_status tsr_quantize(tsr_dtype dtype, const float *values, int64_t count,
                                              void *blocks, uint64_t size_bytes);
TSR_API tsr_status tsr_dequantize(tsr_dtype dtype, const void *blocks,
                                                uint64_t size_bytes, float *values, int64_t count);
typedef struct tsr_causal_conv_params {
    size_t struct_size;
    const tsr_tensor *bias;
    const tsr_tensor *state;
    const tsr_tensor *lengths, *starts;
   _Bool 
        silu;
    const tsr_tensor *read_slots, *write_slots;
} tsr_causal_conv_params;
TSR_API tsr_status tsr_causal_conv(tsr_stream *stream, tsr_tensor *y,
                                                 tsr_tensor *new_state, const tsr_tensor *x,
                                                 const tsr_tensor *weight,
                                                 const tsr_causal_conv_params *params);
typedef struct tsr_causal_conv_grads {
    size_t struct_size;
    tsr_tensor *dx;
    tsr_tensor *dweight,
        *dbias;
    tsr_tensor *dstate;
} tsr_causal_conv_grads;
TSR_API tsr_status tsr_causal_conv_grad(tsr_stream *stream,
                                                      const tsr_causal_conv_grads *grads,
                                                      const tsr_tensor *dy,
                                                      const tsr_tensor *dnew_state,
                                                      const tsr_tensor *x, const tsr_tensor *weight,
                                                      const tsr_causal_conv_params *params);
typedef struct tsr_delta_rule_params {
    size_t struct_size;
    const tsr_tensor *state;
    const tsr_tensor *lengths, *starts;
    float scale;
    float norm_epsilon;
   _Bool 
        tiled_heads;
    int64_t recurrent_tokens;
    const tsr_tensor *read_slots, *write_slots;
    tsr_precision precision;
    uint32_t reserved;
} tsr_delta_rule_params;
TSR_API tsr_status tsr_delta_rule(tsr_stream *stream, tsr_tensor *y,
                                                tsr_tensor *new_state, const tsr_tensor *q,
                                                const tsr_tensor *k, const tsr_tensor *v,
                                                const tsr_tensor *beta, const tsr_tensor *g,
                                                const tsr_delta_rule_params *params);
typedef struct tsr_delta_rule_grads {
    size_t struct_size;
    tsr_tensor *dq, *dk, *dv, *dbeta, *dg;
    tsr_tensor *dstate;
} tsr_delta_rule_grads;
TSR_API tsr_status tsr_delta_rule_grad(
    tsr_stream *stream, const tsr_delta_rule_grads *grads, const tsr_tensor *dy,
    const tsr_tensor *dnew_state, const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v,
    const tsr_tensor *beta, const tsr_tensor *g, const tsr_delta_rule_params *params);
typedef enum tsr_schedule_kind {
    TSR_SCHEDULE_CONSTANT =
        0,
    TSR_SCHEDULE_LINEAR = 1,
    TSR_SCHEDULE_COSINE = 2
} tsr_schedule_kind;
typedef struct tsr_schedule {
    size_t struct_size;
    tsr_schedule_kind kind;
    double learning_rate, final_rate;
    int64_t warmup_steps;
    int64_t steps;
} tsr_schedule;
TSR_API tsr_status tsr_schedule_check(const tsr_schedule *schedule);
TSR_API double tsr_schedule_rate(const tsr_schedule *schedule, int64_t step);
typedef struct tsr_loss_scaler {
    float scale;
    float growth, backoff;
    float smallest, largest;
    int64_t interval;
    int64_t good_steps;
} tsr_loss_scaler;
typedef struct tsr_loss_scaler_params {
    size_t struct_size;
    float scale;
    float growth;
    float backoff;
    int64_t interval;
    float smallest, largest;
} tsr_loss_scaler_params;
TSR_API tsr_status tsr_loss_scaler_init(tsr_loss_scaler *scaler,
                                                      const tsr_loss_scaler_params *params);
TSR_API 
       _Bool 
            tsr_loss_scaler_update(tsr_loss_scaler *scaler, double norm);
