/* Groups, layers, FSDP models and optimizers in a build without Vulkan (-Dvulkan=disabled). Every
 * function exists and returns TSR_ERR_UNSUPPORTED. The objects that these functions take cannot be
 * created. */
#include "base/stub.h"
#include "tessera/calibrate.h"
#include "tessera/moe.h"
#include "tessera/optimizer.h"
#include "tessera/pipeline.h"
#include "tessera/transformer.h"

/* Defines functions that do not return a status. */
#define ANSWER(type, name, parameters, value)                                                      \
    type name parameters                                                                           \
    {                                                                                              \
        return value;                                                                              \
    }
#define NOTHING(name, ...)                                                                         \
    void name(__VA_ARGS__)                                                                         \
    {                                                                                              \
    }

/* clang-format off */

/* moe.h */
TSR__ABSENT(tsr_moe_create, const tsr_moe_params *params, tsr_layer **out)
TSR__ABSENT(tsr_moe_get_choice, const tsr_layer_saved *saved, tsr_moe_choice *out)
TSR__ABSENT(tsr_moe_set_balance, tsr_layer *layer, const tsr_tensor *dprobabilities)

/* group.h */
TSR__ABSENT(tsr_group_create, tsr_comm *comm, tsr_stream *stream,
            const tsr_group_params *params, tsr_group **out)
TSR__FORGET(tsr_group_destroy, tsr_group)
NOTHING(tsr_group_set_default, tsr_group *group)
ANSWER(tsr_group *, tsr_group_default, (void), NULL)
ANSWER(int, tsr_group_rank, (const tsr_group *group), 0)
ANSWER(int, tsr_group_size, (const tsr_group *group), 1)
ANSWER(tsr_stream *, tsr_group_stream, (const tsr_group *group), NULL)
ANSWER(tsr_comm *, tsr_group_comm, (const tsr_group *group), NULL)
TSR__ABSENT(tsr_group_all_reduce, tsr_group *group, tsr_tensor *tensor, tsr_op op,
            const tsr_collective_params *params, tsr_request **request)
TSR__ABSENT(tsr_group_broadcast, tsr_group *group, tsr_tensor *tensor, int root,
            tsr_request **request)
TSR__ABSENT(tsr_group_all_gather, tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
            int dim, const tsr_collective_params *params, tsr_request **request)
TSR__ABSENT(tsr_group_reduce_scatter, tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
            int dim, tsr_op op, const tsr_collective_params *params, tsr_request **request)
TSR__ABSENT(tsr_group_get_stats, const tsr_group *group, tsr_group_stats *out)
NOTHING(tsr_group_reset_stats, tsr_group *group)

/* layer.h */
TSR__ABSENT(tsr_layer_forward, tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved **saved,
            tsr_tensor **y)
