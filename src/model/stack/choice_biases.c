/* Changes the biases for the choice of experts, against unequal loads. */
#include <string.h>

#include "model/stack/stack.h"

typedef struct changing {
    tsr_stack *stack;
    const float *const *changes; /* [blocks] */
    int wanted;                  /* the number of blocks with changes */
} changing;

/* shard += change, which has its elements. */
static tsr_status add_to_shard(const tsr_stack *s, const tsr_fsdp_shard *shard, const float *change)
{
    const int64_t count = (int64_t)shard->range.count;
    tsr_tensor *added = NULL;
    TSR__TRY(tsr_tensor_create(s->device, TSR_F32, 1, &count, &added));
    tsr_status status =
        tsr_tensor_upload(s->stream, added, change, shard->range.count * sizeof *change);
    if (status == TSR_OK)
        status = tsr_axpy(s->stream, shard->value, 1, added);
    tsr_tensor_destroy(&added);
    return status;
}

static tsr_status change_one(void *user, const tsr__stack_parameter *p)
{
    changing *c = user;
    if (strcmp(p->ours, "mlp.router.choice_bias") != 0)
        return TSR_OK;
    const float *change = c->changes[p->layer - c->stack->first_layer];
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    if (!change)
        return TSR_OK;
    TSR__TRY(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    if (!shard.value || shard.range.count == 0)
        return TSR_OK;
    return add_to_shard(c->stack, &shard, change + shard.range.start);
}

tsr_status tsr_stack_add_choice_biases(tsr_stack *stack, const float *const *changes)
{
    TSR__REQUIRE(stack && changes, "stack: %s is NULL", stack ? "changes" : "stack");
    TSR__REQUIRE(stack->sharded, "stack: the parameters are not sharded");
    changing c = {.stack = stack, .changes = changes};
    for (int i = 0; i < stack->layer_count; i++) {
        const tsr_model_layer *layer =
            stack->config->kinds[stack->config->layer_kinds[stack->first_layer + i]];
        c.wanted += changes[i] != NULL;
        TSR__REQUIRE(!changes[i] || (layer->experts && layer->experts->choice_bias),
                     "stack: block %d has no bias for the choice of experts", i);
    }
    if (c.wanted == 0)
        return TSR_OK;
    TSR__TRY(tsr__stack_each(stack, change_one, &c));
    if (stack->frozen)
        TSR__TRY(tsr_fsdp_changed(stack->frozen));
    return tsr_fsdp_changed(stack->sharded);
}
