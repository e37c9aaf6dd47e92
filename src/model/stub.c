/* Models and generators in a build without Vulkan (-Dvulkan=disabled). Every function exists and
 * returns TSR_ERR_UNSUPPORTED. The objects that these functions take cannot be created. */
#include "base/stub.h"
#include "tessera/generator.h"

/* clang-format off */

/* model.h */
TSR__ABSENT(tsr_model_open, const tsr_model_file *file, const tsr_model_params *params,
            tsr_model **out)
TSR__FORGET(tsr_model_close, tsr_model)
const tsr_model_config *tsr_model_get_config(const tsr_model *model) { return NULL; }
tsr_group *tsr_model_group(const tsr_model *model) { return NULL; }
tsr_dtype tsr_model_dtype(const tsr_model *model) { return (tsr_dtype)0; }
void tsr_model_get_stats(const tsr_model *model, tsr_model_stats *out)
{
    if (out)
        *out = (tsr_model_stats){0};
}

/* generator.h */
TSR__ABSENT(tsr_generator_create, const tsr_generator_params *params, tsr_generator **out)
TSR__FORGET(tsr_generator_destroy, tsr_generator)
TSR__ABSENT(tsr_generator_add, tsr_generator *generator, const tsr_sequence_params *params,
            int *out)
TSR__ABSENT(tsr_generator_continue, tsr_generator *generator, int sequence, int64_t count,
            const int32_t *tokens, int64_t max_tokens)
TSR__ABSENT(tsr_generator_remove, tsr_generator *generator, int sequence)
TSR__ABSENT(tsr_generator_step, tsr_generator *generator, tsr_generated *tokens, int *count)
void tsr_generator_interrupt(tsr_generator *generator) { }
void tsr_generator_get_stats(const tsr_generator *generator, tsr_generator_stats *out)
{
    if (out)
        *out = (tsr_generator_stats){0};
}
