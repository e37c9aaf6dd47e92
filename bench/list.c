/* The list of all benchmarks. */
#include <string.h>

#include "bench/harness/bench.h"
#include "tsr_config.h"

extern const bench bench_peak, bench_launch, bench_matmul, bench_batched, bench_attention;
extern const bench bench_delta, bench_copy, bench_experts;
extern const bench bench_elementwise, bench_embedding, bench_optimizer;
extern const bench bench_random_fill, bench_first;
extern const bench bench_all_reduce, bench_all_gather, bench_reduce_scatter, bench_link;
extern const bench bench_rng, bench_samplers, bench_plan, bench_grammar;

/* A complete run measures in this order: ceilings first. */
/* clang-format off */
const bench *const bench_list[] = {
#if TSR__HAVE_VULKAN
    &bench_peak,
    &bench_launch,
    &bench_matmul,
    &bench_batched,
    &bench_attention,
    &bench_experts,
    &bench_delta,
    &bench_copy,
    &bench_elementwise,
    &bench_embedding,
    &bench_optimizer,
    &bench_random_fill,
    &bench_first,
#endif
#if TSR__HAVE_UCX
    &bench_all_reduce,
    &bench_all_gather,
    &bench_reduce_scatter,
    &bench_link,
#endif
    &bench_rng,
    &bench_samplers,
    &bench_plan,
    &bench_grammar,
    NULL,
};
/* clang-format on */

const char bench_list_lacks[] =
#if TSR__HAVE_VULKAN && TSR__HAVE_UCX
    "";
#elif TSR__HAVE_VULKAN
    " in this build, which has no UCX";
#elif TSR__HAVE_UCX
    " in this build, which has no Vulkan";
#else
    " in this build, which has neither Vulkan nor UCX";
#endif

const bench *bench_find(const char *name)
{
    for (int i = 0; bench_list[i] != NULL; i++)
        if (strcmp(bench_list[i]->name, name) == 0)
            return bench_list[i];
    return NULL;
}
