/* The most likely tokens by the logits of several ranks. Each rank finds the largest logit of its
 * part of the vocabulary, and all exchange these, so that no rank needs all logits. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/generate/draft.h"
#include "model/generate/split_draw.h"
#include "model/model.h"

struct tsr__draft_choice {
    /* [TSR__DRAFT_SEQUENCES, 1], in memory that the host reads: this rank's largest logits, and
     * their indices in its part of the vocabulary */
    tsr_tensor *values, *indices;
    tsr__candidate *all; /* [ranks, TSR__DRAFT_SEQUENCES] */
};

void tsr__draft_choice_destroy(tsr__draft_choice **choice)
{
    tsr__draft_choice *c = *choice;
    if (!c)
        return;
    tsr_tensor_destroy(&c->values);
    tsr_tensor_destroy(&c->indices);
    tsr__free(c->all);
    tsr__free(c);
    *choice = NULL;
}

tsr_status tsr__draft_choice_create(const tsr_model *m, tsr__draft_choice **out)
{
    const int64_t shape[2] = {TSR__DRAFT_SEQUENCES, 1};
    const size_t ranks = (size_t)tsr_group_size(m->group);
    if (ranks == 1)
        return TSR_OK;
    tsr__draft_choice *c = tsr__calloc(1, sizeof *c);
    if (!c)
        return TSR_ERR_NO_MEMORY;
    c->all = tsr__calloc(ranks * TSR__DRAFT_SEQUENCES, sizeof *c->all);
    tsr_status status = c->all ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_tensor_create_host(m->device, TSR_F32, 2, shape, &c->values);
    if (status == TSR_OK)
        status = tsr_tensor_create_host(m->device, TSR_I32, 2, shape, &c->indices);
    if (status == TSR_OK)
        *out = c;
    else
        tsr__draft_choice_destroy(&c);
    return status;
}

/* Records finding this rank's largest logit of each row of `own` [rows, count]. */
static tsr_status record_largest(const tsr__draft_choice *c, const tsr_model *m, int rows,
                                 const tsr_tensor *own)
{
    tsr_tensor *values = NULL, *indices = NULL;
    tsr_status status = tsr_tensor_slice(c->values, 0, 0, rows, 1, &values);
    if (status == TSR_OK)
        status = tsr_tensor_slice(c->indices, 0, 0, rows, 1, &indices);
    if (status == TSR_OK)
        status = tsr_topk(m->stream, values, indices, own, 1);
    tsr_tensor_destroy(&values);
    tsr_tensor_destroy(&indices);
    return status;
}

/* The same for logits [rows, 1, count] of any dtype. */
static tsr_status find_largest(const tsr__draft_choice *c, const tsr_model *m, int rows,
                               const tsr_tensor *logits)
{
    const int64_t shape[2] = {rows, tsr_tensor_layout(logits)->shape[2]};
    tsr_tensor *flat = NULL, *wide = NULL;
    if (shape[1] == 0)
        return TSR_OK;
    tsr_status status = tsr_tensor_reshape(logits, 2, shape, &flat);
    if (status == TSR_OK && tsr_tensor_layout(logits)->dtype != TSR_F32) {
        status = tsr_tensor_create(m->device, TSR_F32, 2, shape, &wide);
        if (status == TSR_OK)
            status = tsr_copy(m->stream, wide, flat);
    }
    if (status == TSR_OK)
        status = record_largest(c, m, rows, wide ? wide : flat);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&wide);
    return status == TSR_OK ? tsr_stream_wait(m->stream) : status;
}

tsr_status tsr__draft_choose(tsr__draft_choice *c, const tsr_model *m, int rows,
                             const tsr_tensor *logits, int32_t *tokens)
{
    tsr__candidate own[TSR__DRAFT_SEQUENCES];
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    void *values, *indices;
    TSR__TRY(tsr_stack_get_info(m->stack, &info));
    TSR__TRY(find_largest(c, m, rows, logits));
    TSR__TRY(tsr_tensor_map(c->values, &values));
    TSR__TRY(tsr_tensor_map(c->indices, &indices));
    for (int i = 0; i < rows; i++)
        own[i] = info.logits == 0
                     ? (tsr__candidate){-INFINITY, 0}
                     : (tsr__candidate){((const float *)values)[i],
                                        (int32_t)info.first_logit + ((const int32_t *)indices)[i]};
    TSR__TRY(tsr_comm_all_gather(tsr_group_comm(m->group), own, c->all,
                                 (uint64_t)rows * sizeof *own, TSR_U8, NULL));
    for (int i = 0; i < rows; i++) {
        const tsr__candidate *best = &c->all[i];
        for (int r = 1; r < tsr_group_size(m->group); r++) /* of equal ones, the first token */
            best = c->all[r * rows + i].logit > best->logit ? &c->all[r * rows + i] : best;
        tokens[i] = best->token;
    }
    return TSR_OK;
}
