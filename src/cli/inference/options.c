/* The options that the commands share: their defaults, and their conversion to params. */
#include <stdio.h>
#include <string.h>

#include "cli/inference/inference.h"
#include "cli/lib/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"

inference_options inference_chosen = {
    .temperature = 0.8,
    .top_p = 0.95,
    .repetition_penalty = 1,
    .timeout = 600,
};

bool inference_read_adapter(void *user, const char *text, char *problem, size_t size)
{
    inference_options *o = &inference_chosen;
    const char *colon = strrchr(text, ':');
    double scale = 1;
    size_t length = strlen(text);
    (void)user;
    if (colon != NULL && cli_read_real(colon + 1, -1e6, 1e6, &scale))
        length = (size_t)(colon - text);
    if (length == 0) {
        snprintf(problem, size, "takes a folder or a file, and perhaps :SCALE, not '%.80s'", text);
        return false;
    }
    if (o->adapter_count == INFERENCE_MAX_ADAPTERS) {
        snprintf(problem, size, "may be given %d times at most", INFERENCE_MAX_ADAPTERS);
        return false;
    }
    inference_adapter *adapter = &o->adapters[o->adapter_count++];
    adapter->path = cli_alloc(length + 1, 1);
    memcpy(adapter->path, text, length);
    adapter->scale = scale;
    return true;
}

bool inference_read_named_adapter(void *user, const char *text, char *problem, size_t size)
{
    inference_options *o = &inference_chosen;
    const char *equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    if (length == 0) {
        snprintf(problem, size, "takes NAME=PATH, and perhaps :SCALE, not '%.80s'", text);
        return false;
    }
    for (int i = 0; i < o->adapter_count; i++)
        if (strlen(o->adapters[i].name) == length &&
            strncmp(o->adapters[i].name, text, length) == 0) {
            snprintf(problem, size, "has two adapters called '%.80s'", o->adapters[i].name);
            return false;
        }
    if (!inference_read_adapter(user, equals + 1, problem, size))
        return false;
    char *name = cli_alloc(length + 1, 1);
    memcpy(name, text, length);
    o->adapters[o->adapter_count - 1].name = name;
    return true;
}

void inference_free_adapters(void)
{
    for (int i = 0; i < inference_chosen.adapter_count; i++) {
        free(inference_chosen.adapters[i].name);
        free(inference_chosen.adapters[i].path);
    }
    inference_chosen.adapter_count = 0;
    free(inference_chosen.draft.of.path);
    inference_chosen.draft.of.path = NULL;
}

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

bool inference_read_draft_ranks(void *user, const char *text, char *problem, size_t size)
{
    inference_draft *draft = user;
    const bool all = strcmp(text, "all") == 0;
    if (!all && strcmp(text, "one") != 0) {
        snprintf(problem, size, "takes one or all, not '%.40s'", text);
        return false;
    }
    draft->ranks = all ? INFERENCE_DRAFT_ALL : INFERENCE_DRAFT_ONE;
    return true;
}

const char *inference_check_draft(void)
{
    const inference_draft *draft = &inference_chosen.draft;
    if (draft->of.from != TSR_DRAFT_NONE && inference_chosen.stages.context_ranks > 1)
        return "--draft needs a model without --context-parallel";
    if (draft->of.from == TSR_DRAFT_MODEL)
        return draft->ranks == INFERENCE_DRAFT_ALL && inference_chosen.stages.count > 1
                   ? "--draft-ranks all needs a model without --stages"
                   : NULL;
    if (draft->ranks == INFERENCE_DRAFT_ALL)
        return "--draft-ranks needs --draft MODEL";
    return draft->rejection && draft->of.from != TSR_DRAFT_MTP
               ? "--draft-rejection needs --draft mtp or --draft MODEL"
               : NULL;
}
