/* tessera plan --cluster: prints the best grid of a cluster's ranks for a model. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/plan.h"
#include "tessera/planner.h"

/* Grids that are printed. */
#define MOST_SHOWN 3
static const char *const places_of[MOST_SHOWN] = {"best", "second", "third"};

/* How rates are printed. The options of other programs accept them. */
#define RATE_FORMAT "%.3g"

/* The result that is printed. */
typedef struct result {
    const char *path;
    tsr_plan_goal goal;
    int64_t context_ranks;
    const tsr_cluster *cluster;
    const tsr_cluster_plan *plan;
    const cli_experts *experts; /* the option */
    tsr_cluster_plan_info info;
    int shown_count, shown[MOST_SHOWN]; /* the numbers of the grids to print, the best first */
} result;

static tsr_cluster_grid grid_at(const result *r, int number)
{
    tsr_cluster_grid grid = TSR_INIT(tsr_cluster_grid);
    /* cannot fail, because the grid exists */
    (void)!tsr_cluster_plan_get_grid(r->plan, number, &grid);
    return grid;
}

static tsr_cluster_rank_info rank_at(const result *r, int rank)
{
    tsr_cluster_rank_info info = TSR_INIT(tsr_cluster_rank_info);
    /* cannot fail, because the rank exists */
    (void)!tsr_cluster_get_rank(r->cluster, rank, &info);
    return info;
}

static tsr_cluster_host_info host_at(const result *r, int host)
{
    tsr_cluster_host_info info = TSR_INIT(tsr_cluster_host_info);
    /* cannot fail, because the host exists */
    (void)!tsr_cluster_get_host(r->cluster, host, &info);
    return info;
}

static const char *host_of_rank(const result *r, int rank)
{
    return host_at(r, rank_at(r, rank).host).name;
}

/* Reasons -------------------------------------------------------------------------------------- */

#define REASON_TEXT 256

/* Writes why a grid is slower than the best. Its time consists of computing, three kinds of
 * messages, and waiting; the reason is the one that exceeds that of the best grid most. */
static void compare_times(const tsr_cluster_grid *best, const tsr_cluster_grid *slower,
                          char text[REASON_TEXT])
{
    const struct {
        const char *name;
        double best, slower;
    } times[] = {
        {"computing", best->compute_seconds, slower->compute_seconds},
        {"tensor-parallel messages", best->tensor_seconds, slower->tensor_seconds},
        {"data-parallel messages", best->data_seconds, slower->data_seconds},
        {"messages between stages", best->stage_seconds, slower->stage_seconds},
        {"waiting for other stages", best->idle_seconds, slower->idle_seconds},
    };
    size_t worst = 0;
    char its_time[CLI_NUMBER_TEXT], best_time[CLI_NUMBER_TEXT];
    for (size_t i = 1; i < sizeof times / sizeof *times; i++)
        if (times[i].slower - times[i].best > times[worst].slower - times[worst].best)
            worst = i;
    snprintf(text, REASON_TEXT, "%.2f times as long: %s %s, the best %s",
             slower->seconds / best->seconds, times[worst].name,
             cli_duration(1e9 * times[worst].slower, its_time),
             times[worst].best > 0 ? cli_duration(1e9 * times[worst].best, best_time) : "none");
}

/* Writes why a grid is not the best. Returns `text`. */
static char *reason_of(const result *r, const tsr_cluster_grid *grid, char text[REASON_TEXT])
{
    if (grid->missing_bytes > 0) {
        const int rank = grid->ranks[grid->missing_place];
        char missing[CLI_BYTES_TEXT];
        snprintf(text, REASON_TEXT, "does not fit: rank %d on %s lacks %s", rank,
                 host_of_rank(r, rank), cli_bytes(grid->missing_bytes, missing));
    } else if (!grid->predicted) {
        snprintf(text, REASON_TEXT, "its time is not predicted");
    } else {
        const tsr_cluster_grid best = grid_at(r, r->info.best);
        compare_times(&best, grid, text);
    }
    return text;
}