TSR__ABSENT(tsr_layer_backward, tsr_layer *layer, const tsr_layer_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
TSR__FORGET(tsr_layer_saved_destroy, tsr_layer_saved)
TSR__FORGET(tsr_layer_destroy, tsr_layer)
ANSWER(tsr_group *, tsr_layer_group, (const tsr_layer *layer), NULL)
ANSWER(int, tsr_layer_parameter_count, (const tsr_layer *layer), 0)
ANSWER(const tsr_parameter *, tsr_layer_parameter, (const tsr_layer *layer, int index), NULL)
TSR__ABSENT(tsr_layer_find_parameter, const tsr_layer *layer, const char *name,
            const tsr_parameter **out)
NOTHING(tsr_layer_zero_grad, tsr_layer *layer)
NOTHING(tsr_layer_set_frozen, tsr_layer *layer, bool frozen)
TSR__ABSENT(tsr_layer_set_parameter, tsr_layer *layer, int index, tsr_tensor *tensor,
            tsr_tensor *grad, bool grad_holds)
TSR__ABSENT(tsr_layer_gather_parameter, const tsr_layer *layer, int index, tsr_tensor **out)
TSR__ABSENT(tsr_column_linear_create, const tsr_linear_params *params, tsr_layer **out)
TSR__ABSENT(tsr_row_linear_create, const tsr_linear_params *params, tsr_layer **out)
TSR__ABSENT(tsr_linear_get_shard, const tsr_layer *layer, tsr_linear_shard *out)
TSR__ABSENT(tsr_mlp_create, const tsr_mlp_params *params, tsr_layer **out)
TSR__ABSENT(tsr_norm_create, const tsr_norm_params *params, tsr_layer **out)
TSR__ABSENT(tsr_latent_attention_create, const tsr_latent_attention_params *params,
            tsr_layer **out)
TSR__ABSENT(tsr_self_attention_create, const tsr_self_attention_params *params, tsr_layer **out)
TSR__ABSENT(tsr_delta_net_create, const tsr_delta_net_params *params, tsr_layer **out)
TSR__ABSENT(tsr_short_conv_create, const tsr_short_conv_params *params, tsr_layer **out)
TSR__ABSENT(tsr_self_attention_get_heads, const tsr_layer *layer, tsr_heads *out)
TSR__ABSENT(tsr_layer_forward_cached, tsr_layer *layer, const tsr_tensor *x, tsr_kv_cache *cache,
            int cache_layer, tsr_tensor **y)
TSR__ABSENT(tsr_block_create, const tsr_block_params *params, tsr_layer **out)
TSR__ABSENT(tsr_block_set_dropout, tsr_layer *layer, float p, const tsr_random_params *params)
TSR__ABSENT(tsr_embedding_create, const tsr_embedding_params *params, tsr_layer **out)
TSR__ABSENT(tsr_vocabulary_cross_entropy, tsr_group *group, tsr_tensor *loss,
            tsr_tensor *dlogits, const tsr_tensor *logits, const tsr_tensor *labels,
            int64_t classes, const tsr_partition_params *partition, float grad_scale)

/* calibrate.h */
TSR__ABSENT(tsr_calibrate, tsr_group *group, const tsr_calibrate_params *params, double *rates)

/* fsdp.h */
TSR__ABSENT(tsr_fsdp_create, const tsr_fsdp_params *params, tsr_fsdp **out)
TSR__ABSENT(tsr_fsdp_rebuild, const tsr_fsdp_params *params, tsr_fsdp **model)
TSR__ABSENT(tsr_fsdp_forward, tsr_fsdp *model, int unit, const tsr_tensor *x,
            tsr_layer_saved **saved, tsr_tensor **y)
TSR__ABSENT(tsr_fsdp_backward, tsr_fsdp *model, int unit, const tsr_layer_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
TSR__ABSENT(tsr_fsdp_begin, tsr_fsdp *model, int unit, tsr_pass pass)
TSR__ABSENT(tsr_fsdp_end, tsr_fsdp *model, int unit)
TSR__ABSENT(tsr_fsdp_get_shard, tsr_fsdp *model, uint64_t param, tsr_fsdp_shard *out)
TSR__ABSENT(tsr_fsdp_changed, tsr_fsdp *model)
TSR__FORGET(tsr_fsdp_destroy, tsr_fsdp)
ANSWER(const tsr_shard_plan *, tsr_fsdp_plan, (const tsr_fsdp *model), NULL)
ANSWER(const tsr_parameter *, tsr_fsdp_parameter, (const tsr_fsdp *model, int unit, int index),
       NULL)
TSR__ABSENT(tsr_fsdp_get_memory, const tsr_fsdp *model, tsr_fsdp_memory *out)

/* optimizer.h */
TSR__ABSENT(tsr_optimizer_create, const tsr_optimizer_params *params, tsr_optimizer **out)
TSR__FORGET(tsr_optimizer_destroy, tsr_optimizer)
TSR__ABSENT(tsr_optimizer_add_layer, tsr_optimizer *optimizer, tsr_layer *layer)
TSR__ABSENT(tsr_optimizer_add_parameter, tsr_optimizer *optimizer, const tsr_parameter *parameter)
TSR__ABSENT(tsr_optimizer_add_fsdp, tsr_optimizer *optimizer, tsr_fsdp *model)
TSR__ABSENT(tsr_optimizer_step, tsr_optimizer *optimizer, float learning_rate)
TSR__ABSENT(tsr_optimizer_clip, tsr_optimizer *optimizer, float max_norm,
            const tsr_optimizer_clip_params *params, double *norm)
TSR__ABSENT(tsr_optimizer_norm, tsr_optimizer *optimizer, double *out)
TSR__ABSENT(tsr_optimizer_zero_grad, tsr_optimizer *optimizer)
ANSWER(int64_t, tsr_optimizer_steps, (const tsr_optimizer *optimizer), 0)
TSR__ABSENT(tsr_optimizer_changed, tsr_optimizer *optimizer)
TSR__ABSENT(tsr_optimizer_save, tsr_optimizer *optimizer, const char *path,
            const tsr_optimizer_file_params *params)
TSR__ABSENT(tsr_optimizer_load, tsr_optimizer *optimizer, const char *path,
            const tsr_optimizer_file_params *params)

/* pipeline.h */
TSR__ABSENT(tsr_pipeline_create, const tsr_pipeline_params *params, tsr_pipeline **out)
TSR__FORGET(tsr_pipeline_destroy, tsr_pipeline)
TSR__ABSENT(tsr_pipeline_run, tsr_pipeline *pipeline, const tsr_pipeline_run_params *params)
TSR__ABSENT(tsr_pipeline_reduce_ends, tsr_pipeline *pipeline, tsr_tensor *tensor)
TSR__ABSENT(tsr_pipeline_get_stats, const tsr_pipeline *pipeline, tsr_pipeline_stats *out)
/* clang-format on */
