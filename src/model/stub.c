/* Models and generators in a build without Vulkan (-Dvulkan=disabled). Every function exists and
 * returns TSR_ERR_UNSUPPORTED. The objects that these functions take cannot be created. */
#include "base/stub.h"
#include "tessera/generator.h"
#include "tessera/lora.h"
#include "tessera/stack.h"

/* clang-format off */

/* model.h */
TSR__ABSENT(tsr_model_open, const tsr_model_file *file, const tsr_model_params *params,
            tsr_model **out)
TSR__FORGET(tsr_model_close, tsr_model)
const tsr_model_config *tsr_model_get_config(const tsr_model *model) { return NULL; }
TSR__ABSENT(tsr_model_get_stats, const tsr_model *model, tsr_model_stats *out)

struct tsr_stack *tsr_model_stack(const tsr_model *model) { return NULL; }

/* lora.h */
TSR__ABSENT(tsr_lora_create, const tsr_lora_params *params, tsr_lora **out)
TSR__ABSENT(tsr_lora_load, const char *path, const tsr_lora_params *params, tsr_lora **out)
TSR__FORGET(tsr_lora_destroy, tsr_lora)
TSR__ABSENT(tsr_lora_save, tsr_lora *lora, const char *path, tsr_lora_format format,
            tsr_comm *stages)
TSR__ABSENT(tsr_lora_shard, tsr_lora *lora, const tsr_fsdp_params *params)
TSR__ABSENT(tsr_lora_reshard, tsr_lora *lora, const tsr_fsdp_params *params)
TSR__ABSENT(tsr_lora_add_to, tsr_lora *lora, tsr_optimizer *optimizer)
TSR__ABSENT(tsr_lora_merge, tsr_lora *lora)
void tsr_lora_set_enabled(tsr_lora *lora, bool enabled) { }
TSR__ABSENT(tsr_lora_get_info, const tsr_lora *lora, tsr_lora_info *out)

/* stack.h */
TSR__ABSENT(tsr_stack_create, const tsr_stack_params *params, tsr_stack **out)
TSR__FORGET(tsr_stack_destroy, tsr_stack)
TSR__ABSENT(tsr_stack_get_info, const tsr_stack *stack, tsr_stack_info *out)
tsr_layer *tsr_stack_block(const tsr_stack *stack, int index) { return NULL; }
TSR__ABSENT(tsr_stack_shard, tsr_stack *stack, const tsr_fsdp_params *params)
TSR__ABSENT(tsr_stack_reshard, tsr_stack *stack, const tsr_fsdp_params *params)
TSR__ABSENT(tsr_stack_add_to, tsr_stack *stack, tsr_optimizer *optimizer)
TSR__ABSENT(tsr_stack_reduce_tied, tsr_stack *stack, tsr_pipeline *pipeline)
TSR__ABSENT(tsr_stack_load, tsr_stack *stack, const tsr_model_file *file)
TSR__ABSENT(tsr_stack_save, tsr_stack *stack, const char *path, tsr_comm *stages)
TSR__FORGET(tsr_stack_saved_destroy, tsr_stack_saved)
TSR__ABSENT(tsr_stack_forward, tsr_stack *stack, const tsr_tensor *x, const int32_t *starts,
            tsr_stack_saved **saved, tsr_tensor **y)
TSR__ABSENT(tsr_stack_forward_cached, tsr_stack *stack, const tsr_tensor *x, tsr_kv_cache *cache,
            tsr_tensor **y)
TSR__ABSENT(tsr_stack_backward, tsr_stack *stack, const tsr_stack_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
TSR__ABSENT(tsr_stack_head_forward, tsr_stack *stack, const tsr_tensor *hidden,
            tsr_layer_saved **saved, tsr_tensor **logits)
TSR__ABSENT(tsr_stack_head_backward, tsr_stack *stack, const tsr_layer_saved *saved,
            const tsr_tensor *dlogits, tsr_tensor **dhidden)
TSR__ABSENT(tsr_stack_head_loss, tsr_stack *stack, const tsr_tensor *hidden,
            const tsr_head_loss_params *params, tsr_tensor **dhidden)
TSR__ABSENT(tsr_stack_gather_logits, tsr_stack *stack, const tsr_tensor *logits, float *out)
TSR__ABSENT(tsr_stack_get_choice, const tsr_stack_saved *saved, int block, tsr_moe_choice *out)
TSR__ABSENT(tsr_stack_add_choice_biases, tsr_stack *stack, const float *const *changes)
TSR__ABSENT(tsr_stack_set_dropout, tsr_stack *stack, float p, const tsr_random_params *random)

/* generator.h */
TSR__ABSENT(tsr_generator_create, const tsr_generator_params *params, tsr_generator **out)
TSR__FORGET(tsr_generator_destroy, tsr_generator)
TSR__ABSENT(tsr_generator_add, tsr_generator *generator, const tsr_sequence_params *params,
            int *out)
TSR__ABSENT(tsr_generator_continue, tsr_generator *generator, int sequence, int64_t count,
            const int32_t *tokens, int64_t max_tokens)
TSR__ABSENT(tsr_generator_remove, tsr_generator *generator, int sequence)
TSR__ABSENT(tsr_generator_step, tsr_generator *generator, int *count)
const tsr_generated *tsr_generator_token(const tsr_generator *generator, int index) { return NULL; }
void tsr_generator_interrupt(tsr_generator *generator) { }
TSR__ABSENT(tsr_generator_get_stats, const tsr_generator *generator, tsr_generator_stats *out)
