/* A comparison as JSON: docs/compare.schema.json describes it. */
#include <math.h>

#include "bench/compare/print.h"
#include "cli/lib/json.h"

static void add_runs(json_t *document, const char *name, const bench_runs *side)
{
    json_t *runs = cli_json_add_array(document, name);
    for (int i = 0; i < side->count; i++) {
        const bench_document *run = &side->all[i];
        json_t *object = cli_json_append_object(runs);
        cli_json_text(object, "path", run->path);
        cli_json_text(object, "time", run->time);
        cli_json_text(object, "tessera", run->tessera);
        cli_json_text(object, "cpu", run->cpu);
        cli_json_u64(object, "cpus", (uint64_t)run->cpus);
        json_t *devices = cli_json_add_array(object, "devices");
        for (int d = 0; d < run->device_count; d++) {
            json_t *device = cli_json_append_object(devices);
            cli_json_text(device, "name", run->devices[d].name);
            cli_json_text(device, "driver_info", run->devices[d].driver_info);
        }
        cli_json_add(object, "warnings", json_deep_copy(run->warnings));
    }
}

static void add_range(json_t *object, const char *name, const bench_range *range)
{
    json_t *entry = cli_json_add_object(object, name);
    cli_json_real(entry, "median", range->median);
    cli_json_real(entry, "low", range->low);
    cli_json_real(entry, "high", range->high);
}

static void add_text_or_null(json_t *object, const char *name, const char *text)
{
    if (text != NULL)
        cli_json_text(object, name, text);
    else
        cli_json_null(object, name);
}

const char *bench_verdict_name(bench_verdict verdict)
{
    static const char *const names[] = {[BENCH_NO_CHANGE] = "same",
                                        [BENCH_NOT_DECIDED] = "not_decided",
                                        [BENCH_GOT_SLOWER] = "slower",
                                        [BENCH_GOT_FASTER] = "faster"};
    return names[verdict];
}

static void add_pair(json_t *results, const bench_pair *pair, double threshold)
{
    const bench_figures *one = pair->old;
    json_t *object = cli_json_append_object(results);
    cli_json_text(object, "verdict", bench_verdict_name(bench_pair_judge(pair, threshold)));
    add_text_or_null(object, "device",
                     one->device >= 0 ? pair->old_run->devices[one->device].name : NULL);
    cli_json_text(object, "benchmark", one->benchmark);
    cli_json_bool(object, "is_ceiling", one->is_ceiling);
    cli_json_add(object, "case", json_deep_copy(one->which));
    cli_json_text(object, "unit", pair->of != NULL ? "fraction" : one->unit);
    add_text_or_null(object, "part_of", pair->of);
    cli_json_bool(object, "above_ceiling", pair->above_ceiling);
    add_range(object, "old", &pair->was);
    add_range(object, "new", &pair->is);
    cli_json_real(object, "slowdown", fmin(bench_pair_slowdown(pair), 1e300));
}

static void add_counts(json_t *document, const bench_compare_counts *seen)
{
    json_t *object = cli_json_add_object(document, "counts");
    const struct {
        const char *name;
        int count;
    } all[] = {{"compared", seen->compared},
               {"slower", seen->slower},
               {"faster", seen->faster},
               {"same", seen->same},
               {"not_decided", seen->not_decided},
               {"parts", seen->parts},
               {"ceilings_changed", seen->ceilings_changed},
               {"only_old", seen->only_old},
               {"only_new", seen->only_new},
               {"failures", seen->failures},
               {"missing", seen->missing}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cli_json_u64(object, all[i].name, (uint64_t)all[i].count);
}

static void add_failures(json_t *document, const bench_runs *new)
{
    json_t *all = cli_json_add_array(document, "failures");
    const json_t *failure;
    size_t place;
    for (int i = 0; i < new->count; i++)
        json_array_foreach(new->all[i].failures, place, failure)
        {
            json_t *object = cli_json_append_object(all);
            cli_json_text(object, "benchmark",
                          json_string_value(json_object_get(failure, "benchmark")));
            cli_json_text(object, "text", json_string_value(json_object_get(failure, "text")));
        }
}

static void add_missing(json_t *document, const bench_missing *missing, int count)
{
    json_t *all = cli_json_add_array(document, "missing");
    for (int i = 0; i < count; i++) {
        const bench_missing *one = &missing[i];
        json_t *object = cli_json_append_object(all);
        add_text_or_null(object, "device",
                         one->device >= 0 ? one->run->devices[one->device].name : NULL);
        cli_json_text(object, "benchmark", one->benchmark);
    }
}

void bench_compare_json(const bench_comparison *all, FILE *out)
{
    json_t *document = cli_json_document("tessera.bench.compare", 1);
    cli_json_real(document, "threshold", all->how->threshold);
    cli_json_bool(document, "of_ceiling", all->how->of_ceiling);
    add_runs(document, "old", all->old);
    add_runs(document, "new", all->new);
    add_counts(document, all->seen);
    json_t *results = cli_json_add_array(document, "results");
    for (int i = 0; i < all->count; i++)
        add_pair(results, &all->pairs[i], all->how->threshold);
    add_failures(document, all->new);
    add_missing(document, all->missing, all->seen->missing);
    cli_json_write(document, out);
}
