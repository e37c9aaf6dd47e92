/* Adapters of sequences: which one each row of a pass has. */
#include "base/alloc.h"
#include "base/hash.h"
#include "model/generate/generator.h"
#include "model/lora/lora.h"
#include "model/model.h"

tsr_status tsr__generator_take_adapter(const tsr_generator *g, const tsr_lora *lora,
                                       tsr__sequence *s)
{
    s->adapter = NULL;
    if (!lora)
        return TSR_OK;
    TSR__REQUIRE(lora->stack == g->model->stack,
                 "generator: adapter '%s' is attached to another model", lora->name);
    TSR__REQUIRE(!lora->trainable && !lora->adapter.sharded && !lora->adapter.has_head &&
                     !lora->adapter.has_experts && !lora->adapter.has_latent && !lora->dora,
                 "generator: adapter '%s' %s, which sequences cannot have", lora->name,
                 lora->adapter.has_head      ? "has one for the head"
                 : lora->adapter.has_experts ? "has some for experts"
                 : lora->adapter.has_latent  ? "has some for latent attention"
                 : lora->dora                ? "has magnitudes (DoRA)"
                                             : "is trainable");
    s->adapter = &lora->adapter;
    return TSR_OK;
}

tsr_status tsr__generator_use_adapters(const tsr_generator *g, int count, const int *numbers,
                                       int64_t tokens)
{
    tsr_stack *stack = g->model->stack;
    if (!stack->adapters)
        return TSR_OK;
    const tsr__stack_adapter **of = tsr__calloc((size_t)count, sizeof *of);
    if (!of)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++)
        of[i] = g->sequences[numbers[i]].adapter;
    const tsr_status status = tsr__stack_use_adapters(stack, count, tokens, of);
    tsr__free(of);
    return status;
}

uint64_t tsr__generator_chain(const tsr_generator *g, const tsr__sequence *s)
{
    uint64_t chain = s->adapter ? s->adapter->identity : 0;
    if (s->adapter)
        return chain;
    for (const tsr__stack_adapter *a = g->model->stack->adapters; a; a = a->next)
        if (a->is_enabled)
            chain = chain == 0 ? a->identity : tsr__hash(chain, &a->identity, sizeof a->identity);
    return chain;
}
