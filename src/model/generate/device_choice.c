/* Tokens that the device chooses from logits: for passes in flight, and for drafts of a model. */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/generator.h"
#include "model/model.h"

tsr_status tsr__generator_record_draw(const tsr_model *m, int rows, const tsr_tensor *logits,
                                      const struct tsr_choice_words *choices, tsr_tensor *seen,
                                      const tsr_tensor *results, tsr_tensor **ids)
{
    const int64_t shape[2] = {rows, m->config->vocabulary};
    tsr_tensor *flat = NULL, *wide = NULL, *some = NULL;
    tsr_status status = tsr_tensor_reshape(logits, 2, shape, &flat);
    if (status == TSR_OK && tsr_tensor_layout(flat)->dtype != TSR_F32) {
        status = tsr_tensor_create(m->device, TSR_F32, 2, shape, &wide);
        if (status == TSR_OK)
            status = tsr_copy(m->stream, wide, flat);
    }
    if (status == TSR_OK)
        status = tsr_tensor_slice(results, 0, 0, rows, 1, &some);
    if (status == TSR_OK)
        status = tsr_tensor_create(m->device, TSR_I32, 2, (int64_t[]){rows, 1}, ids);
    if (status == TSR_OK)
        status = tsr__choose(m->stream, *ids, some, seen, wide ? wide : flat, choices);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&some);
    return status;
}

tsr_status tsr__generator_record_choice(const tsr_model *m, int rows, const tsr_tensor *features,
                                        const struct tsr_choice_words *choices, tsr_tensor *seen,
                                        const tsr_tensor *results, tsr_tensor **ids)
{
    tsr_tensor *own = NULL;
    TSR__TRY(tsr__stack_head_after_blocks(m->stack, features, &own));
    const tsr_status status = tsr__generator_record_draw(m, rows, own, choices, seen, results, ids);
    tsr_tensor_destroy(&own);
    return status;
}
