/* The options that the commands share: their defaults, and their conversion to params. */
#include "cli/inference/inference.h"

inference_options inference_chosen = {
    .temperature = 0.8,
    .top_p = 0.95,
    .repetition_penalty = 1,
    .timeout = 600,
};

tsr_sampling_params inference_sampling(void)
{
    const inference_options *o = &inference_chosen;
    return (tsr_sampling_params){.struct_size = sizeof(tsr_sampling_params),
                                 .seed = (uint64_t)o->seed,
                                 .temperature = o->greedy ? 0 : o->temperature,
                                 .top_k = o->top_k,
                                 .top_p = o->top_p > 0 ? o->top_p : TSR_ZERO,
                                 .min_p = o->min_p,
                                 .repetition_penalty = o->repetition_penalty};
}
