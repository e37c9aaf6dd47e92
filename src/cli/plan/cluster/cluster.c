#include "cli/plan/cluster/cluster.h"

#include <stdio.h>
#include <string.h>

#include "cli/lib/numbers.h"
#include "cli/lib/say.h"

/* The default of tessera generate for the number of tokens of a prompt in one pass. */
#define PASS_TOKENS 256

static int read_goal(const plan_cluster_options *o, plan_goal *out)
{
    static const char *const names[] = {"generation", "prompt", "training"};
    for (int i = 0; i < 3; i++)
        if (!o->goal ? i == 0 : strcmp(o->goal, names[i]) == 0) {
            *out = (plan_goal)i;
            return CLI_DONE;
        }
    return cli_usage_error("plan: --goal takes generation, prompt or training, not '%s'", o->goal);
}

/* Fails if an option was given that the goal does not use. */
static int check_goal(const plan_cluster_options *o, plan_goal goal)
{
    const struct {
        bool given, used;
        const char *name;
    } all[] = {{o->batch > 0, goal == PLAN_TRAINING, "batch"},
               {o->accumulate > 0, goal == PLAN_TRAINING, "accumulate"},
               {o->sequences > 0, goal == PLAN_GENERATION, "sequences"},
               {o->dtype != 0, goal != PLAN_TRAINING, "dtype"},
               {o->cache_dtype != 0, goal != PLAN_TRAINING, "cache-dtype"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !all[i].used)
            return cli_usage_error("plan: --goal %s does not take --%s",
                                   o->goal ? o->goal : "generation", all[i].name);
    return CLI_DONE;
}

static int read_wire(tsr_dtype wire, double *bytes)
{
    switch (wire ? wire : TSR_F32) {
    case TSR_F32:
        *bytes = 4;
        return CLI_DONE;
    case TSR_F16:
    case TSR_BF16:
        *bytes = 2;
        return CLI_DONE;
    case TSR_Q8_0:
        *bytes = 34.0 / 32;
        return CLI_DONE;
    default:
        return cli_usage_error("plan: --wire takes f32, f16, bf16 or q8_0, not '%s'",
                               tsr_dtype_name(wire));
    }
}

/* Chooses the candidates to print: the fastest that fits into memory, and the two fastest of all
 * others. If no candidate fits, the three fastest. */
static void choose(const plan_candidates *all, plan_outcome *out)
{
    out->best = -1;
    for (int i = 0; i < all->count && out->best < 0; i++)
        if (all->all[i].missing_bytes == 0)
            out->best = i;
    if (out->best >= 0)
        out->shown[out->shown_count++] = out->best;
    for (int i = 0; i < all->count && out->shown_count < 3; i++)
        if (i != out->best)
            out->shown[out->shown_count++] = i;
}

/* Writes why a candidate is slower than the best. Its time consists of computing, three kinds of
 * messages, and waiting; the reason is the one that exceeds that of the best candidate most. */
static void compare(const plan_prediction *best, const plan_prediction *one,
                    char text[PLAN_REASON_TEXT])
{
    const struct {
        const char *name;
        double best, one;
    } all[] = {{"computing", best->compute, one->compute},
               {"tensor-parallel messages", best->tensor, one->tensor},
               {"data-parallel messages", best->data, one->data},
               {"messages between stages", best->pipeline, one->pipeline},
               {"waiting for other stages", best->idle, one->idle}};
    size_t worst = 0;
    char mine[CLI_NUMBER_TEXT], theirs[CLI_NUMBER_TEXT];
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        if (all[i].one - all[i].best > all[worst].one - all[worst].best)
            worst = i;
    snprintf(text, PLAN_REASON_TEXT, "%.2f times as long: %s %s, the best %s",
             one->seconds / best->seconds, all[worst].name,
             cli_duration(1e9 * all[worst].one, mine),
             all[worst].best > 0 ? cli_duration(1e9 * all[worst].best, theirs) : "none");
}

char *plan_cluster_reason(const plan_outcome *outcome, int candidate, char text[PLAN_REASON_TEXT])
{
    const plan_candidate *one = &outcome->candidates->all[candidate];
    const plan_cluster *c = outcome->search->cluster;
    if (one->missing_bytes > 0) {
        const int rank = one->ranks[one->missing_place];
        char missing[CLI_BYTES_TEXT];
        snprintf(text, PLAN_REASON_TEXT, "does not fit: rank %d on %s lacks %s", rank,
                 c->names[c->rank[rank].host],
                 cli_bytes(plan_whole_bytes(one->missing_bytes), missing));
    } else if (one->sharing.is_part) {
        snprintf(text, PLAN_REASON_TEXT, "its time is not predicted");
    } else {
        compare(&outcome->candidates->all[outcome->best].predicted, &one->predicted, text);
    }
    return text;
}

static int fail(tsr_status status)
{
    return status == TSR_ERR_NO_MEMORY ? cli_failed("plan: %s", tsr_last_error())
                                       : cli_usage_error("plan: %s", tsr_last_error());
}

static int search_and_print(const char *path, const plan_cluster_options *o, plan_search *search)
{
    plan_candidates candidates;
    const tsr_status status = plan_search_run(search, &candidates);
    if (status != TSR_OK)
        return fail(status);
    plan_outcome outcome = {.path = path,
                            .config = tsr_model_file_config(search->file),
                            .search = search,
                            .candidates = &candidates};
    choose(&candidates, &outcome);
    if (o->json)
        plan_cluster_print_json(&outcome);
    else
        plan_cluster_print(&outcome);
    plan_candidates_free(&candidates);
    return CLI_DONE;
}

int plan_cluster_run(const char *path, const plan_cluster_options *o)
{
    char error[PLAN_CLUSTER_ERROR];
    static plan_cluster cluster; /* static, because it is too large for the stack */
    tsr_model_file *file = NULL;
    plan_search search = {.cluster = &cluster,
                          .dtype = o->dtype,
                          .cache_dtype = o->cache_dtype,
                          .context = o->context};
    plan_work *work = &search.work;
    work->pass_tokens = PASS_TOKENS;
    work->micro_batches = o->accumulate > 0 ? (int)o->accumulate : 1;
    int code = read_goal(o, &work->goal);
    if (code == CLI_DONE)
        code = check_goal(o, work->goal);
    if (code == CLI_DONE)
        code = read_wire(o->wire, &work->wire_bytes);
    const int64_t sequences = work->goal == PLAN_TRAINING ? o->batch : o->sequences;
    work->sequences = sequences > 0 ? (int)sequences : 1;
    if (code != CLI_DONE)
        return code;
    if (!plan_cluster_read(o->hosts, o->links, o->rates, &cluster, error)) {
        code = cli_usage_error("plan: %s", error);
    } else {
        const tsr_status status = tsr_model_file_open(path, &file);
        search.file = file;
        code = status == TSR_OK ? search_and_print(path, o, &search) : fail(status);
    }
    tsr_model_file_close(&file);
    plan_cluster_free(&cluster);
    return code;
}
