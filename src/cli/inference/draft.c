/* The model of --draft: on one rank of the job, or divided over all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inference/inference.h"
#include "cli/lib/memory.h"

/* Returns whether this rank chooses the tokens: rank 0 of the last stage does. */
static bool chooses(const inference_job *j)
{
    return tsr_group_rank(j->group) == 0 &&
           (j->stages == NULL || tsr_comm_rank(j->stages) == tsr_comm_size(j->stages) - 1);
}

/* Compares the texts of all tokens. */
static bool same_tokens(inference_job *j, const tsr_tokenizer *tokenizer,
                        const tsr_tokenizer *draft)
{
    const int32_t count = tsr_tokenizer_size(tokenizer), of_draft = tsr_tokenizer_size(draft);
    if (count != of_draft) {
        snprintf(j->problem, sizeof j->problem,
                 "--draft %s: its tokenizer has %" PRId32 " tokens, that of the model %" PRId32,
                 inference_chosen.draft.of.path, of_draft, count);
        return false;
    }
    for (int32_t id = 0; id < count; id++) {
        tsr_token_info a = TSR_INIT(tsr_token_info), b = TSR_INIT(tsr_token_info);
        if (tsr_tokenizer_get_token(tokenizer, id, &a) != TSR_OK ||
            tsr_tokenizer_get_token(draft, id, &b) != TSR_OK)
            return true; /* not reached */
        if (a.size_bytes == b.size_bytes && memcmp(a.text, b.text, a.size_bytes) == 0)
            continue;
        snprintf(j->problem, sizeof j->problem,
                 "--draft %s: token %" PRId32 " is '%.*s', but that of the model is '%.*s'",
                 inference_chosen.draft.of.path, id, b.size_bytes < 80 ? (int)b.size_bytes : 80,
                 b.text, a.size_bytes < 80 ? (int)a.size_bytes : 80, a.text);
        return false;
    }
    return true;
}

/* Refuses a model with another vocabulary. Models without a tokenizer are compared by its size. */
static tsr_status check_vocabulary(inference_job *j, const tsr_tokenizer *tokenizer,
                                   const tsr_model_file *file)
{
    const int64_t wanted = tsr_model_get_config(j->model)->vocabulary,
                  got = tsr_model_file_config(file)->vocabulary;
    tsr_tokenizer *draft = NULL;
    if (got != wanted) {
        snprintf(j->problem, sizeof j->problem,
                 "--draft %s: its vocabulary has %" PRId64 " tokens, that of the model %" PRId64,
                 inference_chosen.draft.of.path, got, wanted);
        return TSR_ERR_INVALID;
    }
    const bool both = tokenizer != NULL && tsr_model_file_open_tokenizer(file, &draft) == TSR_OK;
    const bool same = !both || same_tokens(j, tokenizer, draft);
    tsr_tokenizer_close(&draft);
    return same ? TSR_OK : TSR_ERR_INVALID;
}

static tsr_status open_draft(inference_job *j, const tsr_tokenizer *tokenizer,
                             const tsr_model_file *file, int sequences)
{
    const int64_t context = tsr_model_file_config(file)->context;
    tsr_model_params params = {.struct_size = sizeof params,
                               .group = j->draft_group != NULL ? j->draft_group : j->group,
                               .context = j->context < context ? j->context : context,
                               .sequences = sequences};
    const tsr_status status = check_vocabulary(j, tokenizer, file);
    return status == TSR_OK ? tsr_model_open(file, &params, &j->draft_model) : status;
}

tsr_status inference_open_draft(inference_job *j, const tsr_tokenizer *tokenizer, int sequences)
{
    const inference_draft *draft = &inference_chosen.draft;
    const bool all = draft->ranks == INFERENCE_DRAFT_ALL;
    tsr_model_file *file = NULL;
    if (draft->of.from != TSR_DRAFT_MODEL || (!all && !chooses(j)))
        return TSR_OK;
    tsr_status status = TSR_OK;
    if (!all && tsr_group_size(j->group) > 1)
        status = tsr_group_create(NULL, j->stream, NULL, &j->draft_group);
    if (status == TSR_OK)
        status = tsr_model_file_open(draft->of.path, &file);
    if (status == TSR_OK)
        status = open_draft(j, tokenizer, file, sequences);
    tsr_model_file_close(&file);
    if (status != TSR_OK && j->problem[0] == '\0')
        snprintf(j->problem, sizeof j->problem, "--draft %s: %s", draft->of.path, tsr_last_error());
    return status;
}