/* Text ----------------------------------------------------------------------------------------- */

static const char *unit_of_goal(tsr_plan_goal goal)
{
    static const char *const units[] = {"a token", "a pass", "a step"};
    return units[goal];
}

/* Writes the hosts and the ranks that a grid uses, as in "left 0-1, right 2". */
static char *format_places(const result *r, const tsr_cluster_grid *grid, size_t size, char *text)
{
    size_t used = 0;
    for (int i = 0; i < grid->rank_count && used < size;) {
        int last = i;
        const int host = rank_at(r, grid->ranks[i]).host;
        while (last + 1 < grid->rank_count && rank_at(r, grid->ranks[last + 1]).host == host)
            last++;
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%s %d-%d" : "%s%s %d",
                                 i > 0 ? ", " : "", host_at(r, host).name, grid->ranks[i],
                                 grid->ranks[last]);
        i = last + 1;
    }
    return text;
}

static uint64_t most_memory(const tsr_cluster_grid *grid)
{
    uint64_t most = 0;
    for (int i = 0; i < grid->rank_count; i++)
        most = grid->memory_bytes[i] > most ? grid->memory_bytes[i] : most;
    return most;
}

static void add_time(cli_table *table, double seconds)
{
    char text[CLI_NUMBER_TEXT];
    /* Differences of equal times may be a rounding error. */
    cli_table_cell(table, "%s", seconds > 1e-12 ? cli_duration(1e9 * seconds, text) : "-");
}

/* Adds the predicted times, or "?" if they cannot be predicted. */
static void add_times(cli_table *table, const tsr_cluster_grid *grid)
{
    char text[CLI_NUMBER_TEXT];
    if (!grid->predicted) {
        for (int i = 0; i < 5; i++)
            cli_table_cell(table, "?");
        return;
    }
    add_time(table, grid->seconds);
    cli_table_cell(table, "%s", cli_number(grid->tokens_per_second, text));
    add_time(table, grid->compute_seconds);
    add_time(table, grid->tensor_seconds + grid->data_seconds + grid->stage_seconds);
    add_time(table, grid->idle_seconds);
}

static void print_grids(const result *r)
{
    cli_table *table = cli_table_create();
    static const char *const headings[] = {"data", "context", "tensor", "stages"};
    for (int i = 0; i < 4; i++)
        if (i != 1 || r->context_ranks > 1)
            cli_table_column(table, headings[i], CLI_RIGHT);
    cli_table_column(table, "ranks", CLI_LEFT);
    cli_table_column(table, unit_of_goal(r->goal), CLI_RIGHT);
    cli_table_column(table, "tokens/s", CLI_RIGHT);
    cli_table_column(table, "computing", CLI_RIGHT);
    cli_table_column(table, "messages", CLI_RIGHT);
    cli_table_column(table, "waiting", CLI_RIGHT);
    cli_table_column(table, "memory", CLI_RIGHT);
    for (int i = 0; i < r->shown_count; i++) {
        const tsr_cluster_grid grid = grid_at(r, r->shown[i]);
        char text[512];
        cli_table_cell(table, "%d%s", grid.data, grid.sharded ? " (sharded)" : "");
        if (r->context_ranks > 1)
            cli_table_cell(table, "%d", grid.context_ranks);
        cli_table_cell(table, "%d", grid.tensor);
        cli_table_cell(table, "%d", grid.stages);
        cli_table_cell(table, "%s", format_places(r, &grid, sizeof text, text));
        add_times(table, &grid);
        cli_table_cell(table, "%s", cli_bytes(most_memory(&grid), text));
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

/* Prints which predictions may differ from measurements by more than 25 %, and why. */
static void print_trust(const result *r)
{
    for (int i = 0; i < r->shown_count; i++) {
        const tsr_cluster_grid grid = grid_at(r, r->shown[i]);
        const int ranks = grid.shared_ranks;
        if (grid.shared_host < 0)
            continue;
        const tsr_cluster_host_info host = host_at(r, grid.shared_host);
        if (!grid.predicted)
            cli_line(stdout,
                     "%s: not predicted, because %s has %g of a processor for %d rank%s and "
                     "shares it with other hosts",
                     places_of[i], host.name, host.processors, ranks, ranks == 1 ? "" : "s");
        else
            cli_line(stdout,
                     "%s: %d ranks share %g processor%s of %s; the prediction may be a third too "
                     "low",
                     places_of[i], ranks, host.processors, host.processors == 1 ? "" : "s",
                     host.name);
    }
}

static void print_ranks(const result *r)
{
    const tsr_cluster_grid grid = grid_at(r, r->info.best);
    cli_table *table = cli_table_create();
    cli_table_column(table, "rank", CLI_RIGHT);
    cli_table_column(table, "host", CLI_LEFT);
    cli_table_column(table, "stage", CLI_RIGHT);
    cli_table_column(table, "layers", CLI_RIGHT);
    cli_table_column(table, "memory", CLI_RIGHT);
    cli_table_column(table, "of", CLI_RIGHT);
    for (int i = 0; i < grid.rank_count; i++) {
        const uint64_t limit = rank_at(r, grid.ranks[i]).memory_bytes;
        const int stage = i / (grid.rank_count / grid.stages);
        char text[CLI_BYTES_TEXT];
        cli_table_cell(table, "%d", grid.ranks[i]);
        cli_table_cell(table, "%s", host_of_rank(r, grid.ranks[i]));
        cli_table_cell(table, "%d", stage);
        cli_table_cell(table, "%d", grid.layers[stage]);
        cli_table_cell(table, "%s", cli_bytes(grid.memory_bytes[i], text));
        cli_table_cell(table, "%s", limit > 0 ? cli_bytes(limit, text) : "-");
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

#define OPTIONS_TEXT 4096

static void append(char text[OPTIONS_TEXT], const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, OPTIONS_TEXT - used, format, values);
    va_end(values);
}

/* Appends the option that divides experts like this: as the user wants, or mixed if the plan has
 * chosen that. */
static void append_experts(const result *r, const tsr_cluster_grid *grid, char text[OPTIONS_TEXT])
{
    const bool named = r->experts->division != TSR_EXPERT_DIVISION_AUTO ||
                       grid->expert_division == TSR_EXPERT_DIVISION_MIXED;
    const char *name = cli_expert_division_name(grid->expert_division);
    const bool divided =
        named && grid->tensor > 1 && grid->expert_division != TSR_EXPERT_DIVISION_AUTO;
    if (divided || r->experts->host > 0)
        append(text, " --experts %s%s", divided ? name : "",
               divided && r->experts->host > 0 ? "," : "");
    if (r->experts->host == INT_MAX)
        append(text, "host");
    else if (r->experts->host > 0)
        append(text, "host:%d", r->experts->host);
}

/* Writes the options with which programs divide the model like this, if any are needed: those of
 * tessera generate, chat and bench model, and for training those of tessera train. */
static char *format_options(const result *r, const tsr_cluster_grid *grid, char text[OPTIONS_TEXT])
{
    const bool training = r->goal == TSR_PLAN_TRAINING;
    text[0] = '\0';
    if (training && grid->data > 1)
        append(text, " --data-parallel %d", grid->data);
    if (training && grid->sharded)
        append(text, " --fsdp");
    if (grid->context_ranks > 1)
        append(text, " --context-parallel %d", grid->context_ranks);
    if (grid->stages > 1) {
        append(text, " --stages %d --stage-layers", grid->stages);
        for (int s = 0; s < grid->stages; s++)
            append(text, "%s%d", s > 0 ? "," : " ", grid->layers[s]);
    }
    /* In a training, all copies of the model and all stages are divided alike. */
    const int count = training ? grid->stages * grid->tensor : grid->rank_count;
    if (grid->by_rates)
        append(text, " --rates");
    for (int i = 0; grid->by_rates && i < count; i++)
        append(text, "%s" RATE_FORMAT, i > 0 ? "," : " ",
               training ? grid->shares[i % grid->tensor] : grid->rates[i]);
    append_experts(r, grid, text);
    return text[0] == ' ' ? text + 1 : text;
}

/* Prints the best grid with its ranks, and the options for it. */
static void print_best(const result *r)
{
    char text[OPTIONS_TEXT];
    const tsr_cluster_grid best = grid_at(r, r->info.best);
    puts(r->shown_count > 1 ? "\nthe best:" : "the best:");
    print_ranks(r);
    if (best.expert_division != TSR_EXPERT_DIVISION_AUTO && best.tensor > 1)
        cli_line(stdout, "\nexperts are divided: %s%s",
                 cli_expert_division_name(best.expert_division),
                 r->experts->division == TSR_EXPERT_DIVISION_AUTO ? " (chosen)" : "");
    const char *options = format_options(r, &best, text);
    if (options[0])
        cli_line(stdout, "\noptions of %s: %s",
                 r->goal == TSR_PLAN_TRAINING ? "tessera train" : "tessera generate", options);
}

static void print_text(const result *r)
{
    const int hosts = tsr_cluster_host_count(r->cluster),
              ranks = tsr_cluster_rank_count(r->cluster), best = r->info.best;
    cli_print(stdout, "%s: %s, %d layer%s, on %d host%s with %d rank%s\n\n", r->path,
              r->info.architecture, r->info.layers, CLI_PLURAL(r->info.layers), hosts,
              CLI_PLURAL(hosts), ranks, CLI_PLURAL(ranks));
    print_grids(r);
    puts("");
    if (best < 0)
        puts("no grid fits");
    for (int i = best < 0 ? 0 : 1; i < r->shown_count; i++) {
        const tsr_cluster_grid grid = grid_at(r, r->shown[i]);
        char text[REASON_TEXT];
        if (grid.missing_bytes > 0 || grid.predicted)
            cli_line(stdout, "%s: %s", places_of[i], reason_of(r, &grid, text));
    }
    print_trust(r);
    if (best >= 0)
        print_best(r);
}

/* JSON ----------------------------------------------------------------------------------------- */

static void add_seconds(json_t *object, const tsr_cluster_grid *grid)
{
    const struct {
        const char *name;
        double value;
    } members[] = {{"seconds", grid->seconds},
                   {"compute_seconds", grid->compute_seconds},
                   {"tensor_message_seconds", grid->tensor_seconds},
                   {"data_message_seconds", grid->data_seconds},
                   {"stage_message_seconds", grid->stage_seconds},
                   {"idle_seconds", grid->idle_seconds},
                   {"tokens_per_second", grid->tokens_per_second}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (grid->predicted)
            cli_json_real(object, members[i].name, members[i].value);
        else
            cli_json_null(object, members[i].name);
}

static void add_grid(json_t *list, const result *r, int number)
{
    const tsr_cluster_grid grid = grid_at(r, number);
    json_t *object = cli_json_append_object(list);
    cli_json_u64(object, "data", (uint64_t)grid.data);
    cli_json_u64(object, "context", (uint64_t)grid.context_ranks);
    cli_json_u64(object, "tensor", (uint64_t)grid.tensor);
    cli_json_u64(object, "stages", (uint64_t)grid.stages);
    cli_json_bool(object, "sharded", grid.sharded);
    cli_json_bool(object, "by_rates", grid.by_rates);
    if (grid.expert_division != TSR_EXPERT_DIVISION_AUTO)
        cli_json_text(object, "expert_division", cli_expert_division_name(grid.expert_division));
    add_seconds(object, &grid);
    cli_json_bool(object, "processors_are_shared", grid.shared_host >= 0);
    json_t *layers = cli_json_add_array(object, "layers");
    for (int s = 0; s < grid.stages; s++)
        cli_json_append(layers, json_integer(grid.layers[s]));
    json_t *ranks = cli_json_add_array(object, "ranks");
    for (int i = 0; i < grid.rank_count; i++) {
        json_t *rank = cli_json_append_object(ranks);
        cli_json_u64(rank, "rank", (uint64_t)grid.ranks[i]);
        cli_json_text(rank, "host", host_of_rank(r, grid.ranks[i]));
        cli_json_u64(rank, "memory_bytes", grid.memory_bytes[i]);
    }
    char options[OPTIONS_TEXT];
    cli_json_text(object, "options", format_options(r, &grid, options));
    cli_json_bool(object, "fits", grid.missing_bytes == 0);
    cli_json_bool(object, "best", number == r->info.best);
    if (number != r->info.best && (grid.missing_bytes > 0 || r->info.best >= 0)) {
        char text[REASON_TEXT];
        cli_json_text(object, "why_not", reason_of(r, &grid, text));
    }
}

static void print_json(const result *r)
{
    static const char *const goals[] = {"generation", "prompt", "training"};
    json_t *document = cli_json_document("tessera.plan.cluster", 1);
    cli_json_text(document, "model", r->path);
    cli_json_text(document, "architecture", r->info.architecture);
    cli_json_u64(document, "layers", (uint64_t)r->info.layers);
    cli_json_text(document, "goal", goals[r->goal]);
    cli_json_bool(document, "fits", r->info.best >= 0);
    json_t *list = cli_json_add_array(document, "candidates");
    for (int i = 0; i < r->info.grids; i++)
        add_grid(list, r, i);
    cli_json_print(document);
}

/* Options -------------------------------------------------------------------------------------- */

static int read_goal(const plan_options *o, tsr_plan_goal *out)
{
    static const char *const names[] = {"generation", "prompt", "training"};
    for (int i = 0; i < 3; i++)
        if (!o->goal ? i == 0 : strcmp(o->goal, names[i]) == 0) {
            *out = (tsr_plan_goal)i;
            return CLI_DONE;
        }
    return cli_usage_error("plan: --goal takes generation, prompt or training, not '%s'", o->goal);
}

/* Fails if an option was given that the goal does not use. */
static int check_goal(const plan_options *o, tsr_plan_goal goal)
{
    const struct {
        bool given, used;
        const char *name;
    } all[] = {{o->batch > 0, goal == TSR_PLAN_TRAINING, "batch"},
               {o->context_ranks > 0, goal == TSR_PLAN_TRAINING, "context-parallel"},
               {o->accumulate > 0, goal == TSR_PLAN_TRAINING, "accumulate"},
               {o->sequences > 0, goal == TSR_PLAN_GENERATION, "sequences"},
               {o->experts.given, goal != TSR_PLAN_TRAINING, "experts"},
               {o->dtype != 0, goal != TSR_PLAN_TRAINING, "dtype"},
               {o->cache_dtype != 0, goal != TSR_PLAN_TRAINING, "cache-dtype"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !all[i].used)
            return cli_usage_error("plan: --goal %s does not take --%s",
                                   o->goal ? o->goal : "generation", all[i].name);
    return CLI_DONE;
}

static int check_wire(tsr_dtype wire)
{
    const bool possible =
        wire == 0 || wire == TSR_F32 || wire == TSR_F16 || wire == TSR_BF16 || wire == TSR_Q8_0;
    return possible ? CLI_DONE
                    : cli_usage_error("plan: --wire takes f32, f16, bf16 or q8_0, not '%s'",
                                      tsr_dtype_name(wire));
}

/* Fails if an option was given that clusters do not take: the description replaces it. */
static int check_options(const plan_options *o)
{
    const plan_given all[] = {{o->strategy != NULL, "strategy"},
                              {o->ranks > 0, "ranks"},
                              {o->rates.count > 0, "rates"},
                              {o->memory.count > 0, "memory"},
                              {o->bandwidth.count > 0, "bandwidth"},
                              {o->gflops.count > 0, "gflops"},
                              {o->latency_us >= 0, "latency"},
                              {o->stages > 0, "stages"},
                              {o->layers.count > 0, "stage-layers"},
                              {o->host_bandwidth.count > 0, "host-bandwidth"},
                              {o->draft.from != TSR_DRAFT_NONE, "draft"},
                              {0}};
    const int code = plan_refuse_sharding("--cluster", o);
    if (code == CLI_DONE && o->experts.hosts > 0)
        return cli_usage_error("plan: --experts %s:%d: the hosts are those of --cluster",
                               cli_expert_division_name(o->experts.division), o->experts.hosts);
    return code == CLI_DONE ? plan_refuse("--cluster", all) : code;
}

/* Running -------------------------------------------------------------------------------------- */

/* Chooses the grids to print: the fastest that fits into memory, and the two fastest of all others.
 * If no grid fits, the three fastest. */
static void choose_shown(result *r)
{
    if (r->info.best >= 0)
        r->shown[r->shown_count++] = r->info.best;
    for (int i = 0; i < r->info.grids && r->shown_count < MOST_SHOWN; i++)
        if (i != r->info.best)
            r->shown[r->shown_count++] = i;
}

static tsr_status plan_and_print(result *r, const tsr_model_file *file, const plan_options *o)
{
    const bool training = r->goal == TSR_PLAN_TRAINING;
    tsr_cluster_plan *plan = NULL;
    tsr_status status = tsr_cluster_plan_create(
        r->cluster, file,
        tsr_cluster_plan_params(.goal = r->goal, .context = o->context,
                                .sequences = (int)(training ? o->batch : o->sequences),
                                .micro_batches = (int)o->accumulate,
                                .context_ranks = (int)o->context_ranks, .dtype = o->dtype,
                                .cache_dtype = o->cache_dtype, .wire = o->wire,
                                .expert_division = o->experts.division,
                                .host_experts = o->experts.host),
        &plan);
    if (status == TSR_OK)
        status = tsr_cluster_plan_get_info(plan, &r->info);
    if (status == TSR_OK) {
        r->plan = plan;
        choose_shown(r);
        if (o->json)
            print_json(r);
        else
            print_text(r);
    }
    tsr_cluster_plan_destroy(&plan);
    return status;
}

int plan_on_cluster(const char *path, const plan_options *o)
{
    result r = {.path = path,
                .context_ranks = o->context_ranks,
                .experts = &o->experts,
                .info = TSR_INIT(tsr_cluster_plan_info)};
    tsr_cluster *cluster = NULL;
    tsr_model_file *file = NULL;
    int code = check_options(o);
    if (code == CLI_DONE)
        code = read_goal(o, &r.goal);
    if (code == CLI_DONE)
        code = check_goal(o, r.goal);
    if (code == CLI_DONE)
        code = check_wire(o->wire);
    if (code != CLI_DONE)
        return code;
    tsr_status status = tsr_cluster_create(
        tsr_cluster_params(.description = o->hosts, .links = o->links, .rates = o->rank_rates),
        &cluster);
    if (status == TSR_OK)
        status = tsr_model_file_open(path, &file);
    if (status == TSR_OK) {
        r.cluster = cluster;
        status = plan_and_print(&r, file, o);
    }
    tsr_model_file_close(&file);
    tsr_cluster_destroy(&cluster);
    if (status == TSR_OK)
        return CLI_DONE;
    return cli_failed_in("plan", tsr_last_error());
}
